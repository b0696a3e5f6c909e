"""Evaluate policies: run them under many seeds and return a row of results for each run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fl_edge_env import Scenario
from policies.base import Policy

if TYPE_CHECKING:
    import pandas as pd

    from policies.benchmark.run import EnvFactory


def evaluate(
    policies: Sequence[Policy],
    scenario: Scenario,
    seeds: Sequence[int],
    *,
    make_env: EnvFactory | None = None,
    target_accuracy: float | None = None,
    gaps: bool = True,
    workers: int = 1,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Run policies under the same seeds and return a row of results for each run.

    With the same seed every policy meets the same channel (common random numbers). The policies
    themselves play, each run after a `reset`, and nothing is kept for a later call.

    Parameters
    ----------
    policies : sequence of Policy
        Policies with distinct names, made for this scenario.
    scenario : Scenario
        The system.
    seeds : sequence of int
        Seeds of the runs.
    make_env : callable, optional
        Makes the training environment of a policy, such as `train_fl.TrainingEnvFactory`. Without
        it no models are trained, and all seeds of a policy run as one batch.
    target_accuracy : float, optional
        Test accuracy in (0, 1]. With training, `time_to_target` is the time at which it is first
        reached.
    gaps : bool
        Whether to compute `gap`, `outcome_gap` and `accuracy_gap`, which solves P2 and the outcome
        problem for each round of each seed.
    workers : int
        Number of processes. With more, policies are pickled, and libraries may use fewer threads,
        which can change the last digits of a policy with large matrices.
    progress : bool, optional
        Whether to show a progress bar on standard error while policies run. By default it is shown
        on terminals. Notebooks never show it.

    Returns
    -------
    pandas.DataFrame
        A row for each policy and seed; see `policies.benchmark.summary.summarise` for the columns.

    Raises
    ------
    ValueError
        If an argument is wrong.
    RunsFailedError
        If a run failed, after all others have finished.
    WorkerKilledError
        If the operating system killed a worker process.
    """
    # Imported here, because policies alone do not need these slow imports.
    from rich.console import Console

    from policies.benchmark.comparison import compare_settings
    from policies.benchmark.run import Run
    from policies.benchmark.setting import Setting
    from policies.solvers.waits import console_options

    if isinstance(policies, Policy):
        raise ValueError(f"policies must be a sequence, got {policies.name}: use [policy]")
    wrong = [policy for policy in policies if not isinstance(policy, Policy)]
    if wrong:
        raise ValueError(f"policies must be instances of Policy, got {wrong[0]!r}: see make_policy")
    system = copy.deepcopy(scenario)  # which no policy can change
    runs = tuple(Run(policy.name, policy, system, make_env=make_env) for policy in policies)
    setting = Setting("", runs, seeds, bounded=gaps, target=target_accuracy)
    console = Console(stderr=True, **{"force_terminal": progress} | console_options())
    (comparison,) = compare_settings([setting], None, console, workers=workers)
    return comparison.summary

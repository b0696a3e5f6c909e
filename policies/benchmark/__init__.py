"""Measuring policies: runs, accounts, bounds, statistics, tables, figures and options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load"]


def load(folder: str | Path, *, rounds: bool = False) -> pd.DataFrame:
    """The runs in a results folder of ``fl-edge compare`` or ``leaderboard``, a row each.

    Nothing is run, whoever made the folder: its CSV files alone are read.

    Parameters
    ----------
    folder : str or Path
        A folder with the results of a command that has finished.
    rounds : bool
        Whether to give a row for each round of each run, which ``compare`` keeps.

    Returns
    -------
    pandas.DataFrame
        A row for each setting, policy and seed, or with `rounds` for each round of these. What is
        not defined for a run, or not measured in a round, is NaN.

        - `setting`: the name of a leaderboard's setting, or the scenario
        - `policy`, `seed`: the name in the tables, and the seed of the run

        The outcome, with training but for `total_time`:

        - `total_time`: length of the run [s]
        - `time_to_target`: when the target is first reached [s]
        - `final_accuracy`: on the test set after the last round
        - `mean_device_accuracy`, `worst_tenth_accuracy`: the same on test data with the classes
          mixed as in a device's own data, mean over all devices and over the worst tenth

        The constraints:

        - `status`, `status_reason`: of the policy, the same in all its runs; the reason is empty
          where it is ok
        - `spent_ratio`, `worst_spent_ratio`: energy really spent over the budget, mean over devices
          and of the worst one
        - `energy_ratio`, `worst_energy_ratio`: the same of the expected energy
        - `influence`: mean weight of a device in the aggregate over its share of the data, of the
          device with the least
        - `aggregate_noise`: mean of the sum of squared weights of a round's aggregate
        - `least_participation`: participations of a device over those that its data ask for, of the
          device with the fewest
        - `never_seen`: number of devices that never took part

        The distances and objectives:

        - `gap`: priced objective above the bound for policies that sample, relative
        - `outcome_gap`: priced outcome above the bound for every policy, relative
        - `mean_objective`: time average of the penalty [s]
        - `mean_reward`: mean reward of a round
        - `sampling_error`: mean sampling error of a round

        With `rounds`, of the round:

        - `round`: its number, from 1
        - `round_time`: how long it took [s]
        - `latency`: latency as the objective counts it [s]
        - `sampling_error`, `penalty` [s], `reward`: what the objective counts besides
        - `energy_ratio`, `spent_ratio`: expected energy and energy really spent over the budget,
          mean over devices
        - `aggregate_noise`: sum of squared weights of the aggregate
        - `mean_queue`, `max_queue`: energy queues after it, mean and largest [J]
        - `priced_objective`: penalty and priced energy beyond the budget [s]
        - `priced_outcome`: cost to a user at the prices of the bound [s]
        - `train_loss`: mean loss of the participants in training
        - `test_loss`, `test_accuracy`, `mean_device_accuracy`, `worst_tenth_accuracy`: of the model
          after it, where it was evaluated

        and until then: `elapsed_time` [s], `worst_energy_ratio`, `worst_spent_ratio`, `influence`,
        `least_participation`, `never_seen`, and `over_budget`, the share of devices whose expected
        energy is above the budget.

    Raises
    ------
    ValueError
        If there is no such folder, it holds no results or those of another command, the command has
        not finished, or a file is damaged.

    Examples
    --------
    >>> runs = load("runs/digits")  # doctest: +SKIP
    >>> runs.groupby("policy")["total_time"].mean()  # doctest: +SKIP
    """
    from policies.benchmark.results_folder import read_runs  # which takes longer to import

    return read_runs(Path(folder), rounds=rounds)

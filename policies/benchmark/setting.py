"""A setting: policies under common seeds, checked before they run."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fl_edge_env import Scenario
from fl_edge_env.checks import PROBABILITY, is_integer, is_line, is_real, number_in
from policies.base import without_future
from policies.benchmark.bounds import find_prices
from policies.benchmark.run import BoundRun, Run, differences
from policies.benchmark.stored import own_code
from policies.check_policy import beyond_seeds

# Most numbers in an array of a batch, which has one for each seed and device.
_BATCH_NUMBERS = 1 << 20
# In which a policy's decisions are compared: more than most need to warm up.
_ROUNDS = 50


@dataclass(frozen=True)
class Setting:
    """Policies that run under the same seeds, and so with the same channels.

    Raises
    ------
    ValueError
        If labels or seeds repeat or are missing, or a policy cannot run in its system.
    """

    name: str
    runs: tuple[Run, ...]  # a policy and its system each, without seeds
    seeds: Sequence[int]
    # Whether the bounds of the first run's system are computed. Its prices rank all runs.
    bounded: bool = True
    target: float | None = None  # test accuracy
    left_out: Mapping[str, str] = field(default_factory=dict)  # labels and reasons

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("policies must be one or more, got none")
        labels = [*(run.label for run in self.runs), *self.left_out]
        for label in labels:
            if not is_line(label):
                raise ValueError(
                    "the name of a policy must be a text of one line, without spaces around it, "
                    f"got {label!r}"
                )
            if labels.count(label) > 1:
                raise ValueError(
                    f"{label!r} occurs twice among the policies, but names must be distinct: give "
                    "one a different attribute `name`, or a different label"
                )
        vars(self)["seeds"] = _seeds(self.seeds)
        if is_real(self.target) and 1 < self.target <= 100:
            raise ValueError(
                f"target_accuracy must lie in (0, 1], got {self.target!r}: {self.target:g} % "
                f"is {self.target / 100:g}"
            )
        if self.target is not None:
            number_in(PROBABILITY, "target_accuracy", self.target)
        for run in self.runs:
            _check_system(run)
        # Others are checked before they are played: to make one can take a second.
        makers = {id(run.make_env): run for run in self.runs if run.trains}
        for run in makers.values():
            run.new_env(run.policy).close()

    @property
    def scenario(self) -> Scenario:
        """The system of the first run."""
        return self.runs[0].scenario

    def seeded_runs(self) -> tuple[list[Run], list[BoundRun]]:
        """Give the runs their seeds, and make the runs of the bounds with their prices.

        With training, a policy has a run for each seed; without, a run takes as many seeds as fit
        into memory.
        """
        prices = find_prices(self.scenario, bounded=self.bounded)
        runs = []
        for run in self.runs:
            # The bounds do not depend on V.
            same = not differences(run.scenario, self.scenario, ("V", "nu"))
            own = prices if same else prices._replace(energy=None)
            priced = replace(run, prices=own, setting=self.name)
            size = 1 if run.trains else max(1, _BATCH_NUMBERS // run.scenario.num_devices)
            runs += [
                replace(priced, seeds=tuple(self.seeds[start : start + size]))
                for start in range(0, len(self.seeds), size)
            ]
        bounded = self.seeds if self.bounded else ()
        return runs, [BoundRun(self.scenario, seed, prices) for seed in bounded]

    def warn_beyond_seeds(self) -> None:
        """Warn of the user's policies that seeds do not determine, without training.

        Plays them in this process, where their modules may keep values: so after all runs.
        """
        for policy in [run.policy for run in self.runs if not run.trains]:
            why = ""
            with suppress(Exception, SystemExit), chdir("."):  # the runs have shown these
                why = beyond_seeds(policy, _ROUNDS) if own_code(policy) else ""
            if why:
                warnings.warn(
                    f"{policy.name} may give different results for the same seed: it {why}",
                    RuntimeWarning,
                    stacklevel=3,
                )


def _seeds(seeds: object) -> list[int]:
    """`seeds` as a list; `ValueError` unless they are distinct integers of at least zero."""
    if is_integer(seeds):
        raise ValueError(f"seeds must be a sequence, got {seeds!r}: use range({seeds!r}) or [...]")
    given: list[Any] = list(seeds) if isinstance(seeds, Iterable) else [seeds]
    whole = all(is_integer(seed) and 0 <= seed < 2**63 for seed in given)
    if not whole or not 0 < len(given) == len(set(given)):
        raise ValueError(f"seeds must be one or more distinct integers from 0 to 2^63, got {given}")
    return [int(seed) for seed in given]


# Fields in which a policy's scenario may differ from the system it runs in: the weights of its
# objective, and the number of rounds.
_OWN_FIELDS = ("mu", "nu", "lambda_", "V", "num_rounds")


def _check_system(run: Run) -> None:
    """Raise `ValueError` for a policy that cannot run in a system or was made for another."""
    policy = run.policy
    if not run.trains and policy.needs_training:
        raise ValueError(
            f"{policy.name} needs reports of training, but no models are trained here: "
            "leave it out, or run with training"
        )
    own = without_future(getattr(policy, "scenario", run.scenario))
    other = differences(own, without_future(run.scenario), _OWN_FIELDS)
    if other:
        raise ValueError(
            f"the policy {policy.name} was made for a scenario with different {', '.join(other)}: "
            "make it with the scenario in which it runs"
        )

"""A search for the setting that is the first at its target, by Optuna.

A point is a value for each option. It is judged first, and then played under one seed after the
other, as long as it may still be the best. What is asked for depends on results alone, not on who
computes them or when: a search that begins again goes through the same points.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from policies.benchmark.status import OK, DeviceAccounts, Status, joined, judge

if TYPE_CHECKING:
    from optuna import Study
    from optuna import Trial as Asked
    from optuna.distributions import BaseDistribution

Value: TypeAlias = str | float
Point: TypeAlias = tuple[Value, ...]

# A point does nearly as well as the best if its time is at most so many times the best one, and is
# behind if it is more than so many times that of the best on the same seeds.
NEARLY, BEHIND = 1.1, 2.0

# Points asked for at a time, which are played side by side, and those before Optuna has a model.
_GENERATION, _STARTUP = 8, 24
# Optuna may ask for a known point so often before another is drawn in its place.
_ASKS = 10


class Run(NamedTuple):
    """A run: the simulated time to the target, or to its end where it was not reached [s]."""

    time: float
    reached: bool
    devices: DeviceAccounts | None = None


@dataclass
class Tried:
    """A point, its status, which may depend on its runs, and these, one for each seed so far."""

    point: Point
    status: Status | None = None
    runs: list[Run] = field(default_factory=list)
    complete: bool = False  # it has reached the target under all seeds

    @property
    def ok(self) -> bool:
        """True if it keeps to the constraints."""
        return self.status is not None and self.status.name == OK

    @property
    def time(self) -> float:
        """Mean time of its runs, infinite without any [s]; if it is not complete, at least so."""
        return float(np.mean([run.time for run in self.runs])) if self.runs else math.inf


class System(Protocol):
    """What is searched: it judges points and plays them."""

    def check(self, points: Sequence[Point]) -> list[Status | None]:
        """The status of each, None where its runs must tell."""
        ...

    def play(self, runs: Sequence[tuple[Point, int, float]]) -> list[Run]:
        """A run for each point, number of the seed and longest time [s]."""
        ...


def search(
    choices: Mapping[str, Sequence[Value]],
    starts: Sequence[Point],
    system: System,
    *,
    trials: int,
    seeds: int,
    sampler_seed: int = 0,
    on_generation: Callable[[list[Tried]], None] = lambda _: None,
) -> list[Tried]:
    """Try as many points, or all where there are fewer, and give them in order.

    The values of a point are in the order of `choices`. Those of the first option, the policies,
    have no order; those of the others go from one end to the other. The points of `starts` are
    tried first: the first alone, so that others can be compared with it.

    A point that is not ok is not played. Another is played until it reaches the target, but not on
    where its time under the seeds so far is more than `BEHIND` times that of the best point under
    them, or so long that its mean over all seeds cannot be within `NEARLY` of the best. The best
    point is the complete one of the least mean time when its generation was asked for.
    """
    with _quiet():
        study, distributions = _study(sampler_seed), _distributions(choices)
        rng = np.random.default_rng(sampler_seed)
        for start in starts:
            study.enqueue_trial(_parameters(start, choices))
        tried: dict[Point, Tried] = {}
        limit = min(trials, math.prod(map(len, choices.values())))
        while len(tried) < limit:
            number = min(_GENERATION, limit - len(tried)) if tried else 1
            leader = best(list(tried.values()))
            asked: list[tuple[Asked, Tried]] = []
            for _ in range(number):
                trial, point = _ask(study, distributions, choices, tried, rng)
                tried[point] = Tried(point)
                asked.append((trial, tried[point]))
            generation = [one for _, one in asked]
            for one, status in zip(
                generation, system.check(list(map(_point, generation))), strict=True
            ):
                one.status = status
            _play(generation, leader, system, seeds)
            for trial, one in asked:
                _tell(study, trial, one)
            on_generation(list(tried.values()))
    return list(tried.values())


def best(tried: Sequence[Tried]) -> Tried | None:
    """The complete one of the least mean time, if there is one; of equal ones the first."""
    complete = ranked(tried)
    return complete[0] if complete else None


def ranked(tried: Sequence[Tried]) -> list[Tried]:
    """The complete ones that are ok, by their time."""
    return sorted((one for one in tried if one.complete), key=lambda one: one.time)


def nearly_as_good(tried: Sequence[Tried]) -> list[Tried]:
    """Those within `NEARLY` of the best, which comes first."""
    complete = ranked(tried)
    return [one for one in complete if one.time <= NEARLY * complete[0].time]


def _point(one: Tried) -> Point:
    return one.point


def _play(generation: list[Tried], leader: Tried | None, system: System, seeds: int) -> None:
    """Play the points under one seed after the other, while they may be the best."""
    left = [one for one in generation if one.status is None or one.ok]
    for seed in range(seeds):
        longest = {one.point: _longest(one, leader) for one in left}
        left = [one for one in left if longest[one.point] > 0]
        runs = system.play([(one.point, seed, longest[one.point]) for one in left])
        for one, run in zip(left, runs, strict=True):
            one.runs.append(run)
        left = [one for one in left if one.runs[-1].reached]
    for one in generation:
        accounts = [run.devices for run in one.runs if run.devices is not None]
        if one.status is None and accounts:
            one.status = judge(joined(accounts))
    for one in left:
        one.complete = one.ok


def _longest(one: Tried, leader: Tried | None) -> float:
    """How long the next run of a point may take until it is out [s]."""
    if leader is None:
        return math.inf
    times = [run.time for run in leader.runs]
    allowed = min(BEHIND * sum(times[: len(one.runs) + 1]), NEARLY * sum(times))
    return allowed - sum(run.time for run in one.runs)


def check_optuna() -> None:
    """Raise `ModuleNotFoundError` where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise ModuleNotFoundError("No module named 'optuna'", name="optuna")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's messages for each trial, and what it says of options that may change."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _study(seed: int) -> Study:
    import optuna

    sampler = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=_STARTUP, multivariate=True, constant_liar=True
    )
    return optuna.create_study(sampler=sampler)


def _distributions(choices: Mapping[str, Sequence[Value]]) -> dict[str, BaseDistribution]:
    """The first option without order, the others as places on a scale: neighbours are alike."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        name: IntDistribution(0, len(values) - 1) if place else CategoricalDistribution(values)
        for place, (name, values) in enumerate(choices.items())
    }


def _parameters(point: Point, choices: Mapping[str, Sequence[Value]]) -> dict[str, Value]:
    scales = list(choices.items())[1:]
    places = {n: values.index(v) for (n, values), v in zip(scales, point[1:], strict=True)}
    return {next(iter(choices)): point[0]} | places


def _ask(
    study: Study,
    distributions: dict[str, BaseDistribution],
    choices: Mapping[str, Sequence[Value]],
    known: Mapping[Point, Tried],
    rng: np.random.Generator,
) -> tuple[Asked, Point]:
    """A point that is not known yet; there is one."""
    from optuna.trial import TrialState

    for _ in range(_ASKS):
        trial = study.ask(distributions)
        policy, *places = (trial.params[name] for name in choices)
        scales = list(choices.values())[1:]
        point = (policy, *(values[at] for values, at in zip(scales, places, strict=True)))
        if point not in known:
            return trial, point
        study.tell(trial, state=TrialState.FAIL)  # which teaches it nothing
    new = [point for point in product(*choices.values()) if point not in known]
    point = new[int(rng.integers(len(new)))]
    study.enqueue_trial(_parameters(point, choices))
    return study.ask(distributions), point


def _tell(study: Study, trial: Asked, one: Tried) -> None:
    """Tell Optuna the mean time, and of a point that is out how far it has come."""
    from optuna.trial import TrialState

    if one.complete:
        study.tell(trial, one.time)
        return
    if one.status is None or one.ok:
        for step in range(len(one.runs)):
            trial.report(float(np.mean([run.time for run in one.runs[: step + 1]])), step)
    study.tell(trial, state=TrialState.PRUNED)

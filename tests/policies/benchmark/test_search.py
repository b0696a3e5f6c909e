"""The search: what ends early could not have been the best, and what breaks rules is not played."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.benchmark.search import BEHIND, NEARLY, Run, nearly_as_good, ranked, search
from policies.benchmark.status import OK, OVER_BUDGET, Status

EPISODE = 1e6
CHOICES = {"policy": ("a", "b", "c"), "K": (1, 2, 8), "rate": (0.1, 0.2, 0.4)}
OWN = ("a", 2, 0.2)


class Known:
    """Settings whose times are known, of which those of the largest K break the rules."""

    def __init__(self, times: dict[tuple, np.ndarray]) -> None:
        self.times = times
        self.checked: list[tuple] = []
        self.played: list[tuple] = []
        self.spent = 0.0

    def check(self, points):
        self.checked += points
        return [Status(OVER_BUDGET if point[1] == 8 else OK, "") for point in points]

    def play(self, runs):
        self.played += runs
        ends = [(self.times[point][seed], min(longest, EPISODE)) for point, seed, longest in runs]
        self.spent += sum(map(min, ends))
        return [Run(min(time, longest), bool(time <= longest)) for time, longest in ends]


def known(seed: int, spread: float, seeds: int) -> Known:
    """Times that differ by a factor of at most 1.5, times `spread` for the luck of a setting.

    Both together are at most `BEHIND`, so that nobody is out for bad luck under the first seeds.
    """
    rng = np.random.default_rng(seed)
    luck = rng.uniform(1, 3, seeds)  # of a seed, for all settings
    return Known(
        {
            point: rng.uniform(10, 15) * luck * rng.uniform(1, spread, seeds)
            for point in product(*CHOICES.values())
        }
    )


def run(system: Known, trials: int, seeds: int):
    starts = [(policy, *OWN[1:]) for policy in CHOICES["policy"]]
    return search(CHOICES, starts, system, trials=trials, seeds=seeds)


@given(st.integers(0, 2**32), st.floats(1, BEHIND / 1.5), st.integers(1, 4))
def test_search__of_all_settings_gives_the_best_and_all_that_are_nearly_as_good(
    seed, spread, seeds
):
    system = known(seed, spread, seeds)
    tried = run(system, 10**6, seeds)
    assert {one.point for one in tried} == set(system.times)
    assert len(system.checked) == len(system.times)
    mean = {p: times.mean() for p, times in system.times.items() if p[1] != 8}
    least = min(mean.values())
    order = sorted(mean, key=mean.get)
    assert ranked(tried)[0].point == order[0]
    near = [point for point in order if mean[point] <= NEARLY * least]
    assert [one.point for one in nearly_as_good(tried)] == near
    for one in ranked(tried):
        assert one.time == pytest.approx(mean[one.point])
    assert system.spent < sum(times.sum() for p, times in system.times.items() if p[1] != 8)
    assert all(point[1] != 8 for point, *_ in system.played)


def test_search__finds_the_optimum_without_trying_all():
    choices = {"policy": tuple("abcdef"), "K": tuple(range(1, 11)), "rate": tuple(range(10))}

    def time(point):
        policy, number, rate = point
        return 10 * (1 + "abcdef".index(policy)) * 1.2 ** (abs(number - 3) + abs(rate - 6))

    system = Known({point: np.full(2, time(point)) for point in product(*choices.values())})
    tried = search(choices, [("f", 9, 0), ("a", 9, 0)], system, trials=80, seeds=2)
    assert len({one.point for one in tried}) == 80
    assert tried[0].point == ("f", 9, 0)
    assert ("a", 9, 0) in [one.point for one in tried[1:9]]
    # 600 settings, of which 23 are within this of the optimum.
    assert ranked(tried)[0].time <= 10 * 1.2**2


def test_search__nothing_is_ended_early_before_there_is_a_time_to_compare_with():
    system = known(0, 1.0, 2)
    system.times[OWN] = np.full(2, 2 * EPISODE)
    tried = run(system, 9, 2)
    assert not tried[0].complete
    assert len(tried[0].runs) == 1
    later = {point for point, *_ in system.played} - {OWN}
    assert all(longest == np.inf for *_, longest in system.played)
    assert {one.point for one in ranked(tried)} == later

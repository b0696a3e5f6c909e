"""The status: the lottery against draws, cases by hand, and simulated runs by chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from policies.benchmark.records import DeviceAccounts, joined
from policies.benchmark.status import Lottery, judge, limits


def accounts(
    energy=1.0, share=1.0, *, seeds=5, fair=100.0, filled=1.0, rounds=1000.0
) -> DeviceAccounts:
    """Runs of ten devices that keep to everything that is not given."""
    values = energy, share * np.ones(10) * fair, fair, fair, rounds
    each = (np.broadcast_to(value, (seeds, 10)) * 1.0 for value in values)
    return DeviceAccounts(*each, np.full(seeds, filled), np.zeros(seeds))


def first(number: int, value: float, others: float = 1.0) -> np.ndarray:
    return np.where(np.arange(10) < number, value, others)


def in_turn(value: float) -> np.ndarray:
    """In each of ten runs another device has this value, and in all together each has 1."""
    return np.where(np.eye(10, dtype=bool), value, (10 - value) / 9)


def drawn_cohorts(inclusion: np.ndarray, times: int, rng: np.random.Generator) -> np.ndarray:
    """Distinct devices of a round, drawn systematically in random order, (times, rounds, N)."""
    shape = (times, *inclusion.shape)
    order = rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)
    sums = np.take_along_axis(np.broadcast_to(inclusion, shape), order, axis=-1).cumsum(axis=-1)
    start = rng.random((*shape[:-1], 1))
    drawn = np.empty(shape, dtype=bool)
    np.put_along_axis(drawn, order, np.diff(np.floor(sums + start + 1e-9), prepend=0) > 0, axis=-1)
    return drawn


@pytest.mark.parametrize(
    ("data", "cohort", "rounds", "availability"),
    [
        (np.ones(10), 5, 60, 1.0),
        (np.ones(4), 4, 50, 1.0),
        (np.arange(1.0, 9.0), 3, 40, 1.0),
        (np.ones(12), 2, 80, 0.7),
    ],
)
def test_lottery__is_that_of_distinct_devices(data, cohort, rounds, availability):
    rng = np.random.default_rng(0)
    available = rng.random((rounds, data.size)) < availability
    data = data * available
    inclusion = np.minimum(cohort * data / data.sum(axis=-1, keepdims=True), 1.0)
    fair = np.minimum(inclusion, cohort / available.sum(axis=-1, keepdims=True)).sum(axis=0)
    mean = inclusion.sum(axis=0)
    drawn = drawn_cohorts(inclusion, 2000, rng)
    share = drawn.sum(axis=1) / fair
    energy = (drawn * rng.exponential(size=drawn.shape)).sum(axis=1) / mean
    numbers = np.array([mean, mean, fair, mean, available.sum(axis=0)])
    lottery = Lottery.like(DeviceAccounts(*numbers[:, None], mean, 0 * mean))
    lack = np.maximum(1 - share, 0).mean()
    assert lottery.lack() == pytest.approx(lack, rel=0.03, abs=1e-9)
    assert lottery.excess() == pytest.approx(np.maximum(energy - 1, 0).mean(), rel=0.03)
    # K distinct devices are nearly independent.
    few = (share <= 0.5).any(axis=-1).mean()
    assert lottery.chance_of_share(0.5) == pytest.approx(few, abs=0.05)
    much = (energy >= 1.7).any(axis=-1).mean()
    assert lottery.chance_of_energy(1.7) == pytest.approx(much, abs=0.05)


@pytest.mark.parametrize(
    ("given", "name", "reason"),
    [
        (accounts(), "ok", ""),
        (accounts(first(3, 1.64, 0.7)), "over budget", "19 % in a run, above 8 %"),
        (accounts(in_turn(3.0), seeds=10), "over budget", "by 20 % in a run, above 8 %"),
        (accounts(first(1, 1.8, 0.9)), "over budget", "a device spends 180 % of its budget"),
        # As extreme as some lotteries.
        (accounts(first(1, 1.6, 0.9), first(1, 0.4), fair=6.0), "ok", ""),
        (accounts(1.06), "over budget", "all devices spend 106.0 % of their budgets"),
        (accounts(share=in_turn(0.0), seeds=10), "leaves out", "10 % of their fair participation"),
        (accounts(share=first(1, 0.45)), "leaves out", "a device gets 45 % of its fair"),
        (accounts(filled=0.94), "leaves out", "94 % of the slots are filled"),
        (accounts(2.0, 0.5), "over budget, leaves out", "above 8 %; devices lack 50 %"),
        (accounts(share=first(1, 1.0), fair=first(1, 0.0, 50.0)), "ok", ""),  # never available
        # All devices in all rounds: a lottery lacks nothing, but 5 % of the slots may be empty.
        (accounts(1.04, 0.96, fair=10000.0, rounds=10000.0), "ok", ""),
    ],
)
def test_judge__cases_by_hand(given, name, reason):
    status = judge(given, 1.0)
    assert status.name == name
    assert reason in status.reason
    assert bool(status.reason) == (name != "ok")
    # More runs of the same means change nothing.
    assert judge(joined([given] * 20), 1.0) == status


def test_judge__of_heavy_rounds():
    assert judge(accounts(), 1.009).name == "ok"
    assert judge(accounts(), 1.02) == ("overweights", "the weights of a round sum to 1.020")


def test_limits__note_short_runs():
    lottery = "a lottery lacks 4 % and exceeds by 5 %; ok up to 6 % and 8 %."
    assert limits(accounts()) == f"In a run, {lottery}"
    assert limits(accounts(fair=1.6)).startswith("Runs are short: in a run, a lottery lacks 32 %")


RATIOS = st.floats(0, 3)


@given(arrays(float, (5, 10), elements=RATIOS), arrays(float, 10, elements=RATIOS))
def test_judge__has_no_reward_for_more_energy(ratio, more):
    status = judge(accounts(ratio, ratio, fair=8.0), 1.0)
    worse = judge(accounts(ratio + more, ratio, fair=8.0), 1.0).name
    assert worse == status.name or worse.startswith("over budget")


@pytest.mark.parametrize("seeds", [1, 5, 30])
@pytest.mark.parametrize(
    ("devices", "cohort", "rounds"), [(120, 2, 300), (10, 2, 100), (10, 10, 50), (500, 10, 1000)]
)
def test_judge__has_few_false_alarms(devices, cohort, rounds, seeds):
    # Random cohorts that spend their budgets on average, with energies that vary by 20 %.
    rng = np.random.default_rng([devices, cohort, seeds])
    turns = np.full(devices, rounds)
    mean = np.full((seeds, devices), rounds * cohort / devices)
    alarms = 0
    for _ in range(20):
        number = 1.0 * rng.multivariate_hypergeometric(turns, rounds * cohort, size=seeds)
        energy = rng.gamma(np.maximum(number, 1e-9) / 0.04, 0.04) / mean
        lengths = 0 * mean + rounds
        fair = DeviceAccounts(energy, number, mean, mean, lengths, np.ones(seeds), np.zeros(seeds))
        alarms += judge(fair, 1.0).name != "ok"
    assert alarms <= 1

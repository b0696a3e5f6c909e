"""The status: the lottery against draws, cases by hand, and simulated runs by chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from policies.benchmark.records import DeviceAccounts, joined
from policies.benchmark.status import ENERGY_DISPERSION, excess_of_lottery, judge, lack_of_lottery


def accounts(
    energy=1.0, share=1.0, weight=1.0, *, seeds=4, fair=100.0, filled=1.0
) -> DeviceAccounts:
    """Runs of ten devices that keep to everything that is not given."""
    number = share * np.ones(10) * fair
    values = energy, number, number, number * weight, fair, fair, np.maximum(fair, 1.0)
    each = (np.broadcast_to(value, (seeds, 10)) * 1.0 for value in values)
    of_runs = (np.full(seeds, value) for value in (filled, 0.98))
    return DeviceAccounts(*each, *of_runs)


def first(number: int, value: float, others: float = 1.0) -> np.ndarray:
    return np.where(np.arange(10) < number, value, others)


def in_turn(value: float) -> np.ndarray:
    """In each of ten runs another device has this value, and in all together each has 1."""
    return np.where(np.eye(10, dtype=bool), value, (10 - value) / 9)


def test_lottery__is_that_of_drawn_numbers():
    rng = np.random.default_rng(0)
    drawn = rng.uniform(0.5, 30.0, (2, 10))
    fair = drawn * rng.uniform(0.3, 1.0, (2, 10))
    allowed = drawn * rng.uniform(1.0, 1.5, (2, 10))
    numbers = rng.poisson(drawn, (40_000, 2, 10))
    costs = ENERGY_DISPERSION * rng.poisson(drawn / ENERGY_DISPERSION, (40_000, 2, 10))
    whole = accounts(seeds=2)._replace(fair=fair, drawn=drawn, allowed=allowed)
    for lottery, values in (
        (lack_of_lottery(whole), np.maximum(1 - numbers / fair, 0).mean(axis=-1)),
        (excess_of_lottery(whole), np.maximum(costs / allowed - 1, 0).mean(axis=-1)),
    ):
        np.testing.assert_allclose(lottery.mean, values.mean(axis=0), rtol=0.02)
        np.testing.assert_allclose(lottery.deviation, values.std(axis=0), rtol=0.02)


@pytest.mark.parametrize(
    ("given", "name", "reason"),
    [
        (accounts(), "ok", ""),
        (accounts(seeds=1), "ok", ""),
        (accounts(first(5, 1.1, 0.9), first(5, 0.9, 1.1)), "ok", ""),
        (accounts(first(3, 1.65, 0.7)), "over budget", "19 % in a run, 6 % in a fair lottery"),
        (accounts(1.035, fair=5e2), "over budget", "devices together spend 3.5 % over budget"),
        (accounts(first(1, 1.25, 0.97), fair=1e4), "over budget", "1 of 10 devices spend up to 25"),
        (accounts(first(2, 1.25, 0.9)), "ok", ""),  # chance explains it
        (accounts(share=first(3, 0.0, 1.4)), "leaves out", "lack 30 % of their fair participation"),
        (
            accounts(share=first(1, 0.0, 1.1), fair=1e3),
            "leaves out",
            "lack 10 % of their fair participation in a run",
        ),
        (accounts(share=first(1, 0.4)), "leaves out", "1 of 10 devices get down to 40 % of their"),
        (accounts(share=first(1, 0.55)), "ok", ""),
        (accounts(weight=first(2, 0.2, 1.2)), "leaves out", "2 of 10 devices get down to 20 % of"),
        (accounts(share=in_turn(0.0), seeds=10), "leaves out", "lack 10 % of their fair"),
        (accounts(in_turn(3.0), seeds=10), "over budget", "exceed their budgets by 20 % in a run"),
        (accounts(weight=0.4), "ok", ""),  # as uploads fail, or devices are absent
        (
            accounts()._replace(actual=accounts(share=first(4, 0.4, 1.4)).actual),
            "leaves out",
            "devices lack 24 % of their turns, 2 % in a lottery",
        ),
        (accounts(filled=0.94), "leaves out", "fills 94 % of the cohort"),
        (accounts(first(5, 2.0), 0.5), "over budget, leaves out", "50 % in a run, 6 % in a fair"),
        (accounts(fair=1.6), "too short", "in runs this short, a lottery lacks 32 %"),
        (accounts(share=0.1, fair=1.6), "leaves out", "lack 90 % of their fair participation in a"),
        (accounts(share=first(1, 1.0), fair=first(1, 0.0, 50.0)), "ok", ""),  # never available
    ],
)
def test_judge__cases_by_hand(given, name, reason):
    status = judge(given, 1.0)
    assert status.name == name
    assert reason in status.reason
    assert bool(status.reason) == (name != "ok")


def test_judge__of_heavy_rounds():
    assert judge(accounts(), 1.1).name == "ok"
    assert judge(accounts(), 1.2) == ("overweights", "the weights of a round sum to 1.20")
    assert judge(accounts(2.0), 1.2).name == "over budget, overweights"


EIGHTHS = st.integers(0, 24).map(lambda number: number / 8)  # whose sums are exact


@given(
    arrays(float, (4, 10), elements=EIGHTHS),
    arrays(float, 10, elements=EIGHTHS),
    st.permutations(range(4)),
    st.permutations(range(10)),
)
def test_judge__knows_no_order_and_no_reward_for_more_energy(ratio, more, seeds, devices):
    status = judge(accounts(ratio, ratio, fair=8.0), 1.0)
    other = ratio[np.ix_(seeds, devices)]
    assert judge(accounts(other, other, fair=8.0), 1.0).name == status.name
    worse = judge(accounts(ratio + more, ratio, fair=8.0), 1.0).name
    assert worse == status.name or worse.startswith("over budget")


def test_joined__is_the_accounts_of_all_runs():
    values = np.arange(40).reshape(4, 10)
    whole = accounts(values, values / 8)
    parts = [DeviceAccounts._make(value[rows] for value in whole) for rows in ([0], [1, 2, 3])]
    for one, other in zip(joined(parts), whole, strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole.together().share()[0].tolist() == pytest.approx(whole.share().mean(axis=0))


@pytest.mark.parametrize("seeds", [1, 5, 30])
@pytest.mark.parametrize(
    ("devices", "cohort", "rounds"), [(120, 2, 300), (10, 1, 50), (10, 10, 50), (1000, 10, 2000)]
)
def test_judge__has_few_false_alarms(devices, cohort, rounds, seeds):
    # Random cohorts that spend their budgets on average, with energies that vary by 90 %.
    rng = np.random.default_rng([devices, cohort, seeds])
    times = 60 if devices * seeds < 30_000 else 10
    alarms = 0
    for _ in range(times):
        turns = np.full(devices, rounds)
        number = 1.0 * rng.multivariate_hypergeometric(turns, rounds * cohort, size=seeds)
        mean = np.full((seeds, devices), rounds * cohort / devices)
        energy = rng.gamma(np.maximum(number, 1e-9) / 0.81, 0.81) / mean
        one = np.ones(seeds)
        numbers = [number, number, number, mean, mean, mean]
        fair = DeviceAccounts(energy, *numbers, one, 0.98 * one)
        alarms += judge(fair, 1.0).name not in ("ok", "too short")
    assert alarms <= 1

"""Decisions: what is refused, and the codec of the action box."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_edge_env import Allocation, Scenario
from fl_edge_env.allocation import decode_action, encode_action, highest

SCENARIO = Scenario(num_devices=3, cohort_size=2, f_max=[2e9, 3e9, 1e9])
VALID = {
    "f": np.array([1e9, 2.5e9, 1e9]),
    "p": np.full(3, 0.05),
    "q": np.array([0.2, 0.3, 0.5]),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"f": np.array([1e9, 3.1e9, 1e9])},
            r"f must lie in \[1000000000, 3000000000\] for device 1",
        ),
        ({"f": np.array([1e9, np.nan, 1e9])}, "f must lie in .* for device 1, got .*nan"),
        (
            {"f": np.array([[1e9] * 3, [1e9, 1e9, 2e9]])}
            | {n: np.tile(VALID[n], (2, 1)) for n in "pq"},
            r"f must lie in \[1000000000, 1000000000\] for device 2, got",
        ),
        ({"p": np.array([0.05, 0.05, 0.0])}, r"p must lie in \[0.001, 0.1\] for device 2, got"),
        ({"q": np.array([0.5, 0.5, 0.0])}, r"q must lie in \(0, 1\] for every device"),
        # The sum is within its tolerance, but 1 - q is negative.
        ({"q": np.array([1 + 4e-7, 5e-8, 5e-8])}, r"q must lie in \(0, 1\] .*1\.0000004"),
        ({"q": np.array([0.5, np.nan, 0.5])}, "q must lie in .*nan"),
        ({"q": np.array([0.2, 0.3, 0.5 + 2e-6])}, "q must sum to 1 within 1e-06, got .*1.0"),
        (dict.fromkeys("fpq", np.full(2, 0.5)), r"must have 3 entries.*got shape \(2,\)"),
    ],
)
def test_validate__names_what_is_wrong(change, message):
    with pytest.raises(ValueError, match=message):
        Allocation(**VALID | change).validate(SCENARIO)


@pytest.mark.parametrize(
    ("cohort", "message"),
    [
        ([0, 1, 2], r"shape \(k\) with k from 1 to cohort_size = 2, got \(3,\)"),
        (np.zeros(0, np.int64), r"k from 1 to cohort_size = 2, got \(0,\)"),
        ([[0, 1]], r"shape \(k\) .*got \(1, 2\)"),
        ([0, 3], r"indices from 0 to 2, or -1 for none, got \[0, 3\]"),
        ([-2, 0], r"indices from 0 to 2, or -1 for none, got \[-2, 0\]"),
        ([1, 1], r"each device once, got \[1, 1\]: to draw with replacement give q"),
        ([-1, -1], r"at least one device, got \[-1, -1\]"),
    ],
)
def test_validate__names_what_is_wrong_with_a_cohort(cohort, message):
    with pytest.raises(ValueError, match=message):
        Allocation(VALID["f"], VALID["p"], cohort=cohort).validate(SCENARIO)


def test_participates__are_the_devices_that_a_cohort_names():
    f, p = (np.tile(VALID[name], (3, 1)) for name in "fp")
    allocation = Allocation(f, p, cohort=[[2, 0], [1, -1], [-1, 2]])
    allocation.validate(SCENARIO)
    np.testing.assert_array_equal(allocation.participates, [[1, 0, 1], [0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"f": np.full(2, 1e9)}, "must have the same shape"),
        ({"q": np.array([1j, 0, 0])}, "q must hold real numbers"),
        ({"f": 1e9, "p": 0.1, "q": 1.0}, r"same shape \(..., N\), .*got \(\), \(\) and \(\)"),
        ({"f": [None, 1e9, 1e9]}, "f must hold real numbers"),
        ({"q": None}, "either q, .* or cohort, .*got neither"),
        ({"cohort": [0, 1]}, "either q, .* or cohort, .*got both"),
        ({"q": None, "cohort": [True, False]}, "cohort must hold integer device indices"),
        ({"q": None, "cohort": [[0], [1, 2]]}, "cohort must hold integer device indices"),
        ({"weights": [0.5, 0.5]}, "weights belong to a chosen cohort"),
        ({"q": None, "cohort": [0, 1], "weights": [1.0]}, r"shape of cohort, \(2,\), got \(1,\)"),
        ({"q": None, "cohort": [0, 1], "weights": [1, np.nan]}, "weights must be finite"),
        ({"q": None, "cohort": [0, 1], "weights": [1, -1]}, "weights must be .* at least zero"),
    ],
)
def test_allocation__refuses_what_no_scenario_allows(change, message):
    with pytest.raises(ValueError, match=message):
        Allocation(**VALID | change)


def test_validate__takes_lists_integers_and_rounding_at_the_bounds():
    Allocation(
        [1e9, 3_000_000_000 * (1 + 1e-12), 1_000_000_000], [0.1, 0.1, 0.1], [0.2, 0.3, 0.5 + 1e-7]
    ).validate(SCENARIO)


def test_decode__zero_is_the_middle_of_the_ranges_and_uniform_sampling():
    allocation = decode_action(np.zeros((3, 3), np.float32), SCENARIO, 2.0)
    np.testing.assert_array_equal(allocation.f, SCENARIO.f_mid)
    np.testing.assert_array_equal(allocation.p, SCENARIO.p_mid)
    np.testing.assert_allclose(allocation.q, 1 / 3, rtol=1e-15)


def test_decode__corners_are_the_ends_of_the_ranges():
    action = np.array([[-1, 1, 0], [1, -1, 1], [1, -1, -1]], np.float32)
    allocation = decode_action(action, SCENARIO, 2.0)
    np.testing.assert_allclose(allocation.f, [1e9, 3e9, 1e9])
    np.testing.assert_allclose(allocation.p, [0.1, 0.001, 0.1])
    np.testing.assert_allclose(allocation.q[0] / allocation.q[1], np.exp(4))


@given(
    arrays(np.float64, (2, 3, 3), elements=st.floats(-1e3, 1e3)),
    st.floats(0.1, 100),
)
def test_decode__clips_to_the_box_and_treats_rows_alone(action, scale):
    batch = decode_action(action, SCENARIO, scale)
    for index in range(2):
        row = decode_action(np.minimum(np.maximum(action[index], -1), 1), SCENARIO, scale)
        for name in ("f", "p", "q"):
            np.testing.assert_array_equal(getattr(batch, name)[index], getattr(row, name))


unit_interval = arrays(np.float64, (2, 3), elements=st.floats(0, 1))


@given(unit_interval, unit_interval, unit_interval, st.floats(0.1, 100))
def test_encode__decodes_to_the_same_decision(f, p, score, scale):
    # Any decision whose q varies by no more than the box allows, exp(2 scale)
    odds = np.exp(2 * scale * (score - score.max(axis=-1, keepdims=True)))
    wanted = Allocation(
        SCENARIO.f_min + f * (SCENARIO.f_max - SCENARIO.f_min),
        SCENARIO.p_min + p * (SCENARIO.p_max - SCENARIO.p_min),
        odds / odds.sum(axis=-1, keepdims=True),
    )
    action = encode_action(wanted, SCENARIO, scale)
    assert action.dtype == np.float32
    assert np.abs(action).max() <= 1
    again = decode_action(action, SCENARIO, scale)
    # A float32 in [-1, 1] is off by at most 2**-25; a range is two long. The error of a log
    # probability is twice that of a score, one for its own and one for the sum.
    half_ulp = 2.0**-25
    for name, span in (("f", 1e9), ("p", 0.099)):
        error = np.abs(getattr(again, name) - getattr(wanted, name))
        assert error.max() <= 1.01 * half_ulp * span
    np.testing.assert_allclose(again.q, wanted.q, rtol=2.02 * scale * half_ulp + 1e-12)


def test_encode__refuses_a_decision_of_the_other_kind():
    chosen = Allocation(VALID["f"], VALID["p"], cohort=[0])
    with pytest.raises(ValueError, match="'penalty': a chosen decision cannot be encoded"):
        encode_action(chosen, SCENARIO, 2.0)
    with pytest.raises(ValueError, match="'outcome': a sampled decision cannot be encoded"):
        encode_action(Allocation(**VALID), SCENARIO.replace(objective="outcome"), 2.0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_outcome__an_action_ranks_the_devices_and_an_encoded_cohort_comes_back(seed, size):
    scenario = Scenario.cifar10(num_devices=6, cohort_size=size, objective="outcome")
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, (4, 3, 6))
    available = rng.random((4, 6)) < 0.6
    available[:, 0] = True
    for there in (None, available):
        decision = decode_action(action, scenario, 2.0, there)
        decision.validate(scenario)
        for row, (score, cohort) in enumerate(zip(action[:, 2], decision.cohort, strict=True)):
            allowed = range(6) if there is None else np.flatnonzero(there[row]).tolist()
            best = sorted(allowed, key=lambda device: -score[device])[:size]
            assert cohort[cohort >= 0].tolist() == best
    whole = decode_action(action, scenario, 2.0)
    again = decode_action(encode_action(whole, scenario, 2.0), scenario, 2.0)
    np.testing.assert_array_equal(again.participates, whole.participates)
    np.testing.assert_allclose(again.f, whole.f, rtol=1e-6)


def test_highest__of_fewer_devices_than_asked_for_are_followed_by_nobody():
    score = np.array([[0.1, 0.7], [0.7, 0.7]])
    assert highest(score, 3).tolist() == [[1, 0, -1], [0, 1, -1]]
    assert highest(score[0], 2, np.array([True, False])).tolist() == [0, -1]


def test_encode__what_the_box_cannot_express_is_clipped_and_keeps_its_order():
    wanted = Allocation(**VALID | {"q": np.array([1e-12, 1e-6, 1 - 1e-6 - 1e-12])})
    action = encode_action(wanted, SCENARIO, 2.0)
    assert action[2].tolist()[::2] == [-1, 1]
    assert -1 < action[2, 1] < 1
    decode_action(action, SCENARIO, 2.0).validate(SCENARIO)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros((3, 4)), r"shape \(3, 3\) with rows f, p, q, got shape \(3, 4\)"),
        (np.zeros(9), r"got shape \(9,\)"),
        (np.diag([0, 0, np.nan]), r"action must hold numbers in \[-1, 1\], got NaN"),
        ("left", "action must hold real numbers, got 'left'"),
    ],
)
def test_decode__names_what_is_wrong(action, message):
    with pytest.raises(ValueError, match=message):
        decode_action(action, SCENARIO, 2.0)


@given(st.floats(1e-3, 1e3), st.floats(1.0, 10.0))
def test_bounds__hold_for_numbers_that_were_rounded_to_32_bits(low, ratio):
    scenario = SCENARIO.replace(p_min=low, p_max=low * ratio)
    q = np.full(3, 1 / 3)
    for bound in (scenario.p_min, scenario.p_max):
        p = bound.astype(np.float32)
        Allocation(scenario.f_min, p, q).validate(scenario)
    with pytest.raises(ValueError, match="p must lie in"):
        Allocation(scenario.f_min, scenario.p_max * (1 + 1e-6), q).validate(scenario)

"""Decisions: what is refused, and the codec of the action box."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_edge_env import Allocation, Scenario
from fl_edge_env.allocation import decode_action
from tests.support import ANY_SEED

SCENARIO = Scenario(num_devices=3, cohort_size=2, f_max=[2e9, 3e9, 1e9])
VALID = {
    "f": np.array([1e9, 2.5e9, 1e9]),
    "p": np.full(3, 0.05),
    "q": np.array([0.2, 0.3, 0.5]),
}
CHOSEN = VALID | {"q": None, "cohort": [2, 0], "bandwidth": [4e5, 0.0, 6e5]}
DRAWN = {"cohort": None, "q": VALID["q"]}


def parts(*bandwidth):
    return CHOSEN | {"bandwidth": bandwidth}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        # Shapes and types
        (VALID | {"f": np.full(2, 1e9)}, r"one shape \(..., N\), .*'f': \(2,\), 'p': \(3,\)"),
        (CHOSEN | {"f": np.full((2, 3), 1e9), "cohort": np.zeros((3, 2), int)}, "'cohort': .3, 2"),
        (dict.fromkeys("fpq", np.full(2, 0.5)), r"f, p and q must have shape \(3,\), .*got \(2,\)"),
        (VALID | {"q": np.array([1j, 0, 0])}, "q must hold real numbers"),
        (VALID | {"q": None}, "either q, .* or cohort, .*got neither"),
        (VALID | {"cohort": [0, 1]}, "either q, .* or cohort, .*got both"),
        (CHOSEN | {"cohort": [True, False]}, "cohort must hold integers, got"),
        (CHOSEN | {"cohort": 1}, r"cohort must have shape \(..., k\) .*got \(\)"),
        (VALID | {"weights": [0.5, 0.5]}, "weights needs a chosen cohort: leave it out"),
        (VALID | {"first": 1}, "first needs a chosen cohort: leave it out"),
        (CHOSEN | DRAWN, "bandwidth needs a chosen cohort: .* or give cohort instead of q"),
        # f and p
        (VALID | {"f": [1e9, 3.1e9, 1e9]}, r"lie in \[1000000000, 3000000000\] for device 1"),
        (VALID | {"f": [[1e9] * 3, [1e9, 1e9, 2e9]]}, r"f must .* 1000000000\] for device 2, got"),
        (
            VALID | {"p": [0.05, 0.05, 0.1 + 1e-7]},
            r"p must lie in \[0.001, 0.1\] for device 2, got",
        ),
        # q
        (VALID | {"q": [0.5, 0.5, 0.0]}, r"q must lie in \(0, 1\] for every device"),
        # The sum is within its tolerance, but 1 - q is negative.
        (VALID | {"q": [1 + 4e-7, 5e-8, 5e-8]}, r"q must lie in \(0, 1\] .*1\.0000004"),
        (VALID | {"q": [0.2, 0.3, 0.5 + 2e-6]}, "q must sum to 1 .*within 1e-06, got .*1.0"),
        # Cohorts
        (CHOSEN | {"cohort": [0, 1, 2]}, r"k from 1 to cohort_size = 2, got \(3,\)"),
        (CHOSEN | {"cohort": [0, 3]}, r"indices from 0 to 2, or -1 for none, got \[0, 3\]"),
        (CHOSEN | {"cohort": [1, 1]}, r"each device once, got \[1, 1\]: to draw .* give q"),
        (CHOSEN | {"cohort": [-1, -1]}, r"at least one device, got \[-1, -1\]"),
        (CHOSEN | {"weights": [1.0] * 3}, r"weights must be a number or have shape \(2,\), got"),
        (CHOSEN | {"weights": [1, -1]}, "weights must be .* at least zero"),
        (CHOSEN | {"first": 2, "cohort": [0, -1]}, "first must be from 1 .* 1, got 2"),
        (CHOSEN | {"first": 1.0}, "first must hold integers, got 1.0"),
        (CHOSEN | {"first": [1, 2]}, r"first must be a number or have shape \(\), got \(2,\)"),
        # Parts of the band
        ([parts(4e5, 0, 6e5), parts(6e5, 0, 8e5)], "sum to at most .* with a sum of 1400000"),
        (parts(4e5, 0, 0), "at least 1e-06 Hz .*got values from 0 to 400000 with"),
        (parts(0.4, 0, 0.6), "in hertz .* got a sum of 1: multiply fractions of the band by"),
    ],
)
def test_allocation__says_what_is_wrong(fields, message):
    if isinstance(fields, list):  # a batch
        fields = fields[0] | {"bandwidth": [one["bandwidth"] for one in fields]}
    with pytest.raises(ValueError, match=message):
        Allocation(**fields).validate(SCENARIO)


@given(st.data())
def test_allocation__broadcasts_numbers_and_smaller_arrays(data):
    fields = {"f": 1e9, "p": 0.05, "bandwidth": 4e5, "weights": 0.5, "first": 1}
    fields["cohort"] = [[0, 2], [1, -1]]
    shapes = {"cohort": (2, 2), "weights": (2, 2), "first": (2,)}
    for name in ("f", "p", "bandwidth", "weights"):
        shape = shapes.get(name, (2, 3))
        part = shape[data.draw(st.integers(0, len(shape))) :]
        fields[name] *= np.random.default_rng(0).uniform(1, 1.1, part)
    decision = Allocation(**fields).of_shape((2, 3))
    decision.validate(SCENARIO.replace(f_max=2e9))
    for name, given_ in fields.items():
        wanted = np.broadcast_to(given_, shapes.get(name, (2, 3)))
        np.testing.assert_array_equal(getattr(decision, name), wanted)
        assert getattr(decision, name).flags.c_contiguous


box = arrays(np.float64, (2, 3, 3), elements=st.floats(-1.2, 1.2) | st.floats(-1e3, 1e3))


@given(box, st.floats(0.1, 100))
def test_decode__reaches_every_decision_and_clips_to_the_box(action, scale):
    again = decode_action(action, SCENARIO, scale)
    f, p, score = np.moveaxis((1 + np.clip(action, -1, 1)) / 2, 1, 0)
    odds = np.exp(2 * scale * (score - score.max(axis=-1, keepdims=True)))
    f_wanted = SCENARIO.f_min + f * (SCENARIO.f_max - SCENARIO.f_min)
    np.testing.assert_allclose(again.f, f_wanted, rtol=1e-12)
    p_wanted = SCENARIO.p_min + p * (SCENARIO.p_max - SCENARIO.p_min)
    np.testing.assert_allclose(again.p, p_wanted, rtol=1e-12)
    np.testing.assert_allclose(again.q, odds / odds.sum(axis=-1, keepdims=True), rtol=1e-10)


@given(ANY_SEED, st.integers(1, 7), st.sampled_from([0.6, 1.0]))
def test_outcome__an_action_ranks_the_available_devices(seed, size, share):
    scenario = Scenario.cifar10(num_devices=6, cohort_size=size, objective="outcome")
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, (4, 3, 6))
    available = rng.random((4, 6)) < share
    available[:, 0] = True
    decision = decode_action(action, scenario, 2.0, None if available.all() else available)
    decision.validate(scenario)
    for row, there in enumerate(available):
        score = action[row, 2]
        best = sorted(np.flatnonzero(there), key=lambda device: -score[device])[:size]
        cohort = decision.cohort[row]
        assert cohort[cohort >= 0].tolist() == best

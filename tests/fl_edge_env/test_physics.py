"""Accounts in floating point: precision at the ends of a range, and shapes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics


@given(*[st.integers(1, 64)] * 2, st.floats(-12, -3), st.floats(3, 8), st.floats(1e-3, 1.0))
def test_upload_rate__with_a_noise_density_ignores_k(size, other, decade, width, gain):
    part = 10**width
    density = 10**decade
    rate = part * math.log1p(gain * 0.05 / (density * part)) / math.log(2)
    system = {"num_devices": 1, "energy_budget_j": 1e30, "noise_density_w_hz": density}
    scenario = Scenario(cohort_size=size, bandwidth_hz=size * part, **system)
    state = np.array([gain]), np.array([0.05])
    assert physics.upload_rate(*state, scenario)[0] == pytest.approx(rate, rel=1e-13)
    scenario = scenario.replace(cohort_size=other)  # other parts, of which none is given
    given_part = physics.upload_rate(*state, scenario, np.array([part]))
    assert given_part[0] == pytest.approx(rate, rel=1e-13)


@given(st.floats(1e-300, 1.0), st.integers(1, 50))
def test_participation_probability__exact_to_the_last_digits(q, cohort_size):
    exact = 1 - (1 - Fraction(q)) ** cohort_size
    value = physics.participation_probability(np.array([q]), cohort_size)[0]
    assert abs(Fraction(float(value)) - exact) <= exact * Fraction(1, 10**14)

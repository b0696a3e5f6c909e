"""Accounts in floating point: precision at the ends of a range, and shapes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics


@given(*[st.integers(1, 64)] * 2, st.floats(-12, -3), st.floats(3, 8), st.floats(1e-3, 1.0))
def test_upload_rate__with_a_noise_density_ignores_k(size, other, decade, width, gain):
    part = 10**width
    density = 10**decade
    rate = part * math.log1p(gain * 0.05 / (density * part)) / math.log(2)
    scenario = Scenario(
        num_devices=1,
        cohort_size=size,
        bandwidth_hz=size * part,
        energy_budget_j=1e30,
        noise_density_w_hz=density,
    )
    found = [
        physics.upload_rate(np.array([gain]), np.array([0.05]), *system)
        for system in ([scenario], [scenario.replace(cohort_size=other), np.array([part])])
    ]
    np.testing.assert_allclose(found, rate, rtol=1e-13)


@given(st.floats(1e-300, 1.0), st.integers(1, 50))
def test_participation_probability__exact_to_the_last_digits(q, cohort_size):
    exact = 1 - (1 - Fraction(q)) ** cohort_size
    value = physics.participation_probability(np.array([q]), cohort_size)[0]
    assert abs(Fraction(float(value)) - exact) <= exact * Fraction(1, 10**14)

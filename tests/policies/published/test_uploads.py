"""Uploads that share the band, against a convex solver."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import physics
from policies.published.uploads import Cohort, root
from tests.policies.published.systems import EQUAL, SHARED, cohort_of


def test_root__finds_each_one_and_the_better_end_where_there_is_none():
    target = np.array([[2.0], [9.0], [1e9], [-1.0]])
    found = root(lambda x: x**2 - target, np.zeros((4, 1)), np.full((4, 1), 100.0))
    np.testing.assert_allclose(found[:2], np.sqrt(target[:2]), rtol=1e-11)
    assert found[2] == 100.0
    assert found[3] == 0.0


@given(seed=st.integers(0, 2**32 - 1))
def test_split__spends_no_more_than_a_convex_solver(seed):
    _, _, of = cohort_of(seed)
    rng = np.random.default_rng(seed)
    shortest, _ = of.together(of.p_max, np.zeros(of.real.shape))
    window = shortest * rng.uniform(1.0, 3.0, of.real.shape)
    weight = rng.uniform(0.1, 3.0, of.real.shape)
    band, price = of.split(window, weight)
    energy = of.energy(window, band)
    assert band.sum() == pytest.approx(SHARED.bandwidth_hz, rel=1e-9)
    assert np.all(energy <= of.p_max * window * (1 + 1e-9))

    # In units in which all is near one; x ln(1 + e / x) is the information in the uploads.
    share, unit = cp.Variable(band.size), of.noise * of.nats
    joules = cp.Variable(band.size)
    x = cp.multiply(window * SHARED.bandwidth_hz / of.nats, share)
    problem = cp.Problem(
        cp.Minimize((weight * unit) @ joules),
        [
            -cp.rel_entr(x, x + joules) >= 1.0,
            cp.sum(share) <= 1.0,
            cp.multiply(unit, joules) <= of.p_max * window,
        ],
    )
    problem.solve(solver=cp.CLARABEL)
    assert weight @ energy == pytest.approx(problem.value, rel=1e-5)
    # The price is what a hertz more would save.
    more = of.scenario.replace(bandwidth_hz=SHARED.bandwidth_hz * (1 + 1e-5))
    more = more.replace(noise_power_w=SHARED.noise_power_w * (1 + 1e-5))  # of the same density
    wider = Cohort(*cohort_of(seed)[:2], more)
    saved = weight @ (energy - wider.energy(window, wider.split(window, weight)[0]))
    assert saved == pytest.approx(price[0] * 1e-5 * SHARED.bandwidth_hz, rel=1e-3)


@given(seed=st.integers(0, 2**32 - 1))
def test_together__is_the_shortest_round(seed):
    gain, members, of = cohort_of(seed)
    rng = np.random.default_rng(seed)
    ready, power = rng.uniform(100.0, 2000.0, of.real.shape), rng.uniform(of.p_min, of.p_max)
    time, band = of.together(power, ready)

    seconds, share = cp.Variable(), cp.Variable(band.size)
    snr = power / (of.noise * SHARED.bandwidth_hz)
    rate = -cp.rel_entr(share, share + snr) * SHARED.bandwidth_hz / of.nats  # uploads in 1000 s
    problem = cp.Problem(
        cp.Minimize(seconds),
        [1e3 * rate >= cp.inv_pos(seconds - ready / 1e3), cp.sum(share) <= 1.0],
    )
    problem.solve(solver=cp.CLARABEL)
    assert time[0] == pytest.approx(1e3 * problem.value, rel=1e-5)
    # By the environment's own account all finish then, with the whole band.
    p, parts = of.put(power, 0.05), of.put(band, 0.0)
    assert parts.sum() == pytest.approx(SHARED.bandwidth_hz, rel=1e-9)
    uploads = physics.upload_time(gain, p, SHARED, parts)[members]
    np.testing.assert_allclose(ready + uploads, time[0], rtol=1e-9)


@pytest.mark.parametrize("scenario", [SHARED, EQUAL])
def test_cohort__decides_for_a_batch_as_for_each(scenario):
    drawn = [cohort_of(seed, scenario, size=1 + seed % 4) for seed in range(8)]
    batch = Cohort(*(np.stack(part) for part in list(zip(*drawn, strict=True))[:2]), scenario)
    ready = np.full(batch.real.shape, 500.0)
    time, band = batch.together(batch.p_max, ready)
    split, _ = batch.split(np.broadcast_to(1.5 * (time - 500.0), ready.shape), ready)
    for row, (_, members, of) in enumerate(drawn):
        ready = np.full(of.real.shape, 500.0)
        alone, parts = of.together(of.p_max, ready)
        assert alone[0] == pytest.approx(time[row, 0], rel=1e-9)
        np.testing.assert_allclose(of.put(parts, 0.0), batch.put(band, 0.0)[row], rtol=1e-7)
        parts, _ = of.split(1.5 * (alone - ready), ready)
        np.testing.assert_allclose(of.put(parts, 0.0), batch.put(split, 0.0)[row], rtol=1e-7)
        assert not of.put(parts, 0.0)[~members].any()

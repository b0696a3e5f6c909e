"""The two problems of FEDL, against a convex solver."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics
from policies.published import FEDLResources
from tests.policies.published.systems import EQUAL, SHARED, cohort_of

KAPPAS = [1e-3, 0.03, 0.3, 1.0, 3.0, 100.0]


@given(seed=st.integers(0, 2**32 - 1), kappa=st.sampled_from(KAPPAS))
def test_compute_time__is_the_best_and_leaves_three_groups(seed, kappa):
    _, _, of = cohort_of(seed)
    time = FEDLResources(kappa).compute_time(of)[0]
    f = np.clip(of.cycles / time, of.f_min, of.f_max)

    gigahertz, seconds = cp.Variable(f.size), cp.Variable()
    energy = 0.5 * of.capacitance * of.cycles * 1e18
    problem = cp.Problem(
        cp.Minimize(energy @ cp.square(gigahertz) + kappa * seconds),
        [
            cp.multiply(of.cycles / 1e9, cp.inv_pos(gigahertz)) <= seconds,
            gigahertz >= of.f_min / 1e9,
            gigahertz <= of.f_max / 1e9,
        ],
    )
    problem.solve(solver=cp.CLARABEL)
    assert energy @ (f / 1e9) ** 2 + kappa * time == pytest.approx(problem.value, rel=1e-6)
    # The paper's groups: bottlenecks, those at their least frequency, and those done together.
    between = (f > of.f_min * (1 + 1e-9)) & (f < of.f_max * (1 - 1e-9))
    np.testing.assert_allclose(of.cycles[between] / f[between], time)
    if between.any() and not (f >= of.f_max * (1 - 1e-9)).any():
        cubes = (of.capacitance * of.cycles**3)[between].sum()
        assert cubes / kappa <= time**3 * (1 + 1e-9)  # equal, but where the next would join them


def test_compute_time__gives_each_group_its_members():
    fast = SHARED.replace(f_min=np.repeat([1.0e9, 1.9e9], 4))
    members = np.array([1, 1, 0, 0, 1, 1, 0, 0], dtype=bool)
    gain = np.full(8, 0.1)

    def groups(kappa: float) -> list[str]:
        f = FEDLResources(kappa)(gain, np.zeros(8), fast, members)[0][members]
        low, high = fast.f_min[members], fast.f_max[members]
        named = np.where(f <= low, "least", np.where(f >= high, "largest", "between"))
        return named.tolist()

    assert groups(1e-3) == ["least"] * 4
    # The last has most work. Before it is done, the first is at 1 GHz and the third at 1.9.
    assert groups(1e4) == ["least", "between", "least", "largest"]


@given(seed=st.integers(0, 2**32 - 1), kappa=st.sampled_from(KAPPAS))
def test_uploads__take_the_best_time_and_parts_of_the_band(seed, kappa):
    gain, members, of = cohort_of(seed)
    f, p, band = FEDLResources(kappa)(gain, np.zeros(8), SHARED, members)
    upload = physics.upload_time(gain, p, SHARED, band)[members]
    found = (p[members] * upload).sum() + kappa * upload.max()
    assert band.sum() <= SHARED.bandwidth_hz * (1 + 1e-9)

    # A cohort's x is part times time, as in turns; it sends for T at a power in the range.
    x, joules, seconds = cp.Variable(of.cycles.size), cp.Variable(of.cycles.size), cp.Variable()
    unit, span = of.noise * of.nats, of.nats / SHARED.bandwidth_hz
    problem = cp.Problem(
        cp.Minimize(unit @ joules / unit.mean() + kappa * span * seconds / unit.mean()),
        [
            -cp.rel_entr(x, x + joules) >= 1.0,
            cp.sum(x) <= seconds,
            cp.multiply(unit, joules) <= of.p_max * span * seconds,
            cp.multiply(unit, joules) >= of.p_min * span * seconds,
        ],
    )
    problem.solve(solver=cp.CLARABEL)
    assert found == pytest.approx(problem.value * unit.mean(), rel=1e-4)
    np.testing.assert_allclose(upload, upload.max(), rtol=1e-6)  # all the time, as in the paper
    assert np.all(f[~members] == SHARED.f_min[~members])


def test_fedl__in_turns_is_the_closed_form_of_the_authors():
    # Sub2 of their code, with W in place of their root: g(S / (tau B)) = kappa h / N0.
    free = SHARED.replace(p_min=1e-9, p_max=1e3)
    gain, members, of = cohort_of(5, free)
    _, p, band = FEDLResources(2.0)(gain, np.zeros(8), free, members)
    seconds = physics.upload_time(gain, p, free, band)[members]
    turn = band[members] / free.bandwidth_hz * seconds
    y = of.nats / (turn * free.bandwidth_hz)
    noise = of.noise * free.bandwidth_hz
    np.testing.assert_allclose(noise * (1 + (y - 1) * np.exp(y)), 2.0, rtol=1e-6)


@given(seed=st.integers(0, 2**32 - 1), kappa=st.sampled_from(KAPPAS))
def test_equal_parts__have_the_best_time_of_all_that_are_tried(seed, kappa):
    gain, members, _ = cohort_of(seed, EQUAL)
    _, p = FEDLResources(kappa)(gain, np.zeros(8), EQUAL, members)
    upload = physics.upload_time(gain, p, EQUAL)[members]
    found = (p[members] * upload).sum() + kappa * upload.max()
    least = physics.upload_time(gain, EQUAL.p_max, EQUAL)[members]
    most = physics.upload_time(gain, EQUAL.p_min, EQUAL)[members]
    times = np.geomspace(least.max(), most.max(), 4000)[:, None]
    used = np.clip(times, least, most)
    part = EQUAL.bandwidth_hz / EQUAL.cohort_size
    nats = EQUAL.upload_bits * np.log(2)
    power = np.expm1(nats / (part * used)) * EQUAL.noise_power_w / gain[members]
    tried = (power * used).sum(axis=1) + kappa * times[:, 0]
    assert found <= tried.min() * (1 + 1e-9)
    assert found >= tried.min() * (1 - 1e-3)


def test_fedl__refuses_a_worth_of_nothing():
    with pytest.raises(ValueError, match="kappa must be positive"):
        FEDLResources(0.0)


def test_fedl2019__is_the_system_of_the_authors_code():
    system = Scenario.preset("fedl2019")
    assert (system.num_devices, system.cohort_size, system.bandwidth_split) == (50, 50, "shared")
    whole = system.noise_power_w * system.cohort_size  # noise in the whole band
    assert whole == pytest.approx(1e-10)
    loss = -40.0 - 40.0 * np.log10(system.channel.distances(50))
    assert 10 * np.log10(np.median(system.mean_gain)) == pytest.approx(np.median(loss), abs=0.3)
    megabytes = system.num_samples / 8e6
    assert 5 <= megabytes.min() < megabytes.max() <= 10
    assert Scenario.from_toml(system.to_toml()) == system

"""What measured gains say: the posterior, the predictive law, and what is never looked at."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from fl_edge_env import (
    CellChannel,
    ExponentialChannel,
    FLEdgeEnv,
    MarkovChannel,
    Scenario,
)
from fl_edge_env.spaces import NEVER_MEASURED
from policies import Opportunistic, check_policy, make_policy
from policies.belief import Belief
from policies.estimate import GainEstimator
from policies.outcome import DualPrices, initial_prices, law_prices

# Weights of its own: those that are calibrated follow from the true means.
CELL = Scenario.cell(
    num_devices=10,
    num_rounds=40,
    energy_budget_j=180.0,
    csi="participants",
    lambda_=1e3,
    V=1e3,
    channel=CellChannel(persistence=0.6),
)
RIVALS = ["lroa", "uni-d", "opportunistic", "thompson:static", "ucb:static", "ucb:dynamic"]


def estimator_of(scenario: Scenario, **options) -> GainEstimator:
    estimator = GainEstimator(scenario, **options)
    estimator.reset(())
    return estimator


def test_posterior__is_that_of_bayes():
    # Against the product of prior and likelihood on a grid.
    scenario = CELL.replace(channel=CellChannel())
    estimator = estimator_of(scenario, prior_shape=3.0)
    measured = np.zeros(10, dtype=bool)
    measured[4] = True
    gains = np.array([0.03, 0.2, 0.07])
    for gain in gains:
        estimator.update(np.full(10, gain), measured)
    mean = np.geomspace(1e-3, 1e2, 200_001)
    log = stats.invgamma(3.0, scale=2.0 * 0.1).logpdf(mean)
    log += stats.expon(scale=mean).logpdf(gains[:, None]).sum(axis=0)
    density = np.exp(log - log.max())
    density /= trapezoid(density, mean)
    believed = estimator.scale / (estimator.shape - 1.0)
    assert believed[4] == pytest.approx(trapezoid(mean * density, mean), rel=1e-5)
    assert believed[0] == pytest.approx(0.1)
    for share in (0.1, 0.5, 0.9):
        sample = estimator.sample_mean(np.full(10, share))[4]
        below = trapezoid(np.where(mean <= sample, density, 0.0), mean)
        assert below == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("persistence", [0.0, 0.7])
def test_posterior__finds_the_means_that_it_never_sees(persistence, monkeypatch):
    channel = CellChannel(persistence=persistence)
    scenario = CELL.replace(channel=channel, num_rounds=3000)
    rng = np.random.default_rng(0)
    gains = channel.draw(rng, 3000, 10)
    true = scenario.mean_gain

    def forbidden(*_):
        raise AssertionError("the server does not know where its users are")

    monkeypatch.setattr(CellChannel, "device_mean", forbidden)
    estimator = estimator_of(scenario)
    for gain in gains:
        estimator.update(gain, rng.random(10) < 0.5)
    count = estimator.shape - 2.0
    assert np.all(count > 300)
    # Four standard errors of a mean of exponential numbers; the cut moves it by 0.2 %.
    error = np.abs(estimator.scale / (estimator.shape - 1.0) / true - 1.0)
    assert np.all(error < 4.0 / np.sqrt(count) + 0.01)


def test_posterior__a_repeated_fading_is_no_news():
    estimator = estimator_of(CELL.replace(channel=CellChannel(persistence=0.9)))
    everyone = np.ones(10, dtype=bool)
    estimator.update(np.full(10, 0.2), everyone)
    for _ in range(5):
        estimator.update(np.full(10, 0.2), everyone)
    np.testing.assert_allclose(estimator.shape, 3.0, atol=0.02)
    estimator.update(np.full(10, 0.3), everyone)
    np.testing.assert_allclose(estimator.shape, 4.0, atol=0.02)
    independent = estimator_of(CELL.replace(channel=CellChannel()))
    for _ in range(5):  # fadings at the end of the interval are often equal
        independent.update(np.full(10, 0.01), everyone)
    np.testing.assert_allclose(independent.shape, 7.0)


def test_law__is_that_of_a_simulation():
    # Means from the posterior, the fading kept or new, and its power cut.
    channel = CellChannel(persistence=0.8)
    estimator = estimator_of(CELL.replace(channel=channel))
    measured = np.zeros(10, dtype=bool)
    measured[3] = True
    for gain in (0.12, 0.05, 0.2):
        estimator.update(np.full(10, gain), measured)
    for _ in range(2):
        estimator.update(np.full(10, 0.1), np.zeros(10, dtype=bool))
    law, rng, count = estimator.law(), np.random.default_rng(1), 400_000
    np.testing.assert_allclose(law.probability.sum(axis=-1), 1.0)
    for device, kept in ((3, 0.8**3), (0, 0.0)):
        mean = stats.invgamma(estimator.shape[device], scale=estimator.scale[device]).rvs(
            count, random_state=rng
        )
        gain = mean * np.clip(rng.exponential(size=count), 0.1, 5.0)
        gain = np.where(rng.random(count) < kept, 0.2, gain)
        gain = np.clip(gain, channel.gain_min, channel.gain_max)
        # Upload times at the ends of the range of power.
        for power in (CELL.p_min[0], CELL.p_max[0]):
            simulated = 1.0 / np.log1p(gain * power / CELL.noise_power_w)
            nodes = 1.0 / np.log1p(law.gain[device] * power / CELL.noise_power_w)
            expected = law.probability[device] @ nodes
            assert expected == pytest.approx(simulated.mean(), rel=0.03)


def test_belief__needs_no_learning_where_devices_are_alike():
    markov = MarkovChannel.correlated(0.5, num_states=3)
    rng = np.random.default_rng(0)
    gain = np.array(markov.gains)[rng.integers(0, 3, 10)]
    age = np.array([1.0] * 4 + [3.0] * 5 + [NEVER_MEASURED])
    observation = {"channel_gain": gain, "queue": np.zeros(10), "age": age}
    belief = Belief(CELL.replace(channel=markov))
    law = belief.present_gain(observation)
    step, state = np.array(markov.transition), np.searchsorted(markov.gains, gain)
    np.testing.assert_allclose(law.probability[:4], step[state[:4]])
    np.testing.assert_allclose(law.probability[4:9], (step @ step @ step)[state[4:9]])
    np.testing.assert_allclose(law.probability[9], markov.stationary)
    law = Belief(CELL.replace(channel=ExponentialChannel())).present_gain(observation)
    assert np.ptp(law.gain, axis=0).max() == 0.0
    assert belief.estimator is None


@pytest.mark.parametrize("name", RIVALS)
def test_participants__decide_on_what_was_measured_alone(name):
    # Two cells that differ in their users' places, and the same observations in both.
    there = CELL.replace(channel=CellChannel(persistence=0.6, place_seed=1))
    assert not np.allclose(there.mean_gain, CELL.mean_gain)
    policies = [make_policy(name, scenario) for scenario in (CELL, there)]
    env = FLEdgeEnv(CELL)
    observation, info = env.reset(seed=0)
    for policy in policies:
        policy.reset(0)
        policy.feedback(info)
    for _ in range(CELL.num_rounds):
        ours, theirs = (policy.decide(observation) for policy in policies)
        for field in ("f", "p", "q", "cohort"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))
        observation, *_, info = env.step(ours)
        for policy in policies:
            policy.feedback(info)


@pytest.mark.parametrize("channel", [CellChannel(persistence=0.6), MarkovChannel.correlated(0.6)])
@pytest.mark.parametrize("name", ["lroa", "uni-d", "opportunistic", "thompson"])
def test_participants__beliefs_are_taken_up_again_and_hold_in_batches(name, channel):
    policy = make_policy(name, CELL.replace(channel=channel))
    assert policy.resumable
    check_policy(policy)


@pytest.mark.parametrize("kind", ["follows", "stays", "given"])
def test_opportunistic__prices_are_those_of_the_laws_by_what_was_measured(kind):
    # Without steps a price is the dual one: of those measured the present, else the first.
    first = initial_prices(CELL)
    options = {"follows": {}, "stays": {"follow": False}, "given": {"prices": first}}[kind]
    policy = Opportunistic(CELL, step_scale=0.0, **options)
    env = FLEdgeEnv(CELL)
    observation, info = env.reset(seed=0)
    for _ in range(10):
        policy.feedback(info)
        observation, *_, info = env.step(policy.decide(observation))
    estimator = policy.belief.estimator
    measured = np.isfinite(estimator.age)
    assert 0 < measured.sum() < 10
    law, most = estimator.long_run_law(), 10 * first.energy
    now = law_prices(law, CELL, persistence=0.6, most=most)
    for name in DualPrices._fields:
        found = np.where(measured & (kind == "follows"), getattr(now, name), getattr(first, name))
        np.testing.assert_allclose(policy.state()[name], found)


def test_estimator__refuses_the_state_of_another():
    estimator = estimator_of(CELL)
    state = estimator.state()
    with pytest.raises(ValueError, match="state must hold shape"):
        estimator.restore({})
    with pytest.raises(ValueError, match=r"shape \(10,\)"):
        estimator.restore(state | {"age": np.ones(9)})
    with pytest.raises(ValueError, match="prior_shape must be above one"):
        GainEstimator(CELL, prior_shape=1.0)

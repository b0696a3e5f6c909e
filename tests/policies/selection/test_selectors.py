"""Each rule against what it claims: a property, brute force, or a numerical optimiser."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from fl_edge_env import ExponentialChannel, FLEdgeVectorEnv, Scenario, physics
from policies import check_policy, evaluate, make_policy, selection
from policies.registry import SELECTORS
from policies.selection import Candidates, Oort, PowerOfChoice, Quickest, Scheduler, Selector
from policies.selection.sampling import adaptive_probabilities, norm_probabilities
from policies.selection.selector import smallest
from tests.support import played

SMALL = Scenario.cifar10(num_devices=7, cohort_size=3, num_rounds=60)
NEEDS_TRAINING = ["power-of-choice", "oort", "adaptive-sampling", "optimal-sampling"]
PLAIN = sorted(SELECTORS.keys() - {*NEEDS_TRAINING, "quickest"})
WITHOUT_TRAINING = [f"{name}:{rule}" for name in PLAIN for rule in ("static", "dynamic")]


def candidates_of(scenario: Scenario, seed: int = 0, **given) -> Candidates:
    rng = np.random.default_rng(seed)
    shape = scenario.num_devices
    values = {
        "channel_gain": rng.uniform(0.01, 0.5, shape),
        "queue": np.zeros(shape),
        "available": np.ones(shape, dtype=bool),
        "time": rng.uniform(1.0, 9.0, shape),
        "energy": np.ones(shape),
        "number": 1,
        "_draw": lambda: rng.random(shape),
    }
    return Candidates(**(values | given))


def cohorts_of(policy: Scheduler, scenario: Scenario, seed: int = 0) -> np.ndarray:
    """The cohorts of an episode, shape (rounds, K), and -1 for empty places."""
    return np.array([info["cohort"] for info in played(policy, scenario, seed)])


def started(selector: Selector) -> Selector:
    """A selector at the start of an episode."""
    selector.memory = selector.start(())
    return selector


def participations(cohorts: np.ndarray, scenario: Scenario) -> np.ndarray:
    return np.bincount(cohorts[cohorts >= 0], minlength=scenario.num_devices)


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in [*WITHOUT_TRAINING, "quickest"]] + [("quickest", {"groups": 4})],
)
def test_scheduler__is_a_valid_policy_and_chooses_among_the_available(name, options):
    policy = make_policy(name, SMALL, **options)
    check_policy(policy)
    observation, _ = FLEdgeVectorEnv(3, SMALL).reset(seed=[0, 1, 2])
    there = np.array([[True] * 7, [True] + [False] * 6, [False, True] * 3 + [True]])
    policy.reset([0, 1, 2])
    chosen = policy.decide(observation | {"available": there}).participates
    assert not np.any(chosen & ~there)
    assert chosen.sum(axis=1).tolist() == [3, 1, 3]


@given(
    key=st.lists(st.sampled_from([-math.inf, 0.0, 1.0, math.inf]), min_size=4, max_size=4),
    allowed=st.lists(st.booleans(), min_size=4, max_size=4),
    count=st.integers(1, 6),
)
def test_smallest__names_the_best_of_the_allowed(key, allowed, count):
    named = smallest(np.array([key]), np.array([allowed]), count)[0]
    best = sorted((k, n) for n, (k, may) in enumerate(zip(key, allowed, strict=True)) if may)
    expected = [n for _, n in best][:count]
    assert named.tolist() == expected + [-1] * (min(count, 4) - len(expected))


def test_random__gives_equal_shares_and_draws_by_the_seed():
    scenario = SMALL.replace(num_rounds=2000)
    policy, share = make_policy("random", scenario), 3 / 7
    cohorts = cohorts_of(policy, scenario)
    assert not np.array_equal(cohorts[:60], cohorts_of(policy, SMALL, seed=1))
    counts = participations(cohorts, scenario)
    assert np.abs(counts / 2000 - share).max() < 4 * math.sqrt(share * (1 - share) / 2000)


@pytest.mark.parametrize("cohort_size", [1, 3, 7, 9])
def test_round_robin__nobody_waits_longer_than_a_turn(cohort_size):
    scenario = SMALL.replace(cohort_size=cohort_size)
    cohorts = cohorts_of(make_policy("round-robin", scenario), scenario)
    turn = math.ceil(7 / cohort_size)
    for window in range(len(cohorts) - turn + 1):
        assert set(cohorts[window : window + turn].ravel()) - {-1} == set(range(7))


def test_best_channel_and_fastest__have_the_largest_gains_and_the_least_times():
    candidates = candidates_of(SMALL)
    best = np.argsort(-candidates.channel_gain)[:3]
    assert selection.BestChannel(SMALL).select(candidates).tolist() == best.tolist()
    fastest = np.argsort(candidates.time)[:3]
    assert selection.Fastest(SMALL).select(candidates).tolist() == fastest.tolist()


def test_proportional_fair__a_constant_factor_does_not_matter():
    # Two devices with the same gains but for a factor, told apart by their order alone.
    scenario = Scenario.cifar10(num_devices=2, cohort_size=1, num_rounds=4000)
    selector = started(selection.ProportionalFair(scenario))
    rng, chosen = np.random.default_rng(0), np.zeros(2)
    for number in range(1, 4001):
        gain = np.array([1.0, 0.01]) * ExponentialChannel().draw(rng, 1, 2)[0]
        chosen[selector.select(candidates_of(scenario, channel_gain=gain, number=number))] += 1
    assert abs(chosen[0] / 4000 - 0.5) < 4 * 0.5 / math.sqrt(4000)


@pytest.mark.parametrize("budget", [0.01, 0.06, 0.15, 2.0])
def test_quickest__takes_the_least_time_within_the_energy_of_a_participation(budget):
    samples = np.linspace(20.0, 60.0, 8)
    scenario = Scenario.digits(num_devices=8, num_samples=samples, energy_budget_j=budget)
    selector, gain = Quickest(scenario), np.geomspace(0.01, 0.5, 8)
    allowed = budget / (2 * scenario.weights)
    f, p = selector.resources(gain)
    time, energy = physics.time_and_energy(gain, f, p, scenario)
    fs, ps = (
        np.linspace(0, 1, 300)[:, None, None] * (scenario.f_max - scenario.f_min) + scenario.f_min,
        np.geomspace(scenario.p_min, scenario.p_max, 300)[:, None],
    )
    times, energies = physics.time_and_energy(gain, fs, ps, scenario)
    best = np.where(energies <= allowed, times, np.inf).min(axis=(0, 1))
    can = best < np.inf
    assert can.sum() == {0.01: 0, 0.06: 5, 0.15: 8, 2.0: 8}[budget]
    assert np.all(energy[can] <= allowed[can] * (1 + 1e-12))
    assert np.all(time[can] <= best[can] * 1.15)  # 24 powers in place of 300
    assert np.array_equal([f[~can], p[~can]], [scenario.f_min[~can], scenario.p_min[~can]])


def test_quickest__data_count_alike_and_at_a_large_constant_all_take_turns(monkeypatch):
    policy = make_policy("quickest", SMALL)
    counts = participations(cohorts_of(policy, SMALL), SMALL)
    assert 1 < np.ptp(counts) < 9
    monkeypatch.setattr("policies.selection.quickest._CATCH_UP", 1e9)
    for window in np.split(cohorts_of(policy, SMALL)[:56], 8):  # three turns of seven rounds
        assert np.all(participations(window, SMALL) == 3)


def test_quickest__groups_of_like_devices_with_equal_targets_take_turns():
    scenario = Scenario.phones(num_devices=8, num_rounds=40)
    cohorts = np.sort(cohorts_of(make_policy("quickest", scenario, groups=4), scenario), axis=1)
    speed = np.argsort(scenario.f_max)
    assert {tuple(each) for each in cohorts} == {
        tuple(sorted(pair)) for pair in speed.reshape(4, 2)
    }
    assert np.all(participations(cohorts, scenario) == 10)
    uneven = scenario.replace(num_samples=np.array([1.0, 1, 1, 1, 1, 1, 3, 3]) * 100)
    policy = make_policy("quickest", uneven, groups=2)
    shares = np.bincount(policy.selector._group, uneven.weights)
    np.testing.assert_allclose(shares, 0.5, atol=0.1)


def test_power_of_choice__with_all_candidates_it_is_the_largest_losses():
    selector = started(PowerOfChoice(SMALL.replace(num_devices=6)))
    losses = np.array([0.1, 5.0, 3.0, 0.2, 4.0, 0.3])
    candidates = candidates_of(selector.scenario)
    selector.learn({"participants": losses > 0, "local_losses": losses})
    assert set(selector.select(candidates)) == {1, 4, 2}
    selector.memory["loss"][0] = np.inf  # as one that never took part
    assert set(selector.select(candidates)) == {0, 1, 4}


def test_power_of_choice__draws_twice_the_cohort_by_the_data():
    samples = np.array([1.0, 2.0, 3.0, 4.0])
    scenario = Scenario.cifar10(num_devices=4, cohort_size=1, num_samples=samples)
    selector = started(PowerOfChoice(scenario))
    selector.memory["loss"][:] = samples  # so the larger of the two that are drawn
    rng = np.random.default_rng(0)
    draws = [
        selector.select(candidates_of(scenario, _draw=lambda: rng.random(4)))[0]
        for _ in range(5000)
    ]
    expected = np.zeros(4)
    for first, second in itertools.permutations(range(4), 2):  # without replacement
        chance = samples[first] / 10 * samples[second] / (10 - samples[first])
        expected[max(first, second)] += chance
    share = np.bincount(draws, minlength=4) / 5000
    np.testing.assert_allclose(share, expected, atol=4 * math.sqrt(0.25 / 5000))


def reported_by(devices: np.ndarray, rms: np.ndarray, count: int = 7) -> dict[str, np.ndarray]:
    """What Oort reads of the info of a round."""
    participants, reported = np.zeros((2, count))
    participants[devices], reported[devices] = 1.0, rms
    info = {"participants": participants > 0, "local_loss_rms": reported}
    return info | {"energy_spent": np.ones(1)}


def test_oort__score_is_that_of_the_paper():
    utility = np.array([10.0, 4.0, 8.0, 6.0, 2.0, 7.0, 5.0])
    last = np.array([1, 2, 3, 4, 5, 6, 7])
    selector = started(Oort(SMALL))
    selector.memory |= {"utility": utility, "last_round": last}
    alike = candidates_of(SMALL, time=np.full(7, 3.0), number=9)
    clipped = np.minimum(utility, np.percentile(utility, 90))
    expected = (clipped - 2.0) / 8.0 + np.sqrt(0.1 * math.log(9) / last)
    np.testing.assert_allclose(selector.score(alike, utility > 0), expected)  # nobody is slow
    slow = candidates_of(SMALL, time=np.array([1.0, 1, 1, 1, 1, 1, 4]), number=9)
    expected[-1] /= 16
    np.testing.assert_allclose(selector.score(slow, utility > 0), expected)


@pytest.mark.parametrize(("number", "unseen"), [(2, 10), (6, 9), (23, 7), (40, 5), (900, 4)])
def test_oort__a_falling_share_of_the_places_is_for_devices_that_never_took_part(number, unseen):
    # Of 11 places 11 (1 - 0.9 * 0.98^(R - 1)), at most 7.7, go to known devices, rounded down.
    scenario = SMALL.replace(num_devices=40, cohort_size=11)
    selector = started(Oort(scenario))
    selector.memory["last_round"][:20] = 1
    cohort = selector.select(candidates_of(scenario, number=number))
    assert len(set(cohort.tolist())) == 11
    assert np.sum(cohort >= 20) == unseen


def test_oort__everyone_is_seen_and_then_the_useful():
    scenario = SMALL.replace(num_devices=30, cohort_size=2)
    selector = started(Oort(scenario))
    counts = np.zeros(30)
    useful = np.where(np.arange(30) < 5, 3.0, 0.1)
    for number in range(1, 301):
        cohort = selector.select(candidates_of(scenario, seed=number, number=number))
        assert len(set(cohort.tolist())) == 2
        counts[cohort] += 1
        selector.learn(reported_by(cohort, useful[cohort], 30))
    assert counts.min() >= 1
    assert counts[:5].mean() > 3 * counts[5:].mean()


def test_oort__a_round_without_uploads_counts_as_a_round():
    selector = started(Oort(SMALL))
    nobody = np.zeros(7)
    selector.learn({"participants": nobody > 0, "local_loss_rms": nobody})  # a reset
    for devices in (np.arange(0), np.array([3])):
        selector.learn(reported_by(devices, np.ones(devices.size)))
    assert selector.memory["last_round"].tolist() == [0, 0, 0, 2, 0, 0, 0]


def test_oort__pace_slackens_where_utility_stagnates():
    selector = started(Oort(SMALL))
    for _ in range(20 * 3):
        selector.learn(reported_by(np.array([0]), np.ones(1)))
    assert selector.memory["percentile"] == 40.0  # after the second and the third window
    for number in range(20 * 3):
        selector.learn(reported_by(np.array([0]), np.array([2.0**-number])))
    assert selector.memory["percentile"] == 40.0


@given(
    seed=st.integers(0, 2**32 - 1),
    constant=st.sampled_from([0.0, 1e-3, 1.0, 1e3, 1e16]),
    spread=st.sampled_from([0.0, 0.3, 2.0]),
)
@settings(max_examples=30, deadline=None)
def test_adaptive_sampling__no_optimiser_finds_better(seed, constant, spread):
    rng = np.random.default_rng(seed)
    time, error = (10 ** (spread * rng.uniform(-1, 1, 5)) for _ in range(2))

    def cost(q: np.ndarray) -> float:
        return float(np.sum(q * time) * (np.sum(error / q) + constant))

    def of_logits(z: np.ndarray) -> float:
        weights = np.exp(z - z.max())
        return math.log(cost(weights / weights.sum()))

    best = cost(adaptive_probabilities(time, error, constant))
    for start in (np.zeros(5), rng.normal(size=5)):
        found = math.exp(optimize.minimize(of_logits, start, method="BFGS").fun)
        assert best <= found * (1 + 1e-9)
    if constant == 0:
        np.testing.assert_allclose(best, np.sum(np.sqrt(error * time)) ** 2)


def test_optimal_sampling__has_the_least_variance():
    rng = np.random.default_rng(0)
    norm = rng.exponential(size=6)
    q = norm_probabilities(norm)
    others = rng.dirichlet(np.ones(6), size=500)
    assert np.sum(norm**2 / q) <= np.sum(norm**2 / others, axis=1).min()
    np.testing.assert_allclose(norm_probabilities(np.zeros(4)), 0.25)


@pytest.mark.parametrize("kind", [selection.AdaptiveSampling, selection.OptimalSampling])
def test_norm_sampling__old_norms_do_not_shut_a_device_out(kind):
    selector = started(kind(SMALL))
    norms = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    selector.learn({"participants": norms >= 0, "update_norms": norms})
    q = selector.select(candidates_of(SMALL))
    assert q.sum() == pytest.approx(1.0)
    assert q[0] == pytest.approx(0.1 / 7)


@pytest.mark.parametrize("name", NEEDS_TRAINING)
def test_scheduler__names_the_training_that_it_needs(name):
    policy = make_policy(name, SMALL)
    assert policy.needs_training
    with pytest.raises(ValueError, match="no models are trained here"):
        evaluate([policy], SMALL, [0])
    with pytest.raises(ValueError, match="that training reports"):
        policy.feedback({"energy_spent": np.zeros(7)})


def test_scheduler__a_rule_of_ones_own_is_one_method():
    class Lowest(Selector):
        def select(self, candidates):
            return smallest(candidates.queue, candidates.available, 1)

    def fast(_, queue, scenario, *__):
        f, p = np.broadcast_arrays(scenario.f_max, scenario.p_max)
        return np.broadcast_to(f, queue.shape), np.broadcast_to(p, queue.shape)

    policy = Scheduler(Lowest(SMALL), resources=fast)
    assert policy.name == "Lowest, fast"
    check_policy(policy)
    counts = participations(cohorts_of(policy, SMALL), SMALL)
    assert counts.max() - counts.min() <= 1  # the lowest energy queue is the one longest unused

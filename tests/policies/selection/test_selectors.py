"""Each rule against what it claims: a property, brute force, or a numerical optimiser."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from fl_edge_env import ExponentialChannel, FLEdgeVectorEnv, Scenario, physics
from policies import check_policy, evaluate, make_policy, selection
from policies.registry import SELECTORS
from policies.selection import Candidates, Oort, PowerOfChoice, Quickest, Scheduler, Selector
from policies.selection.sampling import norm_probabilities
from policies.selection.selector import smallest
from tests.policies import own_policies
from tests.support import played

SMALL = Scenario.cifar10(num_devices=7, cohort_size=3, num_rounds=60)
NEEDS_TRAINING = ["power-of-choice", "oort", "adaptive-sampling", "optimal-sampling"]
PLAIN = sorted(SELECTORS.keys() - {*NEEDS_TRAINING, "quickest"})
WITHOUT_TRAINING = [f"{name}:{rule}" for name in PLAIN for rule in ("static", "dynamic")]


def candidates_of(scenario: Scenario, **given) -> Candidates:
    rng = np.random.default_rng(0)
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


def cohorts_of(policy: Scheduler, seed: int = 0) -> np.ndarray:
    """The cohorts of an episode, shape (rounds, K), and -1 for empty places."""
    return np.array([info["cohort"] for info in played(policy, seed)])


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
def test_scheduler__chooses_among_available_devices(name, options):
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
    scenario = SMALL.replace(num_rounds=500)
    policy = make_policy("random", scenario)
    share = 3 / 7
    cohorts = cohorts_of(policy)
    assert not np.array_equal(cohorts[:60], cohorts_of(make_policy("random", SMALL), seed=1))
    counts = participations(cohorts, scenario)
    assert np.abs(counts / 500 - share).max() < 4 * math.sqrt(share * (1 - share) / 500)


@pytest.mark.parametrize("cohort_size", [1, 3, 5, 7, 9])
def test_round_robin__nobody_waits_longer_than_a_turn(cohort_size):
    scenario = SMALL.replace(cohort_size=cohort_size)
    cohorts = cohorts_of(make_policy("round-robin", scenario))
    turn = math.ceil(7 / cohort_size)
    for window in range(len(cohorts) - turn + 1):
        assert set(cohorts[window : window + turn].ravel()) - {-1} == set(range(7))
    assert np.ptp(participations(cohorts, scenario)) <= 1


def test_best_channel_and_fastest__choose_by_gain_and_by_time():
    candidates = candidates_of(SMALL)
    best = np.argsort(-candidates.channel_gain)[:3]
    assert selection.BestChannel(SMALL).select(candidates).tolist() == best.tolist()
    fastest = np.argsort(candidates.time)[:3]
    assert selection.Fastest(SMALL).select(candidates).tolist() == fastest.tolist()


def test_proportional_fair__a_constant_factor_does_not_matter():
    # Two devices with the same gains but for a factor, told apart by their order alone.
    scenario = Scenario.cifar10(num_devices=2, cohort_size=1, num_rounds=2000)
    selector = started(selection.ProportionalFair(scenario))
    rng = np.random.default_rng(0)
    chosen = np.zeros(2)
    for number in range(1, 2001):
        gain = np.array([1.0, 0.01]) * ExponentialChannel().draw(rng, 1, 2)[0]
        chosen[selector.select(candidates_of(scenario, channel_gain=gain, number=number))] += 1
    assert abs(chosen[0] / 2000 - 0.5) < 2 / math.sqrt(2000)


def test_quickest__takes_the_least_time_within_its_energy():
    rng = np.random.default_rng(0)
    values = 10.0 ** rng.uniform([1, 7, -5, -1, -5], [2, 9, -1, 1, -1], (900, 5)).T
    names = "num_samples", "f_min", "p_min", "p_max", "energy_budget_j"
    scenario = Scenario.digits(num_devices=900, **dict(zip(names, values, strict=True)))
    gain = 10.0 ** rng.uniform(-3, 1, (3, 900))
    powers = np.geomspace(scenario.p_min, scenario.p_max, 24)[:, None]
    energy = scenario.energy_budget_j / (2 * scenario.weights)
    rest = energy - powers * physics.upload_time(gain, powers, scenario)
    allowed = np.sqrt(rest.clip(0) / scenario.energy_per_hz2)
    fs = allowed.clip(scenario.f_min, scenario.f_max)
    times, _ = physics.time_and_energy(gain, fs, powers, scenario)
    times[allowed < scenario.f_min] = np.inf
    best = times.argmin(axis=0)
    assert np.isinf(times[0]).any()  # nothing is allowed
    assert set(best.flat) == set(range(24))
    row, device = np.indices(gain.shape)
    f, p = Quickest(scenario).resources(gain)
    np.testing.assert_array_equal(p, powers[best, 0, device])
    np.testing.assert_allclose(f, fs[best, row, device], rtol=1e-9)


def test_quickest__at_a_large_constant_all_take_turns():
    policy = make_policy("quickest", SMALL, catch_up=1e9)
    for window in np.split(cohorts_of(policy)[:56], 8):  # three turns of seven rounds
        assert np.all(participations(window, SMALL) == 3)


def test_quickest__groups_of_like_devices_take_turns():
    scenario = Scenario.phones(num_devices=8, num_rounds=40)
    cohorts = np.sort(cohorts_of(make_policy("quickest", scenario, groups=4)), axis=1)
    speed = np.argsort(scenario.f_max)
    assert {tuple(each) for each in cohorts} == {
        tuple(sorted(pair)) for pair in speed.reshape(4, 2)
    }
    assert np.all(participations(cohorts, scenario) == 10)
    uneven = scenario.replace(num_samples=np.array([1.0, 1, 1, 1, 1, 1, 3, 3]) * 100)
    policy = make_policy("quickest", uneven, groups=2)
    shares = np.bincount(policy.selector._group, uneven.weights)
    np.testing.assert_allclose(shares, 0.5, atol=0.1)


def test_power_of_choice__draws_twice_the_cohort_by_the_data():
    samples = np.array([1.0, 2.0, 3.0, 4.0])
    scenario = Scenario.cifar10(num_devices=4, cohort_size=1, num_samples=samples)
    selector = started(PowerOfChoice(scenario))
    # Of the two that are drawn the larger is chosen; the last has never taken part.
    selector.learn({"participants": samples < 4, "local_losses": samples})
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


def authors_pools(arms, time, present, rounds, percentile, size):
    """By the authors' formulas, in plain Python: how many of which devices, by which odds.

    Of known and of new devices; an arm is (utility, last round or 0) of a device.
    """
    preferred = sorted(time)[min(int(len(time) * percentile / 100), len(time) - 1)]
    slow = [(preferred / t) ** 2 if t > preferred else 1.0 for t in time]
    rewards = sorted(arms[n][0] for n in present)
    low = 0.999 * rewards[0]
    clip = rewards[min(int(0.9 * len(rewards)), len(rewards) - 1)]
    odds = {}
    for n in present:
        utility, last = arms[n]
        if last:
            scaled = (min(utility, clip) - low) / max(rewards[-1] - low, 1e-4)
            odds[n] = (scaled + math.sqrt(0.1 * math.log(rounds) / last)) * slow[n]
    unseen = {n: arms[n][0] * slow[n] for n in present if not arms[n][1]}
    size = min(size, len(present))
    share = max(0.9 * 0.98**rounds, 0.3)
    count = max(min(size - max(int(size * share), 1), len(odds)), size - len(unseen))
    ranked = sorted(odds, key=odds.get, reverse=True)
    cut = 0.05 * odds[ranked[min(count, len(ranked) - 1)]] if ranked else 0.0
    known = [n for k, n in enumerate(ranked) if k <= 10 * count or odds[n] >= cut]
    new = sorted(unseen, key=unseen.get, reverse=True)[: 5 * (size - count)]
    return (count, {n: odds[n] for n in known}), (size - count, {n: unseen[n] for n in new})


@pytest.mark.parametrize(("cohort_size", "growth"), [(1, 1.0), (2, 0.1), (9, 1.0), (9, 8.0)])
def test_oort__chooses_by_the_formulas_of_its_authors(cohort_size, growth):
    rng = np.random.default_rng(cohort_size)
    samples = rng.integers(5, 100, 61)
    scenario = Scenario.cifar10(num_devices=61, cohort_size=cohort_size, num_samples=samples)
    selector = started(Oort(scenario))
    selector.learn({"participants": np.zeros(61) > 0, "local_loss_rms": np.zeros(61)})  # a reset
    arms = [(float(count), 0) for count in samples]
    gained = []  # mean utilities of known participants
    percentile = 30  # of T_pref
    for rounds in range(400):
        uniform = rng.random(61)
        time = rng.lognormal(size=61)
        there = rng.random(61) < 0.9
        candidates = candidates_of(scenario, time=time, available=there, _draw=lambda u=uniform: u)
        cohort = selector.select(candidates).tolist()
        present = np.flatnonzero(there).tolist()
        if rounds >= 40 and rounds % 20 == 0:
            before = sum(gained[-40:-20])
            change = abs(sum(gained[-20:]) - before)
            if change <= 0.1 * before:
                percentile = min(percentile + 5, 100)
            elif change >= 5 * before:
                percentile = max(percentile - 5, 5)
        expected = set()
        for count, odds in authors_pools(arms, time, present, rounds, percentile, cohort_size):
            # The first to arrive in independent exponential times: by the odds without replacement.
            arrival = {n: -math.log1p(-uniform[n]) / odds[n] for n in odds}
            expected |= set(sorted(arrival, key=arrival.get)[:count])
        assert set(cohort) == expected
        assert len(cohort) == cohort_size
        participants = np.isin(np.arange(61), cohort) & (rng.random(61) < 0.8)  # perhaps nobody
        rms = participants * growth ** (rounds // 20) * rng.lognormal(sigma=0.1, size=61)
        info = {"participants": participants, "local_loss_rms": rms, "energy_spent": rms}
        selector.learn(info)
        uploaded = np.flatnonzero(participants)
        of_known = [samples[n] * rms[n] for n in uploaded if arms[n][1]]
        gained.append(sum(of_known) / max(len(of_known), 1))
        for n in uploaded:
            arms[n] = samples[n] * rms[n], rounds + 1
    assert all(last for _, last in arms)  # everyone is seen
    if cohort_size == 9:  # T_pref has moved
        assert percentile == (100 if growth == 1 else 5)


def test_adaptive_sampling__no_optimiser_finds_better():
    norm = np.array([0.0, 0.2, 1.0, 1.5, 3.0, 0.4, 0.7])
    candidates = candidates_of(SMALL)
    selector = started(selection.AdaptiveSampling(SMALL))
    selector.learn({"participants": norm >= 0, "update_norms": norm})
    error = (SMALL.weights * norm) ** 2

    def cost(q: np.ndarray) -> float:
        errors = np.divide(error, q, out=np.zeros(7), where=error > 0)
        return float(np.sum(q * candidates.time) * np.sum(errors))

    def of_logits(z: np.ndarray) -> float:
        weights = np.exp(z - z.max())
        return math.log(cost(weights / weights.sum()))

    best = cost((selector.select(candidates) - 0.1 / 7) / 0.9)
    found = math.exp(optimize.minimize(of_logits, np.zeros(7), method="BFGS").fun)
    assert best == pytest.approx(found, rel=1e-3)
    assert best <= found * (1 + 1e-9)


def test_optimal_sampling__has_the_least_variance():
    rng = np.random.default_rng(0)
    norm = rng.exponential(size=6)
    q = norm_probabilities(norm)
    others = q * rng.lognormal(sigma=0.2, size=(500, 6))
    others /= others.sum(axis=1, keepdims=True)
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
    with pytest.raises(ValueError, match="run it with training"):
        policy.feedback({"energy_spent": np.zeros(7)})


def test_scheduler__takes_a_rule_of_the_users_own():
    def fast(gain, _, scenario, *__):
        return np.broadcast_arrays(scenario.f_max, scenario.p_max, gain)[:2]

    policy = Scheduler(own_policies.Last(SMALL), resources=fast)
    assert policy.name == "Last, fast"
    check_policy(policy)


class Slows(Selector):
    """Lowers all frequencies each time that it is asked, by a method that it keeps."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.resources = self.slower
        self.asked = [0]

    def slower(self, gain, *_):
        self.asked[0] += 1
        f = self.scenario.f_min + (self.scenario.f_max - self.scenario.f_min) / self.asked[0]
        return f + 0.0 * gain, self.scenario.p_max + 0.0 * gain

    def select(self, candidates):
        return smallest(candidates.queue, candidates.available, 1)


def test_scheduler__asks_a_copy_of_the_selector_once_a_round():
    selector = Slows(SMALL)
    policies = [Scheduler(selector) for _ in range(2)]
    times = [[info["round_time"] for info in played(policy)] for policy in policies]
    assert times[0] == times[1]
    assert times[0][-1] > times[0][0]
    assert [selector.asked, *(policy.selector.asked for policy in policies)] == [[0], [60], [60]]

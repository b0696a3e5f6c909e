"""Cheats that a ranking must not reward: each ends below ok, is refused, or gains nothing."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Allocation, Scenario, TraceChannel
from fl_edge_env.streams import Streams
from policies import (
    LROA,
    Opportunistic,
    Policy,
    UniD,
    UniS,
    check_policy,
    evaluate,
    make_policy,
)
from policies.benchmark.runner import RunsFailedError

SEEDS = range(5)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """Ten fast and ten slow devices; a V with which the queues are filled early in an episode."""
    cycles = Scenario.digits().cycles_per_sample
    cycles = np.where(np.arange(20) < 10, 1.0, 1.5) * np.mean(cycles)
    system = Scenario.digits(
        num_devices=20, num_rounds=300, energy_budget_j=0.09, cycles_per_sample=cycles
    )
    return system.replace(V=0.1 * system.V)


def judged(policy: Policy, scenario: Scenario, seeds: range = SEEDS) -> tuple[str, str]:
    row = evaluate([policy], scenario, seeds, gaps=False).iloc[0]
    return row["status"], row["status_reason"]


@pytest.mark.parametrize(
    "name", ["lroa", "uni-d", "opportunistic", "round-robin:static", "round-robin:dynamic"]
)
def test_status__of_those_who_keep_to_the_constraints_is_ok(name, scenario):
    assert judged(make_policy(name, scenario), scenario) == ("ok", "")


class Inflated(Policy):
    """Lets another policy decide for budgets that are larger than they are."""

    def __init__(self, scenario: Scenario, kind: type[Policy], factor: float) -> None:
        super().__init__(scenario)
        self._budget = factor * scenario.energy_budget_j
        self._inner = kind(scenario.replace(energy_budget_j=self._budget, V=scenario.V))

    def reset(self, seed):
        self._inner.reset(seed)
        self._queue = np.zeros((*np.shape(seed), self.scenario.num_devices))

    def feedback(self, info):
        self._inner.feedback(info)
        if "energy_expected" in info:
            self._queue = np.maximum(self._queue + info["energy_expected"] - self._budget, 0.0)

    def decide(self, observation):
        return self._inner.decide(dict(observation) | {"queue": self._queue})


class FastHalf(Inflated):
    """Takes no notice of the slow devices."""

    def decide(self, observation):
        fast = np.broadcast_to(np.arange(20) < 10, observation["channel_gain"].shape)
        return super().decide(dict(observation) | {"available": fast})


@pytest.mark.parametrize("kind", [LROA, UniD, Opportunistic])
def test_status__of_all_budgets_a_little_larger(kind, scenario):
    status, reason = judged(Inflated(scenario, kind, 1.045), scenario)
    assert status == "over budget"
    assert reason.startswith("all devices on average ")
    assert 4 < float(reason.split()[4]) < 7


def test_status__of_half_the_devices_with_larger_budgets(scenario):
    cheat = FastHalf(scenario, Opportunistic, 1.65)
    table = evaluate([Opportunistic(scenario), cheat], scenario, SEEDS, gaps=False)
    honest, cheat = (rows for _, rows in table.groupby("policy", sort=False))
    assert cheat["total_time"].mean() < 0.8 * honest["total_time"].mean()
    assert set(honest["status"]) == {"ok"}
    assert set(cheat["status"]) == {"over budget"}
    assert cheat["status_reason"].iloc[0].startswith("10 of 20 devices up to ")
    assert cheat["status_reason"].iloc[0].endswith("leaves out 10 of 20")


class Drawn(Policy):
    """Draws with given probabilities; frequencies low enough to meet the budgets by far."""

    def __init__(self, scenario: Scenario, q: np.ndarray) -> None:
        super().__init__(scenario)
        self._q = q / q.sum()

    def decide(self, _):
        return Allocation(self.scenario.f_min, 0.03, q=self._q)


@pytest.mark.parametrize("share", [0.02, 1e-9])
def test_status__of_draws_that_hardly_reach_half_of_the_devices(share, scenario):
    # The weights w / (K q) make the expected influence one, whatever the probabilities.
    assert judged(Drawn(scenario, np.ones(20)), scenario) == ("ok", "")
    policy = Drawn(scenario, np.where(np.arange(20) < 10, 1.0, share))
    assert judged(policy, scenario) == ("leaves out", "leaves out 10 of 20")


class OneBest(Policy):
    """Draws the device with the best channel all but always, and so alone."""

    def decide(self, observation):
        gain = observation["channel_gain"]
        best = np.arange(20) == gain.argmax(axis=-1, keepdims=True)
        return Allocation(self.scenario.f_min, 0.03, q=np.where(best, 0.981, 0.001))


def test_status__of_draws_of_one_device(scenario):
    status, reason = judged(OneBest(scenario), scenario)
    assert status == "leaves out"
    assert reason.endswith("fills 53 % of the cohort")


class Turns(Policy):
    """Devices in turns, the second half `rare` times as seldom, with so much more weight."""

    def __init__(
        self, scenario: Scenario, *, rare: int = 1, size: int = 2, factor: float = 1.0
    ) -> None:
        super().__init__(scenario)
        self._rare = rare
        self._size = size
        self._factor = factor

    def reset(self, _):
        self._turn = 0

    def decide(self, _):
        order = np.concatenate([np.tile(np.arange(10), self._rare), np.arange(10, 20)])
        cohort = order[(2 * self._turn + np.arange(2)) % len(order)]
        self._turn += 1
        weights = np.where(cohort < 10, 1.0, self._rare) * len(order) / 20 / 2 / self._rare
        cohort = np.where(np.arange(2) < self._size, cohort, -1)
        weights = np.where(cohort < 0, 0.0, self._factor * weights)
        return Allocation(self.scenario.f_min, 0.03, cohort=cohort, weights=weights)


@pytest.mark.parametrize("rare", [1, 2, 4, 9])
def test_status__of_large_weights_for_rare_devices(rare, scenario):
    # Half of the devices take part `rare` times as seldom, and count as much as others by weights.
    policy = Turns(scenario.replace(num_rounds=10 * (rare + 1)), rare=rare)
    row = evaluate([policy], policy.scenario, SEEDS, gaps=False).iloc[0]
    least = 2 / (rare + 1)
    assert row["least_participation"] == pytest.approx(least)
    assert row["influence"] == pytest.approx(min(1.25 * least, 1.0))
    lack = "devices lack 17 % of all participation"
    reason = {1: "", 2: lack}.get(rare, "leaves out 10 of 20")
    assert (row["status"], row["status_reason"]) == ("leaves out" if reason else "ok", reason)


class SlowLessOften(Opportunistic):
    """Lets the slow devices take part 0.6 times as often as their data ask for."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._target = self._target * np.where(np.arange(20) < 10, 1.4, 0.6)


@pytest.mark.parametrize("availability", [1.0, 0.4])
def test_status__of_slow_devices_that_take_part_less_often(availability, scenario):
    system = scenario.replace(availability=availability, energy_budget_j=0.2)
    assert judged(Opportunistic(system), system) == ("ok", "")
    status, reason = judged(SlowLessOften(system), system)
    assert status == "leaves out"
    assert reason.startswith("devices lack ")


def test_status__of_steps_that_are_longer_than_the_data_ask_for(scenario):
    assert judged(Turns(scenario, factor=1.05), scenario) == ("ok", "")
    told = "overweights", "weights of a round sum to 1.20"
    assert judged(Turns(scenario, factor=1.2), scenario) == told


class Learning(gym.Wrapper):
    """Replaces training: each round adds 1 % to the accuracy."""

    accuracy = 0.0

    def step(self, action):
        *result, info = self.env.step(action)
        self.accuracy += 0.01
        return *result, info | {"client_updates": 2, "test_accuracy": self.accuracy}


class Sprint(Turns):
    """Spends the energy of later rounds, or takes long steps, in the first twenty."""

    def __init__(self, scenario: Scenario, *, energy: float = 1.0, factor: float = 1.0) -> None:
        super().__init__(scenario, factor=factor)
        self._energy = energy

    def decide(self, _):
        decision = super().decide(_)
        early = self._turn <= 20
        f = 1e9 * np.sqrt(self._energy if early else 1 / self._energy)
        weights = decision.weights if early else decision.weights / self._factor**2
        return Allocation(f, 0.01, cohort=decision.cohort, weights=weights)


@pytest.mark.parametrize(
    ("cheat", "status", "reason"),
    [
        ({}, "ok", ""),
        ({"energy": 3.0}, "over budget", "until the target: all devices on average 28.0 % over"),
        ({"factor": 1.2}, "overweights", "until the target: weights of a round sum to 1.20"),
    ],
)
def test_status__of_a_sprint_to_the_target(cheat, status, reason, scenario):
    system = scenario.replace(num_rounds=40, f_min=5e8)

    def make_env(_):
        return Learning(gym.make("FLEdge-v0", scenario=system))

    def run(target):
        args = {"make_env": make_env, "target_accuracy": target, "gaps": False}
        return evaluate([Sprint(system, **cheat)], system, SEEDS, **args).iloc[0]

    assert run(1.0)["status"] == "ok"  # which no run reaches
    row = run(0.2)
    assert row["status"] == status
    assert row["status_reason"].startswith(reason)


class NeverHalf(Turns):
    """Asks the first half alone."""

    def decide(self, _):
        self._turn += 1
        cohort = np.arange(2) + 2 * (self._turn % 5)
        return Allocation(self.scenario.f_min, 0.03, cohort=cohort)


def test_status__of_runs_in_which_there_is_no_time_to_ask_all(scenario):
    short = scenario.replace(num_rounds=8)
    told = "leaves out", "leaves out 10 of 20"
    assert judged(NeverHalf(short), short) == told
    assert judged(make_policy("random:static", short), short) == ("ok", "")
    # Of a single run it is not known.
    told = "too short", "too short: a device's fair share is 0.8 participations"
    assert judged(NeverHalf(short), short, [0]) == told


def test_status__of_cohorts_of_one(scenario):
    status, reason = judged(Turns(scenario, size=1), scenario)
    assert status == "leaves out"
    assert reason.endswith("fills 50 % of the cohort")


class OneInTime(Policy):
    """Names all devices in turns, and waits for a fast one alone in each round."""

    def __init__(self, scenario: Scenario, *, first: int | None = None) -> None:
        super().__init__(scenario)
        self._first = first

    def reset(self, _):
        self._turn = 0

    def decide(self, _):
        # The slow ones of a deadline crawl, which costs little; those of `first` only have to wait.
        idle = (np.arange(20) < 10) | (self._first is not None)
        p = np.where(idle, 0.03, 0.001)
        cohort = np.array([self._turn % 10, 10 + self._turn % 10])
        self._turn += 1
        return Allocation(self.scenario.f_min, p, cohort=cohort, first=self._first)


def test_status__of_cohorts_with_hopelessly_late_devices(scenario):
    system = scenario.replace(deadline_s=13.5)  # which all meet at the power of the honest one
    assert judged(Turns(system), system) == ("ok", "")
    status, reason = judged(OneInTime(system), system)
    assert (status, reason[:20]) == ("leaves out", "leaves out 10 of 20,")


def test_status__of_waiting_for_one_alone(scenario):
    policies = [Turns(scenario), OneInTime(scenario, first=1)]
    honest, cheat = evaluate(policies, scenario, [0], gaps=False).itertuples()
    assert cheat.total_time < 0.9 * honest.total_time
    status, reason = judged(policies[1], scenario)
    assert status == "leaves out"
    assert reason.endswith("fills 50 % of the cohort")


class MoreBudget(Opportunistic):
    """Doubles the budgets of its scenario when nobody looks any more."""

    def reset(self, seed):
        super().reset(seed)
        self._left = 40

    def decide(self, observation):
        self._left -= 1
        if self._left == 0:
            self.scenario.energy_budget_j.setflags(write=True)
            self.scenario.energy_budget_j[...] *= 2
        return super().decide(observation)


def test_status__of_writing_into_the_scenario(scenario):
    before = scenario.energy_budget_j.copy()
    assert judged(MoreBudget(scenario), scenario)[0] == "over budget"
    np.testing.assert_array_equal(scenario.energy_budget_j, before)


class Unlike(Allocation):
    """A decision that could say something else each time that it is asked."""


class Liar(UniD):
    def decide(self, observation):
        told = super().decide(observation)
        return Unlike(told.f, told.p, told.q)


def test_status__decisions_of_another_class_are_refused(scenario):
    message = "must return an Allocation, got Unlike"
    with pytest.raises(RunsFailedError, match=message):
        evaluate([Liar(scenario)], scenario, SEEDS, gaps=False)
    with pytest.raises(ValueError, match=message):
        check_policy(Liar(scenario))


SYSTEM = Scenario.cifar10(num_rounds=60)


class Prophet(Policy):
    """Takes its seed for the environment's, from which follows who will be drawn.

    Only these devices are given speed. The energy expected of a round, a mean over the draw, is
    then less than half of the budget.
    """

    def reset(self, seed):
        self.number = 0
        self.draws = [self._draws(one) for one in np.atleast_1d(seed).tolist()]

    def _draws(self, seed):
        streams = Streams(self.scenario)
        streams.start_episode(seed)
        return streams.next_rounds(self.scenario.num_rounds).draws

    def decide(self, observation):
        scenario = self.scenario
        honest = UniS(scenario).decide(observation)
        f = honest.f.copy()
        p = honest.p.copy()
        cdf = np.atleast_2d(honest.q)[0].cumsum()
        for row, draws in enumerate(self.draws):
            fast = np.zeros(scenario.num_devices, bool)
            fast[np.searchsorted(cdf, draws[self.number], side="right")] = True
            np.atleast_2d(f)[row] = np.where(fast, scenario.f_max, scenario.f_min)
            np.atleast_2d(p)[row] = np.where(fast, scenario.p_max, scenario.p_min)
        self.number += 1
        return Allocation(f, p, honest.q)


class Told(Prophet):
    """Is told the environment's seeds."""

    def reset(self, _):
        super().reset(SEEDS)


def test_evaluate__a_policys_seed_reveals_no_draw():
    policies = Told(SYSTEM), Prophet(SYSTEM), UniS(SYSTEM)
    runs = evaluate(policies, SYSTEM, SEEDS, gaps=False)
    assert runs["worst_energy_ratio"][: len(SEEDS)].max() < 0.6
    times = runs.pivot(index="seed", columns="policy", values="total_time")
    assert (times["Told"] < 0.8 * times["Uni-S"]).all()
    assert (times["Prophet"] > times["Uni-S"]).all()


class Writer(UniS):
    """Writes into all that it is given."""

    def decide(self, observation):
        decision = super().decide(observation)
        self._write(observation)
        return decision

    def feedback(self, info):
        self._write(info)

    def _write(self, given):
        for name, value in dict(given).items():
            try:
                value.flags.writeable = True
                value *= 0
                given[name] = value
            except (AttributeError, TypeError):  # of numbers, and of a mapping that is read-only
                pass


def test_evaluate__writing_into_given_arrays_changes_nothing():
    runs = evaluate([Writer(SYSTEM), UniS(SYSTEM)], SYSTEM, SEEDS, gaps=False)
    wrote, honest = (one.drop(columns="policy") for _, one in runs.groupby("policy", sort=False))
    pd.testing.assert_frame_equal(wrote.reset_index(drop=True), honest.reset_index(drop=True))


class Foresight(UniS):
    """Looks for the coming gains in all that its scenario holds, a record in order or its file."""

    found = 0

    def decide(self, observation):
        seen = np.atleast_2d(observation["channel_gain"])[0]
        held = vars(self.scenario.channel).values()
        tables = [v for v in held if isinstance(v, np.ndarray) and v.ndim == 2]
        tables += [pd.read_csv(v).gain.to_numpy().reshape(-1, 4) for v in held if _is_file(v)]
        Foresight.found += sum(np.isclose(table, seen).all(axis=1).any() for table in tables)
        return super().decide(observation)


def _is_file(value):
    return isinstance(value, str) and Path(value).is_file()


def test_make_policy__shows_no_future_gains(tmp_path):
    rng = np.random.default_rng(0)
    pairs = pd.MultiIndex.from_product([range(200), range(4)], names=["round", "device"])
    gains = pd.DataFrame({"gain": rng.uniform(0.01, 0.5, 800)}, index=pairs)
    gains.reset_index().to_csv(tmp_path / "trace.csv", index=False)
    channel = TraceChannel(tmp_path / "trace.csv")
    fields = {"num_samples": 50_000 / 120, "energy_budget_j": 150, "channel": channel}
    system = Scenario(num_devices=4, num_rounds=30, **fields)
    evaluate([Foresight(system)], system, SEEDS, gaps=False)
    assert Foresight.found == 60  # in the record and in the file
    Foresight.found = 0
    evaluate([make_policy(f"{__name__}:Foresight", system)], system, SEEDS, gaps=False)
    assert Foresight.found == 0
    for name, kind in {"lroa": LROA, "uni-d": UniD, "opportunistic": Opportunistic}.items():
        plain, named = (
            evaluate([policy], system, SEEDS, gaps=False)
            for policy in (kind(system), make_policy(name, system))
        )
        # Opportunistic begins with prices from a sample of the channel.
        tolerance = 0.01 if kind is Opportunistic else 0.0
        pd.testing.assert_frame_equal(plain, named, rtol=tolerance, atol=0.0)
        assert plain["total_time"].nunique() > 3  # seeds are replicates

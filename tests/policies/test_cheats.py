"""Cheats that a ranking must not reward: each ends below ok, is refused, or gains nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Allocation, Scenario, TraceChannel
from fl_edge_env.aggregation import in_time
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


class Bent(Opportunistic):
    """Steers devices to other targets and budgets than they have, by run and round.

    `plan` gives the factors on both, for each device, from a run's generator, what the run
    remembers, and the fraction of the rounds that are over.
    """

    def __init__(self, scenario: Scenario, plan: Callable[..., tuple[Any, Any]]) -> None:
        super().__init__(scenario, step_scale=3.0)  # so that prices follow
        self.plan = plan

    def reset(self, seed):
        super().reset(seed)
        self.runs = [(np.random.default_rng(one), {}) for one in np.atleast_1d(seed)]
        self.round = 0

    def feedback(self, info):
        if "energy_spent" in info:
            over = self.round / self.scenario.num_rounds
            self.round += 1
            ones = np.ones(self.scenario.num_devices)
            plans = [self.plan(*run, over) for run in self.runs]
            target, budget = (np.array([plan[i] * ones for plan in plans]) for i in range(2))
            # As the honest one, with other targets and budgets.
            missing = target * self._target - in_time(info)
            excess = info["energy_spent"] - budget * self.scenario.energy_budget_j
            self._energy = np.maximum(self._energy + self._energy_step * excess, 0.0)
            self._participation = self._participation + self._participation_step * missing


def always(target, budget):
    return lambda *_: (target, budget)


def victims(share, number, changes=1):
    """Devices, `number` of 20 that are drawn anew `changes` times a run, get a `share`."""

    def plan(rng, known, over):
        few = known.setdefault(int(over * changes), rng.permutation(20) < number)
        return np.where(few, share, (20 - share * number) / (20 - number)), 1.0

    return plan


def by_run(low, high):
    return lambda rng, known, _: (1.0, known.setdefault("budget", rng.choice([low, high])))


SLOW = np.arange(20) >= 10  # see `scenario`
PLANS = {
    "all budgets 2.9 % larger": always(1.0, 1.029),
    "empty places and larger budgets": always(0.915, 1.07),
    "budgets drawn for each run": by_run(1.04, 1.20),
    "one device never": victims(0.0, 1),
    "two devices at half their share": victims(0.5, 2),
    "half the devices at 0.8 of their share": victims(0.8, 10),
    "a third at 0.5, others in each quarter": victims(0.5, 7, changes=4),
    "slow devices at 0.8": always(np.where(SLOW, 0.8, 1.2), 1.0),
    "energy moved to slow devices": always(1.0, np.where(SLOW, 1.15, 0.85)),
    "double budgets in the last tenth": lambda *run: (1.0, 2.0 if run[2] > 0.9 else 1.0),
    "slow devices left out in the last tenth": lambda *run: (
        np.where(SLOW & (run[2] > 0.9), 0.0, 1.0),
        1.0,
    ),
}


def test_ranks__cannot_be_bought(scenario):
    policies = [Opportunistic(scenario)]
    for name, plan in PLANS.items():
        policies.append(Bent(scenario, plan))
        policies[-1].name = name
    runs = evaluate(policies, scenario, SEEDS, gaps=False).set_index("policy")
    times = runs["priced_time"].groupby("policy").mean()
    ok = runs["status"].groupby("policy").first() == "ok"
    assert ok["Opportunistic"]
    assert times[ok].min() > 0.99 * times["Opportunistic"]
    # Some are shorter, and some lose their status.
    assert runs["total_time"].groupby("policy").mean().min() < 0.99 * times["Opportunistic"]
    assert 0 < (~ok).sum() < len(PLANS)


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


@pytest.mark.parametrize("kind", [LROA, UniD, Opportunistic])
def test_ranks__larger_budgets_gain_nothing(kind, scenario):
    cheat = Inflated(scenario, kind, 1.08)
    runs = evaluate([kind(scenario), cheat], scenario, SEEDS, gaps=False)
    honest, cheat = (each for _, each in runs.groupby("policy", sort=False))
    assert cheat["total_time"].mean() < 0.98 * honest["total_time"].mean()
    assert cheat["priced_time"].mean() > 0.99 * honest["priced_time"].mean()


class Drawn(Policy):
    """Draws with given probabilities; frequencies low enough to meet the budgets by far."""

    def __init__(self, scenario: Scenario, q: np.ndarray) -> None:
        super().__init__(scenario)
        self._q = q / q.sum()

    def decide(self, _):
        return Allocation(self.scenario.f_min, 0.03, q=self._q)


@pytest.mark.parametrize("share", [0.2, 0.02, 1e-9])
def test_status__of_draws_that_hardly_reach_half_of_the_devices(share, scenario):
    # The weights w / (K q) make the expected influence one, whatever the probabilities.
    assert judged(Drawn(scenario, np.ones(20)), scenario) == ("ok", "")
    policy = Drawn(scenario, np.where(np.arange(20) < 10, 1.0, share))
    assert judged(policy, scenario)[0] == "leaves out"


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
    rounds = 10 * (rare + 1) * max(1, 20 // rare)
    policy = Turns(scenario.replace(num_rounds=rounds), rare=rare)
    row = evaluate([policy], policy.scenario, SEEDS, gaps=False).iloc[0]
    least = 2 / (rare + 1)
    measured = row[["least_participation", "influence", "lack"]].tolist()
    assert measured == pytest.approx([least, 1.0, (1 - least) / 2])
    assert row["status"] == ("leaves out" if rare > 1 else "ok")


class Zeros(Turns):
    """Lets the slow devices take part, but not count."""

    def decide(self, observation):
        told = super().decide(observation)
        weights = np.where(told.cohort < 10, told.weights, 0.0)
        return Allocation(told.f, told.p, cohort=told.cohort, weights=weights)


def test_status__of_weights_of_zero(scenario):
    row = evaluate([Zeros(scenario)], scenario, SEEDS, gaps=False).iloc[0]
    assert row["least_participation"] == pytest.approx(1.0)
    assert row["lack"] == pytest.approx(0.5)
    assert row["status"] == "leaves out"


def test_status__of_steps_that_are_longer_than_the_data_ask_for(scenario):
    assert judged(Turns(scenario, factor=1.05), scenario) == ("ok", "")
    told = "overweights", "the weights of a round sum to 1.20"
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


def test_ranks__of_a_sprint_to_the_target(scenario):
    system = scenario.replace(num_rounds=100, f_min=5e8)
    policies = [Sprint(system), Sprint(system, energy=3.0), Sprint(system, factor=1.2)]
    for policy, name in zip(policies, ("honest", "spends", "strides"), strict=True):
        policy.name = name

    def run(target):
        args = {"target_accuracy": target, "gaps": False}
        maker = lambda _: Learning(gym.make("FLEdge-v0", scenario=system))  # noqa: E731
        return evaluate(policies, system, SEEDS, make_env=maker, **args).groupby("policy").first()

    # No run reaches the whole; light rounds then count less than they should.
    assert run(1.0)["status"].tolist() == ["ok", "ok", "leaves out"]
    runs = run(0.2)
    assert runs["time_to_target"]["spends"] < 0.95 * runs["time_to_target"]["honest"]
    owed = runs["priced_time_to_target"] - runs["time_to_target"]
    assert owed["spends"] > max(0.0, owed["honest"])
    assert runs["status"].tolist() == ["ok", "ok", "leaves out, overweights"]


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
    assert judged(OneInTime(system), system)[0] == "leaves out"


def test_status__of_waiting_for_one_alone(scenario):
    policies = [Turns(scenario), OneInTime(scenario, first=1)]
    honest, cheat = evaluate(policies, scenario, [0], gaps=False).itertuples()
    assert cheat.total_time < 0.9 * honest.total_time
    assert judged(policies[1], scenario)[0] == "leaves out"


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
    """Writes into all that it is given, and into what its decision caches."""

    def decide(self, observation):
        decision = super().decide(observation)
        decision = Allocation(decision.f, decision.p, cohort=[0, 1])
        self._write(observation)
        self._write({"participates": decision.participates})
        return decision

    def feedback(self, info):
        self._write(info)

    def _write(self, given):
        for name, value in dict(given).items():
            try:
                value.flags.writeable = True
                value[:] = np.roll(value, 1)
                given[name] = value
            except (AttributeError, TypeError):  # of numbers, and of a mapping that is read-only
                pass


class FirstTwo(Writer):
    def _write(self, given):
        pass


def test_evaluate__writing_into_arrays_changes_nothing():
    runs = evaluate([Writer(SYSTEM), FirstTwo(SYSTEM)], SYSTEM, SEEDS, gaps=False)
    wrote, honest = (one.drop(columns="policy") for _, one in runs.groupby("policy", sort=False))
    pd.testing.assert_frame_equal(wrote.reset_index(drop=True), honest.reset_index(drop=True))


class Foresight(UniS):
    """Looks for the coming gains in all that its scenario holds, a record in order or its file."""

    found = 0

    def decide(self, observation):
        seen = np.atleast_2d(observation["channel_gain"])[0]
        held = vars(self.scenario.channel).values()
        tables = [v for v in held if isinstance(v, np.ndarray) and v.ndim == 2]
        files = [v for v in held if isinstance(v, str) and Path(v).is_file()]
        tables += [pd.read_csv(file).gain.to_numpy().reshape(-1, 4) for file in files]
        Foresight.found += sum(np.isclose(table, seen).all(axis=1).any() for table in tables)
        return super().decide(observation)


@pytest.mark.filterwarnings("ignore:the results of Foresight")  # its class counts
def test_make_policy__shows_no_future_gains(tmp_path):
    rng = np.random.default_rng(0)
    pairs = pd.MultiIndex.from_product([range(200), range(4)], names=["round", "device"])
    gains = pd.DataFrame({"gain": rng.uniform(0.01, 0.5, 800)}, index=pairs)
    gains.reset_index().to_csv(tmp_path / "trace.csv", index=False)
    channel = TraceChannel(tmp_path / "trace.csv")
    fields = {"num_samples": 50_000 / 120, "energy_budget_j": 150, "channel": channel}
    system = Scenario(num_devices=4, num_rounds=30, **fields)
    evaluate([Foresight(system)], system, SEEDS, gaps=False)
    assert Foresight.found >= 60  # in the record and in the file
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
        pd.testing.assert_frame_equal(plain, named, rtol=tolerance, atol=tolerance)
        assert plain["total_time"].nunique() > 3  # seeds are replicates

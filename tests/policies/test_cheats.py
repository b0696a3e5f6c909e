"""Cheats that a ranking must not reward: each ends below ok, is refused, or gains nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Allocation, FLEdgeEnv, Scenario, TraceChannel
from fl_edge_env.aggregation import in_time
from policies import Opportunistic, Policy, UniD, UniS, evaluate, make_policy
from policies.benchmark.runner import RunsFailedError
from policies.outcome import DualPrices
from tests.support import spoil

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


class Bent(Opportunistic):
    """Steers devices to other targets and budgets than they have, by run and round.

    `plan` gives the factors on both, for each run and device, from an order of the devices that is
    drawn for each run and the fraction of the rounds that are over.
    """

    def __init__(self, scenario: Scenario, name: str, plan: Callable) -> None:
        super().__init__(scenario, step_scale=3.0)  # so that prices follow
        self.name = name
        self.plan = plan

    def reset(self, seed):
        super().reset(seed)
        self.order = np.array(
            [np.random.default_rng(one).permutation(20) for one in np.atleast_1d(seed)]
        )
        self.round = 0

    def feedback(self, info):
        if "energy_spent" in info:
            target, budget = self.plan(self.order, self.round / self.scenario.num_rounds)
            self.round += 1
            # As the honest one, with other targets and budgets.
            missing = target * self._target - in_time(info)
            excess = info["energy_spent"] - budget * self.scenario.energy_budget_j
            energy = self._own.energy + self._jump / self._allowed**2 * excess
            participation = self._own.participation + self._jump * missing
            self._moved = DualPrices(np.maximum(energy, 0.0), participation)


def victims(share, number):
    """`number` devices of each run get a `share`, and the others the rest."""
    return lambda order, _: (
        np.where(order < number, share, (20 - share * number) / (20 - number)),
        1.0,
    )


SLOW = np.arange(20) >= 10  # see `scenario`
PLANS = {
    "honest": lambda *_: (1.0, 1.0),
    "all budgets 2.9 % larger": lambda *_: (1.0, 1.029),
    "all budgets 20 % larger": lambda *_: (1.0, 1.2),
    "empty places and larger budgets": lambda *_: (0.915, 1.07),
    "budgets drawn for each run": lambda order, _: (
        1.0,
        np.where(order[:, :1] < 10, 1.04, 1.20),
    ),
    "one device never": victims(0.0, 1),
    "two devices at half their share": victims(0.5, 2),
    "half the devices at 0.8 of their share": victims(0.8, 10),
    "slow devices at 0.8": lambda *_: (np.where(SLOW, 0.8, 1.2), 1.0),
    "energy moved to slow devices": lambda *_: (1.0, np.where(SLOW, 1.15, 0.85)),
    "double budgets in the last tenth": lambda _, over: (1.0, 2.0 if over > 0.9 else 1.0),
    "slow devices left out in the last tenth": lambda _, over: (1.0 - SLOW * (over > 0.9), 1.0),
}


def test_ranks__cannot_be_bought(scenario):
    policies = [Bent(scenario, *plan) for plan in PLANS.items()]
    runs = evaluate(policies, scenario, SEEDS, gaps=False).set_index("policy")
    times = runs.groupby("policy")[["total_time", "priced_time"]].mean()
    relative = times / times.loc["honest"]
    ok = runs["status"].groupby("policy").first() == "ok"
    assert ok["honest"]
    assert relative["priced_time"].min() > 0.995
    # Some are shorter, and some lose their status.
    assert relative["total_time"].min() < 0.97
    assert 0 < (~ok).sum() < len(PLANS)


class Drawn(Policy):
    """Draws slow devices less often; frequencies low enough to meet the budgets by far."""

    def __init__(self, scenario: Scenario, share: float) -> None:
        super().__init__(scenario)
        q = np.where(SLOW, share, 1.0)
        self._decision = Allocation(scenario.f_min, 0.03, q=q / q.sum())

    def decide(self, _):
        return self._decision


class Turns(Policy):
    """Devices in turns, slow ones `rare` times as seldom, which count as much if `slow` is 1."""

    def __init__(
        self, scenario: Scenario, *, rare: int = 1, slow: float = 1.0, factor: float = 1.0
    ) -> None:
        super().__init__(scenario)
        self._order = np.concatenate([np.tile(np.arange(10), rare), np.arange(10, 20)])
        weights = np.where(SLOW, slow, 1 / rare)
        self._weights = factor * weights * len(self._order) / 40

    def reset(self, _):
        self._turn = 0

    def decide(self, _):
        cohort = np.take(self._order, 2 * self._turn + np.arange(2), mode="wrap")
        self._turn += 1
        return Allocation(self.scenario.f_min, 0.03, cohort=cohort, weights=self._weights[cohort])


class OneInTime(Policy):
    """Names all devices in turns, and waits for a fast one alone in each round."""

    def __init__(self, scenario: Scenario, *, first: int | None = None) -> None:
        super().__init__(scenario)
        self._first = first

    def reset(self, _):
        self._turn = 0

    def decide(self, _):
        # The slow ones crawl, which costs little.
        p = np.where(SLOW, 0.001, 0.03)
        cohort = self._turn % 10 + np.array([0, 10])
        self._turn += 1
        return Allocation(self.scenario.f_min, p, cohort=cohort, first=self._first)


class MoreBudget(Opportunistic):
    """Doubles the budgets of its scenario when nobody looks any more."""

    def reset(self, seed):
        super().reset(seed)
        self._left = 60  # more than `evaluate` plays to look for hidden state

    def decide(self, observation):
        self._left -= 1
        if self._left == 0:
            self.scenario.energy_budget_j.setflags(write=True)
            self.scenario.energy_budget_j[...] *= 2
        return super().decide(observation)


HONEST = "lroa", "uni-d", "opportunistic", "round-robin:static", "round-robin:dynamic"
IN_TIME = {"deadline_s": 13.5}  # which all meet at the power of the honest one


@pytest.mark.parametrize(
    ("make", "options", "fields", "status"),
    [
        *((partial(make_policy, name), {}, {}, "ok") for name in HONEST),
        # The weights w / (K q) make the expected influence one, whatever the probabilities.
        (Drawn, {"share": 1.0}, {}, "ok"),
        (Drawn, {"share": 0.2}, {}, "leaves out"),
        (Drawn, {"share": 1e-9}, {}, "leaves out"),
        (Turns, {}, {}, "ok"),
        (Turns, {}, IN_TIME, "ok"),
        (Turns, {"factor": 1.009}, {}, "ok"),
        (Turns, {"factor": 1.02}, {}, "overweights"),
        (OneInTime, {}, IN_TIME, "leaves out"),
        (OneInTime, {"first": 1}, {}, "leaves out"),
        (MoreBudget, {}, {}, "over budget"),
    ],
)
def test_status__is_ok_for_the_honest_alone(make, options, fields, status, scenario):
    system = scenario.replace(**fields)
    runs = evaluate([make(system, **options)], system, SEEDS, gaps=False)
    assert set(runs["status"]) == {status}


@pytest.mark.parametrize(
    ("options", "least", "influence", "lack"),
    [
        ({"rare": 2}, 2 / 3, 1.0, 1 / 6),
        ({"rare": 9}, 1 / 5, 1.0, 2 / 5),
        ({"slow": 0.0}, 1.0, 0.0, 1 / 2),
    ],
)
def test_status__of_weights_for_rare_and_against_slow(options, least, influence, lack, scenario):
    row = evaluate([Turns(scenario, **options)], scenario, [0], gaps=False).iloc[0]
    measured = row[["least_participation", "influence", "lack"]].tolist()
    assert measured == pytest.approx([least, influence, lack])
    assert row["status"] == "leaves out"


class Learning(gym.Wrapper):
    """Replaces training: each round adds 1 % to the accuracy."""

    accuracy = 0.0

    def step(self, action):
        *result, info = self.env.step(action)
        self.accuracy += 0.01
        return *result, info | {"client_updates": 2, "test_accuracy": self.accuracy}


class Sprint(Turns):
    """Spends the energy of later rounds, or takes long steps, in the first twenty."""

    def __init__(self, scenario: Scenario, name: str, energy: float, factor: float) -> None:
        super().__init__(scenario)
        self.name = name
        self._factors = energy, factor

    def decide(self, _):
        decision = super().decide(_)
        energy, factor = self._factors if self._turn <= 20 else 1 / np.array(self._factors)
        f = 1e9 * np.sqrt(energy)
        return Allocation(f, 0.01, cohort=decision.cohort, weights=factor * decision.weights)


def test_ranks__of_a_sprint_to_the_target(scenario):
    system = scenario.replace(num_rounds=100, f_min=5e8)
    sprints = ("honest", 1.0, 1.0), ("spends", 3.0, 1.0), ("strides", 1.0, 1.2)
    runs = evaluate(
        [Sprint(system, *sprint) for sprint in sprints],
        system,
        SEEDS,
        make_env=lambda _: Learning(gym.make("FLEdge-v0", scenario=system)),
        target_accuracy=0.2,
        gaps=False,
    )
    runs = runs.groupby("policy").first()
    assert runs["time_to_target"]["spends"] < 0.95 * runs["time_to_target"]["honest"]
    owed = runs["priced_time_to_target"] - runs["time_to_target"]
    assert owed["spends"] > max(0.0, owed["honest"])
    assert runs["status"].tolist() == ["ok", "ok", "overweights"]


class Unlike(Allocation):
    """A decision that could say something else each time that it is asked."""


class Liar(UniD):
    def decide(self, observation):
        decision = super().decide(observation)
        return Unlike(decision.f, decision.p, decision.q)


def test_evaluate__refuses_decisions_of_another_class(scenario):
    with pytest.raises(RunsFailedError, match="must return an Allocation, got Unlike"):
        evaluate([Liar(scenario)], scenario, [0], gaps=False)


SYSTEM = Scenario.cifar10(num_rounds=60)


class Prophet(UniS):
    """Takes its seed for the environment's, from which its random numbers would follow."""

    hits: ClassVar = []

    def reset(self, seed):
        starts = [FLEdgeEnv(self.scenario).reset(seed=one)[0] for one in seed]
        self.foreseen = [start["channel_gain"] for start in starts]

    def decide(self, observation):
        self.hits.append(np.isin(self.foreseen, observation["channel_gain"]).all())
        return super().decide(observation)


class Told(Prophet):
    """Is told the environment's seeds."""

    hits: ClassVar = []

    def reset(self, _):
        super().reset(SEEDS)


def test_evaluate__a_policys_seed_reveals_no_draw():
    evaluate([Prophet(SYSTEM), Told(SYSTEM)], SYSTEM, SEEDS, gaps=False)
    assert not any(Prophet.hits)
    assert any(Told.hits)


class FirstTwo(UniS):
    def decide(self, observation):
        decision = super().decide(observation)
        return Allocation(decision.f, decision.p, cohort=[0, 1])


class Writer(FirstTwo):
    """Writes into all that it is given, and into what its decision caches."""

    def decide(self, observation):
        decision = super().decide(observation)
        spoil(dict(observation))
        decision.participates[...] = True
        return decision

    def feedback(self, info):
        spoil(info)
        info.clear()


def test_evaluate__writing_into_arrays_changes_nothing():
    runs = evaluate([Writer(SYSTEM), FirstTwo(SYSTEM)], SYSTEM, SEEDS, gaps=False)
    wrote, honest = (one.drop(columns="policy") for _, one in runs.groupby("policy", sort=False))
    pd.testing.assert_frame_equal(wrote.reset_index(drop=True), honest.reset_index(drop=True))


class Foresight(UniS):
    """Looks for the coming gains in all that its scenario holds, a record in order or its file."""

    found = 0

    def decide(self, observation):
        held = vars(self.scenario.channel).values()
        tables = [v for v in held if isinstance(v, np.ndarray) and v.ndim == 2]
        files = [v for v in held if isinstance(v, str) and Path(v).is_file()]
        tables += [pd.read_csv(file).gain.to_numpy().reshape(-1, 4) for file in files]
        seen = observation["channel_gain"][0]
        Foresight.found += sum(np.isclose(table, seen).all(axis=1).any() for table in tables)
        return super().decide(observation)


@pytest.mark.filterwarnings("ignore:the results of Foresight")  # its class counts
def test_make_policy__shows_no_future_gains(tmp_path):
    rng = np.random.default_rng(0)
    pairs = pd.MultiIndex.from_product([range(200), range(4)], names=["round", "device"])
    gains = pd.DataFrame({"gain": rng.uniform(0.01, 0.5, 800)}, index=pairs)
    gains.to_csv(tmp_path / "trace.csv")
    channel = TraceChannel(tmp_path / "trace.csv")
    fields = {"num_samples": 50_000 / 120, "energy_budget_j": 150, "channel": channel}
    system = Scenario(num_devices=4, num_rounds=30, **fields)
    plain = evaluate([Foresight(system)], system, SEEDS, gaps=False)
    assert Foresight.found >= 60  # in the record and in the file
    Foresight.found = 0
    named = evaluate([make_policy(f"{__name__}:Foresight", system)], system, SEEDS, gaps=False)
    assert Foresight.found == 0
    pd.testing.assert_frame_equal(plain, named)
    assert plain["total_time"].nunique() > 3  # seeds are replicates

"""Strategies of Flower under a scenario's clock: they do what they did, and take its time."""

from __future__ import annotations

import math
import random
import re

import gymnasium as gym
import numpy as np
import pytest

from policies import LROA, Opportunistic, evaluate, make_policy
from policies.selection.scheduler import Scheduler
from policies.selection.selector import Selector

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedProx, Strategy

from tests.support import ROOT
from tests.train_fl.grid import (  # noqa: F401
    SCENARIO,
    TASK,
    LocalGrid,
    N,
    Restarting,
    flat,
    identity,
)
from train_fl.federation import Clocked, PolicyStrategy, evaluation

K = SCENARIO.cohort_size
FEW = {"fraction_train": K / N, "fraction_evaluate": 0.0}


class Decaying(FedAdagrad):
    """Lowers the learning rate it sends, counts its messages, and keeps its result.

    As the customised strategies of Flower's examples do.
    """

    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] *= 0.5 if server_round % 2 == 0 else 1.0
        messages = super().configure_train(server_round, arrays, config, grid)
        self.sent = [*getattr(self, "sent", []), (config["lr"], len(messages))]
        return messages

    def start(self, *arguments, **options):
        self.ran = super().start(*arguments, **options)
        return self.ran


class Fixed(FedAvg):
    """Sends the model to given devices in each round, and notes whose replies it sees."""

    def __init__(self, *cohorts: list[int]) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.cohorts = cohorts
        self.seen = []

    def configure_train(self, server_round, arrays, config, grid):
        content = super().configure_train(server_round, arrays, config, grid)[0].content
        # As `LocalGrid` numbers its nodes.
        return [Message(content, 99 + N - n, "train") for n in self.cohorts[server_round - 1]]

    def aggregate_train(self, server_round, replies):
        self.seen.append([99 + N - reply.metadata.src_node_id for reply in replies])
        return super().aggregate_train(server_round, replies)


def started(strategy, clocked, grid=None, rounds=3, **options):
    """The result of a strategy that gets what the clients of a clocked one need."""
    return strategy.start(
        grid or LocalGrid(),
        clocked.initial_arrays(TASK),
        num_rounds=rounds,
        train_config=ConfigRecord({"lr": 0.1, **clocked.train_config}),
        **options,
    )


def run(strategy, grid=None, rounds=3, scenario=SCENARIO, **options):
    clocked = Clocked(strategy, scenario, seed=3, **options)
    return started(clocked, clocked, grid, rounds), clocked


@pytest.mark.parametrize(
    ("kind", "options"),
    [(FedAvg, {}), (FedProx, {"proximal_mu": 0.1}), (FedAdam, {}), (Decaying, {"eta": 0.01})],
)
def test_clocked__strategy_does_what_it_did_without_a_clock(kind, options, monkeypatch):
    alone, strategy = (kind(**FEW, **options) for _ in range(2))
    # Flower's strategies sample by `random.sample`; a clock lists the nodes by device.
    monkeypatch.setattr(random, "sample", random.Random(0).sample)
    expected = started(alone, Clocked(FedAvg(), SCENARIO, seed=3), LocalGrid(range(N)))
    monkeypatch.setattr(random, "sample", random.Random(0).sample)
    result, clocked = run(strategy)
    assert isinstance(clocked, Strategy)
    assert clocked.configure_evaluate(1, result.arrays, ConfigRecord(), LocalGrid()) == []
    np.testing.assert_array_equal(flat(result.arrays), flat(expected.arrays))
    for number, metrics in expected.train_metrics_clientapp.items():
        assert result.train_metrics_clientapp[number]["train-loss"] == metrics["train-loss"]
    assert vars(strategy).keys() == vars(alone).keys()
    if kind is Decaying:
        assert strategy.sent == alone.sent == [(0.1, K), (0.05, K), (0.05, K)]
        assert strategy.ran is result


def test_clocked__cohorts_follow_from_the_seed_alone():
    grids = [LocalGrid(), LocalGrid(range(N)), LocalGrid()]
    for grid in grids[:2]:
        random.random()  # as Flower does at any time
        run(FedAvg(**FEW), grid)
    clocked = Clocked(FedAvg(**FEW), SCENARIO, seed=4)
    started(clocked, clocked, grids[2])
    cohorts = [sorted(told[:2] for told in grid.trained) for grid in grids]
    assert cohorts[0] == cohorts[1] != cohorts[2]
    assert len({n for _, n in cohorts[0]}) > K


def by_hand(s, gains, cohort):
    """The longest time of a cohort [s] and its energies [J], with static resources, in loops."""
    parts = max(len(cohort), K)
    longest = 0.0
    energies = np.zeros(N)
    for n in cohort:
        p = (s.p_min[n] + s.p_max[n]) / 2
        density = s.noise_density_w_hz or s.noise_power_w * K / s.bandwidth_hz
        noise = density * s.bandwidth_hz / parts
        upload = s.model_bits * parts / s.bandwidth_hz / math.log2(1 + gains[n] * p / noise)
        cycles = s.local_epochs[n] * s.cycles_per_sample[n] * s.num_samples[n]
        left = max(s.energy_budget_j[n] / (1 - (1 - 1 / N) ** parts) - p * upload, 0.0)
        f = math.sqrt(2 * left / (s.capacitance[n] * cycles))
        f = min(max(f, s.f_min[n]), s.f_max[n])
        longest = max(longest, cycles / f + upload)
        energies[n] = s.capacitance[n] * cycles * f**2 / 2 + p * upload
    return longest, energies


@pytest.mark.parametrize("noise", [{}, {"noise_density_w_hz": 1e-8}], ids=["power", "density"])
def test_clocked__takes_hand_computed_time_and_energy(noise):
    scenario = SCENARIO.replace(**noise)
    observation, _ = (env := gym.make("FLEdge-v0", scenario=scenario)).reset(seed=3)
    cohorts = [[7], [2, 5, 4], [1, 9, 3, 0, 8]]
    total = 0.0
    spent = np.zeros(N)
    with pytest.warns(RuntimeWarning, match="each has 1/5 of the band") as warned:
        result, clocked = run(Fixed(*cohorts, [], cohorts[2]), None, 5, scenario)
    assert len(warned) == 1
    assert list(result.train_metrics_clientapp) == [1, 2, 3, 5]
    for number, cohort in enumerate(cohorts, 1):
        longest, energies = by_hand(scenario, observation["channel_gain"], cohort)
        total = total + longest
        spent = spent + energies
        metrics = result.train_metrics_clientapp[number]
        assert metrics["round-time"] == pytest.approx(longest, rel=1e-9)
        assert metrics["elapsed-time"] == pytest.approx(total, rel=1e-9)
        assert metrics["energy-spent"] == pytest.approx(energies.sum(), rel=1e-9)
        ratio = np.max(spent / SCENARIO.energy_budget_j) / number
        assert metrics["worst-spent-ratio"] == pytest.approx(ratio, rel=1e-9)
        observation, *_ = env.step(env.action_space.sample())
    total += by_hand(scenario, observation["channel_gain"], cohorts[2])[0]
    assert clocked.result["total_time"].item() == pytest.approx(total, rel=1e-9)


class Replay(Selector):
    """Chooses the cohorts of another run."""

    def start(self, _):
        return {}

    def select(self, candidates):
        return np.array(self.cohorts[candidates.number - 1])


def test_clocked__equals_evaluate_with_the_same_cohorts():
    grid = LocalGrid()
    selector = Replay(SCENARIO)
    _, clocked = run(FedAvg(**FEW), grid, rounds=10)
    selector.cohorts = [[n for k, n, _ in grid.trained if k == number] for number in range(1, 11)]
    table = evaluate([Scheduler(selector, "static")], SCENARIO, seeds=[3], gaps=False)
    for name in table.select_dtypes("number"):
        assert clocked.result[name].item() == pytest.approx(table[name].item(), nan_ok=True)
    assert clocked.result["policy"].item() == "FedAvg"
    assert clocked.result["status_reason"].item() == table["status_reason"].item()


def test_clocked__lost_updates_do_not_reach_the_strategy():
    scenario = SCENARIO.replace(upload_failure=0.4, deadline_s=8.0, availability=0.8)
    cohorts = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    strategy = Fixed(*cohorts)
    grid = LocalGrid(lost={4: {11}})
    env = gym.make("FLEdge-v0", scenario=scenario)
    seen = {}
    observation, _ = env.reset(seed=3)
    with pytest.warns(RuntimeWarning, match="device 11 in round 4: no reply in time"):
        result, _ = run(strategy, grid, 4, scenario)
    for number, cohort in enumerate(cohorts, 1):
        metrics = result.train_metrics_clientapp[number]
        away = np.flatnonzero(observation["available"] == 0).tolist()
        failed = metrics["failed"]
        late = metrics["late"]
        sent = [n for told, n, _ in grid.trained if told == number]
        assert sent == [n for n in cohort if n not in away + failed]
        assert strategy.seen[number - 1] == [n for n in sent if n not in late]
        assert metrics["participants"] == strategy.seen[number - 1]
        assert metrics["missing"] == ([11] if number == 4 else [])
        for name in ("away", "failed", "late"):
            seen.setdefault(name, set()).update(set(locals()[name]) & set(cohort) - {11})
        observation, *_ = env.step(env.action_space.sample())
    assert all(seen.values())  # so that the above says something


def test_clocked__sends_nothing_to_a_node_that_is_no_device(caplog):
    result, _ = run(Fixed([0, 1]), LocalGrid([*range(1, N)[::-1], 99]), rounds=1)
    assert result.train_metrics_clientapp[1]["participants"] == [1]
    (warned,) = [one.message for one in caplog.records if one.levelname == "WARNING"][1:]
    assert re.search("get no messages: {111: .* got 99", warned)


ALL = {"fraction_train": 1.0, "fraction_evaluate": 0.0}


@pytest.mark.parametrize(
    "make",
    [
        lambda system: Clocked(FedAvg(**ALL), system),
        lambda system: PolicyStrategy(make_policy("oort", system), system),
    ],
    ids=["clocked", "policy"],
)
def test_restarted_client__takes_part_again_and_one_line_says_so(make, caplog):
    strategy = make(SCENARIO.replace(cohort_size=N))
    result = started(strategy, strategy, Restarting())
    for metrics in result.train_metrics_clientapp.values():
        assert metrics["participants"] == list(range(N))
    lines = [one.message for one in caplog.records if "{203" in one.message]
    assert lines == ["devices of new nodes: {203: 8}; new nodes that get no messages: {}"]


def test_clocked__keeps_what_is_set_on_strategy_and_clock():
    strategy = FedAvg(**FEW)
    calls = []

    def aggregate(server_round, replies):
        calls.append(server_round)
        return FedAvg.aggregate_train(strategy, server_round, replies)

    def configure(server_round, arrays, config, grid):
        calls.append(-server_round)
        return FedAvg.configure_train(strategy, server_round, arrays, config, grid)

    strategy.aggregate_train = aggregate
    clocked = Clocked(strategy, SCENARIO)
    clocked.configure_train = configure
    clocked.fraction_train = 2 / N
    result = started(clocked, clocked, rounds=2)
    assert calls == [-1, 1, -2, 2]
    assert (strategy.aggregate_train, strategy.configure_train) == (aggregate, configure)
    assert {len(one["participants"]) for one in result.train_metrics_clientapp.values()} == {2}


FASTEST = {"resources": lambda *known: (known[2].f_max, known[2].p_max)}


@pytest.mark.parametrize(
    "options", [{"resources": "dynamic-shared"}, FASTEST, {"policy": Opportunistic(SCENARIO)}]
)
def test_clocked__resources_change_time_and_energy_alone(options):
    (static, clock) = run(FedAvg(**FEW))
    (result, other) = run(FedAvg(**FEW), **options)
    np.testing.assert_array_equal(flat(result.arrays), flat(static.arrays))
    assert other.result["total_time"].item() < 0.98 * clock.result["total_time"].item()


def test_page__draws_accuracy_over_simulated_time(drawn):
    scenario = SCENARIO.replace(availability=0.1)
    runs = {
        "fedavg": Clocked(FedAvg(**FEW), scenario),
        "lroa": PolicyStrategy(LROA(scenario), scenario),
    }
    results = {
        name: started(strategy, strategy, rounds=10, evaluate_fn=evaluation(TASK))
        for name, strategy in runs.items()
    }
    page = (ROOT / "docs/federation.md").read_text()
    (code,) = re.findall(r"^```py\n(import matplotlib.*?)^```", page, re.M | re.S)
    exec(code, dict(results))
    for line, result in zip(drawn[0].axes[0].lines, results.values(), strict=True):
        took = [result.train_metrics_clientapp.get(n, {"round-time": 0.0}) for n in range(1, 11)]
        times = np.cumsum([0.0, *(metrics["round-time"] for metrics in took)])
        accuracies = [one["test-accuracy"] for one in result.evaluate_metrics_serverapp.values()]
        np.testing.assert_allclose(line.get_xydata(), np.transpose([times, accuracies]))
    assert len(results["fedavg"].train_metrics_clientapp) < 10  # others had no participants


def with_wrong(strategy=None, scenario=SCENARIO, **options):
    return lambda: Clocked(FedAvg() if strategy is None else strategy, scenario, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (with_wrong(FedAvg), r"such as FedAvg\(\), got <class"),
        (with_wrong(PolicyStrategy(LROA(SCENARIO), SCENARIO)), "without a clock"),
        (with_wrong(policy="lroa"), "policy must be a Policy, got 'lroa'"),
        (with_wrong(resources="dinamic"), "did you mean 'dynamic'"),
        (lambda: run(FedAvg(**FEW), policy=LROA(SCENARIO)), "LROA samples its cohort"),
        (lambda: run(FedAvg(), rounds=11), "the scenario's 10, got 11"),
        (lambda: run(Fixed([*range(N), 0])), r"got 13 .* nodes \[111\] are repeated"),
        (lambda: run(Fixed([34])), r"nodes \[77\] are repeated or unknown"),
    ],
)
def test_clocked__refuses_wrong_use(call, message):
    with pytest.raises(ValueError, match=message):
        call()

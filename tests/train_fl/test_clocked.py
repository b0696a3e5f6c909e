"""Strategies of Flower under a scenario's clock: they do what they did, and take its time."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import Allocation, FLEdgeEnv, FLEdgeVectorEnv
from policies import LROA, Policy, check_policy, evaluate, make_policy
from policies.benchmark.comparison import Comparison
from policies.benchmark.runner import RunsFailedError
from policies.report.tables import table_texts
from policies.resources import static_resources

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedProx, Strategy

from tests.support import ROOT
from tests.train_fl.grid import (  # noqa: F401
    SCENARIO,
    TASK,
    Changing,
    LocalGrid,
    N,
    flat,
    identity,
)
from train_fl import TrainingWrapper
from train_fl.federation import Clocked, PolicyStrategy, evaluation

PAGE = (ROOT / "docs/federation.md").read_text()
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
    np.testing.assert_array_equal(flat(result.arrays), flat(expected.arrays))
    for number, metrics in expected.train_metrics_clientapp.items():
        assert result.train_metrics_clientapp[number]["train-loss"] == metrics["train-loss"]
    assert vars(strategy).keys() == vars(alone).keys()
    if kind is Decaying:
        assert strategy.sent == alone.sent == [(0.1, K), (0.05, K), (0.05, K)]
        assert strategy.ran is result


class Backwards(LocalGrid):
    """Replies come in another order, and Flower draws from `random`, as it does at any time."""

    def get_node_ids(self):
        random.random()
        return super().get_node_ids()

    def send_and_receive(self, messages, **options):
        return super().send_and_receive(messages, **options)[::-1]


def test_clocked__cohorts_and_metrics_follow_from_the_seed_alone():
    grids = [LocalGrid(), Backwards(range(N)), LocalGrid()]
    results = []
    for grid, seed in zip(grids, (3, 3, 4), strict=True):
        strategy = FedAvg(fraction_train=K / N, fraction_evaluate=0.5)
        clocked = Clocked(strategy, SCENARIO, seed=seed)
        results.append(started(clocked, clocked, grid))
    cohorts = [sorted(trained[:2] for trained in grid.trained) for grid in grids]
    assert cohorts[0] == cohorts[1] != cohorts[2]
    assert len({n for _, n in cohorts[0]}) > K
    np.testing.assert_array_equal(*(flat(result.arrays) for result in results[:2]))
    evaluated = [result.evaluate_metrics_clientapp for result in results]
    assert evaluated[0] == evaluated[1] != evaluated[2]


LARGE = [[0, 2, 4, 5, 7], [], [0, 1, 3, 8, 9]]
SMALL = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
HARSH = {"upload_failure": 0.4, "deadline_s": 8.0, "availability": 0.8}
SPLIT = {"cohort_size": 5, "noise_power_w": SCENARIO.noise_power_w * K / 5}
ALONE = {"availability": 0.7}


@pytest.mark.parametrize(
    ("cohorts", "fields", "larger", "warned", "losses"),
    [
        (LARGE, {}, SPLIT, ["5 devices take part, so each has 1/5 of the band"], set()),
        (LARGE, {"noise_density_w_hz": 1e-8}, {"cohort_size": 5}, ["5 devices take part"], set()),
        (SMALL, HARSH, {}, [], {"away", "failed", "late"}),
        ([[3]] * 10, ALONE, {}, [], {"away"}),
    ],
    ids=["power", "density", "harsh", "alone"],
)
def test_clocked__rounds_are_the_environments(cohorts, fields, larger, warned, losses):
    scenario = SCENARIO.replace(**fields)
    strategy = Fixed(*cohorts)
    grid = LocalGrid()
    with warnings.catch_warnings(record=True, action="always") as warnings_:
        result, _ = run(strategy, grid, len(cohorts), scenario)
    for one, message in zip(warnings_, warned, strict=True):
        assert message in str(one.message)
    system = scenario.replace(**larger)
    observation, _ = (env := gym.make("FLEdge-v0", scenario=system)).reset(seed=3)
    assert len(result.train_metrics_clientapp) == len(cohorts)
    lost = set()
    for number, metrics in result.train_metrics_clientapp.items():
        available = observation.get("available", np.ones(N))
        cohort = [n for n in cohorts[number - 1] if available[n]]
        lost |= {"away"} if len(cohort) < len(cohorts[number - 1]) else set()
        f, p = static_resources(observation["channel_gain"], observation["queue"], system)
        # A round without a cohort passes as any other does, but takes neither time nor energy.
        played = cohort or np.flatnonzero(available)[:1]
        observation, _, _, _, info = env.step(Allocation(f, p, cohort=played))
        if not cohort:
            info = {"round_time": 0.0, "energy_spent": np.zeros(N)}
        assert metrics["round-time"] == pytest.approx(info["round_time"], rel=1e-9)
        assert metrics["energy-spent"] == pytest.approx(info["energy_spent"].sum(), rel=1e-9)
        failed, late = (np.flatnonzero(info.get(name, ())) for name in ("failed", "late"))
        assert (metrics["failed"], metrics["late"]) == (failed.tolist(), late.tolist())
        sent = [n for told, n, _ in grid.trained if told == number]
        assert sent == [n for n in cohort if n not in failed]
        received = [n for n in sent if n not in late]
        assert strategy.seen[number - 1] == metrics["participants"] == received
        lost |= {name for name in ("failed", "late") if metrics[name]}
    assert lost == losses


class Crowd(Policy):
    """Chooses more devices than K."""

    def decide(self, observation=None):  # noqa: ARG002 - the interface's
        return Allocation(self.scenario.f_mid, self.scenario.p_mid, cohort=np.arange(K + 2))


CROWD = Crowd(SCENARIO)


def stepped(env):
    env.reset()
    env.step(CROWD.decide())


@pytest.mark.parametrize(
    "door",
    [
        lambda: stepped(FLEdgeEnv(SCENARIO)),
        lambda: stepped(FLEdgeVectorEnv(2, SCENARIO)),
        lambda: stepped(TrainingWrapper(FLEdgeEnv(SCENARIO), TASK)),
        lambda: evaluate([CROWD], SCENARIO, [0]),
        lambda: check_policy(CROWD),
        lambda: PolicyStrategy(CROWD, SCENARIO).start(LocalGrid(), ArrayRecord()),
    ],
    ids=["single", "batch", "training", "evaluate", "check", "federation"],
)
def test_more_devices_than_k__are_refused_where_a_policy_decides(door):
    with pytest.raises((ValueError, RunsFailedError), match="k from 1 to cohort_size = 3, got"):
        door()


@pytest.mark.filterwarnings("ignore:5 devices take part")
def test_more_devices_than_k__have_no_price_where_flower_decides():
    # Only the last round is too large.
    _, clocked = run(Fixed([0, 1, 2], [3, 4], [0, 1, 3, 8, 9]))
    row = clocked.result.iloc[0]
    assert np.isnan(row["priced_time"])
    assert row["status"].startswith("too many")
    assert "a round has 2 devices more than K" in row["status_reason"]
    columns = table_texts(Comparison(clocked.result)).columns
    assert [each.cells["Fixed"] for each in columns if "priced" in each.name] == ["–"]


ALL = {"fraction_train": 1.0, "fraction_evaluate": 0.0}


of_both = pytest.mark.parametrize(
    "make",
    [
        lambda system, **options: Clocked(FedAvg(**ALL), system, **options),
        lambda system, **options: PolicyStrategy(make_policy("oort", system), system, **options),
    ],
    ids=["clocked", "policy"],
)


@of_both
@pytest.mark.filterwarnings("ignore:no update from device 1[01] in round .. no node has its number")
def test_later_nodes__take_their_devices_and_lines_say_so(make, caplog):
    caplog.set_level("INFO")
    strategy = make(SCENARIO.replace(cohort_size=N), wait=0.3)
    result = started(strategy, strategy, Changing(range(10)))
    took_part = [one["participants"] for one in result.train_metrics_clientapp.values()]
    assert took_part == [[*range(10)], [*range(11)], [*range(11)]]
    lines = " ".join(one.message for one in caplog.records if "devices" in one.message)
    parts = ["10 nodes for 12 devices: .* without", r"until .*\[10, 11]"]
    parts += ["{200: 10, 203: 3}.*{300: .* got 99", r"until .*\[11]$"]
    assert re.search(".*".join(parts), lines)


def test_too_many_nodes__do_not_shrink_cohorts():
    result, _ = run(FedAvg(**FEW), LocalGrid(range(N + 2)))
    assert {len(one["participants"]) for one in result.train_metrics_clientapp.values()} == {K}


def test_clocked__keeps_what_is_set_on_strategy_and_clock():
    strategy = FedAvg(**FEW)
    aggregate = Mock(wraps=strategy.aggregate_train)
    configure = Mock(wraps=strategy.configure_train)
    strategy.aggregate_train = aggregate
    clocked = Clocked(strategy, SCENARIO)
    clocked.configure_train = configure
    clocked.fraction_train = 2 / N
    result = started(clocked, clocked, rounds=2)
    assert aggregate.call_count == configure.call_count == 2
    assert (strategy.aggregate_train, strategy.configure_train) == (aggregate, configure)
    assert {len(one["participants"]) for one in result.train_metrics_clientapp.values()} == {2}


FASTEST = {"resources": lambda *known: (known[2].f_max, known[2].p_max)}


@pytest.mark.parametrize("options", [{"resources": "dynamic-shared"}, FASTEST])
def test_clocked__resources_change_time_and_energy_alone(options):
    static, clock = run(FedAvg(**FEW))
    result, other = run(FedAvg(**FEW), **options)
    np.testing.assert_array_equal(flat(result.arrays), flat(static.arrays))
    ratio = other.result["total_time"].item() / clock.result["total_time"].item()
    assert abs(ratio - 1.0) > 0.02


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
    (code,) = re.findall(r"^```py\n(import matplotlib.*?)^```", PAGE, re.M | re.S)
    exec(code, dict(results))
    for line, result in zip(drawn[0].axes[0].lines, results.values(), strict=True):
        took = [one["round-time"] for one in result.train_metrics_clientapp.values()]
        times = np.cumsum([0.0, *took])
        accuracies = [one["test-accuracy"] for one in result.evaluate_metrics_serverapp.values()]
        np.testing.assert_allclose(line.get_xydata(), np.transpose([times, accuracies]))
    clock = results["fedavg"].train_metrics_clientapp.values()
    assert any(not one["participants"] for one in clock)


# An app as Flower's users write it, whose clients have 120 samples each.
APP = {
    "pyproject.toml": """
[project]
name = "plain-app"
version = "1.0.0"
license = "MIT"
dependencies = []
[tool.flwr.app]
publisher = "fledge"
[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"
""",
    "server_app.py": """
from client_app import make_model
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()

@app.main()
def main(grid, context):
    num_rounds = 10
    model = make_model()
    arrays = ArrayRecord(model.state_dict())
    strategy = FedAvg(fraction_train=0.5)
    strategy.start(grid, arrays, num_rounds=num_rounds)
""",
    "client_app.py": """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

def make_model():
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

@app.train()
@app.evaluate()
def work(message, context):
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    rng = torch.Generator().manual_seed(context.node_config["partition-id"])
    outputs = model(torch.randn(120, 64, generator=rng))
    loss = torch.nn.functional.cross_entropy(outputs, torch.arange(120) % 10)
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    metrics = MetricRecord({"num-examples": 120, "train-loss": loss.item()})
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)
""",
}
CONNECTION = '[superlink.test]\naddress = "127.0.0.1:39391"\ninsecure = true\n'
# Without a server of its own, `flwr run` would start one that stays.
COMMANDS = """
flower-superlink --insecure --simulation --port 39391 & trap "kill $!" EXIT
for try in {1..20}; do
    flwr run app test --stream --federation-config num-supernodes=10 && break; sleep 1
done
"""


def changed(text, diff):
    """A file after the part of the page's diff that changes it."""
    for old, new in re.findall(r"^([- ].*\n)?((?:\+.*\n)+)", diff, re.M):
        kept = "" if old.startswith("-") else old[1:]
        text = text.replace(old[1:], kept + re.sub(r"^\+", "", new, flags=re.M), 1)
    return text


@pytest.mark.slow
def test_page__its_changed_app_ends_ok_in_flowers_engine(tmp_path):
    (diff,) = re.findall(r"^```diff\n(.*?)^```", PAGE, re.M | re.S)
    parts = re.split(r"^ # (.*\.py)\n", diff, flags=re.M)
    (tmp_path / "app").mkdir()
    for name, text in APP.items():
        part = parts[parts.index(name) + 1] if name in parts else ""
        (tmp_path / "app" / name).write_text(changed(text, part))
    (tmp_path / "config.toml").write_text(CONNECTION)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"FLWR_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": path}
    command = ["bash", "-c", COMMANDS]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert re.search(rb"^status +ok$", done.stdout, re.M), done


def with_wrong(strategy=None, scenario=SCENARIO, **options):
    return lambda: Clocked(FedAvg() if strategy is None else strategy, scenario, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (with_wrong(FedAvg), r"such as FedAvg\(\), got <class"),
        (with_wrong(PolicyStrategy(LROA(SCENARIO), SCENARIO)), "without a clock"),
        (with_wrong(resources="dinamic"), "did you mean 'dynamic'"),
        (lambda: run(FedAvg(), rounds=11), "the scenario's 10, got 11"),
        (lambda: run(Fixed([*range(N), 0])), r"got 13 .* nodes \[111\] are repeated"),
        (lambda: run(Fixed([34])), r"nodes \[77\] are repeated or unknown"),
    ],
)
def test_clocked__refuses_wrong_use(call, message):
    with pytest.raises(ValueError, match=message):
        call()

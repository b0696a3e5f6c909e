"""A federation of Flower: its model is the wrapper's, and a missing reply changes no weight."""

from __future__ import annotations

import re
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario, physics
from fl_edge_env.scenario.from_log import COLUMNS
from fl_edge_env.streams import policy_seed
from policies import Policy, evaluate, make_policy
from train_fl import TrainingWrapper, make_task
from train_fl.server import FedAdam, FedAvg, FedAvgM, FedNova

pytest.importorskip("flwr")

from flwr.app import Array, Context, Message, RecordDict
from flwr.serverapp import strategy as server_side

from tests.support import EXAMPLES
from tests.train_fl.grid import (  # noqa: F401
    SCENARIO,
    TASK,
    LocalGrid,
    N,
    Spoiled,
    flat,
    identity,
    make_app,
)
from train_fl.federation import Clocked, PolicyStrategy, evaluation


def wrapped(name: str, scenario=SCENARIO, rounds=10, seed=3, task=TASK):
    """The wrapper's models and infos of the first rounds under a policy."""
    policy = make_policy(name, scenario)
    env = gym.make("FLEdge-v0", scenario=scenario)
    env = TrainingWrapper(env, task, report_losses=policy.uses_losses)
    policy.reset(policy_seed(seed))
    observation, info = env.reset(seed=seed)
    policy.feedback(info)
    models = [env.parameters]
    infos = []
    for _ in range(rounds):
        observation, _, _, _, info = env.step(policy.decide(observation))
        policy.feedback(info)
        models.append(env.parameters)
        infos.append(info)
    return models, infos


def federated(
    name: str | Policy, grid: LocalGrid, scenario=SCENARIO, rounds=10, seed=3, task=TASK, **options
):
    """The models after each round, the first one before, and the result of the run."""
    if name == "clocked":
        strategy = Clocked(server_side.FedAvg(fraction_evaluate=0.0), scenario, seed=seed)
    else:
        options = {"server": task.server} | options | {"seed": seed, "wait": 0}
        policy = make_policy(name, scenario) if isinstance(name, str) else name
        strategy = PolicyStrategy(policy, scenario, **options)
    models = []
    evaluate = evaluation(task)

    def remember(number, arrays):
        models.append(flat(arrays))
        return evaluate(number, arrays)

    result = strategy.start(
        grid,
        strategy.initial_arrays(task),
        num_rounds=rounds,
        train_config=strategy.train_config,
        evaluate_fn=remember,
    )
    return models, result


COMPRESSED = {"download_compression": "qsgd:8", "download_rate_bps": 1e5, "upload_failure": 0.5}


@pytest.mark.parametrize(
    ("name", "server", "fields"),
    [
        ("lroa", FedAvg(), {}),
        ("oort", FedAdam(), {}),
        ("proportional-fair", FedAvgM(0.5), {}),
        ("opportunistic", FedNova(), COMPRESSED | {"compression": "qsgd:4"}),
        ("opportunistic", FedNova(), COMPRESSED | {"compression": "topk:0.05"}),
    ],
)
def test_federation__has_the_models_of_the_wrapper(name, server, fields):
    task = replace(TASK, server=server)
    scenario = SCENARIO.replace(local_epochs=np.linspace(0.5, 2.5, N), **fields)
    expected, infos = wrapped(name, scenario, task=task)
    models, result = federated(name, grid := LocalGrid(), scenario, task=task)
    rounding = 2e-6 if fields else 0.0
    np.testing.assert_allclose(models, expected, atol=rounding, rtol=5 * rounding)
    metrics = result.train_metrics_clientapp
    for number, info in enumerate(infos, 1):
        record = metrics[number]
        assert record["participants"] == np.flatnonzero(info["participants"]).tolist()
        assert record["failed"] == np.flatnonzero(info.get("failed", ())).tolist()
        loss = record.get("train-loss", 0.0)  # absent if nobody took part
        assert loss == pytest.approx(info.get("train_loss", 0.0), rel=1e-4)
    sent = sorted((number, device) for number, device, _ in grid.trained)
    assert sent == [(number, n) for number in metrics for n in metrics[number]["participants"]]
    assert any(record["failed"] for record in metrics.values()) == bool(fields)
    if fields:
        sizes = {8 * len(reply["packed"]["update"]) for reply in grid.replies}
        assert sizes == {scenario.upload_bits}
    last = result.evaluate_metrics_serverapp[10]
    assert last["test-accuracy"] == pytest.approx(infos[-1]["test_accuracy"], abs=0.004)


@pytest.mark.parametrize(
    ("how", "lost", "fields"), [("lost", "failed", {}), ("failing", "late", {"deadline_s": 1e6})]
)
def test_missing_reply__leaves_the_weights_of_the_others(how, lost, fields):
    scenario = SCENARIO.replace(**fields)
    _, (info,) = wrapped("lroa", scenario, rounds=1)
    gone, *others = np.flatnonzero(info["participants"]).tolist()
    _, whole = federated("lroa", LocalGrid(), scenario, rounds=1)
    _, *weights = whole.train_metrics_clientapp[1]["weights"]
    policy = make_policy("lroa", scenario)
    infos = []
    policy.feedback = infos.append
    grid = LocalGrid()
    setattr(grid, how, {1: {gone}})
    with pytest.warns(RuntimeWarning, match=f"no update from device {gone} in round 1"):
        models, result = federated(policy, grid, scenario, rounds=1)
    without = models[0] + weights @ info["client_updates"][1:]
    np.testing.assert_allclose(models[1], without, rtol=0, atol=2e-6)
    record = result.train_metrics_clientapp[1]
    assert (record["missing"], record[lost], record["participants"]) == ([gone], [], others)
    assert record["energy-spent"] == pytest.approx(info["energy_spent"].sum())
    assert np.flatnonzero(infos[-1][lost]).tolist() == [gone]
    assert np.flatnonzero(infos[-1]["participants"]).tolist() == others


@pytest.mark.parametrize("name", ["lroa", "opportunistic"])
def test_result__is_the_row_of_evaluate(name):
    policy = make_policy(name, SCENARIO)
    strategy = PolicyStrategy(policy, SCENARIO, seed=3)
    arrays = strategy.initial_arrays(TASK)
    result = strategy.start(LocalGrid(), arrays, num_rounds=10)
    table = evaluate([policy], SCENARIO, seeds=[3], gaps=False)
    pd.testing.assert_frame_equal(strategy.result[table.columns], table)
    last = result.train_metrics_clientapp[10]
    assert last["elapsed-time"] == pytest.approx(table["total_time"].item())
    assert last["worst-spent-ratio"] == pytest.approx(table["worst_spent_ratio"].item())


# The compression, what is put into a record of a reply, which None empties, and the reason given.
EVERYWHERE = {
    "NaN": ("none", "arrays", {"0.bias": Array(np.full(16, np.nan))}, "update is not finite"),
    "norm": ("none", "arrays", {"0.bias": Array(np.full(16, 1e25))}, "update is not finite"),
    "complex": ("none", "arrays", {"0.bias": Array(np.full(16, 1j))}, "Cannot cast"),
    "shape": ("none", "arrays", {"0.bias": Array(np.zeros(3))}, "0.bias must have shape"),
    "no arrays": ("none", "arrays", None, "must have shape"),
    "no metrics": ("none", "metrics", None, "must be finite|must be positive"),
    "zero": ("none", "metrics", {"num-examples": 0}, "num-examples must be positive"),
    "list": ("none", "metrics", {"train-loss": [1.0, 2.0]}, "train-loss must be finite"),
}
BAD = EVERYWHERE | {
    "cut": ("qsgd:4", "packed", {"update": bytes(99)}, "must have 3069 bytes, got 99"),
    "no update": ("qsgd:4", "packed", None, "must have 3069 bytes, got 0"),
    "loss": ("none", "metrics", {"local-loss": np.nan}, "local-loss must be finite"),
    "query": ("none", "metrics", None, "103: .its partition-id must be an integer from 0 to 5"),
    "2.5": ("none", "metrics", {"partition-id": 2.5}, "103: .its partition-id .* got 2.5"),
}


@pytest.mark.filterwarnings("ignore:no update from device [01345] in round 1. no reply in time")
@pytest.mark.parametrize("lost", [set(), {0, 1, 3, 4, 5}], ids=["among six", "alone"])
@pytest.mark.parametrize(
    ("name", "kind"), [("oort", kind) for kind in BAD] + [("clocked", kind) for kind in EVERYWHERE]
)
def test_bad_reply__leaves_its_device_out_and_ends_nothing(name, kind, lost):
    compression, record, spoiled, reason = BAD[kind]
    task = make_task("digits", num_devices=6)
    scenario = Scenario.digits(num_devices=6, cohort_size=6, compression=compression)
    scenario = task.fit(scenario)  # of which Oort takes all devices
    asked = "query" if kind in ("query", "2.5") else "train"
    clients = range(6)[::-1], make_app(task)
    grid = Spoiled(103, asked, record, spoiled, *clients, {1: lost})
    other = LocalGrid(*clients, {1: {2, *lost}, 2: {2}})
    with pytest.warns(RuntimeWarning, match=rf"no update from device 2 in round \d: .*({reason})"):
        models, result = federated(name, grid, scenario, rounds=2, task=task)
    with pytest.warns(RuntimeWarning, match=r"no update from device 2 in round \d: no reply in"):
        expected, _ = federated(name, other, scenario, rounds=2, task=task)
    np.testing.assert_array_equal(models, expected)
    missing = [result.train_metrics_clientapp[number]["missing"] for number in (1, 2)]
    assert missing == [sorted({2, *lost}), [2]]


def test_clients__get_decisions_by_the_gains_they_measure():
    def ask(grid, nodes):
        asked = [Message(RecordDict(), node, "query.gain") for node in nodes]
        return [reply.content["metrics"]["gain"] for reply in grid.send_and_receive(asked)]

    policy = make_policy("best-channel:static-shared", SCENARIO)
    grid = LocalGrid()
    gains = 0.02 + 0.01 * np.arange(N)
    _, result = federated(policy, grid, rounds=1, measure_gains=ask)
    policy.reset(0)
    decision = policy.decide({"channel_gain": gains, "queue": np.zeros(N)})
    names = {"frequency": decision.f, "power": decision.p, "bandwidth": decision.bandwidth}
    for _, device, config in grid.trained:
        for name, values in names.items():
            assert config[name] == values[device]
    times, _ = physics.time_and_energy(gains, decision.f, decision.p, SCENARIO, decision.bandwidth)
    longest = times[decision.cohort].max()
    assert result.train_metrics_clientapp[1]["round-time"] == pytest.approx(longest)


@pytest.mark.parametrize(("compression", "name"), [("none", "a.csv"), ("qsgd:4", "b.csv.gz")])
def test_log__has_what_server_and_clients_know(compression, name, tmp_path):
    scenario = SCENARIO.replace(compression=compression, local_epochs=np.linspace(0.5, 2.5, N))
    path = tmp_path / name
    grid = LocalGrid()
    train = grid.reply

    def timed(message):
        reply = train(message)
        if message.metadata.message_type == "train":
            reply.content["metrics"]["up_s"] = 0.002 if len(grid.trained) % 2 else [np.nan]
        return reply

    grid.reply = timed
    federated("uni-d", grid, scenario, rounds=8, log=path)
    table = pd.read_csv(path, compression=None)
    assert tuple(table) == COLUMNS
    taken_part = [(number, device) for number, device, _ in grid.trained]
    assert list(zip(table["round"], table["device"], strict=True)) == sorted(taken_part)
    np.testing.assert_array_equal(table["samples"], TASK.num_samples[table["device"]])
    np.testing.assert_array_equal(table["epochs"], scenario.local_epochs[table["device"]])
    assert set(table["parameters"]) == {TASK.num_parameters}
    assert table["train_s"].between(0, 10, "neither").all()
    measured = Scenario.from_log(path)  # which is tested with logs of its own
    assert measured.num_devices == table["device"].nunique()
    np.testing.assert_allclose(measured.channel.mean_bps, scenario.upload_bits / 0.002)


def made(name: str, **options):
    return lambda _: PolicyStrategy(make_policy(name, SCENARIO), SCENARIO, **options)


def ran(devices=range(N), scenario=SCENARIO, rounds=1, **options):
    return lambda _: federated("uni-d", LocalGrid(devices), scenario, rounds, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (ran([]), f"a node for each of the {N} devices, .* and from 0 other nodes"),
        (ran([0, *range(N - 1)]), "must report a different partition-id"),
        (made("divfl"), "distances between the gradients"),
        (made("optimal-sampling"), "update norms of all devices"),
        (made("random", server="adam"), "one of fedavg, fednova, fedavgm, fedadam, got 'adam'"),
        (ran(scenario=SCENARIO.replace(model_bits=1e6)), "is 1000000 and must be 194880"),
        (ran(rounds=11), "the scenario's 10, got 11"),
        (lambda log: ran(log=log)(log), r"cannot create the log '.*log.csv': File exists"),
    ],
)
def test_strategy__refuses_wrong_use(call, message, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("mine")
    with pytest.raises(ValueError, match=message):
        call(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("name", ["lroa", "fedavg"])
def test_flower_app__prints_the_rounds(name, capsys, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES / "flower_app")
    from client_app import app as clients
    from server_app import app as server

    config = {"strategy": name, "rounds": 10, "devices": N, "seed": 3}
    grid = LocalGrid(app=clients, run_config=config)
    server(grid, Context(1, 1, {}, RecordDict(), config))
    rows = re.findall(r"^ +\d+ +([\d.]+) +([\d.]+) .*", capsys.readouterr().out, re.MULTILINE)
    _, infos = wrapped("lroa", TASK.fit(Scenario.digits(num_devices=N, num_rounds=10)))
    expected = [[info["elapsed_time"], info["energy_spent"].sum()] for info in infos]
    alike = np.allclose(np.array(rows, dtype=float), expected, rtol=0, atol=0.0006)
    assert alike == (name == "lroa")
    assert {number for number, _, _ in grid.trained} == set(range(1, 11))

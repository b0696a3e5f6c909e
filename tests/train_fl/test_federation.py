"""A federation of Flower: its model is the wrapper's, and a missing reply changes no weight."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Allocation, Scenario, physics
from fl_edge_env.scenario.from_log import COLUMNS
from fl_edge_env.streams import policy_seed
from policies import Policy, UniD, make_policy
from tests.support import spoil
from train_fl import TrainingWrapper, make_task
from train_fl.server import FedAdam, FedAvg, FedAvgM, FedNova

pytest.importorskip("flwr")

from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from train_fl.federation import PolicyStrategy, device_reply, evaluation, train_reply

ROOT = Path(__file__).parents[2]
N = 12
ROUNDING = 2e-6  # of float32, after ten rounds of training
TASK = make_task("digits", num_devices=N)
SCENARIO = TASK.fit(Scenario.digits(num_devices=N, num_rounds=10, cohort_size=3))


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """A server's part in a run, which Flower sets before it starts one."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def make_app(task=TASK) -> ClientApp:
    app = ClientApp()
    app.query()(device_reply)
    app.train()(lambda message, context: train_reply(message, context, task))

    @app.query("gain")
    def gain(message: Message, context: Context) -> Message:
        told = MetricRecord({"gain": 0.02 + 0.01 * context.node_config["partition-id"]})
        return Message(RecordDict({"metrics": told}), reply_to=message)

    return app


class LocalGrid(Grid):
    """Clients in this process, on nodes whose numbers are not those of the devices."""

    run = None

    def __init__(self, devices=range(N)[::-1], app: ClientApp | None = None, lost=()) -> None:
        self.app = make_app() if app is None else app
        self.contexts = {
            100 + place: Context(1, 100 + place, {"partition-id": device}, RecordDict(), {})
            for place, device in enumerate(devices)
        }
        self.lost, self.failing = dict(lost), {}  # devices by round
        self.trained = []  # (round, device, config)

    def send_and_receive(self, messages, *, timeout=None):  # noqa: ARG002 - Flower's signature
        return [reply for message in messages if (reply := self.reply(message)) is not None]

    def reply(self, message: Message) -> Message | None:
        context = self.contexts[message.metadata.dst_node_id]
        if message.metadata.message_type == "train":
            config = message.content["config"]
            number, device = config["server-round"], context.node_config["partition-id"]
            self.trained.append((number, device, config))
            if device in self.lost.get(number, ()):
                return None
            if device in self.failing.get(number, ()):
                return Message(Error(1, "out of battery"), reply_to=message)
        return self.app(message, context)

    def get_node_ids(self):
        return list(self.contexts)

    def set_run(self, *_):
        raise AssertionError("the strategy needs no run")

    create_message = push_messages = pull_messages = set_run


def wrapped(name: str, scenario=SCENARIO, rounds=10, seed=3, task=TASK):
    """The wrapper's models and infos of the first rounds under a policy."""
    policy = make_policy(name, scenario)
    env = TrainingWrapper(
        gym.make("FLEdge-v0", scenario=scenario),
        task,
        report_losses=policy.uses_losses,
        report_update_norms=policy.uses_update_norms,
    )
    policy.reset(policy_seed(seed))
    observation, info = env.reset(seed=seed)
    policy.feedback(info)
    models, infos = [env.parameters], []
    for _ in range(rounds):
        observation, _, _, _, info = env.step(policy.decide(observation))
        policy.feedback(info)
        models.append(env.parameters)
        infos.append(info)
    return models, infos


def flat(arrays) -> np.ndarray:
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


def federated(
    name: str | Policy, grid: LocalGrid, scenario=SCENARIO, rounds=10, seed=3, task=TASK, **options
):
    """The models after each round, the first one before, and the result of the run."""
    options = {"server": task.server} | options | {"seed": seed, "wait": 0}
    policy = make_policy(name, scenario) if isinstance(name, str) else name
    strategy = PolicyStrategy(policy, scenario, **options)
    models, evaluate = [], evaluation(task)

    def remember(number, arrays):
        models.append(flat(arrays))
        return evaluate(number, arrays)

    result = strategy.start(
        grid, strategy.initial_arrays(task), num_rounds=rounds, evaluate_fn=remember
    )
    return models, result


@pytest.mark.parametrize("compression", ["qsgd:4", "topk:0.05"])
def test_strategy__uploads_are_the_packed_bytes_of_the_wrapper(compression):
    scenario = SCENARIO.replace(
        compression=compression, download_compression="qsgd:8", download_rate_bps=1e5
    )
    grid = LocalGrid()
    bytes_sent = []
    reply = grid.reply

    def noting(message):
        answer = reply(message)
        if message.metadata.message_type == "train":
            assert "arrays" not in answer.content
            bytes_sent.append(len(answer.content["packed"]["update"]))
        return answer

    grid.reply = noting
    epochs = np.linspace(0.5, 2.5, N)
    scenario = scenario.replace(local_epochs=epochs)
    models, _ = federated("opportunistic", grid, scenario, server=FedNova())
    expected, _ = wrapped("opportunistic", scenario, task=replace(TASK, server=FedNova()))
    np.testing.assert_allclose(models, expected, atol=ROUNDING, rtol=1e-5)
    assert {8 * size for size in bytes_sent} == {scenario.upload_bits}
    assert {config["local-epochs"] for _, _, config in grid.trained} <= set(epochs.tolist())


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("lroa", FedAvg()),
        ("opportunistic", FedAvg()),
        ("oort", FedAdam()),
        ("optimal-sampling", FedAvgM(0.5)),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_federation__has_the_models_of_the_wrapper_in_each_of_ten_rounds(name, server):
    task = replace(TASK, server=server)
    expected, infos = wrapped(name, task=task)
    models, result = federated(name, LocalGrid(), task=task)
    for model, other in zip(models, expected, strict=True):
        np.testing.assert_array_equal(model, other)
    assert np.abs(models[-1] - models[0]).max() > 0.01
    for number, info in enumerate(infos, 1):
        record = result.train_metrics_clientapp[number]
        assert record["participants"] == np.flatnonzero(info["participants"]).tolist()
        assert record["round-time"] == info["round_time"]
        assert record["energy-spent"] == pytest.approx(info["energy_spent"].sum())
        assert record["train-loss"] == pytest.approx(info["train_loss"], rel=1e-4)
    last = result.evaluate_metrics_serverapp[10]
    assert last["test-accuracy"] == pytest.approx(infos[-1]["test_accuracy"], abs=0.004)


class Spoiler(UniD):
    """Writes into all that it is given."""

    def decide(self, observation):
        decision = super().decide(observation)
        spoil(observation)
        return decision

    def feedback(self, info):
        spoil(info)
        info.update(round_time=0.0, energy_spent=0.0, participants=[])


def test_policy__that_writes_into_what_it_is_given_changes_nothing():
    models, result = federated("uni-d", LocalGrid(), rounds=3)
    spoiled, told = federated(Spoiler(SCENARIO), LocalGrid(), rounds=3)
    np.testing.assert_array_equal(spoiled, models)
    for number in (1, 2, 3):
        assert told.train_metrics_clientapp[number] == result.train_metrics_clientapp[number]


@pytest.mark.parametrize("how", ["lost", "failing"])
def test_missing_reply__leaves_the_weights_of_the_others_and_is_told(how):
    expected, infos = wrapped("lroa", rounds=1)
    info, start = infos[0], expected[0]
    gone, *others = np.flatnonzero(info["participants"]).tolist()
    grid = LocalGrid()
    setattr(grid, how, {1: {gone}})
    with pytest.warns(RuntimeWarning, match=f"no update from device {gone} in round 1"):
        models, result = federated("lroa", grid, rounds=1)
    # The wrapper's step less what the missing device has in it.
    step = expected[1] - start
    record = result.train_metrics_clientapp[1]
    decision = make_policy("lroa", SCENARIO).decide(
        gym.make("FLEdge-v0", scenario=SCENARIO).reset(seed=3)[0]
    )
    drawn = np.count_nonzero(info["cohort"] == gone)
    weight = drawn * SCENARIO.weights[gone] / (SCENARIO.cohort_size * decision.q[gone])
    without = step - weight * info["client_updates"][0]
    np.testing.assert_allclose(models[1] - start, without, rtol=0, atol=ROUNDING)
    assert record["missing"] == [gone]
    assert record["participants"] == others
    assert record["energy-spent"] == pytest.approx(info["energy_spent"].sum())


class Listener(UniD):
    """Keeps what it is told last."""

    def feedback(self, info):
        self.told = info


@pytest.mark.parametrize(("lost", "fields"), [("failed", {}), ("late", {"deadline_s": 1e6})])
def test_missing_reply__is_late_where_there_is_a_deadline_and_failed_elsewhere(lost, fields):
    scenario = SCENARIO.replace(**fields)
    _, infos = wrapped("uni-d", scenario, rounds=1)
    gone, *others = np.flatnonzero(infos[0]["participants"]).tolist()
    policy = Listener(scenario)
    with pytest.warns(RuntimeWarning, match=f"no update from device {gone}"):
        federated(policy, LocalGrid(lost={1: {gone}}), scenario, rounds=1)
    assert np.flatnonzero(policy.told[lost]).tolist() == [gone]
    assert np.flatnonzero(policy.told["participants"]).tolist() == others
    assert ({"failed", "late"} - {lost}).isdisjoint(policy.told)


def test_no_reply_at_all__leaves_the_model():
    with pytest.warns(RuntimeWarning, match="no update"):
        models, result = federated("lroa", LocalGrid(lost={1: set(range(N))}), rounds=1)
    np.testing.assert_array_equal(models[1], models[0])
    assert result.train_metrics_clientapp[1]["participants"] == []


@pytest.mark.parametrize(
    ("lost", "fields"), [("failed", {"upload_failure": 0.5}), ("late", {"deadline_s": 4.0})]
)
def test_lost_update_of_the_scenario__sends_nothing_and_is_none_that_is_missing(lost, fields):
    scenario = SCENARIO.replace(**fields)
    expected, infos = wrapped("uni-d", scenario, rounds=4)
    grid = LocalGrid()
    models, result = federated("uni-d", grid, scenario, rounds=4)
    assert any(info[lost].any() for info in infos)
    np.testing.assert_allclose(models[-1], expected[-1], rtol=0, atol=ROUNDING)
    for number, info in enumerate(infos, 1):
        sent = sorted(device for told, device, _ in grid.trained if told == number)
        assert sent == np.flatnonzero(info["participants"]).tolist()
        assert result.train_metrics_clientapp[number]["missing"] == []


def test_measured_gains__are_what_is_decided_and_charged_by():
    def ask(grid, nodes):
        asked = [Message(RecordDict(), node, "query.gain") for node in nodes]
        return np.array(
            [reply.content["metrics"]["gain"] for reply in grid.send_and_receive(asked)]
        )

    grid = LocalGrid()
    _, result = federated("uni-d", grid, rounds=1, measure_gains=ask)
    gains = 0.02 + 0.01 * np.arange(N)
    decision = make_policy("uni-d", SCENARIO).decide({"channel_gain": gains, "queue": np.zeros(N)})
    times, _ = physics.time_and_energy(gains, decision.f, decision.p, SCENARIO)
    for _, device, config in grid.trained:
        assert (config["frequency"], config["power"]) == (decision.f[device], decision.p[device])
    longest = max(times[device] for _, device, _ in grid.trained)
    assert result.train_metrics_clientapp[1]["round-time"] == pytest.approx(longest)


@pytest.mark.parametrize("given", [False, True])
def test_clients__are_told_the_bandwidth_if_the_decision_gives_it(given):
    class GivesBandwidth(UniD):
        def decide(self, observation):
            cohort, parts = np.array([2, 5]), np.full(N, 1.0)
            parts[cohort] = 1e5, 4e5
            decided = super().decide(observation)
            return Allocation(
                decided.f, decided.p, cohort=cohort, bandwidth=parts if given else None
            )

    grid = LocalGrid()
    federated(GivesBandwidth(SCENARIO), grid, SCENARIO, rounds=1)
    told = {device: config.get("bandwidth") for _, device, config in grid.trained}
    assert told == ({2: 1e5, 5: 4e5} if given else {2: None, 5: None})


def timed_app(**times) -> ClientApp:
    """Clients that report times of their own besides that of training."""
    timed = ClientApp()
    timed.query()(device_reply)

    @timed.train()
    def train(message, context):
        reply = train_reply(message, context, TASK)
        reply.content["metrics"].update(times)
        return reply

    return timed


@pytest.mark.parametrize("compression", ["none", "qsgd:4"])
def test_log__is_what_server_and_clients_know_of_each_participation(compression, tmp_path):
    scenario = SCENARIO.replace(compression=compression, local_epochs=np.linspace(0.5, 2.5, N))
    path, began = tmp_path / "log.csv", time.monotonic()
    grid = LocalGrid(app=timed_app(up_s=0.002, energy_j=3.0))
    federated("uni-d", grid, scenario, rounds=8, log=path)
    table = pd.read_csv(path)
    assert tuple(table) == COLUMNS
    taken_part = [(number, device) for number, device, _ in grid.trained]
    assert list(zip(table["round"], table["device"], strict=True)) == sorted(taken_part)
    np.testing.assert_array_equal(table["samples"], TASK.num_samples[table["device"]])
    np.testing.assert_array_equal(table["epochs"], scenario.local_epochs[table["device"]])
    assert set(table["parameters"]) == {TASK.num_parameters}
    assert set(8 * table["bytes_up"]) == {scenario.upload_bits}
    assert set(table["up_s"]) == {0.002}
    assert 0 < table["train_s"].min() < table["train_s"].max() < time.monotonic() - began
    # And of it a scenario with these times.
    devices = np.unique(table["device"])
    measured = Scenario.from_log(path)
    assert (measured.num_devices, measured.upload_bits) == (len(devices), scenario.upload_bits)
    np.testing.assert_array_equal(measured.num_samples, scenario.num_samples[devices])
    np.testing.assert_allclose(measured.channel.mean_bps, scenario.upload_bits / 0.002)
    per_sample = table["train_s"] / (table["samples"] * table["epochs"])
    cycles = 1e9 * per_sample.groupby(table["device"]).median()
    np.testing.assert_allclose(measured.cycles_per_sample, cycles)


def test_log__leaves_times_empty_that_clients_do_not_report(tmp_path):
    path = tmp_path / "log.csv"
    federated("uni-d", LocalGrid(), rounds=2, log=path)
    table = pd.read_csv(path)
    assert table["train_s"].min() > 0
    assert table["up_s"].isna().all()
    with pytest.raises(ValueError, match="up_s must have been measured at least once"):
        Scenario.from_log(path)


def test_log__that_cannot_be_written_does_not_end_the_federation(tmp_path):
    right, _ = federated("uni-d", LocalGrid(), rounds=2)
    grid, folder = LocalGrid(), tmp_path / "folder"
    folder.mkdir()
    grid.send_and_receive = lambda *arguments, **options: (
        shutil.rmtree(folder, ignore_errors=True)
        or LocalGrid.send_and_receive(grid, *arguments, **options)
    )
    with pytest.warns(RuntimeWarning, match="a round is not in the log '.*folder/log.csv'"):
        models, _ = federated("uni-d", grid, rounds=2, log=folder / "log.csv")
    np.testing.assert_array_equal(models, right)


def on_nodes(*devices: int):
    return lambda _: federated("lroa", LocalGrid(devices), rounds=1)


def made(name: str, **options):
    return lambda _: PolicyStrategy(make_policy(name, SCENARIO), SCENARIO, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (on_nodes(*range(N - 1)), f"{N} devices and the federation {N - 1} nodes"),
        (on_nodes(*range(N + 1)), f"{N} devices and the federation {N + 1} nodes"),
        (on_nodes(0, *range(N - 1)), "a partition-id of its own"),
        (made("divfl"), "distances between the gradients"),
        (made("random", server="adam"), "one of fedavg, fednova, fedavgm, fedadam, got 'adam'"),
        (
            lambda _: federated("random", LocalGrid(), SCENARIO.replace(model_bits=1e6), rounds=1),
            "model_bits of the scenario is 1000000 and must be 194880",
        ),
        (lambda _: federated("random", LocalGrid(), rounds=11), "the scenario's 10, got 11"),
        (
            lambda log: federated("uni-d", LocalGrid(), rounds=1, log=log),
            r"cannot begin the log '.*log.csv': File exists",
        ),
    ],
)
def test_strategy__refuses_wrong_use(call, message, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("mine")
    with pytest.raises(ValueError, match=message):
        call(path)
    assert path.read_text() == "mine"


@pytest.fixture(scope="module")
def flower(tmp_path_factory) -> Iterator[dict[str, str]]:
    """The environment of `flwr`, with a SuperLink of its own that runs simulations."""
    home, programs = tmp_path_factory.mktemp("flower"), Path(sys.executable).parent
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    address = f'address = "127.0.0.1:{port}"'
    (home / "config.toml").write_text(f"[superlink.test]\n{address}\ninsecure = true\n")
    environment = os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    link = subprocess.Popen(
        [programs / "flower-superlink", "--simulation", "--insecure", "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield environment
    finally:
        link.terminate()
        link.wait()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lroa", "opportunistic"])
def test_flower_app__has_the_model_of_the_wrapper_in_flowers_simulation(name, flower, tmp_path):
    out = tmp_path / "model.npz"
    options = {
        "--federation-config": f"num-supernodes={N} client-resources-num-cpus=1",
        "--run-config": f"policy='{name}' rounds=10 devices={N} seed=3 out='{out}'",
    }
    app = ROOT / "examples" / "flower_app"
    run = subprocess.run(
        ["flwr", "run", app, "test", "--stream", *sum(options.items(), ())],
        env=flower,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert out.exists(), run.stdout[-3000:]
    with np.load(out) as arrays:
        model = np.concatenate([arrays[array].ravel() for array in arrays])
    scenario = TASK.fit(Scenario.digits(num_devices=N, num_rounds=10))
    np.testing.assert_allclose(model, wrapped(name, scenario)[0][-1], rtol=0, atol=ROUNDING)

"""Training inside the step: what it does to the model, its seeds, and its refusals."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from scipy.spatial.distance import cdist
from torch.nn.functional import cross_entropy

from fl_edge_env import Allocation, Scenario
from fl_edge_env.aggregation import contributions
from policies import UniS
from policies.benchmark.run import Run
from tests.support import REPORTS, assert_same_records, chosen, spoil
from train_fl import Dataset, Task, TrainingEnvFactory, TrainingWrapper, make_task
from train_fl.data.partition import dirichlet_equal
from train_fl.local_sgd import LocalTrainer
from train_fl.models import digits_cnn
from train_fl.server import FedAvg, FedAvgM, FedNova
from train_fl.wrapper import device_accuracy


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task("digits", num_devices=20, split_seed=0)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.digits(num_devices=20, num_rounds=8, cohort_size=3)


def wrap(scenario: Scenario, task: Task, **options) -> TrainingWrapper:
    return TrainingWrapper(gym.make("FLEdge-v0", scenario=scenario), task, **options)


def start(scenario: Scenario, task: Task, *, seed: int = 0, **options) -> TrainingWrapper:
    env = wrap(scenario, task, **options)
    env.reset(seed=seed)
    return env


def data_of(task: Task, device: int) -> tuple[torch.Tensor, torch.Tensor]:
    part = task.parts[device]
    return task.dataset.train_inputs[part], task.dataset.train_targets[part]


def uniform(scenario: Scenario) -> Allocation:
    n = scenario.num_devices
    return Allocation(scenario.f_mid, scenario.p_mid, np.full(n, 1 / n))


def assert_moved(env: TrainingWrapper, before: np.ndarray, decision: Allocation, info) -> None:
    """The model moved by the weighted sum of the updates."""
    came = contributions(decision, info, env.scenario)
    np.testing.assert_array_equal(info["participants"], came.arrived)
    weight = np.zeros(env.scenario.cohort_size)
    factors = env.task.server.balance(env.scenario.local_epochs, env.task.num_samples)
    weight[: len(came.participants)] = (came.weight * factors)[came.arrived]
    expected = before + weight @ info["client_updates"].astype(np.float64)
    np.testing.assert_allclose(env.parameters, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("server", [FedAvg(), FedNova()])
def test_step__moves_the_model_by_the_weighted_updates(scenario, task, server):
    scenario = scenario.replace(local_epochs=np.linspace(0.5, 3.0, 20))
    env = start(scenario, dataclasses.replace(task, server=server))
    # q is so uneven that a device is drawn twice; then a chosen cohort of two.
    uneven = Allocation(scenario.f_mid, scenario.p_mid, np.array([0.9, *[0.1 / 19] * 19]))
    for decision in (uneven, chosen(scenario, 5, 3)):
        before = env.parameters
        *_, info = env.step(decision)
        assert_moved(env, before, decision, info)
        lengths = np.linalg.norm(info["client_updates"], axis=1)
        number = info["participants"].sum()
        assert (lengths > 0).tolist() == [True] * number + [False] * (3 - number)


def test_episode__writing_into_its_arrays_changes_nothing(scenario, task):
    def played(spoiled: bool):
        env = wrap(scenario, task, eval_every=3, **REPORTS)
        observation, info = env.reset(seed=1)
        told = []
        for cohort in ((5, 3), (2,), (5, 7)):
            told.append(copy.deepcopy((observation, info)))
            if spoiled:
                spoil(observation, info)
            observation, *_, info = env.step(chosen(scenario, *cohort))
        return [*told, observation, info, env.parameters]

    np.testing.assert_equal(played(True), played(False))


def test_step__an_upload_that_failed_brings_no_update(scenario, task):
    failing = scenario.replace(availability=0.7, num_rounds=20, upload_failure=0.6)
    env = start(failing, task, report_gradients=True)
    sizes = set()
    for _ in range(20):
        before = env.parameters
        *_, info = env.step(uniform(failing))
        arrived = np.setdiff1d(info["cohort"], np.flatnonzero(info["failed"])).tolist()
        assert np.flatnonzero(info["participants"]).tolist() == arrived
        sizes.add(len(arrived))
        assert_moved(env, before, uniform(failing), info)
        assert ("train_loss" in info) == bool(arrived)
    assert {0, 1, 2} <= sizes


def test_step__the_server_keeps_its_velocity_for_an_episode(scenario, task):
    task = dataclasses.replace(task, server=FedAvgM(learning_rate=0.5, momentum=0.8))
    env = start(scenario, task)
    velocity = np.zeros(task.num_parameters)
    for number, cohort in enumerate(((5, 3), (7, 1, 2), (4,))):
        if number == 2:
            env.reset(seed=1)
            velocity = 0.0
        before = env.parameters
        *_, info = env.step(chosen(scenario, *cohort))
        velocity = 0.8 * velocity + info["client_updates"].sum(axis=0) / len(cohort)
        np.testing.assert_allclose(env.parameters, before + 0.5 * velocity, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("epochs", "seen"), [((2, 2), (20, 144)), ((5, 0.5), (50, 36))])
def test_train_loss__is_the_mean_over_the_samples_of_all_passes(scenario, task, epochs, seen):
    few = dataclasses.replace(task, parts=[task.parts[0][:10], *task.parts[1:]])
    env = wrap(few.fit(scenario).replace(local_epochs=[*epochs, *[1] * 18]), few)

    def loss(*cohort: int) -> float:
        env.reset(seed=2)
        return env.step(chosen(scenario, *cohort))[-1]["train_loss"]

    assert loss(0, 1) == pytest.approx(np.average([loss(0), loss(1)], weights=seen))


def test_model__is_the_global_one_also_from_its_file(scenario, task, tmp_path):
    env = start(scenario, task)
    parameters = env.parameters
    env.save_model(tmp_path / "model.pt")
    model = env.model()
    env.step(uniform(scenario))  # which moves the model on
    assert (tmp_path / "model.pt").stat().st_size < 1.5 * 4 * task.num_parameters
    loaded = task.make_model()
    loaded.load_state_dict(torch.load(tmp_path / "model.pt"))
    for network in (model, loaded):
        flat = torch.nn.utils.parameters_to_vector(network.parameters())
        np.testing.assert_array_equal(flat.detach(), parameters)


def test_evaluation__every_few_rounds_and_at_the_end(scenario, task):
    env = wrap(scenario, task, eval_every=3)
    infos = [env.reset(seed=0)[1], *(env.step(uniform(scenario))[-1] for _ in range(8))]
    assert 0 <= infos[0]["test_accuracy"] <= 1
    for name in ("test_accuracy", "test_loss", "device_accuracy"):
        assert [index for index, info in enumerate(infos) if name in info] == [0, 3, 6, 8]


def test_device_accuracy__is_that_of_the_classes_a_device_has(scenario, task):
    env = start(scenario, task, eval_every=1)
    *_, info = env.step(uniform(scenario))
    labels = task.dataset.test_targets
    scores = env.model()(task.dataset.test_inputs).detach()
    assert info["test_loss"] == pytest.approx(float(cross_entropy(scores, labels)), rel=1e-6)
    right = (scores.argmax(dim=1) == labels).float()
    assert info["test_accuracy"] == pytest.approx(float(right.mean()))
    of_class = np.array([right[labels == c].mean() for c in range(10)])
    expected = [of_class[data_of(task, device)[1]].mean() for device in range(20)]
    np.testing.assert_allclose(info["device_accuracy"], expected, rtol=1e-6)


def test_device_accuracy__leaves_out_classes_that_are_not_tested():
    mix = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.6, 0.2]])
    got = device_accuracy(mix, np.array([3, 10, 0]), np.array([4, 20, 0]))
    np.testing.assert_allclose(got, [0.625, np.nan, (0.2 * 0.75 + 0.6 * 0.5) / 0.8])


def test_learning_rate__is_halved_twice(task):
    rates = [task.learning_rate(number, 8) / task.options.learning_rate for number in range(8)]
    assert rates == [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_training__policies_start_from_the_same_model(scenario, task, monkeypatch):
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _: pytest.fail("GPUs reseeded"))
    state = torch.random.get_rng_state()
    a, b = (start(scenario, task, seed=2, report_gradients=report) for report in (False, True))
    np.testing.assert_array_equal(a.parameters, b.parameters)
    assert torch.equal(torch.random.get_rng_state(), state)
    a.reset()
    assert not np.array_equal(a.parameters, b.parameters)


def test_reset__each_seed_has_a_split_of_its_own(scenario):
    task = make_task("digits", num_devices=20)
    env = start(scenario, task, seed=3)
    # The third child of the training stream draws it.
    seed = np.random.SeedSequence(3).spawn(1)[0].spawn(5)[2].spawn(3)[2]
    labels = task.dataset.train_targets.numpy()
    parts = dirichlet_equal(labels, 20, 0.5, np.random.default_rng(seed))
    np.testing.assert_array_equal(env.task.parts, parts)
    env.reset(seed=4)
    assert not np.array_equal(env.task.parts, parts)


def test_gradient_distance__is_of_the_models_that_were_sent(scenario, task):
    env = wrap(scenario, task, report_gradients=True)
    trainer = LocalTrainer(digits_cnn(), task.options)

    def gradient(device: int) -> np.ndarray:
        received = torch.from_numpy(env.parameters)
        return trainer.gradient(received, *data_of(task, device)).numpy()

    _, info = env.reset(seed=0)
    gradients = np.array([gradient(device) for device in range(20)])
    close = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6)
    close(info["gradient_distance"], cdist(gradients, gradients))
    env.step(chosen(scenario, 1, 2, 3))  # gradients at the initial model, as they were
    gradients[[4, 9]] = [gradient(4), gradient(9)]
    *_, info = env.step(chosen(scenario, 4, 9))
    mixed = info["gradient_distance"]
    close(mixed[[4, 9]], cdist(gradients, gradients)[[4, 9]])
    np.testing.assert_array_equal(mixed, mixed.T)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _, task: fits(task, num_devices=10), "over 20 devices and the scenario has 10"),
        (lambda _, task: fits(task, model_bits=1e6), "is 1000000 and must be 194880 .*: use task"),
        (lambda _, task: fits(task, num_samples=[70] * 9 + [73] * 11), "70 to 73 and must be 72"),
        (lambda _, task: TrainingWrapper(gym.make("CartPole-v1"), task), "be an FLEdge environ"),
        (lambda env, _: TrainingWrapper(env.env, "digits"), r"be a Task, .*num_devices=20\)"),
        (lambda env, task: TrainingWrapper(gym.Wrapper(env), task), "must not train already, got"),
        (lambda env, _: env.parameters, "no global model yet"),
        (lambda env, task: TrainingWrapper(env.env, task, device="tpu9"), "device must be availa"),
        (lambda env, task: TrainingWrapper(env.env, task, momentum=0.1), "momentum is none of"),
    ],
)
def test_wrapper__refuses_what_does_not_fit(scenario, task, make, message):
    with pytest.raises((ValueError, gym.error.ResetNeeded), match=message):
        make(wrap(scenario, task), task)


def fits(task: Task, **fields) -> TrainingWrapper:
    return wrap(Scenario.digits(num_devices=20).replace(**fields), task)


def test_reports__losses_and_norms_are_those_of_the_participants(scenario, task):
    _, nobody = wrap(scenario, task, report_losses=True).reset(seed=0)
    assert not nobody["participants"].any()
    assert not nobody["local_losses"].any()
    env = wrap(scenario, task, report_losses=True, report_update_norms=True)
    _, first = env.reset(seed=0)
    assert first["participants"].all()
    model = env.model()
    *_, info = env.step(chosen(scenario, 4, 9))
    assert np.flatnonzero(info["participants"]).tolist() == [4, 9]
    norms = np.linalg.norm(info["client_updates"][:2], axis=1)
    np.testing.assert_allclose(info["update_norms"][[4, 9]], norms, rtol=1e-5)
    for name in ("update_norms", "local_losses", "local_loss_rms"):
        expected = np.where(info["participants"], first[name], 0)
        np.testing.assert_allclose(info[name], expected, rtol=1e-6)
    for device in (4, 9):
        images, labels = data_of(task, device)
        losses = cross_entropy(model(images), labels, reduction="none").detach().numpy()
        assert info["local_losses"][device] == pytest.approx(losses.mean(), rel=1e-5)
        rms = math.sqrt(np.mean(losses**2))
        assert info["local_loss_rms"][device] == pytest.approx(rms, rel=1e-5)


def test_run__that_trains_leaves_torch_as_it_was(scenario):
    deterministic = torch.backends.cudnn.deterministic
    torch.set_num_threads(3)
    make_env = TrainingEnvFactory(scenario.replace(num_rounds=1), "digits").fitted()
    policy = UniS(make_env.scenario)
    Run("it", policy, make_env.scenario, (0,), make_env).play(policy)
    assert (torch.get_num_threads(), torch.backends.cudnn.deterministic) == (3, deterministic)


def tilted(decision: Allocation) -> Allocation:
    return dataclasses.replace(decision, q=np.arange(1, 21) / 210)


class Tilted(UniS):
    def decide(self, observation):
        return tilted(super().decide(observation))


class Tilts(gym.ActionWrapper):
    def action(self, action):
        return tilted(action)


def test_run__counts_what_wrappers_play(scenario):
    factory = TrainingEnvFactory(scenario.replace(num_rounds=2), "digits").fitted()
    system = factory.scenario
    own = Run("it", Tilted(system), system, (0,), factory)
    other = Run("it", UniS(system), system, (0,), lambda it: Tilts(factory(it)))
    records = [run.play(run.policy) for run in (own, other)]
    for record in records:
        del record.rounds["real_time"]
    assert_same_records(records[:1], records[1:])


def test_training_env__passes_gymnasiums_checker(scenario, task):
    # Few samples, each of which takes as long as nine.
    system = scenario.replace(
        availability=0.3,
        upload_failure=0.5,
        deadline_s=3.2,
        local_epochs=1,
        num_samples=8,
        cycles_per_sample=9 * scenario.cycles_per_sample,
        objective="outcome",
        csi="participants",
    )
    few = dataclasses.replace(task, parts=[part[:8] for part in task.parts])
    env = wrap(system, few, **REPORTS)
    with pytest.warns(UserWarning, match="different from the unwrapped version"):
        check_env(env)


@contextmanager
def changed(setting: str, value: object) -> Iterator[None]:
    before = getattr(torch, f"get_{setting}")()
    getattr(torch, f"set_{setting}")(value)
    yield
    getattr(torch, f"set_{setting}")(before)


MODES = {
    "inference": torch.inference_mode,
    "float64": lambda: changed("default_dtype", torch.float64),
    "device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "precision": lambda: changed("float32_matmul_precision", "medium"),
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_training__is_the_same_in_all_modes_of_torch(mode):
    inputs = np.random.default_rng(0).normal(size=(400, 64))
    classes = np.arange(400) % 10
    scenario = Scenario.digits(num_devices=6, cohort_size=3, num_rounds=3, compression="qsgd:4")

    def made():
        data = Dataset.from_arrays("mine", inputs, classes, inputs[:50], classes[:50])
        options = {"model": partial(torch.nn.Linear, 64, 10), "learning_rate": 0.1}
        task = make_task(data, num_devices=6, **options)
        env = wrap(task.fit(scenario), task, **REPORTS)
        return env, [env.reset(seed=1)]

    def played(env, results):
        results += [env.step(np.zeros((3, 6), dtype=np.float32)) for _ in range(2)]
        return [*results, env.parameters], env.model()

    with mode():
        inside = made()
    outside = made()
    runs = [played(*made()), played(*inside)]
    with mode():
        runs.append(played(*outside))
    for results, model in runs:
        np.testing.assert_equal(results, runs[0][0])
        model(torch.zeros(1, 64)).sum().backward()

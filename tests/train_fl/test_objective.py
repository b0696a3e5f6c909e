"""Tasks of any shape, loss and metric: tables, tokens and numbers to predict."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from fl_edge_env import Allocation, Scenario
from policies import UniS, evaluate, make_policy
from train_fl import Dataset, Metric, Task, TrainingEnvFactory, TrainingWrapper, make_task

N = 4
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(90, 3)).astype(np.float32)
NUMBERS = ROWS @ RNG.normal(size=(3, 2)) + 0.1 * RNG.normal(size=(90, 2))
TOKENS = RNG.integers(7, size=(90, 1))
CLASSES = (TOKENS[:, 0] % 3).astype(np.int64)


def table(**changes) -> Dataset:
    return Dataset.from_arrays("table", ROWS[:70], NUMBERS[:70], ROWS[70:], NUMBERS[70:], **changes)


def tokens() -> Dataset:
    return Dataset.from_arrays("tokens", TOKENS[:70], CLASSES[:70], TOKENS[70:], CLASSES[70:])


def embedding(rows: int = 7, **options) -> nn.Module:
    return nn.Sequential(nn.Embedding(rows, 3, **options), nn.Flatten())


def make_own(dataset: Dataset | None = None, **changes) -> Task:
    """A task in which an epoch is a step along the gradient over all of a device's data."""
    options = {"num_devices": N, "learning_rate": 0.5, "momentum": 0.0, "batch_size": 90}
    options |= {"model": lambda: nn.Linear(3, 2)}
    return make_task(table() if dataset is None else dataset, **options | changes)


def play(task: Task, rounds: int) -> tuple[list[np.ndarray], dict]:
    """The models of rounds in which all devices take part, the first one before, and the info."""
    scenario = task.fit(
        Scenario.digits(num_devices=N, cohort_size=N, num_rounds=rounds, local_epochs=1)
    )
    env = TrainingWrapper(gym.make("FLEdge-v0", scenario=scenario), task)
    env.reset(seed=0)
    models = [env.parameters]
    for _ in range(rounds):
        everyone = Allocation(scenario.f_mid, scenario.p_mid, cohort=range(N))
        *_, info = env.step(everyone)
        models.append(env.parameters)
    return models, info


def test_regression__steps_along_the_gradient_to_the_least_squares():
    models, info = play(make_own(), rounds=80)
    rows = np.column_stack([ROWS, np.ones(90)])
    train, test = (rows[:70], NUMBERS[:70]), (rows[70:], NUMBERS[70:])

    def weights(model: np.ndarray) -> np.ndarray:
        return np.vstack([model[:6].reshape(2, 3).T, model[6:]])

    before = weights(models[0])
    # The loss is a mean over the two outputs, of which each has half of the gradient.
    step = train[0].T @ (train[0] @ before - train[1]) / 70
    np.testing.assert_allclose(weights(models[1]), before - 0.5 * step, atol=1e-6)
    best = np.linalg.lstsq(*train)[0]
    np.testing.assert_allclose(weights(models[-1]), best, atol=1e-4)
    error = test[0] @ best - test[1]
    assert info["test_rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-3)
    assert info["test_loss"] == pytest.approx(np.mean(error**2), rel=1e-3)
    assert not info["larger_is_better"]
    assert not {"test_accuracy", "device_accuracy"} & info.keys()


def test_tokens__each_row_of_an_embedding_learns_from_the_samples_that_have_its_token():
    models, info = play(make_own(tokens(), model=embedding, partition="iid"), rounds=40)
    before = models[0].reshape(7, 3)
    scores = before[TOKENS[:70, 0]]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    step = np.zeros((7, 3))
    np.add.at(step, TOKENS[:70, 0], (shares - np.eye(3)[CLASSES[:70]]) / 70)
    np.testing.assert_allclose(models[1].reshape(7, 3), before - 0.5 * step, atol=1e-6)
    expected = np.mean(models[-1].reshape(7, 3)[TOKENS[70:, 0]].argmax(axis=1) == CLASSES[70:])
    assert info["test_accuracy"] == expected


def test_own_loss_and_metric__are_what_trains_and_judges():
    def absolute(outputs, targets):
        return (outputs - targets).abs().sum(dim=1)

    def worst(outputs, targets):
        return (outputs - targets).abs().max()

    metric = Metric("worst", worst, larger_is_better=False)
    task = make_own(table(loss=absolute, metric=metric), learning_rate=0.01)
    models, info = play(task, rounds=1)
    weight, bias = models[0][:6].reshape(2, 3), models[0][6:]
    sign = np.sign(ROWS[:70] @ weight.T + bias - NUMBERS[:70])
    np.testing.assert_allclose(models[1][6:], bias - 0.01 * sign.mean(axis=0), atol=1e-6)
    weight, bias = models[1][:6].reshape(2, 3), models[1][6:]
    error = np.abs(ROWS[70:] @ weight.T + bias - NUMBERS[70:])
    assert info["test_worst"] == pytest.approx(error.max(), rel=1e-5)


@pytest.mark.parametrize("name", ["divfl", "oort", "optimal-sampling"])
def test_evaluate__policies_that_ask_for_reports_train_a_regression(name):
    scenario = Scenario.digits(num_devices=N, cohort_size=2, num_rounds=3)
    training = TrainingEnvFactory(scenario, make_own(), eval_every=1).fitted()
    policy = make_policy(name, training.scenario)
    table = evaluate([policy], training.scenario, [0], make_env=training, gaps=False)
    assert 0 < table.final_rmse[0] < 10


def test_evaluate__the_target_of_an_error_is_reached_from_above():
    scenario = Scenario.digits(num_devices=N, cohort_size=2, num_rounds=20)
    # Both outputs begin far away, so that early models are worse than late ones.
    far = Dataset.from_arrays("far", ROWS[:70], NUMBERS[:70] + 9, ROWS[70:], NUMBERS[70:] + 9)
    training = TrainingEnvFactory(
        scenario, make_own(far, learning_rate=0.05), eval_every=1
    ).fitted()
    system = training.scenario
    times = [
        evaluate(
            [UniS(system)], system, [0], make_env=training, gaps=False, target_accuracy=target
        ).time_to_target[0]
        for target in (8.0, 4.0, 1e-6)
    ]
    assert 0 < times[0] < times[1]
    assert np.isnan(times[2])
    with pytest.raises(ValueError, match="the target of rmse must be finite, got nan"):
        evaluate([UniS(system)], system, [0], make_env=training, target_accuracy=np.nan)


def per_sample(outputs, targets):
    return mse_loss(outputs, targets, reduction="none").mean(dim=1)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            mse_loss,
            r"a number for each sample, shape \(2,\) .* got shape \(\): .*reduction=\"none\"",
        ),
        (lambda o, t: (o - t) ** 2, r"got shape \(2, 2\)"),
        (lambda o, t: ((o - t) ** 2).mean(dim=0), r"shape \(1,\) .* got shape \(2,\)"),
        (lambda o, t: per_sample(o, t).detach(), "gradients flow back from, got a detached tensor"),
        (lambda o, t: per_sample(o, t) / 0, "must be finite, got inf"),
        (lambda o, t: per_sample(o, t) + 0j, "must give floats, got torch.complex64"),
        (lambda o, _: len(o), "got 2: give torch's"),
        (lambda o: o, r"called as loss\(outputs, targets\): TypeError: .* takes 1"),
        (lambda o, t: t.sub_(o).square().mean(dim=1), "must leave the targets as they are"),
        ("cross_entropy", "loss of targets that are numbers must be one of mse, mae"),
    ],
)
def test_make_task__names_what_is_wrong_with_a_loss(loss, message):
    with pytest.raises(ValueError, match=message):
        make_own(loss=loss)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            lambda o, _: float("nan") * len(o),
            "must give a number, got NaN for finite outputs of 20",
        ),
        (per_sample, r"must give one real number for all samples, got a Tensor of shape \(20,\)"),
        (lambda *_: None, "must give one real number for all samples, got None"),
        (lambda o: len(o), r"'own' must be called as value\(outputs, targets\): TypeError"),
    ],
)
def test_make_task__names_what_is_wrong_with_a_metric(value, message):
    with pytest.raises(ValueError, match=message):
        make_own(metric=Metric("own", value))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a b", len), "name must be letters, digits and underscores, and not 'loss', got 'a b'"),
        (("loss", len), "and not 'loss', got 'loss'"),
        (("accuracy", len), "must have another name than 'accuracy'"),
        (("own", 0.5), "value of the metric 'own' must be a function .*, got 0.5"),
        (("own", len, "lower"), "larger_is_better of .* must be True or False, got 'lower'"),
    ],
)
def test_metric__wrong_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Metric(*arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partition": "dirichlet"}, "goes by classes, .* partition must be iid, or writer"),
        ({"metric": "accuracy"}, "metric of targets that are numbers must be one of rmse, mae"),
        ({"metric": mse_loss}, r"a name or a Metric, got .*Metric\(name, value, larger_is_better"),
        ({"model": lambda: nn.Linear(3, 1)}, "an output for each number to predict, 2, got 1"),
        (
            # The first two samples have smaller tokens.
            {"dataset": tokens(), "model": lambda: embedding(6)},
            r"shape \(1,\) of integers from 0 to 6 .*: index out of range",
        ),
        (
            {"dataset": tokens(), "model": lambda: embedding(sparse=True)},
            "gradient of 0.weight must be dense",
        ),
        (
            {"dataset": tokens(), "model": lambda: nn.Linear(1, 3)},
            "of integers from 0 to 6 .give floats unless they are tokens",
        ),
    ],
)
def test_make_task__names_what_does_not_fit_the_kind_of_data(changes, message):
    with pytest.raises(ValueError, match=message):
        make_own(**changes)


def test_make_task__groups_of_ones_own_split_numbers():
    groups = np.arange(70) // 20  # of 20, 20, 20 and 10
    task = make_own(table(train_writers=groups), partition="writer")
    assert [len(part) for part in task.parts] == [20, 20, 20, 10]
    assert torch.equal(task.dataset.train_inputs[task.parts[3]], torch.from_numpy(ROWS[60:70]))

"""Tasks hold what was asked for, and wrong input is refused."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fl_edge_env import CellChannel, Scenario
from policies import UniS, evaluate
from train_fl import Dataset, Task, TrainingEnvFactory, TrainingWrapper, make_task
from train_fl.data.catalogue import DATASETS, own_dataset
from train_fl.data.dataset import DataSource
from train_fl.data.partition import by_rank, by_writer, dirichlet_equal, iid
from train_fl.models import femnist_cnn, resnet18_group_norm
from train_fl.training_options import TrainingOptions

LABELS = np.random.default_rng(0).integers(0, 4, 205)
PARTITIONS = ["dirichlet", "iid", "place", "speed", "writer"]
GAINS = np.array([0.1, 0.5, 0.2, 0.4, 0.3])


def own_data() -> Dataset:
    rng = np.random.default_rng(1)
    return Dataset.from_arrays(
        "own", rng.normal(size=(205, 1, 4, 4)), LABELS, rng.normal(size=(9, 1, 4, 4)), [3] * 9
    )


def written_data() -> Dataset:
    return dataclasses.replace(own_data(), train_writers=np.arange(205)[::-1] % 5)


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 4))


def make_own(dataset: Dataset | None = None, **changes) -> Task:
    options = {"num_devices": 5, "learning_rate": 0.3, "model": network}
    return make_task(dataset or own_data(), **options | changes)


def assert_same_parts(a: list[np.ndarray], b: list[np.ndarray]) -> None:
    for first, second in zip(a, b, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_make_task__splits_as_the_partition_says(partition):
    dataset = written_data()
    seed = np.random.SeedSequence(5)
    options = {"partition": partition, "concentration": 1.5, "merit": GAINS}
    task, free = (make_own(dataset, split_seed=each, **options) for each in (8, None))
    expected = {
        "dirichlet": lambda rng: dirichlet_equal(LABELS, 5, 1.5, rng),
        "iid": lambda rng: iid(205, 5, rng),
        "place": lambda rng: by_rank(LABELS, GAINS, 1.5, rng),
        "speed": lambda rng: by_rank(LABELS, GAINS, 1.5, rng),
        "writer": lambda _: by_writer(dataset.train_writers, 5),
    }[partition]
    assert task.dataset is dataset
    assert task.episode(seed) is task
    for each, source in ((task, 8), (free, 0), (free.episode(seed), seed)):
        parts = expected(np.random.default_rng(source))
        assert_same_parts(each.parts, parts)
        assert each.num_samples.tolist() == [len(part) for part in parts]
        counts = [np.bincount(LABELS[part], minlength=4) / len(part) for part in parts]
        np.testing.assert_array_equal(each.label_histogram, counts)
    assert (free.episode(seed) is free) == (partition == "writer")


@pytest.mark.parametrize(
    ("name", "learning_rate", "shape", "classes", "network"),
    [
        ("fashion_mnist", 0.01, (1, 28, 28), 10, femnist_cnn),
        ("cifar10", 0.05, (3, 32, 32), 10, resnet18_group_norm),
        ("femnist", 0.1, (1, 28, 28), 62, femnist_cnn),
    ],
)
def test_make_task__defaults_of_the_paper(
    monkeypatch, tmp_path, name, learning_rate, shape, classes, network
):
    images = np.zeros((240, *shape))
    labels = np.arange(240) % classes
    writers = np.arange(240) % 120
    dataset = Dataset.from_arrays(name, images, labels, images, labels, train_writers=writers)
    asked = []

    def load(source: DataSource) -> Dataset:
        asked.append(source)
        return dataset

    monkeypatch.setitem(DATASETS, name, DATASETS[name]._replace(load=load))
    task = make_task(name, split_seed=6, data_dir=str(tmp_path), download=True)
    assert asked == [DataSource(tmp_path, download=True, num_devices=120, seed=6)]
    assert task.options.learning_rate == learning_rate
    assert task.num_parameters == sum(p.numel() for p in network(classes).parameters())
    mixed = dirichlet_equal(labels, 120, 0.5, np.random.default_rng(6))
    assert_same_parts(task.parts, by_writer(writers, 120) if name == "femnist" else mixed)


@pytest.mark.parametrize("partition", ["place", "speed"])
def test_factory__splits_by_the_devices_of_its_scenario(partition):
    f_max = np.linspace(1.5e9, 2e9, 8)
    scenario = Scenario.digits(channel=CellChannel(place_seed=2), num_devices=8, f_max=f_max)
    factory = TrainingEnvFactory(scenario, "digits", partition=partition, concentration=2.0)
    task = factory.fitted().make_task()
    labels = task.dataset.train_targets.numpy()
    merit = {"place": scenario.mean_gain, "speed": f_max / scenario.cycles_per_sample}[partition]
    assert_same_parts(task.parts, by_rank(labels, merit, 2.0, np.random.default_rng(0)))


OWN = """
import numpy as np
from torch import nn

from train_fl import Dataset

SCALE = 0.3


def points():
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    images = labels[:, None, None, None] + rng.normal(scale=SCALE, size=(120, 1, 2, 2))
    return Dataset.from_arrays("points", images, labels, images[:30], labels[:30])


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(4, 3))


def number():
    return 3


def damaged():
    raise FileNotFoundError("there is no points.csv")
"""


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    return path


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_factory__trains_data_and_networks_of_a_users_file(own_file, workers):
    scenario = Scenario.digits(num_devices=6, num_rounds=2, energy_budget_j=1.0)
    options = {"num_devices": 6, "learning_rate": 0.1, "split_seed": 0}
    # The same as a task, whose data and network are made here.
    task = make_task(
        own_dataset(f"{own_file}:points"),
        model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3)),
        **options,
    )
    given = TrainingEnvFactory(scenario, task).fitted()
    assert given.scenario.model_bits == 32 * 15
    del options["num_devices"]
    options |= {"model": f"{own_file}:Net"}
    named, fetching = (
        TrainingEnvFactory(scenario, f"{own_file}:points", download=download, **options).fitted()
        for download in (False, True)
    )
    assert named.scenario == given.scenario
    assert named.identity == fetching.identity
    one, two = (
        evaluate([UniS(given.scenario)], given.scenario, [0, 1], make_env=factory, workers=number)
        for factory, number in ((given, 1), (named, workers))
    )
    pd.testing.assert_frame_equal(one, two)
    with pytest.raises(ValueError, match="learning_rate is none of eval_every"):
        TrainingEnvFactory(scenario, task, learning_rate=0.2)
    with pytest.raises(ValueError, match="the name of a data set or a Task, got Dataset"):
        TrainingEnvFactory(scenario, task.dataset)


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        ("{}:number", "{}:Net", "number must return a Dataset, got int"),
        ("{}:damaged", "{}:Net", r"damaged\(\) fails: FileNotFoundError: there is no poi"),
        ("{}:points", "{}:np", "np in .*mine.py' must be a class or function that makes"),
        (
            "point",
            "{}:Net",
            "a function in a file, such as my_file.py:function, or a folder, got 'poi",
        ),
        ("digit", "{}:Net", "got 'digit': did you mean 'digits'"),
    ],
)
def test_make_task__names_what_is_wrong_with_own_files(own_file, data, model, message):
    with pytest.raises(ValueError, match=message):
        make_task(
            data.format(own_file), model=model.format(own_file), num_devices=6, learning_rate=0.1
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images, _: torch.rand_like(images), "two calls with the same inputs and generator"),
        (lambda images: images, r"augment\(inputs, rng\) fails: .* takes 1"),
    ],
)
def test_make_task__names_what_is_wrong_with_an_augmentation(change, message):
    with pytest.raises(ValueError, match=message):
        make_own(dataclasses.replace(own_data(), augment=change))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({missing: None}, "user-defined data need num_devices, learning_rate and model")
            for missing in ("num_devices", "learning_rate", "model")
        ),
        (
            {"model": "smal"},
            "one of digits, small, small_colour, cnn, resnet18, got 'smal': did you mean",
        ),
        ({"upload": "large"}, "one of digits, small, small_colour, cnn, resnet18, got 'large'"),
        ({"model": "resnet18"}, r"pass over inputs of shape \(\d+, 1, 4, 4\) fails"),
        ({"partition": "writer"}, "the data set own has no train_writers"),
        ({"partition": "place", "merit": [0.1, 0.2]}, r"for each of 5 devices, got \[0.1, 0.2\]"),
        ({"partition": "speed", "merit": [0.1] * 5}, "different mean gains, .*got 0.1 for each of"),
        ({"partition": "place", "merit": [-0.1, 1, 1, 1, 1]}, "merit must be positive"),
        ({"dataset": written_data(), "partition": "writer", "num_devices": 4}, "are 5 writers"),
        ({"num_devices": 0}, "num_devices must be an integer of at least 1, got 0"),
        ({"num_devices": 206}, "num_devices must be at most the 205 samples, got 206"),
        ({"compression": "qsgd:4"}, "user-defined compressor, .*got 'qsgd:4': qsgd and topk bel"),
        # Told before files are read.
        ({"dataset": "cifar10", "data_dir": "/nowhere", "learning_rate": -1.0}, "learning_rate"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"eval_every": 0}, "eval_every must be an integer of at least 1, got 0"),
        ({"threads": 0}, "threads must be an integer of at least 1, got 0"),
        ({"split_seed": -1}, "split_seed must be an integer of at least 0, got -1"),
        ({"partition": "place-"}, "partition must be one of dirichlet, .*did you mean 'place'"),
        ({"concentration": 0.0}, "concentration must be positive and finite, got 0.0"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
        ({"proximal": float("inf")}, "proximal must be at least zero and finite, got inf"),
        ({"on_non_finite": "stop"}, "on_non_finite must be one of raise, skip, got 'stop'"),
    ],
)
def test_make_task__wrong_input_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        make_own(**changes)


SMALL = Scenario.digits(num_devices=5)


def changed(**attributes) -> Task:
    return dataclasses.replace(make_own(), **attributes)


def wrap(**options) -> TrainingWrapper:
    task = make_own()
    return TrainingWrapper(gym.make("FLEdge-v0", scenario=task.fit(SMALL)), task, **options)


def test_doors__name_an_unknown_keyword():
    with pytest.raises(TypeError, match="unexpected keyword argument 'lr'"):
        make_own(lr=1)
    with pytest.raises(ValueError, match=r"lr is none of eval_every, .*: give other options to"):
        wrap(lr=1)


@pytest.mark.parametrize(
    ("door", "name", "wrong"),
    [
        *((make_own, name, 3) for name in ("upload", "download", "data_dir")),
        *((wrap, name, "yes") for name in ("report_gradients", "report_losses")),
        (wrap, "report_update_norms", np.ones(3)),
        (wrap, "device", 10**30),
        (lambda scenario: make_own().fit(scenario), "scenario", "digits"),
        (lambda scenario: make_own().check_fit(scenario), "scenario", None),
        (lambda scenario: TrainingEnvFactory(scenario, "digits"), "scenario", "digits"),
        *((changed, "parts", [np.array(part)]) for part in ([205], [-1])),
        (changed, "options", TrainingOptions()),  # without a learning rate
    ],
)
def test_doors__name_a_wrong_argument(door, name, wrong):
    with pytest.raises(ValueError, match=f"^{name} must .*(, got |: )"):
        door(**{name: wrong})


def test_fit__sets_model_size_and_sample_counts():
    writers = np.minimum(np.arange(205) // 20, 4)  # of unequal numbers of samples
    task = make_own(dataclasses.replace(own_data(), train_writers=writers), partition="writer")
    scenario = Scenario.digits(num_devices=5, num_rounds=9)
    sizes = {"model_bits": 32 * 68, "model_tensors": 2, "num_samples": task.num_samples}
    assert task.fit(scenario) == scenario.replace(**sizes)
    with pytest.raises(ValueError, match="num_samples"):
        task.fit(Scenario.digits(num_devices=6))

"""The lean loop against torch's own optimiser and against finite differences."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from tests.support import torch_seeded
from train_fl.data.dataset import DataSource
from train_fl.data.images import digits
from train_fl.local_sgd import LocalTrainer
from train_fl.models import digits_cnn
from train_fl.training_options import TrainingOptions


@pytest.fixture
def model() -> digits_cnn:
    with torch_seeded():
        return digits_cnn()


@pytest.fixture(scope="module")
def data() -> tuple[torch.Tensor, torch.Tensor]:
    dataset = digits(DataSource())
    return dataset.train_inputs[:25], dataset.train_targets[:25]


@pytest.mark.parametrize(("proximal", "momentum"), [(0.0, 0.9), (0.7, 0.9), (0.7, 0.0)])
def test_update__equals_torch_sgd_over_the_same_batches(model, data, proximal, momentum):
    images, labels = data
    reference = copy.deepcopy(model)
    optimiser = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=momentum)
    options = TrainingOptions(batch_size=8, proximal=proximal, momentum=momentum)
    trainer = LocalTrainer(model, options)
    start = trainer.initial_parameters()
    kept = start.clone()
    steps = {"epochs": 2, "learning_rate": 0.05}
    for seed in (1, 7):  # the first leaves nothing behind
        rng = np.random.default_rng(seed)
        update, loss = trainer.update(start, images, labels, rng=rng, **steps)
    assert torch.equal(start, kept)

    rng = np.random.default_rng(7)
    losses = []
    for _ in range(2):
        for batch in np.split(rng.permutation(25), [8, 16, 24]):
            value = cross_entropy(reference(images[batch]), labels[batch])
            distance = (parameters_to_vector(reference.parameters()) - start).square().sum()
            optimiser.zero_grad()
            (value + 0.5 * proximal * distance).backward()
            optimiser.step()
            losses += [float(value.detach())] * len(batch)
    expected = parameters_to_vector(reference.parameters()).detach() - start
    torch.testing.assert_close(update, expected, rtol=1e-4, atol=1e-7)
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_update__augments_with_numbers_from_the_stream(model, data):
    trainer = LocalTrainer(model, TrainingOptions(batch_size=8, momentum=0.9))
    start = trainer.initial_parameters()
    seen = []

    def augment(batch: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        seen.append((len(batch), rng.random()))
        return torch.zeros_like(batch)

    options = {"epochs": 2, "learning_rate": 0.1, "augment": augment}
    update, _ = trainer.update(start, *data, rng=np.random.default_rng(3), **options)
    counts, numbers = zip(*seen, strict=True)
    assert counts == (8, 8, 8, 1) * 2
    assert len(set(numbers)) == 8
    first_layer = next(model.parameters()).numel()
    assert not update[:first_layer].any()  # no light, no gradient


def test_gradient__equals_finite_differences(model, data, monkeypatch):
    monkeypatch.setattr("train_fl.local_sgd._CHUNK", 7)
    trainer = LocalTrainer(model.double(), TrainingOptions(batch_size=8, momentum=0.9))
    images = data[0].double()
    labels = data[1]
    at = trainer.initial_parameters()
    trainer.evaluate(at + 1, images, labels)  # the network now holds other parameters
    gradient = trainer.gradient(at, images, labels)
    for index in np.random.default_rng(0).choice(len(at), 20, replace=False):
        step = torch.zeros_like(at)
        step[index] = 1e-6
        high, _ = trainer.evaluate(at + step, images, labels)
        low, _ = trainer.evaluate(at - step, images, labels)
        assert float(gradient[index]) == pytest.approx((high - low) / 2e-6, rel=1e-4, abs=1e-8)
    loss, outputs = trainer.evaluate(at, images, labels)
    torch.testing.assert_close(outputs, model(images))
    assert loss == pytest.approx(float(cross_entropy(outputs, labels)))

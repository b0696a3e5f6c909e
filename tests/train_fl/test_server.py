"""The aggregated update is unbiased, and server optimisers follow their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from train_fl.server import (
    FedAdam,
    FedAvg,
    FedAvgM,
    FedNova,
    ServerOptimizer,
    apply_contributions,
    make_server_optimizer,
)
from train_fl.training_options import TrainingOptions


def steps(optimizer: ServerOptimizer, updates: torch.Tensor) -> list[torch.Tensor]:
    kept = {name: torch.zeros_like(updates[0]) for name in optimizer.keeps}
    return [optimizer.step(update, kept) for update in updates]


@pytest.mark.parametrize(("optimizer", "momentum"), [(FedAvg(0.7), 0.0), (FedAvgM(0.7, 0.8), 0.8)])
def test_server_optimizer__equals_torchs_sgd(optimizer, momentum):
    updates = torch.from_numpy(np.random.default_rng(2).normal(size=(6, 4)))
    model = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([model], lr=0.7, momentum=momentum)
    for update, step in zip(updates, steps(optimizer, updates), strict=True):
        before = model.detach().clone()
        model.grad = -update
        sgd.step()
        torch.testing.assert_close(step, model.detach() - before)


def test_fedadam__divides_the_mean_by_the_root_mean_square():
    updates = np.random.default_rng(3).normal(size=(6, 4))
    made = steps(FedAdam(0.2, momentum=0.6, decay=0.7, epsilon=0.1), torch.from_numpy(updates))
    for t, step in enumerate(made):
        age = t - np.arange(t + 1)
        mean = 0.4 * 0.6**age @ updates[: t + 1]
        square = 0.3 * 0.7**age @ updates[: t + 1] ** 2
        np.testing.assert_allclose(step.numpy(), 0.2 * mean / (np.sqrt(square) + 0.1), rtol=1e-12)


def test_apply_contributions__adds_the_weighted_sum_of_updates():
    model = torch.ones(3)
    kept = {}
    updates = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    optimizer = FedAvgM(0.5, 0.8)
    apply_contributions(model, updates, np.array([0.25, 2.0]), optimizer, kept, 1)
    apply_contributions(model, updates[:0], np.empty(0), optimizer, kept, 2)  # changes nothing
    torch.testing.assert_close(model, torch.tensor([1.125, 3.0, 1.0]))
    torch.testing.assert_close(kept["velocity"], torch.tensor([0.25, 4.0, 0.0]))
    with pytest.raises(FloatingPointError, match=r"round 3 is not finite: .* weight is 1e\+60"):
        apply_contributions(model, updates, np.array([1e60, 0.0]), optimizer, kept, 3)


def quadratic_updates(model, minima, num_steps, rate, momentum) -> torch.Tensor:
    """Updates of clients with the losses ``(x - minimum)**2 / 2``, by steps as torch takes them."""
    updates = []
    for minimum, steps in zip(minima, num_steps, strict=True):
        x = torch.tensor([model], dtype=torch.float64, requires_grad=True)
        sgd = torch.optim.SGD([x], lr=rate, momentum=momentum)
        for _ in range(steps):
            sgd.zero_grad()
            ((x - minimum) ** 2 / 2).sum().backward()
            sgd.step()
        updates.append(x.detach() - model)
    return torch.stack(updates)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_fednova__ends_at_the_common_minimum(momentum):
    minima = np.array([-1.0, 0.0, 4.0])
    data = np.array([64.0, 32.0, 32.0])
    weights = data / data.sum()
    server = FedNova(batch_size=32, momentum=momentum)
    factors = server.balance(np.array([0.5, 2, 8]), data)
    # The model at which the step of a round vanishes, which is linear in it.
    at = [
        (weights * factors) @ quadratic_updates(x, minima, [1, 2, 8], 1e-5, momentum).numpy()[:, 0]
        for x in (0.0, 1.0)
    ]
    assert at[0] / (at[0] - at[1]) == pytest.approx(weights @ minima, rel=1e-3)


def test_fednova__counts_steps_and_averages_them_by_data():
    # Of 20 and 90 samples these are one step and three, by data 31/13 in the mean.
    factors = FedNova(momentum=0.0).balance(np.array([0.5, 1.0]), np.array([40.0, 90.0]))
    np.testing.assert_allclose(factors, [31 / 13, 31 / 39])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_server_optimizer("fedadm"), "fedavgm, fedadam, got 'fedadm': did you mean"),
        (
            lambda: make_server_optimizer("fedavg", TrainingOptions(server_learning_rate=0.0)),
            "learning_rate must be positive",
        ),
        (lambda: make_server_optimizer("fednova", TrainingOptions(proximal=0.1)), "proximal = 0"),
        (lambda: FedAvgM(momentum=1.0), r"momentum must lie in \[0, 1\), got 1.0"),
        (lambda: FedAdam(decay=-0.1), r"decay must lie in \[0, 1\), got -0.1"),
        (lambda: FedAdam(epsilon=0.0), "epsilon must be positive"),
    ],
)
def test_server_optimizer__wrong_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""The aggregated update is unbiased, and server optimisers follow their formulas."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, Scenario, Simulator
from train_fl.server import (
    FedAdam,
    FedAvg,
    FedAvgM,
    ServerOptimizer,
    aggregation_weights,
    make_server_optimizer,
)

WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
Q = np.array([0.4, 0.15, 0.05, 0.4])
UPDATES = np.random.default_rng(0).normal(size=(4, 3))


SCENARIO = Scenario(num_devices=4, num_samples=WEIGHTS)
F, P = SCENARIO.f_mid, SCENARIO.p_mid


def aggregate(cohort: np.ndarray) -> np.ndarray:
    participants, coefficients = aggregation_weights(Allocation(F, P, Q), cohort, SCENARIO)
    return coefficients @ UPDATES[participants]


@pytest.mark.parametrize("cohort_size", [1, 2, 3])
def test_aggregation__mean_over_all_draws_is_the_update_of_all_devices(cohort_size):
    draws = itertools.product(range(4), repeat=cohort_size)
    mean = sum(np.prod(Q[list(d)]) * aggregate(np.array(d)) for d in draws)
    np.testing.assert_allclose(mean, WEIGHTS @ UPDATES, rtol=1e-12)


def test_aggregation__monte_carlo_mean_over_draws():
    rng = np.random.default_rng(1)
    samples = np.array([aggregate(rng.choice(4, 5, p=Q)) for _ in range(20_000)])
    error = samples.std(axis=0) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(axis=0) - WEIGHTS @ UPDATES) < 4 * error)


def test_aggregation__a_device_drawn_twice_appears_once_and_counts_twice():
    draws = np.array([2, 0, 2])
    participants, coefficients = aggregation_weights(Allocation(F, P, Q), draws, SCENARIO)
    np.testing.assert_array_equal(participants, [0, 2])
    np.testing.assert_allclose(coefficients, [0.1 / (3 * 0.4), 2 * 0.3 / (3 * 0.05)])


@pytest.mark.parametrize("cohort", [[3, 1], [1, 3], [3, -1, 1]])
def test_chosen__is_averaged_by_the_data_or_by_the_weights_of_the_decision(cohort):
    cohort = np.array(cohort)
    plain = Allocation(F, P, cohort=cohort)
    participants, coefficients = aggregation_weights(plain, cohort, SCENARIO)
    np.testing.assert_array_equal(participants, [1, 3])
    np.testing.assert_allclose(coefficients, [0.2 / 0.6, 0.4 / 0.6])
    weighted = Allocation(F, P, cohort=cohort, weights=10.0 + cohort)
    participants, coefficients = aggregation_weights(weighted, cohort, SCENARIO)
    np.testing.assert_array_equal(participants, [1, 3])
    np.testing.assert_array_equal(coefficients, [11, 13])


@pytest.mark.parametrize("kind", ["sampled", "weighted", "averaged"])
def test_failures__leave_the_mean_of_the_aggregate_as_it_is(kind):
    failure = 0.3
    scenario = SCENARIO.replace(upload_failure=failure)
    cohort = np.array([2, 0, 2]) if kind == "sampled" else np.array([3, -1, 0, 2])
    fields = {"q": Q} if kind == "sampled" else {"cohort": cohort}
    if kind == "weighted":
        fields["weights"] = np.array([0.5, 9.0, 0.7, 0.1])
    decision = Allocation(F, P, **fields)
    mean = np.zeros(3)
    for failed in itertools.product([False, True], repeat=4):
        failed = np.array(failed)
        participants, coefficients = aggregation_weights(decision, cohort, scenario, failed=failed)
        assert not failed[participants].any()
        assert set(participants) == set(cohort[cohort >= 0]) - set(np.flatnonzero(failed))
        chance = np.prod(np.where(failed, failure, 1 - failure))
        mean += chance * (coefficients @ UPDATES[participants])
        if kind == "averaged" and participants.size:  # shares of what arrived
            assert coefficients.sum() == pytest.approx(1)
    participants, coefficients = aggregation_weights(decision, cohort, SCENARIO)
    if kind != "averaged":
        np.testing.assert_allclose(mean, coefficients @ UPDATES[participants], rtol=1e-12)


def test_aggregation__of_rounds_of_the_environment_is_unbiased_over_draws_and_failures():
    """The mean over rounds with the same devices is the update of all that were there."""
    scenario = SCENARIO.replace(
        cohort_size=2, num_rounds=30_000, availability=0.6, upload_failure=0.4
    )
    simulator = Simulator(scenario)
    simulator.reset([0])
    decision = Allocation(F, P, Q)
    samples: dict[tuple, list] = {}
    for _ in range(scenario.num_rounds):
        info = simulator.advance(decision).info()
        participants, coefficients = aggregation_weights(
            decision, info["cohort"], scenario, q=info["q"], failed=info["failed"]
        )
        update = coefficients @ UPDATES[participants]
        samples.setdefault(tuple(info["available"]), []).append(update)
    assert len(samples) == 15
    for there, updates in samples.items():
        mean = (WEIGHTS * np.array(there)) @ UPDATES
        error = np.std(updates, axis=0) / np.sqrt(len(updates))
        assert np.all(np.abs(np.mean(updates, axis=0) - mean) < 4.5 * error)


def steps(optimizer: ServerOptimizer, updates: torch.Tensor) -> list[torch.Tensor]:
    kept = {name: torch.zeros_like(updates[0]) for name in optimizer.keeps}
    return [optimizer.step(update, kept) for update in updates]


@pytest.mark.parametrize(("optimizer", "momentum"), [(FedAvg(0.7), 0.0), (FedAvgM(0.7, 0.8), 0.8)])
def test_server_optimizer__equals_sgd_of_torch_along_minus_the_update(optimizer, momentum):
    updates = torch.from_numpy(np.random.default_rng(2).normal(size=(6, 4)))
    model = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([model], lr=0.7, momentum=momentum)
    for update, step in zip(updates, steps(optimizer, updates), strict=True):
        before = model.detach().clone()
        model.grad = -update
        sgd.step()
        torch.testing.assert_close(step, model.detach() - before)


def test_fedadam__divides_the_mean_update_by_the_root_of_the_mean_square():
    updates = np.random.default_rng(3).normal(size=(6, 4))
    made = steps(FedAdam(0.2, momentum=0.6, decay=0.7, epsilon=0.1), torch.from_numpy(updates))
    for t, step in enumerate(made):
        age = t - np.arange(t + 1)
        mean = 0.4 * 0.6**age @ updates[: t + 1]
        square = 0.3 * 0.7**age @ updates[: t + 1] ** 2
        np.testing.assert_allclose(step.numpy(), 0.2 * mean / (np.sqrt(square) + 0.1), rtol=1e-12)


@given(
    scale=st.floats(1e-3, 1e6),
    momentum=st.floats(0, 0.99),
    decay=st.floats(0, 0.999),
    seed=st.integers(0, 10**6),
)
def test_fedadam__a_huge_update_moves_no_parameter_further_than_the_bound(
    scale, momentum, decay, seed
):
    optimizer = FedAdam(0.05, momentum=momentum, decay=decay)
    updates = torch.from_numpy(np.random.default_rng(seed).normal(size=(3, 5)))
    still = torch.cat([updates[:2], torch.zeros(1, 5, dtype=torch.float64)])
    huge = torch.cat([updates[:2], scale * updates[2:]])
    without, with_it = steps(optimizer, still)[-1], steps(optimizer, huge)[-1]
    # Its square only makes the part of the earlier updates smaller.
    bound = without.abs() + 0.05 * (1 - momentum) / np.sqrt(1 - decay)
    assert torch.all(with_it.abs() <= bound * (1 + 1e-9))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_server_optimizer("fedadm"), "fedavgm, fedadam, got 'fedadm': did you mean"),
        (lambda: make_server_optimizer("fedavg", 0.0), "learning_rate must be positive"),
        (lambda: FedAvgM(momentum=1.0), r"momentum must lie in \[0, 1\), got 1.0"),
        (lambda: FedAdam(decay=-0.1), r"decay must lie in \[0, 1\), got -0.1"),
        (lambda: FedAdam(epsilon=0.0), "epsilon must be positive"),
    ],
)
def test_server_optimizer__wrong_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()

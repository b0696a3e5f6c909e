"""The network shared by the devices: symmetry, any number of devices, and its distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy.stats import norm
from stable_baselines3 import PPO

from fl_edge_env import Scenario
from policies.learning.networks import SharedNetworkPolicy
from policies.learning.views import JointView

F = 5


def make(num_devices: int, width: int = 16, seed: int = 0, **kwargs) -> SharedNetworkPolicy:
    """A network whose heads are as large as its other layers, so that nothing hides in zeros."""
    torch.manual_seed(seed)
    policy = SharedNetworkPolicy(
        spaces.Box(-5.0, 5.0, (num_devices, F), np.float32),
        spaces.Box(-1.0, 1.0, (3, num_devices), np.float32),
        lambda _: 1e-3,
        width=width,
        **kwargs,
    )
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return policy


def observations(num_devices: int, batch: int = 4, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.as_tensor(rng.normal(0, 1, (batch, num_devices, F)).astype(np.float32))


def outputs(policy: SharedNetworkPolicy, features: torch.Tensor):
    """Means and standard deviations (B, 3, N) of f, p and q, and the values (B,)."""
    with torch.no_grad():
        normal = policy.get_distribution(features).distribution
        shape = (-1, 3, features.shape[1])
        values = policy.predict_values(features)[:, 0]
    return normal.mean.reshape(shape).numpy(), normal.stddev.reshape(shape).numpy(), values.numpy()


def by_device(policy: SharedNetworkPolicy, features: np.ndarray) -> tuple[np.ndarray, float]:
    """The network of one system in plain NumPy, device by device, from its named weights."""
    w = {name: value.double().numpy() for name, value in policy.state_dict().items()}

    def layer(name: str, x: np.ndarray) -> np.ndarray:
        return w[f"{name}.weight"] @ x + w.get(f"{name}.bias", 0.0)

    hidden = [np.tanh(layer("mlp_extractor.embedding.0", x)) for x in features]
    context = layer("mlp_extractor.context", sum(hidden) / len(hidden))
    means = [layer("action_net", np.tanh(layer("mlp_extractor.own", h) + context)) for h in hidden]
    seen = [
        np.tanh(layer("mlp_extractor.value.2", np.tanh(layer("mlp_extractor.value.0", x))))
        for x in features
    ]
    return np.stack(means, axis=1), float(layer("value_net", sum(seen) / len(seen))[0])


@pytest.mark.parametrize("num_devices", [1, 2, 7])
def test_network__equals_a_loop_over_systems_and_devices(num_devices):
    policy, features = make(num_devices), observations(num_devices)
    means, _, values = outputs(policy, features)
    for row in range(4):
        mean, value = by_device(policy, features[row].double().numpy())
        np.testing.assert_allclose(means[row], mean, rtol=1e-4, atol=1e-5)
        assert values[row] == pytest.approx(value, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("width", [8, 64])
def test_parameters__are_those_of_the_width(width):
    policy = make(4, width=width)
    layer = width * (F + 1)
    square = width * (width + 1)
    expected = {
        "actor": layer + square + width * width + 3 * (width + 1),
        "critic": layer + square + width + 1,
        "deviations": 3,
    }
    assert sum(p.numel() for p in policy.parameters()) == sum(expected.values())
    trained = [p for group in policy.optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in trained} == {id(p) for p in policy.parameters()}


def test_deviations__are_three_numbers_shared_by_devices_and_systems():
    policy = make(5)
    assert policy.log_std.numel() == 3
    with torch.no_grad():
        policy.log_std[:, 0] = torch.log(torch.tensor([0.5, 1.0, 2.0]))
    _, deviations, _ = outputs(policy, observations(5))
    expected = np.broadcast_to(np.array([0.5, 1.0, 2.0])[:, None], (4, 3, 5))
    np.testing.assert_allclose(deviations, expected, rtol=1e-6)
    fresh = SharedNetworkPolicy(
        policy.observation_space, policy.action_space, lambda _: 1e-3, log_std_init=-1.5
    )
    np.testing.assert_allclose(fresh.log_std.detach().numpy(), np.full((3, 1), -1.5))


def test_log_prob__is_the_sum_of_a_normal_density_for_each_device_and_row():
    policy, features = make(5), observations(5)
    actions = np.random.default_rng(1).normal(0, 1, (4, 3, 5)).astype(np.float32)
    with torch.no_grad():
        flat = torch.as_tensor(actions.reshape(4, 15))  # as Stable-Baselines3 keeps them
        values, log_prob, entropy = policy.evaluate_actions(features, flat)
    _, _, expected_values = outputs(policy, features)
    deviations = np.exp(policy.log_std.detach().double().numpy()[:, 0])
    for row in range(4):
        means, _ = by_device(policy, features[row].double().numpy())
        total, spread = 0.0, 0.0
        for device in range(5):
            for kind in range(3):
                density = norm(means[kind, device], deviations[kind])
                total += density.logpdf(actions[row, kind, device])
                spread += density.entropy()
        assert log_prob[row].item() == pytest.approx(total, rel=1e-4)
        assert entropy[row].item() == pytest.approx(spread, rel=1e-4)
    np.testing.assert_allclose(values[:, 0], expected_values, rtol=1e-5)


def test_predict__gives_the_means_in_the_shape_of_the_action_and_clips_them():
    policy, features = make(5), observations(5)
    action, _ = policy.predict(features.numpy(), deterministic=True)
    means, _, _ = outputs(policy, features)
    assert (np.abs(means) > 1).any()
    np.testing.assert_allclose(action, np.clip(means, -1, 1), rtol=1e-5, atol=1e-6)
    single, _ = policy.predict(features[1].numpy(), deterministic=True)
    np.testing.assert_allclose(single, action[1], rtol=1e-4, atol=1e-5)


def test_forward__draws_around_the_means_with_the_shared_deviations():
    policy = make(5)
    features = observations(5, batch=1).expand(4000, 5, F)
    torch.manual_seed(0)
    with torch.no_grad():
        actions, _, log_prob = policy(features)
        _, again, _ = policy.evaluate_actions(features, actions.flatten(start_dim=1))
    means, deviations, _ = outputs(policy, features[:1])
    assert actions.shape == (4000, 3, 5)
    scores = (actions.numpy() - means) / deviations
    # Means and standard deviations of 4000 draws, up to five standard errors.
    np.testing.assert_allclose(scores.mean(axis=0), np.zeros((3, 5)), atol=5 / np.sqrt(4000))
    np.testing.assert_allclose(scores.std(axis=0), np.ones((3, 5)), atol=5 / np.sqrt(8000))
    np.testing.assert_allclose(log_prob, again, rtol=1e-4, atol=1e-4)


def test_start__is_close_to_the_zero_action():
    torch.manual_seed(0)
    view = JointView(Scenario.cifar10(num_devices=6), 4)
    policy = SharedNetworkPolicy(view.observation_space, view.action_space, lambda _: 1e-3)
    means, deviations, values = outputs(policy, torch.as_tensor(view.reset()))
    assert (np.abs(means) < 0.1).all()
    np.testing.assert_allclose(deviations, np.ones((4, 3, 6)))
    assert np.ptp(values) > 1e-3


def test_ppo__trains_every_parameter_with_its_learning_rate():
    torch.manual_seed(0)
    view = JointView(Scenario.cifar10(num_devices=6, num_rounds=8), 2)
    model = PPO(
        SharedNetworkPolicy,
        view,
        learning_rate=1e-2,
        n_steps=8,
        batch_size=8,
        n_epochs=1,
        ent_coef=0.01,
        seed=0,
        device="cpu",
        policy_kwargs={"width": 8},
    )
    before = {name: p.detach().clone() for name, p in model.policy.named_parameters()}
    model.learn(16)
    for name, after in model.policy.named_parameters():
        assert after.isfinite().all()
        assert (before[name] != after).any(), name


def test_save__keeps_the_width_and_the_weights(tmp_path):
    policy, features = make(5, width=8), observations(5)
    policy.save(str(tmp_path / "policy.pt"))
    again = SharedNetworkPolicy.load(str(tmp_path / "policy.pt"), device="cpu")
    np.testing.assert_array_equal(outputs(again, features)[0], outputs(policy, features)[0])

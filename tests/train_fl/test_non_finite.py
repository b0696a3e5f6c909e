"""Updates and losses that are not finite: no policy sees a report of them."""

from __future__ import annotations

import math
from contextlib import nullcontext

import gymnasium as gym
import numpy as np
import pytest
import torch

from fl_edge_env import Scenario
from policies import make_policy
from tests.support import REPORTS, chosen
from train_fl import TrainingWrapper, make_task
from train_fl.local_sgd import LocalTrainer

LEARNERS = ("power-of-choice", "oort", "adaptive-sampling", "optimal-sampling", "divfl")
TASK = make_task("digits", num_devices=20, split_seed=0)
MESSAGE = "update norm or loss of device 0 in round 1 is not finite"

# What is not finite: a device's update, the norm of a finite update, or a loss.
BROKEN = {
    "infinite": lambda update, loss: (update.index_fill(0, torch.tensor([5]), math.inf), loss),
    "NaN": lambda update, loss: (update * math.nan, (math.nan, loss[1])),
    "norm": lambda update, loss: (update + 1e25, loss),
    "loss": lambda update, loss: (update, (math.inf, loss[1])),
    "loss_rms": lambda update, loss: (update, (loss[0], math.inf)),
}


@pytest.fixture(params=[("infinite", "none"), *((kind, "qsgd:4") for kind in BROKEN)], ids=str)
def env(request, monkeypatch):
    """A system in whose training the device 0 is broken."""
    kind, compression = request.param
    scenario = Scenario.digits(
        num_devices=20, cohort_size=3, local_epochs=1, compression=compression
    )
    spoilt_labels = TASK.dataset.train_targets[TASK.parts[0]]
    update = LocalTrainer.update
    losses = LocalTrainer.losses
    gradient = LocalTrainer.gradient

    def spoil_device(labels, update, loss=(0, 0)):
        broken = torch.equal(labels, spoilt_labels)
        return BROKEN[kind](update, loss) if broken else (update, loss)

    def spoil_update(self, parameters, images, labels, **options):
        result, loss = update(self, parameters, images, labels, **options)
        return spoil_device(labels, result)[0], loss

    def spoil_losses(self, *data):
        return spoil_device(data[-1], torch.zeros(9), losses(self, *data))[1]

    def spoil_gradient(self, *data):
        return spoil_device(data[-1], gradient(self, *data))[0]

    monkeypatch.setattr(LocalTrainer, "update", spoil_update)
    monkeypatch.setattr(LocalTrainer, "losses", spoil_losses)
    monkeypatch.setattr(LocalTrainer, "gradient", spoil_gradient)
    return gym.make("FLEdge-v0", scenario=scenario)


@pytest.mark.parametrize("reports", [{"report_losses": True}, REPORTS], ids=len)
def test_report__not_finite_ends_training(env, reports):
    training = TrainingWrapper(env, TASK, **reports)
    with pytest.raises(FloatingPointError, match=MESSAGE):
        training.reset(seed=0), training.step(chosen(training.scenario, 0, 4))


def test_report__not_finite_is_skipped(env):
    env = TrainingWrapper(env, TASK, on_non_finite="skip", **REPORTS)
    scenario = env.scenario
    with pytest.warns(RuntimeWarning, match=MESSAGE):
        _, info = env.reset(seed=0)
    assert np.flatnonzero(~info["participants"]).tolist() == [0]
    infos = [info]
    for cohort, others in ([(0, 4), [4]], [(0,), []], [(4, 5, 6), [4, 5, 6]]):
        before = env.parameters
        with pytest.warns(RuntimeWarning, match="device 0") if 0 in cohort else nullcontext():
            observation, *_, info = env.step(chosen(scenario, *cohort))
        assert np.flatnonzero(info["skipped"]).tolist() == ([0] if 0 in cohort else [])
        assert np.flatnonzero(info["participants"]).tolist() == others
        updates = info["client_updates"]
        norms = np.zeros(3)
        norms[: len(others)] = info["update_norms"][others]
        found = np.linalg.norm(updates.astype(float), axis=1)
        np.testing.assert_allclose(found, norms, rtol=1e-5)
        expected = before + updates.sum(axis=0) / len(cohort)  # sizes are equal
        np.testing.assert_allclose(env.parameters, expected, rtol=1e-4, atol=1e-6)
        infos.append(info)
    for info in infos:
        for name in {"update_norms", "local_losses", "local_loss_rms"} & {*info}:
            np.testing.assert_array_equal(info[name] != 0, info["participants"])
        assert all(np.isfinite(v).all() for k, v in info.items() if k != "device_accuracy")
    for name in LEARNERS:
        policy = make_policy(name, scenario)
        for info in infos:
            policy.feedback(info)
        policy.decide(observation).validate(scenario)
        memory = policy.selector.memory if hasattr(policy, "selector") else {}
        for key, values in memory.items():
            known = values[1:] if key == "loss" else values  # the device's is not reported yet
            assert np.isfinite(known).all()

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

# What is not finite: a device's update, the norm of a finite update, or a loss.
BROKEN = {
    "infinite": lambda update, loss: (update.index_fill(0, torch.tensor([5]), math.inf), loss),
    "NaN": lambda update, loss: (update * math.nan, (math.nan, loss[1])),
    "norm": lambda update, loss: (update + 1e25, loss),
    "loss": lambda update, loss: (update, (math.inf, loss[1])),
    "loss_rms": lambda update, loss: (update, (loss[0], math.inf)),
}


@pytest.mark.parametrize(
    ("kind", "compression"), [("infinite", "none"), *((kind, "qsgd:4") for kind in BROKEN)]
)
def test_report__not_finite_ends_training_or_is_skipped(monkeypatch, kind, compression):
    scenario = Scenario.digits(
        num_devices=20, cohort_size=3, local_epochs=1, compression=compression
    )
    task = make_task("digits", num_devices=20, split_seed=0)
    spoilt_labels = task.dataset.train_targets[task.parts[0]]
    env = gym.make("FLEdge-v0", scenario=scenario)
    whole = {name: getattr(LocalTrainer, name) for name in ("update", "losses", "gradient")}

    def spoil_device(labels, update, loss):
        broken = torch.equal(labels, spoilt_labels)
        return BROKEN[kind](update, loss) if broken else (update, loss)

    def update(self, parameters, images, labels, **options):
        result, loss = whole["update"](self, parameters, images, labels, **options)
        return spoil_device(labels, result, (loss, loss))[0], loss

    def losses(self, parameters, images, labels):
        return spoil_device(
            labels, torch.zeros(9), whole["losses"](self, parameters, images, labels)
        )[1]

    def gradient(self, parameters, images, labels):
        return spoil_device(labels, whole["gradient"](self, parameters, images, labels), (0, 0))[0]

    for broken in (update, losses, gradient):
        monkeypatch.setattr(LocalTrainer, broken.__name__, broken)
    message = "update norm or loss of device 0 in round 1 is not finite"
    for reports in ({"report_losses": True}, REPORTS):
        training = TrainingWrapper(env, task, **reports)
        with pytest.raises(FloatingPointError, match=message):
            training.reset(seed=0), training.step(chosen(scenario, 0, 4))
    policies = [make_policy(name, scenario) for name in LEARNERS]
    env = TrainingWrapper(env, task, on_non_finite="skip", **REPORTS)
    with pytest.warns(RuntimeWarning, match=message):
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
        norms = np.linalg.norm(updates.astype(float), axis=1)
        np.testing.assert_allclose(norms[: len(others)], info["update_norms"][others], rtol=1e-5)
        assert np.all(norms[: len(others)] > 0)
        assert not updates[len(others) :].any()
        expected = before + updates.sum(axis=0) / len(cohort)  # sizes are equal
        np.testing.assert_allclose(env.parameters, expected, rtol=1e-4, atol=1e-6)
        infos.append(info)
    for info in infos:
        for name in ("update_norms", "local_losses", "local_loss_rms"):
            if name in info:
                assert (
                    np.flatnonzero(info[name]).tolist()
                    == np.flatnonzero(info["participants"]).tolist()
                )
        assert all(np.isfinite(v).all() for k, v in info.items() if k != "device_accuracy")
    for policy in policies:
        for info in infos:
            policy.feedback(info)
        policy.decide(observation).validate(scenario)
        memory = policy.selector.memory if hasattr(policy, "selector") else {}
        known = {name: values for name, values in memory.items() if name != "loss"}
        assert all(np.isfinite(values).all() for values in known.values())
        if "loss" in memory:  # not reported yet
            assert memory["loss"][0] == math.inf

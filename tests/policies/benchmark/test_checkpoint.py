"""Checkpoints: a run that continues from one ends as if it had never stopped."""

from __future__ import annotations

import random
import threading
import warnings
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario
from policies import LROA, DivFL, Opportunistic, Policy, UniD, UniS
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.play import play
from tests.support import BRIEF
from train_fl import TrainingWrapper, make_task

OBSERVED = {"channel_gain": np.full(4, 0.1), "queue": np.arange(4.0)}
RUN = "environment", UniS(BRIEF), OBSERVED, 5


def assert_loaded(run) -> None:
    assert run[0] == "environment"
    np.testing.assert_equal(run[2:], RUN[2:])


def test_checkpoint__returns_what_was_saved_until_removed(cache):
    data = np.arange(10**5)
    one = Checkpoint("a", 1)
    other = Checkpoint("b", 1)
    assert one.load({}) is None
    one.save(RUN, {})
    one.save((*RUN[:3], data), {"data": data})
    other.save(RUN, {})
    assert one.load({"data": data})[3] is data
    assert one.path.stat().st_size < 20_000
    assert one.path.parent == cache
    assert cache.stat().st_mode & 0o777 == 0o700
    one.remove()
    one.remove()
    assert one.load({}) is None
    assert [path.name for path in cache.iterdir()] == ["b.checkpoint"]


@pytest.mark.usefixtures("cache")
def test_load__continues_the_global_generators():
    def drawn():
        return [
            *(random.random(), random.gauss(0, 1)),
            *(np.random.random(), np.random.normal()),  # noqa: NPY002
            *(torch.rand(()).item(), torch.randn(()).item()),
        ]

    drawn()
    checkpoint = Checkpoint("a", 1)
    checkpoint.save(RUN, {})
    expected = drawn()
    checkpoint.load({})
    assert drawn() == expected


@given(st.data())
def test_load__ignores_a_damaged_file_with_a_warning(tmp_path_factory, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("damaged")))
        checkpoint = Checkpoint("a", 1)
        path = checkpoint.path
        checkpoint.save(RUN, {})
        damaged = bytearray(path.read_bytes())
        position = data.draw(st.integers(0, len(damaged) - 1))
        if data.draw(st.booleans()):
            del damaged[position:]
        else:
            damaged[position] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(damaged)
        with warnings.catch_warnings(record=True, action="always") as caught:
            run = checkpoint.load({})
    if caught:
        assert run is None
        (message,) = [str(warning.message) for warning in caught]
        assert message.startswith(f"cannot read the checkpoint {str(path)!r}: ")
    else:  # some bits, such as those of dates, mean nothing
        assert_loaded(run)


def test_save__cut_short_leaves_the_one_before(cache):
    class Interrupting:
        def __reduce__(self):
            raise KeyboardInterrupt

    checkpoint = Checkpoint("a", 1)
    checkpoint.save(RUN, {})
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save((*RUN[:3], Interrupting()), {})
    assert_loaded(checkpoint.load({}))
    assert len(list(cache.iterdir())) == 1


class Interrupted(TrainingWrapper):
    """Stops the program in a given round."""

    stop_at = 10**9
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps > self.stop_at:
            raise KeyboardInterrupt
        return super().step(action)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.digits(num_devices=12, num_rounds=11, local_epochs=1, compression="topk:0.1")


@pytest.fixture(scope="module")
def make_env(scenario):
    task = make_task("digits", num_devices=12, server="fedadam")

    def make(policy: Policy) -> Interrupted:
        env = gym.make("FLEdge-v0", scenario=scenario)
        return Interrupted(env, task, eval_every=2, report_gradients=policy.uses_gradients)

    return make


def assert_same(run, expected) -> None:
    """They agree but for the clock of this machine."""
    assert (run.rounds["real_time"] > 0).all()
    rounds, others = (one.rounds.drop(columns="real_time") for one in (run, expected))
    pd.testing.assert_frame_equal(rounds, others, check_exact=True)
    np.testing.assert_equal(tuple(run.accounts), tuple(expected.accounts))


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("kind", [LROA, DivFL, Opportunistic])
def test_play__stopped_twice_ends_in_the_same_result(
    scenario, make_env, kind, monkeypatch, tmp_path
):
    class Local(kind):
        """Remembers more than its class, and no other process can import it."""

        def reset(self, seed):
            super().reset(seed)
            self.rng = np.random.default_rng(seed)
            self.weight = torch.ones(1, requires_grad=True)

        def decide(self, observation):
            self.rng.random()
            with torch.no_grad():
                self.weight += 1
            last = getattr(self, "solution", None)
            decision = super().decide(observation)
            return decision if last is None else replace(decision, f=np.minimum(decision.f, last.f))

    policy = Local(scenario)
    whole = play(policy, make_env(policy), scenario, [4], model=tmp_path / "whole.pt")
    checkpoint = Checkpoint("a", 3)
    for stop_at in (5, 8):
        monkeypatch.setattr(Interrupted, "stop_at", stop_at)
        with pytest.raises(KeyboardInterrupt):
            play(Local(scenario), make_env(policy), scenario, [4], checkpoint)
    monkeypatch.setattr(Interrupted, "stop_at", 11)
    env = make_env(policy)
    model = tmp_path / "resumed.pt"
    # A warning would be an error.
    resumed = play(Local(scenario), env, scenario, [4], checkpoint, model=model)
    assert_same(resumed, whole)
    assert env.steps == 0  # the environment of the checkpoint went on
    assert model.read_bytes() == (tmp_path / "whole.pt").read_bytes()
    # The model, FedAdam's two vectors, what top-k left, the gradients as bfloat16; not the data.
    parameters = (4 * (1 + 2 + 1 + 12) + 2 * 12 * policy.uses_gradients) * env.task.num_parameters
    assert 0 < checkpoint.path.stat().st_size - parameters < 100_000


class Unpicklable(UniD):
    def reset(self, _):
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("kind", "reason"), [(UniD, "Not a directory"), (Unpicklable, "cannot pickle '_thread.")]
)
def test_play__goes_on_without_checkpoints_with_one_warning(
    scenario, make_env, cache, monkeypatch, kind, reason
):
    whole = play(kind(scenario), make_env(UniD), scenario, [4])
    checkpoint = Checkpoint("a", 3)
    if reason == "Not a directory":
        cache.parent.joinpath("file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent / "file"))
    with warnings.catch_warnings(record=True, action="always") as caught:
        run = play(kind(scenario), make_env(UniD), scenario, [4], checkpoint)
    messages = [str(warning.message) for warning in caught if warning.category is RuntimeWarning]
    assert len(messages) == 1
    assert messages[0].startswith(f"cannot write the checkpoint {str(checkpoint.path)!r}: ")
    assert reason in messages[0]
    assert_same(run, whole)
    assert not cache.exists() or not list(cache.iterdir())

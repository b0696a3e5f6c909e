"""Checkpoints: whole or refused, and a run that goes on from one ends as if never stopped."""

from __future__ import annotations

import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fl_edge_env import FLEdgeVectorEnv, Scenario
from policies import LROA, DivFL, Opportunistic, Policy, UniD
from policies.benchmark.checkpoint import Checkpoints, join, part
from policies.benchmark.episode import run_episode
from tests.support import draw_damage, room_for_files_of
from train_fl import TrainingWrapper, make_task

STATE = {"queue": np.arange(4.0), "round": np.array(5), "name": np.array("gradient")}


@given(
    st.dictionaries(
        st.from_regex("[a-z]{1,8}", fullmatch=True),
        arrays(st.sampled_from(["f8", "i8", "i2"]), array_shapes(min_dims=0, max_dims=2)),
    )
)
def test_join__gives_back_its_parts(state):
    joined = join({"env": state, "en": {"v.x": np.array(1)}})
    np.testing.assert_equal(part("env", joined), state)
    assert part("en", joined) == {"v.x": 1}


def test_save__keeps_the_two_newest_of_its_key_and_clear_removes_the_run_alone(tmp_path):
    short, long, odd = (Checkpoints(tmp_path, key, 1) for key in ("run", "run-2", "run[1]"))
    for checkpoints, number in ((long, 50), (odd, 3), (short, 9), (short, 10), (short, 11)):
        checkpoints.save(number, {"number": np.array(number)})
    assert [int(c.load()["number"]) for c in (short, long, odd)] == [11, 50, 3]
    names = {"run-10.npz", "run-11.npz", "run-2-50.npz", "run[1]-3.npz"}
    assert {path.name for path in tmp_path.iterdir()} == names
    short.clear()
    assert short.load() is None
    assert [int(c.load()["number"]) for c in (long, odd)] == [50, 3]


@given(st.data())
def test_load__falls_back_where_the_newest_is_cut_short_or_a_bit_has_changed(
    tmp_path_factory, data
):
    folder = tmp_path_factory.mktemp("damaged")
    checkpoints = Checkpoints(folder, "a", 1)
    checkpoints.save(1, STATE)
    checkpoints.save(2, STATE | {"round": np.array(6)})
    newest = folder / "a-2.npz"
    newest.write_bytes(draw_damage(data, newest.read_bytes()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = checkpoints.load()
    # Some bits, such as those of dates, mean nothing.
    assert int(state["round"]) == (5 if caught else 6)
    assert all("a-2.npz' is refused" in str(warning.message) for warning in caught)
    np.testing.assert_equal(state, STATE | {"round": state["round"]})


def test_save__after_damage_keeps_what_it_writes(tmp_path):
    checkpoints = Checkpoints(tmp_path, "a", 1)
    for num_rounds in (250, 300):
        checkpoints.save(num_rounds, STATE)
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged")
    with pytest.warns(RuntimeWarning, match="is refused"):
        assert checkpoints.load() is None
    for num_rounds in (50, 100):
        checkpoints.save(num_rounds, STATE | {"round": np.array(num_rounds)})
        assert int(checkpoints.load()["round"]) == num_rounds
    assert {path.name for path in tmp_path.iterdir()} == {"a-50.npz", "a-100.npz"}


def test_save__cut_short_leaves_the_one_before_and_no_litter(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, "a", 1)
    checkpoints.save(1, STATE)

    def dying(path: Path, **_: np.ndarray) -> None:
        path.write_bytes(b"PK")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", dying)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(2, STATE)
    (tmp_path / ".a-2-0f7.npz").write_bytes(b"PK")  # what a SIGKILL leaves
    np.testing.assert_equal(checkpoints.load(), STATE)
    checkpoints.clear()
    assert not list(tmp_path.iterdir())


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
    return Scenario.digits(num_devices=12, num_rounds=11)


@pytest.fixture(scope="module")
def make_env(scenario):
    task = make_task("digits", num_devices=12)

    def make(policy: Policy) -> Interrupted:
        env = gym.make("FLEdge-v0", scenario=scenario)
        return Interrupted(env, task, eval_every=2, report_gradients=policy.uses_gradients)

    return make


def assert_same_rounds(rounds: pd.DataFrame, expected: pd.DataFrame) -> None:
    """They agree but for the clock of this machine."""
    assert (rounds["real_time"] > 0).all()
    rounds, expected = (table.drop(columns="real_time") for table in (rounds, expected))
    pd.testing.assert_frame_equal(rounds, expected, check_exact=True)


@pytest.mark.parametrize("kind", [LROA, DivFL, Opportunistic])
def test_run_episode__stopped_twice_ends_in_the_same_result(scenario, make_env, tmp_path, kind):
    policy = kind(scenario)
    whole = run_episode(policy, make_env(policy), scenario, [4])
    checkpoints = Checkpoints(tmp_path, "a", 3)
    for stop_at in (5, 4):
        env = make_env(policy)
        env.stop_at = stop_at
        with pytest.raises(KeyboardInterrupt):
            run_episode(kind(scenario), env, scenario, [4], checkpoints)
    env = make_env(policy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed = run_episode(kind(scenario), env, scenario, [4], checkpoints)
    assert_same_rounds(resumed.rounds, whole.rounds)
    for one, other in zip(resumed.devices, whole.devices, strict=True):
        np.testing.assert_array_equal(one, other)
    assert env.steps == 11 - 6  # three rounds lost of the first five, one of the next four


def test_run_episode__goes_on_without_checkpoints_where_they_cannot_be_written(
    scenario, make_env, tmp_path
):
    policy = DivFL(scenario)
    whole = run_episode(policy, make_env(policy), scenario, [4]).rounds
    checkpoints = Checkpoints(tmp_path, "a", 3)
    told = r"checkpoint '.*a-3.npz' of 17\d.\d kB: File too large. .* again after round 6"
    with room_for_files_of(50_000), pytest.warns(RuntimeWarning, match=told) as caught:
        rounds = run_episode(policy, make_env(policy), scenario, [4], checkpoints).rounds
    assert len(caught) == 1  # of three
    assert_same_rounds(rounds, whole)
    assert not list(tmp_path.iterdir())


def test_save__warns_anew_where_it_worked_in_between_and_keeps_what_there_is(tmp_path):
    checkpoints = Checkpoints(tmp_path, "a", 1)
    large = STATE | {"queue": np.zeros(1000)}
    numbers = []
    for number, size in enumerate([100, 100, 10_000, 100, 10_000, 100, 100], start=1):
        with warnings.catch_warnings(record=True) as caught, room_for_files_of(size):
            warnings.simplefilter("always")
            checkpoints.save(number, large if size == 100 else STATE)
        numbers += [number] * len(caught)
    assert numbers == [1, 4, 6]
    assert {path.name for path in tmp_path.iterdir()} == {"a-3.npz", "a-5.npz"}


class Counting(UniD):
    """Remembers something and cannot say what."""

    def reset(self, seed):
        self.seed = seed


class Forgetful(DivFL):
    """Remembers more than the class it comes from tells."""

    def feedback(self, info):
        super().feedback(info)
        self.last = info


class Half(UniD):
    """Says what it remembers and cannot take it up again."""

    def state(self):
        return {}


def test_run_episode__saves_neither_a_batch_nor_who_cannot_say_what_it_remembers(
    scenario, make_env, tmp_path
):
    assert all(kind(scenario).resumable for kind in (LROA, DivFL, Opportunistic))
    assert not any(kind(scenario).resumable for kind in (Counting, Forgetful, Half))
    policy = Counting(scenario)
    run_episode(policy, make_env(policy), scenario, [0], Checkpoints(tmp_path, "a", 3))
    batch = FLEdgeVectorEnv(2, scenario)
    played = run_episode(LROA(scenario), batch, scenario, [0, 1], Checkpoints(tmp_path, "a", 3))
    assert "real_time" not in played.rounds
    assert not list(tmp_path.iterdir())

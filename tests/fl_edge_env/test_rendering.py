"""The picture shows what happened, and drawing it changes nothing."""

from __future__ import annotations

import re

import gymnasium as gym
import matplotlib as mpl
import numpy as np
import pytest

from fl_edge_env import Allocation, FLEdgeEnv
from fl_edge_env.rendering import _title

OTHERS = (0x9D, 0xB8, 0xCC)
COHORT = (0xD5, 0x5E, 0x00)


def make(render_mode: str | None = "rgb_array", **fields: object) -> gym.Env:
    fields = {"num_devices": 12, "num_rounds": 5, "cohort_size": 3} | fields
    return gym.make("FLEdge-v0", render_mode=render_mode, **fields)


def started(**fields: object) -> gym.Env:
    """An environment at the start of an episode."""
    env = make(**fields)
    env.reset(seed=0)
    return env


def heights(frame: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """Height of the bars of a colour [px]: a row for each of 5 panels, a column for each device."""
    match = (frame == color).all(axis=-1)
    middles = (96 + 1086 * (np.arange(12) + 0.5) / 12).astype(int)
    high = 640 / 5.8  # of a panel; the gaps between them are a fifth of it
    rows = [int(96 + 1.2 * high * row) for row in range(5)]
    panels = np.array([match[row : row + int(high), middles] for row in rows])
    dashes = np.where(panels[0].any(axis=0), int(high) - panels[0].argmax(axis=0), 0)
    return np.array([dashes, *panels[1:].sum(axis=1)])  # the first panel has only tops


@pytest.mark.parametrize("kind", ["sampled", "chosen", "with bands"])
def test_bars__are_as_high_as_what_they_stand_for(kind):
    env = started()
    simulator = env.unwrapped.simulator
    scenario = simulator.scenario
    f, p, q, band = np.random.default_rng(0).uniform(0.5, 1.0, (4, 12))
    member = np.isin(np.arange(12), [2, 7])
    decision, third = {
        "sampled": (Allocation(2e9 * f, 0.1 * p, q / q.sum()), q),
        "chosen": (Allocation(1.5e9, 0.1 * p, cohort=[2, 7]), member),
        "with bands": (
            Allocation(2e9 * f, 0.1 * p, cohort=[2, 7], bandwidth=1e5 * band),
            member * band,
        ),
    }[kind]
    env.step(decision)
    gain = simulator.channel_gain.copy()
    queue = simulator.queue.copy()
    *_, info = env.step(decision)
    frame = env.render()
    assert frame.shape == (800, 1200, 3)
    assert frame.dtype == np.uint8
    member = np.isin(np.arange(12), info["cohort"])
    others, cohort = (heights(frame, color) for color in (OTHERS, COHORT))
    assert not others[:, member].any()
    assert not cohort[:, ~member].any()
    least = scenario.channel.gain_min / 1.5
    panels = [np.log(gain / least), queue, third, np.ones(12) * decision.f, p]
    for name, bar, value in zip("hQqfp", others + cohort, panels, strict=True):
        assert np.abs(bar - bar.max() * value / value.max()).max() <= 3, name
        assert bar.max() >= 40, name


def test_title__tells_time_and_energy():
    env = started().unwrapped
    env.step(np.zeros((3, 12)))
    *_, info = env.step(np.zeros((3, 12)))
    ratio = info["energy_expected"] / env.scenario.energy_budget_j
    told = [f"{info[key]:,.1f}" for key in ("round_time", "elapsed_time")]
    told += [f"{ratio.mean():.2f}", f"{ratio.max():.2f}"]
    title = _title(env.scenario, 2, env.last_round)
    assert re.findall(r"[\d,]+\.\d+", title) == told


def test_rendering__does_not_change_the_episode():
    envs = started(), started(render_mode=None)
    envs[0].render()
    action = np.zeros((3, 12), np.float32)
    np.testing.assert_equal(*([env.step(action), env.step(action)] for env in envs))


@pytest.mark.parametrize(("name", "value"), [("font.family", "STIXGeneral"), ("font.size", 20)])
def test_picture__has_the_font_of_the_users_and_no_other_option(name, value):
    env = started()
    before = env.render()
    with mpl.rc_context({name: value}):
        assert np.array_equal(env.render(), before) == (name != "font.family")


@pytest.mark.parametrize("devices", [1, 1000])
def test_picture__of_any_number_of_devices_marks_the_cohort(devices):
    env = started(num_devices=devices)
    for marked in (False, True):
        assert (env.render() == COHORT).all(axis=-1).any() == marked
        env.step(np.zeros((3, devices), np.float32))


def test_render__refuses_without_mode_or_episode():
    with pytest.raises(gym.error.Error, match="needs a render_mode"):
        make(None).render()
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        make().render()
    with pytest.raises(ValueError, match=r"render_mode must be one of .*rgb_array.* got 'ansi'"):
        FLEdgeEnv(render_mode="ansi")

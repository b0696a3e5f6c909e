"""The dashboard shows what happened, and showing changes nothing."""

from __future__ import annotations

import copy
import pickle
import sys
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, Scenario, Simulator
from fl_edge_env.canvas import counted
from fl_edge_env.rendering import MOST_BARS, Dashboard, _duration

PANELS = ("channel_gain", "queue", "q", "f", "p")
OTHERS, COHORT = (0x9D, 0xB8, 0xCC), (0xD5, 0x5E, 0x00)


def make(render_mode: str | None = "rgb_array", **fields: object) -> gym.Env:
    fields = {"num_devices": 12, "num_rounds": 5} | fields
    env = gym.make("FLEdge-v0", render_mode=render_mode, **fields)
    env.action_space.seed(0)
    return env


def columns(frame: np.ndarray, color: tuple[int, int, int], devices: int) -> np.ndarray:
    """Height of the bars of a colour [px]: a row for each panel, a column for each device."""
    room = 1200 - 100 - 16
    bar = room // devices
    top, height, gap = 96, 116, 20
    match = (frame == color).all(axis=-1)
    middles = 100 + bar * np.arange(devices) + bar // 2
    rows = [top + row * (height + gap) for row in range(len(PANELS))]
    return np.array([match[row : row + height, middles].sum(axis=0) for row in rows])


def picture(scenario: Scenario, observation: dict, allocation: Allocation):
    """The picture of a round in which this was observed and decided, and its cohort."""
    simulator, dashboard = Simulator(scenario), Dashboard(scenario)
    simulator.reset([0])
    dashboard.begin(observation)
    outcome = simulator.advance(allocation)
    dashboard.record(observation, allocation, outcome)
    return dashboard.draw(), outcome.cohort


@pytest.mark.parametrize("chosen", [False, True])
def test_bars__are_as_high_as_what_they_stand_for(chosen):
    scenario = Scenario.cifar10(num_devices=12, cohort_size=3)
    rng = np.random.default_rng(0)
    gain = rng.uniform(0.01, 0.5, 12)
    observation = {"channel_gain": gain, "queue": rng.uniform(0, 180, 12)}
    f, p, q = (rng.uniform(low, 1.0, 12) for low in (0.5, 0.1, 0.1))
    f, p, q = f * scenario.f_max, p * scenario.p_max, q / q.sum()
    kind = {"cohort": [2, 7]} if chosen else {"q": q}
    frame, members = picture(scenario, observation, Allocation(f, p, **kind))
    others, cohort = (columns(frame, color, 12) for color in (OTHERS, COHORT))
    drawn = np.isin(np.arange(12), members)
    assert (others[:, drawn] <= 1).all()
    assert (cohort[:, ~drawn] <= 1).all()
    values = dict(zip(PANELS, (gain, observation["queue"], q, f, p), strict=True))
    bars = dict(zip(PANELS, others + cohort, strict=True))
    if chosen:  # in place of q stands a note
        assert bars.pop("q").max() <= 1
        grey = frame[96 + 2 * 136 : 96 + 2 * 136 + 116].astype(int)
        assert (np.abs(grey - (0x6B, 0x72, 0x80)).max(axis=-1) <= 2).any()
    for name, bar in bars.items():
        value = values[name]
        # up to a pixel of the axis and one of rounding
        assert np.abs(bar - bar.max() * value / value.max()).max() <= 2, name
        assert bar.max() >= 116 / 4 - 2, name  # the axis fits the values


def test_numbers__are_those_of_the_episode():
    env = make(num_rounds=3)
    env.reset(seed=0)
    energy = np.zeros(12)
    for played in range(1, 4):
        *_, info = env.step(env.action_space.sample())
        energy += info["energy_expected"]
        ratio = energy / played / env.unwrapped.scenario.energy_budget_j
        rounds, took, elapsed, energies = env.unwrapped._dashboard.numbers
        assert rounds == f"{played} / 3"
        mean, worst = energies.rstrip(")").split(" (")
        assert float(mean) == pytest.approx(ratio.mean(), abs=5e-4)
        assert float(worst) == pytest.approx(ratio.max(), abs=5e-4)
        assert_shown(took, info["round_time"])
        assert_shown(elapsed, info["elapsed_time"])


@given(st.one_of(st.floats(0, 120), st.floats(3590, 3610), st.floats(0, 1e8)))
def test_duration__is_the_time_to_the_last_place_shown(seconds):
    assert_shown(_duration(seconds), seconds)


def assert_shown(text: str, expected: float) -> None:
    number, unit = text.split()
    length = {"s": 1, "min": 60, "h": 3600, "d": 86_400}[unit]
    assert float(number) * length == pytest.approx(expected, abs=0.051 * length, rel=1e-3)
    assert float(number) >= 1 or unit == "s"


def play(env: gym.Env, rounds: int = 5) -> list[float]:
    env.reset(seed=3)
    return [
        env.step(np.full((3, 12), value, dtype=np.float32))[1]
        for value in np.linspace(-1, 1, rounds)
    ]


def test_rendering__does_not_change_the_episode():
    assert play(make(None)) == play(make("rgb_array"))


def test_copies_and_restored_episodes__go_on_from_their_round():
    env, other = make(), make()
    play(env, 3)
    frame = env.render()
    for twin in (copy.deepcopy(env.unwrapped), pickle.loads(pickle.dumps(env.unwrapped))):
        np.testing.assert_array_equal(twin.render(), frame)
    other.unwrapped.restore(3, env.unwrapped.state())
    assert other.unwrapped._dashboard.numbers[0] == "3 / 5"
    assert other.render().shape == (800, 1200, 3)


def test_window__shows_the_frame():
    pygame = pytest.importorskip("pygame")
    env, expected = make("human"), make("rgb_array")
    play(env, 1), play(expected, 1)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    np.testing.assert_array_equal(shown, expected.render())
    assert env.render() is None
    env.close()
    assert not pygame.display.get_init()
    env.close()


def test_window__without_its_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match=r"fl-edge-env\[render\]"):
        make("human").reset(seed=0)


def test_render__refuses_without_mode_or_episode():
    with pytest.raises(gym.error.Error, match="no render_mode"):
        make(None).render()
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        make().render()
    with (
        pytest.warns(UserWarning, match="ansi"),
        pytest.raises(ValueError, match=r"render_mode must be one of .*rgb_array.* got 'ansi'"),
    ):
        make("ansi")


def test_draw__beside_others_has_room_for_the_bars_of_all():
    # A queue of 1 J looks a tenth as high beside one of 10 J, and the same as that of its own.
    scenario = Scenario(num_devices=4)
    boards = [Dashboard(scenario, "A") for _ in range(3)]
    for board, queue in zip(boards, (1.0, 10.0, 1.0), strict=True):
        board.begin({"channel_gain": np.full(4, 0.1), "queue": np.full(4, queue)})
    pictures = boards[0].draw(), boards[1].draw(beside=boards), boards[2].draw(beside=boards)
    alone, large, beside = ((picture != 255).any(axis=-1).sum() for picture in pictures)
    assert beside < min(alone, large)


@given(st.integers(0, 2**32 - 1), st.integers(1, 300))
def test_counted__has_every_device_once_and_in_its_bin(seed, devices):
    rng = np.random.default_rng(seed)
    edges = np.cumsum(rng.uniform(0.1, 1.0, 8))
    values = rng.choice([*rng.uniform(-1, 2 * edges[-1], devices), *edges], devices)
    members = rng.random(devices) < 0.3
    everyone, cohort = counted(values, edges, members)
    inside = np.clip(values, edges[0], np.nextafter(edges[-1], 0))  # what lies beyond, in the ends
    for some, counts in ((inside, everyone), (inside[members], cohort)):
        expected = [np.sum((low <= some) & (some < top)) for low, top in pairwise(edges)]
        np.testing.assert_array_equal(counts, expected)
        assert counts.sum() == len(some)


@pytest.mark.parametrize("kind", ["given", "left out", "sampled"])
def test_bars__of_the_band_are_what_the_cohort_has_of_it(kind):
    scenario = Scenario.cifar10(num_devices=12, cohort_size=4, bandwidth_split="shared")
    observation = {"channel_gain": scenario.mean_gain, "queue": np.zeros(12)}
    cohort, parts = [2, 7, 9], np.zeros(12)
    parts[cohort] = 1e5, 2e5, 7e5
    decided: dict = {"cohort": cohort}
    if kind == "sampled":
        decided = {"q": np.full(12, 1 / 12)}
    if kind == "given":
        decided["bandwidth"] = parts + 5e4 * (parts == 0)  # others have none of it
    frame, cohort = picture(
        scenario, observation, Allocation(scenario.f_mid, scenario.p_mid, **decided)
    )
    # The fourth of six panels of 93 px, below the gaps and the margin.
    panel = frame[96 + 3 * (93 + 20) :][:93]
    heights = [
        [(panel[:, 100 + 90 * n + 45] == color).all(axis=-1).sum() for n in range(12)]
        for color in (OTHERS, COHORT)
    ]
    assert not any(heights[0])
    wanted = parts if kind == "given" else np.where(np.isin(np.arange(12), cohort), 2.5e5, 0.0)
    np.testing.assert_allclose(heights[1], wanted * max(heights[1]) / wanted.max(), atol=1)
    assert max(heights[1]) > 30


@pytest.mark.parametrize("devices", [MOST_BARS, MOST_BARS + 1])
def test_pictures__count_devices_just_where_there_are_too_many_for_bars(devices):
    # All devices alike but three: counted, they fill one bin, and the cohort is seen in another.
    scenario = Scenario.cifar10(num_devices=devices, cohort_size=3)
    f = np.full(devices, 1.2e9)
    f[[5, 70, 400]] = 1.8e9
    allocation = Allocation(f, scenario.p_mid, cohort=[5, 70, 400])
    observation = {"channel_gain": scenario.mean_gain, "queue": np.zeros(devices)}
    frame, _ = picture(scenario, observation, allocation)
    orange = (frame == COHORT).all(axis=-1)
    if devices > MOST_BARS:
        right = orange[320:500, 687:1184]  # the panel of f, from 1 to 2 GHz
        (columns,) = np.nonzero(right.any(axis=0))
        assert 0.75 * 497 < columns.min() <= columns.max() < 0.85 * 497
    else:
        assert orange[70:96].any()  # marks above the bars

"""Hundreds of thousands of rounds, and thousands of training: nothing leaks or drifts.

What is summed up is compared with sums of the test's own.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import MarkovChannel, Scenario
from policies import LROA
from train_fl import TrainingWrapper, make_task

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

SEED = 7
ROUNDS = 200_000
TRAINING_ROUNDS = 4_000
PAGE = 1000  # rounds between two comparisons

EPS = np.finfo(np.float64).eps
LIBC = ctypes.CDLL(None)


class Memory(NamedTuple):
    """What the process holds: memory blocks of Python's, and bytes of any kind."""

    blocks: int
    resident: int

    @classmethod
    def now(cls) -> Memory:
        gc.collect()
        if hasattr(LIBC, "malloc_trim"):  # or a leak would hide in what others have freed
            LIBC.malloc_trim(0)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(sys.getallocatedblocks(), pages * resource.getpagesize())

    def assert_still_holds(self) -> None:
        """An object left behind by each round would be thousands of blocks."""
        now = Memory.now()
        assert now.blocks - self.blocks < 1000
        assert now.resident - self.resident < 4e6


class Books:
    """The sums of an episode, kept apart from the environment's and in extended precision.

    Every page is compared with what the environment has said, in arrays that are there from the
    start: the test must not grow either.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.rounds = 0
        self._scenario, devices = scenario, scenario.num_devices
        names = ("queue", "q", "energy_expected", "energy_spent")
        self._page = {name: np.zeros((PAGE, devices)) for name in names}
        self._page |= {name: np.zeros(PAGE) for name in ("round_time", "elapsed_time")}
        self._time, self._largest = Fraction(), np.zeros(devices)
        sums = np.zeros((4, devices), np.longdouble)
        self._queue, self._expected, self._luck, self._variance = sums

    def enter(self, q: np.ndarray, queue: np.ndarray, info: dict[str, Any]) -> None:
        values = info | {"q": q, "queue": queue}
        for name, page in self._page.items():
            page[self.rounds % PAGE] = values[name]
        self.rounds += 1
        if self.rounds % PAGE == 0:
            self._settle()

    def _settle(self) -> None:
        page, budget = self._page, self._scenario.energy_budget_j
        expected, spent = (page[f"energy_{name}"] for name in ("expected", "spent"))
        # Equation (19). A round may add a few roundings to the error, and no more.
        queue = np.empty(expected.shape, np.longdouble)
        for row, excess in enumerate(expected.astype(np.longdouble) - budget):
            self._queue = queue[row] = np.maximum(self._queue + excess, 0)
        for value in (page["queue"], expected, np.atleast_2d(budget)):
            self._largest = np.maximum(self._largest, value.max(axis=0))
        error = np.abs(page["queue"] - queue).max(axis=0)
        assert np.all(error <= 8 * EPS * self.rounds * self._largest)

        # So it is for a sum of positive terms.
        self._time += sum(map(Fraction, page["round_time"].tolist()))
        elapsed = Fraction(page["elapsed_time"].tolist()[-1])
        assert abs(elapsed / self._time - 1) <= EPS / 2 * self.rounds

        chance = 1 - (1 - page["q"]) ** self._scenario.cohort_size
        self._expected += np.sum(expected, axis=0, dtype=np.longdouble)
        self._luck += (spent - expected).sum(axis=0)
        self._variance += ((expected / chance) ** 2 * chance * (1 - chance)).sum(axis=0)

    def assert_long_run(self, rounds: int) -> None:
        """The means over all rounds are those of the paper's model."""
        assert self.rounds == rounds
        budget = self._scenario.energy_budget_j
        over = self._expected / rounds - budget
        assert np.all(over <= self._queue / rounds + 1e-9 * budget)
        assert np.all(over <= 0.01 * budget)
        # Six standard deviations. A stream that repeated itself would not come so close.
        assert np.all(np.abs(self._luck) <= 6 * np.sqrt(self._variance))


def play(env: gym.Env[Any, Any], scenario: Scenario) -> Iterator[tuple[int, dict[str, Any]]]:
    """An episode of LROA, with the number and the info of each round."""
    books, policy = Books(scenario), LROA(scenario)
    observation, _ = env.reset(seed=SEED)
    truncated = False
    while not truncated:
        allocation = policy.decide(observation)
        observation, _, _, truncated, info = env.step(allocation)
        books.enter(allocation.q, observation["queue"], info)
        if books.rounds % PAGE == 0:
            assert env.observation_space.contains(observation)
        yield books.rounds, info
        if books.rounds == scenario.num_rounds // 10:
            memory = Memory.now()
    memory.assert_still_holds()
    books.assert_long_run(scenario.num_rounds)


def test_env__neither_leaks_nor_drifts():
    # From devices whose queue is mostly empty to those that fill it for thousands of rounds
    scenario = Scenario.digits(
        num_devices=12,
        num_rounds=ROUNDS,
        cohort_size=3,
        num_samples=np.linspace(30, 110, 12),
        energy_budget_j=np.linspace(0.3, 0.05, 12),
        download_rate_bps=1e6,
        nu=100.0,
    )
    for _ in play(gym.make("FLEdge-v0", scenario=scenario), scenario):
        pass


def test_training__neither_leaks_nor_drifts_and_learns():
    task = make_task("digits", num_devices=40)
    scenario = task.fit(
        Scenario.digits(num_rounds=TRAINING_ROUNDS, local_epochs=1, energy_budget_j=0.008, nu=100.0)
    )
    env = TrainingWrapper(gym.make("FLEdge-v0", scenario=scenario), task, eval_every=100)
    losses = {name: np.zeros(TRAINING_ROUNDS) for name in ("train_loss", "test_loss")}
    for number, info in play(env, scenario):
        for name, column in losses.items():
            column[number - 1] = info[name]
    evaluated = losses["test_loss"][99::100]
    assert np.all(np.isfinite(losses["train_loss"]))
    assert np.all(np.isfinite(evaluated))
    assert evaluated[-1] < evaluated[0]


@pytest.mark.parametrize("autoreset", ["SameStep", "NextStep"])
def test_vector_env__does_not_leak_and_its_last_rounds_are_those_of_single_ones(autoreset):
    scenario = Scenario.digits(num_devices=12, num_rounds=100, energy_budget_j=0.05)
    if autoreset == "NextStep":
        scenario = scenario.replace(channel=MarkovChannel.correlated(0.8), csi="delayed")
    batch = gym.make_vec(
        "FLEdge-v0",
        num_envs=64,
        vectorization_mode="vector_entry_point",
        autoreset_mode=autoreset,
        scenario=scenario,
    )
    policy = LROA(scenario)
    observation, _ = batch.reset(seed=SEED)
    for system in range(64):  # so that they end one after the other
        batch.step(policy.decide(observation))
        observation, _ = batch.reset(options={"reset_mask": np.arange(64) == system})
    rounds, episodes, memory = 0, np.ones(64, dtype=np.int64), None
    while rounds < ROUNDS:
        observation, _, _, truncated, info = batch.step(policy.decide(observation))
        rounds += np.count_nonzero(info["_cohort"])
        episodes += truncated if autoreset == "SameStep" else ~info["_cohort"]
        if memory is None and rounds >= ROUNDS // 10:
            memory = Memory.now()
    memory.assert_still_holds()
    assert np.all(np.abs(episodes - ROUNDS // (64 * scenario.num_rounds)) <= 2)

    env = gym.make("FLEdge-v0", scenario=scenario)
    alone, _ = env.reset(seed=SEED + 5)
    for _ in range(episodes[5]):
        alone, _ = env.reset()
    for _ in range(batch.unwrapped.simulator.round_index[5]):
        alone, *_ = env.step(policy.decide(alone))
    np.testing.assert_equal(alone, {name: values[5] for name, values in observation.items()})

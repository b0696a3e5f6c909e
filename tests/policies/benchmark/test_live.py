"""What looks on at a run: rounds are on disk when they are played, and once each."""

from __future__ import annotations

import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas as pd

from fl_edge_env import FLEdgeEnv, Scenario
from policies import UniD, UniS
from policies.benchmark.episode import run_episode
from policies.benchmark.jobs import make_jobs
from policies.benchmark.live import RoundsFile, live_files
from policies.benchmark.runner import run_jobs
from tests.support import room_for_files_of

SCENARIO = Scenario.digits(num_devices=12, num_rounds=12)


class Trained(gym.Wrapper):
    """Looks like training, which is tested every third round; can stop the program."""

    def __init__(self, stop_at: int = 10**9, watch: Path | None = None) -> None:
        super().__init__(FLEdgeEnv(SCENARIO))
        self.stop_at, self.watch = stop_at, watch
        self.seen: list[int] = []

    def step(self, action):
        if self.watch is not None:
            self.seen.append(self.watch.read_bytes().count(b"\n") if self.watch.exists() else 0)
        observation, reward, terminated, truncated, info = self.env.step(action)
        number = int(self.env.unwrapped.simulator.round_index)
        if number > self.stop_at:
            raise KeyboardInterrupt
        told = {
            "test_loss": 1 / number,
            "test_accuracy": number / 13,
            # None of the last device's classes is tested.
            "device_accuracy": np.append(np.linspace(0.1, number / 13, 11), np.nan),
        }
        if number % 3:
            told = {name: np.nan * value for name, value in told.items()}
        info |= {"train_loss": 2.0**-number} | told
        return observation, reward, terminated, truncated, info


class Named(UniD):
    name = 'mine, "quoted"'


def run(recorders, env=None) -> pd.DataFrame:
    env = env or Trained()
    return run_episode(Named(SCENARIO), env, SCENARIO, [7], recorders=recorders).rounds


def test_rounds_file__grows_by_a_row_each_round_and_ends_as_the_table(tmp_path):
    path = tmp_path / "new" / "live.csv"
    env = Trained(watch=path)
    rounds = run([RoundsFile(path)], env).drop(columns="real_time")
    assert env.seen == [0, *range(2, 13)]  # the header comes with the first row
    assert path.read_text() == rounds.to_csv(index=False)
    # The accuracies are those of the devices whose classes are tested.
    accuracy = np.array([np.linspace(0.1, number / 13, 11) for number in (3, 6, 9, 12)])
    np.testing.assert_allclose(rounds[2::3].mean_device_accuracy, accuracy.mean(axis=1))
    worst = accuracy[:, :2].mean(axis=1)  # a tenth of eleven devices, rounded up
    np.testing.assert_allclose(rounds[2::3].worst_tenth_accuracy, worst)


def scalars(folder: Path) -> pd.DataFrame:
    """What TensorBoard reads from event files, a column for each name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    told = {name: events.Scalars(name) for name in events.Tags()["scalars"]}
    assert all(len({event.step for event in each}) == len(each) for each in told.values())
    return pd.DataFrame(
        {
            name: pd.Series({event.step: event.value for event in each})
            for name, each in told.items()
        }
    )


def test_rounds_file__that_cannot_be_written_is_told_once_and_the_run_goes_on(tmp_path):
    (tmp_path / "file").touch()
    whole = run([]).drop(columns="real_time")
    files = [RoundsFile(tmp_path / name) for name in ("file/below.csv", "full.csv")]
    with warnings.catch_warnings(record=True) as caught, room_for_files_of(1500):
        warnings.simplefilter("always")
        rounds = run(files).drop(columns="real_time")
    first, second = (str(warning.message) for warning in caught)
    assert "below.csv' is not written any further: File exists. The run goes on" in first
    assert "full.csv' is not written any further: File too large" in second
    pd.testing.assert_frame_equal(rounds, whole, check_exact=True)


def make_trained(_):
    return Trained()


def test_run_jobs__every_training_run_has_a_file_of_its_own(tmp_path):
    titles = {"a b": Named(SCENARIO), "a-b": UniD(SCENARIO), None: UniS(SCENARIO)}
    jobs = [
        job
        for title, policy in titles.items()
        for job in make_jobs([policy], SCENARIO, [1, 2], make_trained, title=title)
    ]
    batch = make_jobs([UniD(SCENARIO)], SCENARIO, [1, 2])  # trains nothing
    results = run_jobs([*jobs, *batch], record=live_files(tmp_path))
    files = {path.name: path.read_text() for path in (tmp_path / "live").iterdir()}
    played = [one.rounds.drop(columns="real_time") for one in results[:-1]]
    written = [rounds.to_csv(index=False) for rounds in played]
    assert sorted(files.values()) == sorted(written)
    assert [files[f"Uni-S-seed-{seed}.csv"] for seed in (1, 2)] == written[4:]

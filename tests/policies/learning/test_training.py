"""Training: what is kept, what a kill loses, and what is refused."""

from __future__ import annotations

import math
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fl_edge_env import Scenario
from policies import LROA, evaluate
from policies.learned import SB3Policy, weights_of
from policies.learning import training
from policies.learning.settings import AgentSettings
from policies.learning.training import VALIDATION_SEEDS, Budget, Progress, train_agent
from tests.support import Constant, Malicious, room_for_files_of

SCENARIO = Scenario.digits(num_devices=5, num_rounds=20)
SETTINGS = AgentSettings(num_envs=4, episode_rounds=20)


class KilledError(Exception):
    pass


def kill_after(rounds: int):
    def stop(progress: Progress) -> None:
        if progress.rounds >= rounds:
            raise KilledError

    return stop


def train(folder: Path, settings: AgentSettings = SETTINGS, **options) -> SB3Policy:
    options = {"scenario": SCENARIO, "budget": Budget(rounds=100), "eval_every": 100} | options
    return train_agent(settings, folder=folder, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, SB3Policy]:
    """The folder of a training that is finished, and its agent."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    return folder, train(folder)


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy of it."""
    return shutil.copytree(finished[0], tmp_path / "run")


def test_training__a_killed_one_ends_in_the_same_agent(tmp_path):
    settings = AgentSettings(num_envs=4, episode_rounds=60, seed=3, width=16)
    options = {"budget": Budget(rounds=500), "eval_every": 150}
    whole = train(tmp_path / "whole", settings, **options)
    for number, kill in enumerate((100, 300)):
        with pytest.raises(KilledError):
            train(tmp_path / "killed", settings, on_progress=kill_after(kill), **options)
        assert (tmp_path / "killed" / "checkpoint.pt").exists() == (number > 0)
    again = train(tmp_path / "killed", settings, **options)
    for name in ("history.csv", "settings.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()
    np.testing.assert_equal(again.weights, whole.weights)
    assert again.cost["rounds"] == whole.cost["rounds"] >= 500
    history = pd.read_csv(tmp_path / "whole" / "history.csv")
    assert history["rounds"].is_monotonic_increasing
    assert len(history) >= 2
    assert history["penalty"].nunique() > 1  # it does learn something


def test_training__keeps_the_best_agent_within_lroas_energy(tmp_path):
    settings = AgentSettings(num_envs=4, episode_rounds=20, learning_rate=1e-2)  # ups and downs
    policy = train(tmp_path, settings, budget=Budget(rounds=400), eval_every=64)
    history = pd.read_csv(tmp_path / "history.csv")
    mine = evaluate([policy], SCENARIO, VALIDATION_SEEDS)
    allowed = evaluate([LROA(SCENARIO)], SCENARIO, VALIDATION_SEEDS)["worst_energy_ratio"].max()
    excess = (history["worst_energy_ratio"] - allowed).clip(lower=0)
    kept = history.assign(excess=excess).sort_values(["excess", "penalty"]).iloc[0]
    assert mine["mean_objective"].mean() == pytest.approx(kept["penalty"], rel=1e-12)
    assert mine["worst_energy_ratio"].max() == pytest.approx(kept["worst_energy_ratio"], rel=1e-12)


@pytest.mark.slow
def test_training__comes_close_to_lroa(tmp_path):
    scenario = Scenario.digits(num_devices=10, num_rounds=100)
    settings = AgentSettings(episode_rounds=50)
    budget = Budget(rounds=2_000)
    policy = train(tmp_path, settings, scenario=scenario, budget=budget, eval_every=1_000)
    torch.manual_seed(0)
    untrained = SB3Policy(scenario, settings, weights_of(settings.make_network(scenario)))
    untrained.name = "untrained"
    table = evaluate([policy, LROA(scenario), untrained], scenario, range(30))
    penalty = table.groupby("policy")["mean_objective"].mean()
    gap = penalty - penalty["LROA"]
    assert gap[policy.name] < 0.1 * gap["untrained"]


def test_training__on_a_channel_class_of_the_users_own(tmp_path):
    scenario = SCENARIO.replace(channel=Constant())
    policy = train(tmp_path, scenario=scenario)
    assert policy.trained_in == scenario
    assert train(tmp_path, scenario=scenario).weights.keys() == policy.weights.keys()
    assert len(evaluate([SB3Policy.load(tmp_path, scenario)], scenario, [0], gaps=False)) == 1
    for other in (None, SCENARIO, SCENARIO.replace(channel=Constant(0.05))):
        with pytest.raises(ValueError, match=r"the channel Constant\(.*: give a scenario with it"):
            SB3Policy.load(tmp_path, other)
    with pytest.raises(ValueError, match="began with other channel"):
        train(tmp_path, scenario=SCENARIO.replace(channel=Constant(0.05)))


def test_training__that_is_finished_is_not_run_again(finished, folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(AgentSettings, "make_model", None)
        np.testing.assert_equal(train(folder).weights, finished[1].weights)
    (folder / "checkpoint.pt").unlink()  # as if killed between agent and checkpoint
    np.testing.assert_equal(train(folder).weights, finished[1].weights)


def test_training__ends_after_the_minutes_it_was_given(tmp_path):
    reports: list[Progress] = []
    budget = Budget(minutes=0.02, rounds=10**9)
    policy = train(tmp_path, budget=budget, eval_every=10**6, on_progress=reports.append)
    assert 0.02 <= policy.cost["minutes"] < 0.5
    shares = [report.share for report in reports]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    # Older pandas read the last digit otherwise.
    best = pd.read_csv(tmp_path / "history.csv")["penalty"].min()
    assert reports[-1].penalty == pytest.approx(best, rel=1e-14)


def test_training__learning_rate_falls_linearly(tmp_path, monkeypatch):
    rates: list[float] = []

    class Recorded(training._LearningRate):
        def __call__(self, progress: float) -> float:
            rates.append(super().__call__(progress))
            return rates[-1]

    monkeypatch.setattr(training, "_LearningRate", Recorded)
    settings = AgentSettings(num_envs=4, episode_rounds=20, learning_rate=2e-3)
    train(tmp_path, settings, budget=Budget(rounds=160))
    # An update after each 32 rounds but the last, and the rate before the first.
    np.testing.assert_allclose(list(dict.fromkeys(rates)), 2e-3 * (1 - np.arange(5) / 5))


@pytest.mark.parametrize(
    ("missing", "options", "message"),
    [
        (None, {"settings": AgentSettings(num_envs=4, seed=1)}, "began with other settings"),
        (None, {"scenario": SCENARIO.replace(mu=2)}, "began with other scenario"),
        (None, {"budget": Budget(rounds=101)}, "began with other budget"),
        (None, {"eval_every": 50}, "began with other eval_every"),
        ("checkpoint.pt", {"settings": AgentSettings(num_envs=4, seed=1)}, "other settings"),
        ("settings.json", {}, "without its settings"),
    ],
)
def test_training__overwrites_no_other_in_the_same_folder(folder, missing, options, message):
    before = (folder / "agent.pt").read_bytes()
    if missing:
        (folder / missing).unlink()
    with pytest.raises(ValueError, match=f"{message}.*choose another folder, or delete it"):
        train(folder, **options)
    assert (folder / "agent.pt").read_bytes() == before


def test_training__too_short_for_an_update_is_refused_and_does_not_lock_its_folder(tmp_path):
    with pytest.raises(ValueError, match="spent after 8 rounds, before the first update"):
        train(tmp_path, AgentSettings(num_envs=4), budget=Budget(rounds=5))
    assert not (tmp_path / "agent.pt").exists()
    # And the settings are NumPy's numbers, kept as Python's.
    settings = AgentSettings(num_envs=np.int64(4), learning_rate=np.float32(0.5), gamma=0)
    assert settings == AgentSettings(num_envs=4, learning_rate=0.5)
    budget = Budget(rounds=np.int64(50))
    policy = train(tmp_path, settings, budget=budget, eval_every=np.int64(50))
    assert SB3Policy.load(tmp_path).settings == policy.settings == settings


def test_training__a_checkpoint_of_a_stranger_runs_nothing(folder):
    torch.save({"finished": False, "view": Malicious(folder / "run")}, folder / "checkpoint.pt")
    with pytest.raises(ValueError, match=r"cannot go on from '.*checkpoint\.pt'.*start anew"):
        train(folder)
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(
            ("settings.json", content, r"settings\.json' is not the settings of a training")
            for content in (b"{}", b"\x00\xff", b"[" * 10**5)
        ),
        ("checkpoint.pt", None, r"cannot go on from '.*checkpoint\.pt': it is not the checkpoint"),
        ("checkpoint.pt", pickle.dumps({"finished": True}), "it is not a ZIP file"),
    ],
)
def test_training__a_folder_with_damaged_or_other_content_is_refused(
    folder, name, content, message
):
    if content is None:
        torch.save([1, 2], folder / name)
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        train(folder)


def test_training__a_wrong_option_is_named(tmp_path):
    with pytest.raises(ValueError, match="eval_every must be an integer of at least 1, got 0"):
        train(tmp_path / "run", eval_every=0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "fields", "message"),
    [
        (AgentSettings, {"credit": "none"}, "credit must be one of difference, team, got 'none'"),
        (AgentSettings, {"width": 1.5}, r"width must be an integer of at least 1, got 1\.5"),
        (AgentSettings, {"gamma": 1.0}, r"gamma must lie in \[0, 1\), got 1\.0"),
        (AgentSettings, {"nu_factor": math.inf}, "nu_factor must be positive and finite, got inf"),
        (AgentSettings, {"empty_starts": 1}, r"empty_starts must lie in \[0, 1\), got 1"),
        (AgentSettings, {"softmax_scale": -1}, "softmax_scale must be positive.*got -1"),
        (AgentSettings, {"seed": -1}, "seed must be an integer from 0 to 999999, got -1"),
        (Budget, {}, "a budget needs rounds or minutes"),
        (Budget, {"rounds": 1.0}, r"rounds must be an integer of at least 1, got 1\.0"),
        (Budget, {"minutes": math.nan}, "minutes must be positive and finite, got nan"),
    ],
)
def test_settings_and_budget__tell_what_is_wrong(make, fields, message):
    with pytest.raises(ValueError, match=message):
        make(**fields)


def test_budget__whichever_ends_first():
    budget = Budget(rounds=100, minutes=2)
    assert budget.progress(50, 0.1) == 0.5
    assert budget.progress(10, 1.5) == 0.75
    assert budget.progress(500, 0) == 1.0


def test_training__a_disk_without_room_names_the_file(folder):
    agent = SB3Policy.load(folder, SCENARIO)
    with room_for_files_of(1000), pytest.raises(OSError) as raised:
        agent.save(folder / "again.pt")
    assert raised.value.filename == str(folder / "again.pt")
    (folder / "checkpoint.pt").unlink()
    with room_for_files_of(10_000), pytest.raises(OSError) as raised:
        train(folder)
    assert raised.value.filename == str(folder / "agent.pt")
    assert not list(folder.glob(".*.pt"))
    train(folder)

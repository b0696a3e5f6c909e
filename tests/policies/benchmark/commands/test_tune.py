"""The search as a user runs it: true to brute force, repeatable, and refusing what is wrong."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import evaluate, make_policy
from policies.benchmark.runner import run_jobs
from policies.benchmark.search import NEARLY
from train_fl import TrainingEnvFactory

POLICIES, BITS, COHORTS = ("lroa", "opportunistic"), ("none", "qsgd:4"), (1, 2)
SYSTEM = {"num_devices": 20, "num_rounds": 16, "energy_budget_j": 0.08}
COMMAND = (
    "tune --num-devices 20 --rounds 16 --energy-budget-j 0.08 --eval-every 2 --target-accuracy 0.5 "
    f"--policies {' '.join(POLICIES)} --try-compression qsgd:4 --try-cohort-size 1 "
    "--try-local-epochs --try-learning-rate --search-seeds 2 --seeds 2"
)
RESULTS = ("summary.csv", "trials.csv", "trials.png", "tune.md")


def read(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RESULTS}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tune")


@pytest.fixture(scope="module")
def whole(home) -> Path:
    """A search of all settings."""
    from train_fl.command_line import main

    main([*f"{COMMAND} --trials 99 --workers 1 --out".split(), str(home / "whole")])
    return home / "whole"


def test_tune__of_all_settings_agrees_with_training_each_to_its_end(whole):
    trials = pd.read_csv(whole / "trials.csv")
    assert len(trials) == len(set(map(tuple, trials.iloc[:, :3].to_numpy()))) == 8
    times = {}
    for bits, cohort in product(BITS, COHORTS):
        system = Scenario.digits(**SYSTEM, cohort_size=cohort, compression=bits)
        training = TrainingEnvFactory(system, "digits", eval_every=2).fitted()
        made = [make_policy(name, training.scenario) for name in POLICIES]
        arguments = {"target_accuracy": 0.5, "gaps": False}
        runs = evaluate(made, training.scenario, [0, 1], make_env=training, **arguments)
        # The status is that of the system under 30 seeds, of which the last are not held out.
        status = evaluate(made, training.scenario, [0, 1, *range(4, 32)], gaps=False)
        for name, policy in zip(POLICIES, made, strict=True):
            mine = [table[table["policy"] == policy.name] for table in (runs, status)]
            point = (name, bits, cohort)
            times[point] = mine[0]["time_to_target"].to_numpy(), mine[1]["status"].iloc[0]
    ok = {p: t.mean() for p, (t, status) in times.items() if status == "ok"}
    least = np.nanmin(list(ok.values()))
    assert len(ok) < len(times)
    for *point, outcome, _, time, first, second in trials.itertuples(index=False):
        alone, status = times[tuple(point)]
        if outcome == "complete":
            np.testing.assert_allclose([first, second], alone, rtol=1e-12)
            assert time == pytest.approx(alone.mean())
        elif outcome == "behind":
            assert not ok[tuple(point)] <= NEARLY * least
        else:
            assert outcome == status
    complete = trials[trials["outcome"] == "complete"]
    assert complete["time_to_target"].min() == pytest.approx(least)
    assert 2 <= len(complete) < len(ok)


def test_tune__best_and_own_are_compared_on_seeds_that_the_search_has_not_seen(whole):
    summary = pd.read_csv(whole / "summary.csv")
    assert set(summary["seed"]) == {2, 3}
    assert summary["policy"].tolist() == ["own", "own", "best", "best"]
    times = summary.pivot(index="seed", columns="policy", values="time_to_target")
    ratio = (times["best"] / times["own"]).mean()
    page = (whole / "tune.md").read_text()
    assert f"it reaches 50 % in {100 * ratio:.0f} % of the time of the scenario's own" in page
    assert "on seeds 2 to 3, which the search has not seen" in page


@pytest.mark.slow
def test_tune__is_the_same_with_two_workers_and_after_interruptions(home, call, monkeypatch):
    monkeypatch.setattr("policies.benchmark.search._GENERATION", 2)
    monkeypatch.setattr("policies.benchmark.search._STARTUP", 3)  # then Optuna's model decides
    command = f"{COMMAND} --trials 6 --out {home}"
    call(f"{command}/one --workers 1")
    one = read(home / "one")
    call(f"{command}/two --workers 2")
    assert read(home / "two") == one
    # Stopped twice between batches of runs, each time with half of the finished ones lost.
    for stopped_at in (4, 8):
        left = stopped_at

        def run(*args, **options):
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return run_jobs(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr("policies.benchmark.bars.run_jobs", run)
            with pytest.raises(SystemExit, match="130"):
                call(f"{command}/three --workers 1")
        assert not (home / "three" / "trials.csv").exists()
        for path in sorted((home / "three" / "jobs").glob("*.npz"))[::2]:
            path.unlink()
    call(f"tune --resume {home}/three --workers 1")
    assert read(home / "three") == one
    # What is finished is read, and not run again.
    files = {path: path.stat().st_mtime_ns for path in (home / "two" / "jobs").iterdir()}
    call(f"{command}/two --workers 1")
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert read(home / "two") == one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--target-accuracy 90", "target_accuracy must lie in (0, 1], got 90.0: 90 % is 0.9"),
        ("--target-accuracy 0", "target_accuracy must lie in (0, 1], got 0.0"),
        ("--trials 1", "trials must be an integer of at least 2, got 1"),
        ("--seeds 1", "seeds must be an integer of at least 2, got 1"),
        ("--search-seeds 0", "search_seeds must be an integer of at least 1, got 0"),
        ("--first-seed -1", "first_seed must be an integer of at least 0, got -1"),
        ("--policies lroa lora", "got 'lora': did you mean 'lroa'?"),
        ("--policies", "policies must be one or more, got none"),
        ("--policies lroa@qsgd:4", "'lroa@qsgd:4' names a compression, and compressions are"),
        ("--try-compression qsgd:40", "qsgd needs an integer from 1 to 16"),
        ("--try-cohort-size 0", "cohort_size must be"),
        ("--try-learning-rate -1", "learning_rate must be"),
        ("--scenario cell --data-dir nowhere", "nowhere"),
        ("--scenario phones.toml", "phones.toml"),
    ],
)
def test_tune__wrong_input_ends_with_one_line_before_anything_runs(
    refused, tmp_path, monkeypatch, options, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("policies.benchmark.bars.run_jobs", lambda *_, **__: pytest.fail("ran"))
    assert message in refused(f"tune {options}")
    assert not (tmp_path / "runs").exists()

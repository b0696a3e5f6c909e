"""Which bits, epochs, cohort and scheduler reach 90 % on digits first? A search with Optuna.

python examples/tune.py

A trial trains models under one seed after another. It is pruned once its mean time cannot be the
best any more, or if it misses the target or its status is not ok. The best setting and the default
are then compared on held-out seeds. With `--storage sqlite:///tune.db`, a database of Optuna, the
next call adds trials to those of earlier ones.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import optuna
import pandas as pd
import tyro
from optuna.trial import TrialState

from fl_edge_env import Scenario
from policies import evaluate, make_policy
from policies.benchmark.intervals import relative_interval
from policies.benchmark.runner import RunsFailedError
from policies.benchmark.status import OK
from train_fl import TrainingEnvFactory

TARGET = 0.9
# The choices; the default of `fl-edge compare` comes first.
CHOICES: dict[str, list[Any]] = {
    "policy": ["lroa", "opportunistic", "best-channel:static", "proportional-fair:static"],
    "compression": ["none", "qsgd:8", "qsgd:4", "qsgd:2"],
    "local_epochs": [2.0, 1.0, 0.5, 0.25, 0.125],
    "cohort_size": [2, 1, 3, 4, 6, 8],
    "learning_rate": [0.02, 0.04, 0.08, 0.16],
}
DEFAULT = {name: values[0] for name, values in CHOICES.items()}


def train(setting: dict[str, Any], seeds: Sequence[int], rounds: int, workers: int) -> pd.DataFrame:
    """Return the runs of a setting, a row for each seed."""
    system = dict(setting)
    name = system.pop("policy")
    rate = system.pop("learning_rate")
    # With a fixed noise power, a larger cohort would have a higher noise density.
    scenario = Scenario.digits(num_rounds=rounds, noise_density_w_hz=2e-8, **system)
    training = TrainingEnvFactory(scenario, "digits", learning_rate=rate, eval_every=5).fitted()
    policy = make_policy(name, training.scenario)
    given = {"make_env": training, "target_accuracy": TARGET, "gaps": False, "workers": workers}
    return evaluate([policy], training.scenario, seeds, **given)


def search(trials: int, seeds: int, rounds: int, storage: str | None) -> dict[str, Any]:
    """Search the setting with the least mean time to the target."""

    def objective(trial: optuna.Trial) -> float:
        found = [each.value for each in study.get_trials(states=[TrialState.COMPLETE])]
        least = min(found, default=math.inf)
        setting = {name: trial.suggest_categorical(name, each) for name, each in CHOICES.items()}
        seconds = 0.0
        for seed in range(seeds):
            try:
                run = train(setting, [seed], rounds, workers=1).iloc[0]
            except RunsFailedError as error:
                if "FloatingPointError" not in str(error):
                    raise
                raise optuna.TrialPruned from None  # the training has diverged
            seconds += run["time_to_target"]  # NaN if it is missed
            if run["status"] != OK or not seconds / seeds < least:
                raise optuna.TrialPruned
            trial.report(seconds / (seed + 1), seed)
        print(f"trial {trial.number:3}: {seconds / seeds:6.1f} s  {setting}", flush=True)
        return seconds / seeds

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(
        sampler=sampler, study_name="tune", storage=storage, load_if_exists=True
    )
    study.enqueue_trial(DEFAULT, skip_if_exists=True)
    study.optimize(objective, n_trials=trials)
    return study.best_params


def main(
    trials: int = 40,
    seeds: int = 3,
    held_out: int = 10,
    rounds: int = 300,
    workers: int = 2,
    storage: str | None = None,
) -> None:
    """Search settings on some seeds, and compare the best with the default on others."""
    warnings.simplefilter("ignore", UserWarning)  # the status shows budgets that cannot be met
    best = search(trials, seeds, rounds, storage)
    others = range(seeds, seeds + held_out)
    default, found = (train(each, others, rounds, workers) for each in (DEFAULT, best))
    for name, setting, runs in (("default", DEFAULT, default), ("best", best, found)):
        time = runs["time_to_target"].mean()
        accuracy = 100 * runs["final_accuracy"].mean()
        print(f"{name:7} {time:6.1f} s  {accuracy:.1f} %  {runs['status'][0]}  {setting}")
    shares = relative_interval(found["time_to_target"], default["time_to_target"])
    mean, low, high = (100 * (1 + share) for share in shares)
    print(f"On held-out seeds the best setting needs {mean:.1f} % of the default's time", end="")
    print(f" (95 % interval: {low:.1f} to {high:.1f} %).")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)

"""Training an agent: validation on seeds of its own, the best one kept, resumable."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecMonitor

from fl_edge_env import Scenario
from fl_edge_env.checks import finite_number, integer_at_least, positive_integer
from fl_edge_env.files import as_value_error, atomic_path, read_text, writable_folder
from policies.benchmark.episode import ENERGY_TOLERANCE
from policies.benchmark.evaluate import evaluate
from policies.benchmark.jobs import code_hash
from policies.learned import (
    AGENT_FILE,
    SB3Policy,
    read_checked,
    scenario_texts,
    torch_threads,
    weights_of,
    write_torch,
)
from policies.learning.settings import AgentSettings
from policies.lroa import LROA

# Apart from the seeds of comparisons and of training episodes, which begin at a million.
VALIDATION_SEEDS = range(10_000, 10_005)

_CHECKPOINT_FILE = "checkpoint.pt"
_HISTORY_FILE = "history.csv"
_SETTINGS_FILE = "settings.json"
# Beside its parameters, what an agent takes from one update to the next.
_OF_THE_MODEL = ("num_timesteps", "_n_updates", "_last_obs", "_last_episode_starts")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Length of a training: rounds, minutes on this machine, or whichever ends first.

    Only rounds can be repeated exactly.

    Attributes
    ----------
    rounds : int, optional
        Rounds of all systems together.
    minutes : float, optional
        Time with validation, without what a kill has lost [min].

    Raises
    ------
    ValueError
        If neither is given, or one is not positive.
    """

    rounds: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.rounds is None and self.minutes is None:
            raise ValueError("a budget needs rounds or minutes")
        if self.rounds is not None:
            object.__setattr__(self, "rounds", integer_at_least(1, "rounds", self.rounds))
        if self.minutes is not None:
            object.__setattr__(self, "minutes", finite_number("minutes", self.minutes))

    def progress(self, rounds: int, minutes: float) -> float:
        """Share of the budget that is spent, 1 at its end."""
        limits = ((rounds, self.rounds), (minutes, self.minutes))
        return min(max(spent / limit for spent, limit in limits if limit is not None), 1.0)


class Progress(NamedTuple):
    """Progress of a training.

    Attributes
    ----------
    share : float
        Share of the budget that is spent.
    rounds : int
        Rounds played in all systems together.
    minutes : float
        Time taken [min].
    penalty : float
        Time-average penalty of the best agent so far on the validation seeds [s], NaN before the
        first validation.
    worst_energy_ratio : float
        Largest time-average energy of a device over its budget, of the same agent.
    """

    share: float
    rounds: int
    minutes: float
    penalty: float
    worst_energy_ratio: float


def train_agent(
    settings: AgentSettings,
    scenario: Scenario,
    budget: Budget,
    folder: str | Path,
    *,
    eval_every: int = 5_000,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> SB3Policy:
    """Train an agent, or go on with a training that was interrupted.

    Every `eval_every` rounds the agent plays whole episodes of the validation seeds. The best
    one so far, which is the one of the smallest penalty among those whose worst device uses no
    more than its budget or than LROA's, is kept in ``agent.pt``; ``history.csv`` has all of them.
    At the same time the training is saved, and the same call goes on from there. With a budget of
    rounds it then ends in the same weights.

    Neither file brings code: they hold tensors and plain values, and nothing else is read.

    Parameters
    ----------
    settings : AgentSettings
        The agent.
    scenario : Scenario
        The system in which it is to act, with the objective ``"penalty"``.
    budget : Budget
        How long to train.
    folder : str or Path
        Folder of the training, made where it is missing.
    eval_every : int
        Rounds of all systems together between two validations. These draw from the stream of
        torch, so that another number leads to another agent.
    on_progress : callable
        Called with the `Progress` before rounds are played for an update.

    Returns
    -------
    SB3Policy
        The best agent.

    Raises
    ------
    ValueError
        If the folder holds another training, or an argument is wrong.
    """
    eval_every = positive_integer("eval_every", eval_every)
    if scenario.objective != "penalty":
        raise ValueError(
            "agents are trained for the paper's reward: the scenario's objective must be "
            f"'penalty', got {scenario.objective!r}"
        )
    folder = writable_folder(Path(folder))
    told = {
        "settings": dataclasses.asdict(settings),
        **scenario_texts(scenario),
        "budget": dataclasses.asdict(budget),
        "eval_every": eval_every,
        "code": code_hash(),
    }
    saved = _continue_or_start(told, folder)
    if saved is not None and saved["finished"]:
        return SB3Policy.load(folder, scenario)
    lroa = LROA(scenario)
    reference = evaluate([lroa], scenario, VALIDATION_SEEDS, gaps=False, progress=False)
    allowed = max(1.0, float(reference["worst_energy_ratio"].max()))
    run = _Run(settings, scenario, budget, folder, eval_every, allowed, on_progress)
    with torch_threads(1):
        model = (
            run.restored(saved) if saved else settings.make_model(run.monitor, run.learning_rate)
        )
        model.set_logger(Logger(None, []))  # the default would leave an empty folder behind
        # The run itself ends the training.
        model.learn(2**62, run, reset_num_timesteps=False)
        if model._n_updates == 0:
            raise ValueError(
                f"the budget was spent after {run.rounds} rounds, before the first update of the "
                "agent: train for longer"
            )
        run.finish()
    return SB3Policy.load(folder, scenario)


class _LearningRate:
    """Falls linearly with the share of the budget that is left, whatever it is measured in."""

    def __init__(self, initial: float) -> None:
        self.initial = initial
        self.left = 1.0

    def __call__(self, _: float) -> float:
        return self.initial * max(self.left, 1e-3)


class _Run(BaseCallback):
    """Follows a training: validates, keeps the best agent, saves, and ends it."""

    def __init__(
        self,
        settings: AgentSettings,
        scenario: Scenario,
        budget: Budget,
        folder: Path,
        eval_every: int,
        allowed_energy: float,
        on_progress: Callable[[Progress], None],
    ) -> None:
        super().__init__()
        self.settings, self.scenario = settings, scenario
        self.budget, self.folder = budget, folder
        self.eval_every, self.allowed_energy = eval_every, allowed_energy
        self.on_progress = on_progress
        self.learning_rate = _LearningRate(settings.learning_rate)
        self.best = SB3Policy(scenario, settings, {})
        self.view = settings.make_view(scenario)
        self.monitor = VecMonitor(self.view)
        self.history: list[dict[str, float]] = []
        self.next_eval = eval_every
        self.start = time.monotonic()

    @property
    def rounds(self) -> int:
        return self.num_timesteps // self.scenario.num_devices

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self.start) / 60

    def _on_rollout_start(self) -> None:
        # Between two updates: only here is all that goes on part of the saved state.
        if self.rounds >= self.next_eval:
            self.next_eval = (self.rounds // self.eval_every + 1) * self.eval_every
            self._validate()
            self._save(self._state())
        self._report()

    def _on_step(self) -> bool:
        share = self.budget.progress(self.rounds, self.minutes)
        self.learning_rate.left = 1.0 - share
        return share < 1.0

    def finish(self) -> None:
        """Validate the agent as it is at the end."""
        self._validate()
        self._save({"finished": True})
        self._report()

    def _rank(self, row: dict[str, float]) -> tuple[float, float]:
        """Least for the best: excess over the allowed energy first, then penalty [s]."""
        excess = row["worst_energy_ratio"] - self.allowed_energy
        return (excess if excess > ENERGY_TOLERANCE else 0.0), row["penalty"]

    def _report(self) -> None:
        best = min(self.history, key=self._rank, default={})
        self.on_progress(
            Progress(
                self.budget.progress(self.rounds, self.minutes),
                self.rounds,
                self.minutes,
                best.get("penalty", math.nan),
                best.get("worst_energy_ratio", math.nan),
            )
        )

    def _validate(self) -> None:
        policy = SB3Policy(self.scenario, self.settings, weights_of(self.model.policy))
        row = {"rounds": self.rounds, **self._measured(policy)}
        if self._rank(row) < min(map(self._rank, self.history), default=(math.inf, math.inf)):
            self.best = policy
        self.history.append(row)

    def _measured(self, policy: SB3Policy) -> dict[str, float]:
        """The penalty to minimise, on the validation seeds, and the energy of the worst device."""
        table = evaluate([policy], self.scenario, VALIDATION_SEEDS, progress=False)
        penalty, worst = table["mean_objective"], table["worst_energy_ratio"]
        return {"penalty": float(penalty.mean()), "worst_energy_ratio": float(worst.max())}

    def _save(self, state: dict[str, Any]) -> None:
        finished = state["finished"]
        self.best.cost = {"rounds": self.rounds, "minutes": self.minutes, "finished": finished}
        self.best.save(self.folder / AGENT_FILE)
        with atomic_path(self.folder / _HISTORY_FILE) as temporary:
            pd.DataFrame(self.history).to_csv(temporary, index=False)
        write_torch(self.folder / _CHECKPOINT_FILE, state)

    def _state(self) -> dict[str, Any]:
        model = self.model
        state: dict[str, Any] = {
            "finished": False,
            "parameters": model.get_parameters(),
            "model": {name: getattr(model, name) for name in _OF_THE_MODEL},
            "view": self.view.state(),
            "episodes": (self.monitor.episode_returns, self.monitor.episode_lengths),
            "best": self.best.weights,
            "history": self.history,
            "next_eval": self.next_eval,
            "minutes": self.minutes,
            "actions": model.action_space.np_random.bit_generator.state,
            "random": random.getstate(),
            "numpy": np.random.get_state(),  # noqa: NPY002 - Stable-Baselines3 draws from it
            "torch": torch.get_rng_state(),
        }
        return {name: _changed(item, np.ndarray, torch.as_tensor) for name, item in state.items()}

    def restored(self, state: dict[str, Any]) -> PPO:
        """Take up what `_state` gave; returns the agent as it was."""
        model = self.settings.make_model(self.monitor, self.learning_rate)
        model.set_parameters(state.pop("parameters"), device="cpu")
        state = _changed(state, torch.Tensor, torch.Tensor.numpy)
        for name in _OF_THE_MODEL:
            setattr(model, name, state["model"][name])
        self.monitor.episode_returns, self.monitor.episode_lengths = state["episodes"]
        self.view.restore(state["view"])
        self.best = SB3Policy(self.scenario, self.settings, state["best"])
        self.history, self.next_eval = state["history"], state["next_eval"]
        self.start -= 60 * state["minutes"]
        model.action_space.np_random.bit_generator.state = state["actions"]
        random.setstate(state["random"])
        np.random.set_state(state["numpy"])  # noqa: NPY002
        torch.set_rng_state(torch.as_tensor(state["torch"]))
        return model


def _changed(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The value with what is of a kind changed, in dicts, lists and tuples, too."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {name: _changed(item, kind, change) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_changed(item, kind, change) for item in value)
    return value


def _continue_or_start(told: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """The saved state of this training, or None where it begins; another training is refused."""
    path, checkpoint = folder / _SETTINGS_FILE, folder / _CHECKPOINT_FILE
    other = list(told)
    if path.exists():
        try:
            before = json.loads(read_text(path))
            other = [name for name, value in told.items() if before[name] != value]
        except Exception:  # what a damaged file can raise has no end
            raise ValueError(f"{str(path)!r} is not the settings of a training") from None
    # Nothing would be lost.
    if not checkpoint.exists() and not (other and (folder / AGENT_FILE).exists()):
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(told, indent=2) + "\n")
        return None
    if other:
        held = f"a training that began with other {' and '.join(other)}"
        if not path.exists():
            held = "an agent or a training without its settings"
        raise ValueError(
            f"the folder {str(folder)!r} holds {held}: choose another folder, or delete it"
        )
    with as_value_error(
        f"cannot go on from {str(checkpoint)!r}: ", ": delete the folder to start anew"
    ):
        state: Any = read_checked(checkpoint)
        if not isinstance(state, dict) or not isinstance(state.get("finished"), bool):
            raise ValueError("it is not the checkpoint of a training")
    return state

"""The file of a suite, which is that of a leaderboard with a table of its own, and its settings."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pandas as pd

from fl_edge_env.files import as_value_error, check_regular
from policies.benchmark.commands.leaderboard_file import FileSetting, file_settings
from policies.benchmark.commands.training import MakeTraining, Scheduler, make_setting
from policies.benchmark.experiment import Setting

# The suite of this version.
CURRENT = Path(__file__).parents[1] / "suites" / "suite-1.toml"

# The name of a setting, and what is run in it.
Part: TypeAlias = tuple[str, Setting]


class Suite(NamedTuple):
    """A suite as its file has it, with the results of its own schedulers."""

    name: str
    sha256: str  # of the file
    settings: list[FileSetting]
    held_out_settings: list[str]
    held_out_seeds: range
    secret_seeds: int  # their number
    metrics: list[str]
    references: pd.DataFrame

    def kind(self, setting: str, seed: int, secret: Sequence[int]) -> str:
        """Whether a run is "public", "held out" by its setting or seed, or has a "secret" seed."""
        if seed in secret:
            return "secret"
        held_out = setting in self.held_out_settings or seed in self.held_out_seeds
        return "held out" if held_out else "public"

    def parts(
        self,
        scheduler: Scheduler,
        make_training: MakeTraining,
        secret: Sequence[int],
        *,
        train: bool,
    ) -> list[Part]:
        """What a policy runs: in each setting the suite's seeds, then secret ones beside LROA.

        Not in settings with training where it is not asked for, nor where the policy needs it and
        there is none. Raises `ValueError` if nothing is left.
        """
        parts = []
        for name, both in self._settings(make_training, train, [scheduler, Scheduler("lroa")]):
            if not both.left_out:
                beside = replace(both, name=f"{name}, secret seeds", seeds=secret)
                parts += [(name, replace(both, entrants=both.entrants[:1])), (name, beside)]
        if not parts:
            raise ValueError(f"{scheduler.name} needs training: give --train")
        return parts

    def reference_parts(self, make_training: MakeTraining, *, train: bool) -> list[Part]:
        """What the file's own schedulers run: in each setting the suite's seeds."""
        return list(self._settings(make_training, train))

    def _settings(
        self, make_training: MakeTraining, train: bool, fielded: Sequence[Scheduler] = ()
    ) -> Iterator[Part]:
        for told in self.settings:
            if train or not told.options.train:
                schedulers = fielded or told.schedulers
                one = make_setting(told.name, told.options, schedulers, make_training, in_file=True)
                seeds = (*one.seeds, *self.held_out_seeds)
                yield told.name, replace(one, bounded=False, seeds=seeds)


def read_suite(path: Path = CURRENT, *, stored: bool = True) -> Suite:
    """Read the file of a suite and the results stored beside it; `ValueError` if one is wrong."""
    with as_value_error(f"cannot read the suite {str(path)!r}: "):
        check_regular(path)
        content = path.read_bytes()
        values = tomllib.loads(content.decode())
        own = values.pop("suite")
        return Suite(
            path.stem,
            hashlib.sha256(content).hexdigest(),
            file_settings(values, path.name),
            own["held_out_settings"],
            range(own["first_held_out_seed"], own["first_held_out_seed"] + own["held_out_seeds"]),
            own["secret_seeds"],
            own["metrics"],
            _read_runs(path.with_suffix(".csv")) if stored else pd.DataFrame(),
        )


def _read_runs(path: Path) -> pd.DataFrame:
    """A row for each run; its reason is empty, not missing, where there is none."""
    return pd.read_csv(path, dtype={"status_reason": str}).fillna({"status_reason": ""})

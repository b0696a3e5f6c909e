"""Make settings from options, with training of real models if requested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_edge_env import Scenario
from fl_edge_env.scenario.presets import PRESETS
from policies.benchmark.run import PolicyText, Run
from policies.benchmark.setting import Setting
from train_fl.commands.options import CompareOptions

if TYPE_CHECKING:
    from train_fl.factory import TrainingEnvFactory


@dataclass(frozen=True)
class PolicySpec:
    """A policy by its name, as `policies.make_policy` takes it, with its options and label.

    The name may end with the compression of the updates after an ``@``: ``"uni-d@qsgd:4"``.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)  # keywords of the policy
    label: str | None = None  # its name in tables; the policy's own by default


def split_compression(name: str) -> tuple[str, str]:
    """The name of a scheduler, and the compression after an ``@``, which paths may also have."""
    scheduler, _, compression = name.rpartition("@")
    in_path = any(part in compression.lower() for part in ("/", "\\", ".py:", ".zip"))
    whole = in_path or not scheduler or not compression
    return (name, "") if whole else (scheduler, compression)


def make_run(spec: PolicySpec, scenario: Scenario, training: TrainingEnvFactory | None) -> Run:
    """A policy as the commands run it."""
    name, compression = split_compression(spec.name)
    if compression:
        scenario = scenario.replace(compression=compression)
        training = None if training is None else training.in_system(scenario)
    text = PolicyText(name, spec.options)
    policy = text.make(scenario)
    label = spec.label or f"{policy.name}{compression and f', {compression}'}"
    return Run(label, policy, scenario, make_env=training, text=text)


def make_setting(
    name: str,
    options: CompareOptions,
    specs: Sequence[PolicySpec],
    *,
    ranked: bool = False,
) -> Setting:
    """The setting that options describe; `ValueError` if one is wrong.

    Without training, policies that need it are left out. If the setting is `ranked`, on a
    leaderboard, all policies have its uploads, because ranks compare schedulers only.
    """
    for spec in specs if ranked else ():
        compression = split_compression(spec.name)[1]
        if compression:
            raise ValueError(
                f"a leaderboard ranks schedulers with equal uploads, got {spec.name!r}: give the "
                f"setting compression = {compression!r}, or use fl-edge compare"
            )
    seeds = options.seed_range()
    trained = options.training.train
    file = options.system.scenario
    scenario = options.make_scenario()
    training = None
    if trained:
        if options.training.dataset is None and file.lower().endswith(".toml"):
            raise ValueError(
                f"the scenario file {file!r} names no data set: give one with --dataset, or "
                "--no-train"
            )
        # The task determines the size of a user-defined compression.
        keep = set() if options.training.fit_scenario else options.names_given() - {"compression"}
        from train_fl import TrainingEnvFactory  # torch takes seconds

        training = TrainingEnvFactory(
            scenario, dataset_of(options), **options.training_options()
        ).fitted(keep)
        scenario = training.scenario
    runs = [make_run(spec, scenario, training) for spec in specs]
    learners = [run for run in runs if not trained and run.policy.needs_training]
    if learners and len(learners) == len(runs):
        raise ValueError(
            "all its schedulers need training"
            if ranked
            else "all policies need training: remove --no-train"
        )
    return Setting(
        name,
        tuple(run for run in runs if run not in learners),
        seeds,
        target=options.training.target_accuracy if trained else None,
        left_out={run.label: "needs training" for run in learners},
    )


def dataset_of(options: CompareOptions) -> str:
    """The data set of a setting: the given one, or its scenario's."""
    name = options.system.scenario
    own = PRESETS[name].dataset if name in PRESETS else Path(name).stem
    return options.training.dataset or own


def network_note(options: CompareOptions) -> str:
    """The trained network and the one with the size of uploads; empty for the data set's."""
    training = options.training_options()
    parts = []
    model = training.get("model")
    if model:
        parts.append(f"network {model.rpartition(':')[2]}")
    upload = training.get("upload")
    if upload:
        parts.append(f"uploads of the size of {upload}")
    return ", ".join(parts)

"""Compare scheduling policies: run them under common random numbers, print a table, draw plots.

Without options it trains real models on digits:

    python examples/compare.py

The system side of the paper's scenarios:

    python examples/compare.py --scenario cifar10 --no-train
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import tyro
from rich.console import Console
from rich.measure import Measurement

from fl_edge_env import Scenario
from fl_edge_env.checks import integer_at_least
from fl_edge_env.files import atomic_path, reason, writable_folder
from fl_edge_env.scenario.toml import describe_channel
from policies import POLICIES, DivFL, lower_bound, make_policy
from policies.benchmark.command_line import ScenarioOptions, errors_in_one_line, run_with_progress
from policies.benchmark.evaluation import summarise
from policies.benchmark.figures import PLOTS, draw_partition, save_figure, save_plots
from policies.benchmark.runner import Backend, check_runner, code_hash, make_jobs
from policies.benchmark.tables import comparison_table

if TYPE_CHECKING:
    from train_fl import TrainingEnvFactory


@dataclass(frozen=True)
class Options(ScenarioOptions):
    """Compare policies for federated learning at the wireless edge.

    All policies meet the same channel under the same seed. The first policy is compared with the
    others.
    """

    policies: tuple[str, ...] = tuple(POLICIES)
    """Policies to compare: lroa, uni-d, uni-s, divfl, or the folder of a trained agent."""
    train: bool = True
    """Train real models inside every round. Only digits has its data at hand."""
    dataset: str | None = None
    """Data to train on: digits, fashion_mnist, cifar10, femnist; the scenario's by default."""
    data_dir: Path = Path("data")
    """Folder with the data set's files."""
    download: bool = False
    """Fetch missing data from the internet."""
    partition: str | None = None
    """Split of the data: dirichlet, dirichlet-by-class, iid or writer; the usual by default."""
    concentration: float = 0.5
    """Concentration of the split's Dirichlet distribution."""
    learning_rate: float | None = None
    """Initial learning rate; the data set's own by default."""
    on_non_finite: str = "raise"
    """What to do with an update that is not finite: raise an error, or skip it."""
    device: str = "cpu"
    """Where to train, as torch names it."""
    threads: int = 1
    """Threads of torch in each process; another number may change the last digits."""
    seeds: int | None = None
    """Number of seeds; 5 with training, 30 without by default."""
    first_seed: int = 0
    """The seeds are first_seed, first_seed + 1, and so on."""
    workers: int = os.cpu_count() or 1
    """Processes to run on."""
    backend: Backend = "processes"
    """Processes of this machine, or of a Ray cluster."""
    address: str | None = None
    """Address of the Ray cluster; a local one is started by default."""
    out: Path | None = None
    """Folder for the results, runs/<scenario> by default; what it has finished is not run again."""
    resume: Path | None = None
    """Folder of a comparison to go on with, by its own options but for how to run it."""
    checkpoint_every: int = 50
    """Rounds after which a training run is saved, to go on from there after a crash."""
    target_accuracy: float = 0.9
    """Accuracy whose first arrival the table tells."""
    eval_every: int = 10
    """Rounds between two evaluations on the test set."""


def main(options: Options) -> None:
    """Run the comparison; a wrong option or a failed run ends it with a message."""
    console = Console()
    with errors_in_one_line(console):
        compare(options, console)


def compare(options: Options, console: Console) -> None:
    """Run the comparison and write its results."""
    settings: dict[str, Any] | None = None
    if options.resume is not None:
        options, settings = stored(options)
    number = options.seeds if options.seeds is not None else (5 if options.train else 30)
    integer_at_least(1, "seeds", number)
    if not 0 < options.target_accuracy <= 1:
        raise ValueError(f"target_accuracy must lie in (0, 1], got {options.target_accuracy}")
    check_runner(options.workers, options.backend, options.checkpoint_every)
    scenario = options.make_scenario()
    make_env = make_training(options, scenario) if options.train else None
    if make_env is not None:
        scenario = make_env.scenario
    policies = [make_policy(n, scenario, **policy_options(n, make_env)) for n in options.policies]
    seeds = range(options.first_seed, options.first_seed + number)
    jobs = make_jobs(policies, scenario, seeds, make_env)
    if make_env is not None:
        make_env(policies[0])  # refuses a wrong option here, not in a worker
    settings = continued(settings, config(options, scenario) | agents_of(options), console)
    folder = writable_folder(options.out or Path("runs") / Path(options.scenario).stem)
    make_room(folder, settings, console)
    write_text(folder / "config.json", json.dumps(settings, indent=2, allow_nan=False) + "\n")
    results = run_with_progress(
        "runs",
        jobs,
        folder=folder / "jobs",
        workers=options.workers,
        backend=options.backend,
        address=options.address,
        checkpoint_every=options.checkpoint_every,
        console=console,
    )
    rounds = pd.concat(results, ignore_index=True)
    bound = lower_bound(scenario)
    target = options.target_accuracy if options.train else None
    summary = summarise(rounds, target, bound)

    timing = None
    if "real_time" in rounds:  # kept apart from what a repetition repeats
        timing = rounds[["policy", "seed", "round", "real_time"]]
        write_text(folder / "timing.csv", timing.to_csv(index=False))
        rounds = rounds.drop(columns="real_time")
    write_text(folder / "rounds.csv", rounds.to_csv(index=False))
    write_text(folder / "summary.csv", summary.to_csv(index=False))
    save_plots(rounds, bound, folder)
    if make_env is not None:
        task = make_env.make_task()
        counts = task.num_samples[:, None] * task.label_histogram
        save_figure([[lambda axes: draw_partition(axes, counts)]], [folder / "partition.png"])
    table = comparison_table(summary, target)
    whole = Measurement.get(console, console.options.update(width=1000), table).maximum
    Console(width=max(console.width, whole)).print(table)  # no number is cut off
    console.print(
        f"lower bound on the objective: {bound.value:.6g} s, "
        f"standard error {bound.standard_error:.2g} s",
        highlight=False,
    )
    if timing is not None:
        seconds = timing.groupby("policy", sort=False)["real_time"].median()
        told = ", ".join(f"{name} {value:.2g} s" for name, value in seconds.items())
        console.print(f"real time of a round: {told}", highlight=False)
    if any(isinstance(policy, DivFL) for policy in policies):
        how = "gradients" if options.train else "label histograms, the same in every round"
        console.print(
            f"DivFL chose its cohorts by {how}: its time is theirs, its energy and objective are "
            "those of q = 1/N.",
            highlight=False,
        )
    console.print(f"Results and plots: {folder}", soft_wrap=True)


RESULTS = (*PLOTS, "partition.png", "rounds.csv", "summary.csv", "timing.csv")


def make_room(folder: Path, settings: dict[str, Any], console: Console) -> None:
    """Remove the results of another comparison, which this one's would replace only in part."""
    kept = (*HOW_TO_RUN, "out", "resume")
    try:
        old = json.loads((folder / "config.json").read_text())
        same = old["scenario"] == settings["scenario"] and all(
            old["options"][name] == value
            for name, value in settings["options"].items()
            if name not in kept
        )
    except Exception:  # there is none, or it is damaged
        return
    if not same:
        for name in RESULTS:
            (folder / name).unlink(missing_ok=True)
        console.print(
            f"This replaces another comparison in {folder}: --out gives it a folder of its own.",
            style="yellow",
            soft_wrap=True,
        )


def make_training(options: Options, scenario: Scenario) -> TrainingEnvFactory:
    """What makes the training environments; torch is imported only here."""
    from train_fl import TrainingEnvFactory

    if options.dataset is None and Path(options.scenario).suffix == ".toml":
        raise ValueError(
            f"the scenario file {options.scenario!r} names no data set: give one with --dataset, "
            "or --no-train"
        )
    return TrainingEnvFactory(
        scenario,
        task=options.dataset or Path(options.scenario).stem,
        eval_every=options.eval_every,
        partition=options.partition,
        concentration=options.concentration,
        learning_rate=options.learning_rate,
        on_non_finite=options.on_non_finite,
        data_dir=options.data_dir,
        download=options.download,
        device=options.device,
        threads=options.threads,
    ).fitted()


def policy_options(name: str, training: TrainingEnvFactory | None) -> dict[str, Any]:
    """What a policy needs beside the scenario."""
    if name == "divfl" and training is not None:
        return {"label_histogram": training.make_task().label_histogram}
    return {}


# Options that do not change the result: with --resume they are those of the new command.
HOW_TO_RUN = ("workers", "backend", "address", "checkpoint_every")


def stored(given: Options) -> tuple[Options, dict[str, Any]]:
    """Options and configuration of the comparison in the folder to go on with."""
    assert given.resume is not None
    for field in dataclasses.fields(Options):
        new = getattr(given, field.name) != field.default
        if new and field.name not in (*HOW_TO_RUN, "resume"):
            raise ValueError(
                f"--resume takes the options from the folder: {field.name} cannot be given with "
                f"it, only {', '.join(HOW_TO_RUN)}"
            )
    path = given.resume / "config.json"
    try:
        settings: dict[str, Any] = json.loads(path.read_text())
        if missing := {"command", "scenario", "code"} - settings.keys():
            raise KeyError(*missing)
        kinds = get_type_hints(Options)
        for name, value in settings["options"].items():
            if name in kinds and not fits(value, kinds[name]):
                raise ValueError(f"{name} cannot be {value!r}")
        options = Options(**settings["options"])
        options = dataclasses.replace(
            options,
            policies=tuple(options.policies),
            data_dir=Path(options.data_dir),
            out=given.resume,
            **{name: getattr(given, name) for name in HOW_TO_RUN},
        )
    except Exception as error:  # what a damaged file can raise has no end
        raise ValueError(
            f"{str(given.resume)!r} is not the folder of a comparison that can go on: "
            f"cannot use {path.name} ({reason(error)})"
        ) from None
    return options, settings


def fits(value: object, kind: Any) -> bool:
    """Whether a value that comes from JSON is one of an option of some type."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    kinds: dict[Any, tuple[type, ...]] = {float: (float, int), Path: (str,)}
    return any(type(value) in kinds.get(one, (one,)) for one in get_args(kind) or [kind])


def continued(old: dict[str, Any] | None, new: dict[str, Any], console: Console) -> dict[str, Any]:
    """The configuration of a comparison; of one that goes on, the new must fit the old."""
    if old is None:
        return new
    if old["scenario"] != new["scenario"]:
        raise ValueError(
            f"the scenario {new['options']['scenario']!r} has changed since the comparison began: "
            "restore its file, or start anew in another folder"
        )
    if old.get("agents", {}) != new["agents"]:
        raise ValueError(
            "a trained agent has changed since the comparison began: start anew in another folder"
        )
    if old["code"] != new["code"]:
        console.print(
            "The code or a library has changed since: runs and checkpoints of before are not used.",
            style="yellow",
        )
    return new | {"command": old["command"]}


def config(options: Options, scenario: Scenario) -> dict[str, Any]:
    """All that is needed to repeat the run."""
    packages = ("fledge-env", "gymnasium", "numba", "numpy", "pandas", "scipy", "torch")
    return {
        "command": ["python", *sys.argv],
        "options": plain(dataclasses.asdict(options)),
        "scenario": plain(scenario.to_dict() | {"channel": describe_channel(scenario.channel)}),
        "lambda": scenario.lambda_,
        "V": scenario.V,
        "commit": git_commit(),
        "code": code_hash(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def agents_of(options: Options) -> dict[str, dict[str, str]]:
    """Hashes of the trained agents among the policies, which are files that may change."""
    paths = [Path(name) for name in options.policies if name not in POLICIES]
    files = [path / "agent.pt" if path.is_dir() else path for path in paths]
    return {"agents": {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}}


def plain(value: Any) -> Any:
    """A value as it comes back from JSON, which knows no arrays, tuples, paths or infinity."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return "inf" if value == math.inf else value


def version(package: str) -> str | None:
    """Installed version of a package, None where it is absent."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_commit() -> str | None:
    """The commit of this checkout, marked where files differ from it; None outside git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))

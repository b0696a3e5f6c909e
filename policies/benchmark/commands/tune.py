"""What to set: a search for the setting that is the first at a test accuracy."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from fl_edge_env.checks import integer_at_least
from policies.benchmark.bars import run_with_progress
from policies.benchmark.command_line import print_whole
from policies.benchmark.commands.training import (
    MakeTraining,
    Scheduler,
    Training,
    dataset_of,
    make_setting,
    named_by,
    network_note,
)
from policies.benchmark.experiment import Entrant, Results, Setting, run_settings
from policies.benchmark.jobs import Job, make_jobs
from policies.benchmark.measure import Measure, measure_of
from policies.benchmark.options import CompareOptions, RunOptions, ScenarioOptions
from policies.benchmark.results_folder import (
    Kind,
    claimed,
    default_folder,
    described,
    reopened,
    write_csv,
    write_text,
)
from policies.benchmark.rollout import Episodes, Stop
from policies.benchmark.runner import JobsFailedError
from policies.benchmark.search import Point, Run, Tried, Value, check_optuna, ranked, search
from policies.benchmark.statistics import relative_interval
from policies.benchmark.status import DeviceAccounts, Status, joined, judge
from policies.benchmark.tables import Board, comparison_markdowns, comparison_tables
from policies.benchmark.training_options import TrainingOptions
from policies.benchmark.trials import (
    at_an_end,
    best_rows,
    counted,
    duration,
    markdown_table,
    rich_table,
    save_trials,
    trials_table,
    value_text,
)

TUNING = Kind("tuning", ("summary.csv", "trials.csv", "trials.png", "tune.md"))

# The status of a setting is judged under so many seeds of the system without training.
_STATUS_SEEDS = 30
# Names in the comparison: the scenario's own setting, and the best.
_OWN, _BEST = "own", "best"
_TRY = "try_"


@dataclass(frozen=True)
class Options(RunOptions, TrainingOptions, ScenarioOptions):
    """Search the setting that is the first at a test accuracy within the constraints.

    Scheduler, compression, cohort, local epochs and learning rate are searched with real training.
    The best setting then meets the scenario's own, with the first of the policies, on seeds that
    the search has not seen. What is given nothing to try, as by --try-compression alone, stays.
    """

    policies: tuple[str, ...] = (
        "lroa",
        "uni-d",
        "uni-s",
        "opportunistic",
        "best-channel:static",
        "proportional-fair:static",
        "round-robin:dynamic",
    )
    """Schedulers to try, named as for compare."""
    try_compression: tuple[str, ...] = ("none", "qsgd:8", "qsgd:4", "qsgd:2", "qsgd:1")
    """Compressions of the updates to try beside the scenario's own, in the order of their size."""
    try_cohort_size: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    """Numbers of devices in a round to try beside the scenario's own."""
    try_local_epochs: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
    """Local epochs to try beside the scenario's own."""
    try_learning_rate: tuple[float, ...] = (0.25, 0.5, 2.0, 4.0, 8.0)
    """Learning rates to try, as multiples of --learning-rate, or of the data set's own."""
    target_accuracy: float = 0.9
    """Test accuracy, or value of another metric, that is to be reached first."""
    trials: int = 100
    """Number of settings to try."""
    search_seeds: int = 3
    """Number of seeds under which they are tried."""
    seeds: int = 10
    """Number of further seeds, under which the best setting meets the scenario's own."""
    first_seed: int = 0
    """The seeds are first_seed, first_seed + 1, and so on, those of the search first."""
    fit_scenario: bool = False
    """Let the size of the model and the numbers of samples be those of the network and the data,
    also where --scenario is a file, or another option, that gives others. For a preset they are."""
    eval_every: int = 5
    """Rounds between two evaluations on the test set; the last round is always evaluated."""

    def compared(self, policy: str, values: Mapping[str, Any]) -> CompareOptions:
        """The options of a comparison for one policy, with some values changed."""
        own = {field.name for field in dataclasses.fields(self)} - {"policies"}
        names = [field.name for field in dataclasses.fields(CompareOptions) if field.name in own]
        given = {name: getattr(self, name) for name in names}
        return CompareOptions(policies=(policy,), **given | dict(values))

    def to_try(self) -> dict[str, tuple[Any, ...]]:
        """What to try of each option that is searched."""
        names = [field.name for field in dataclasses.fields(self) if field.name.startswith(_TRY)]
        return {name.removeprefix(_TRY): getattr(self, name) for name in names}


def tune(options: Options, console: Console, make_training: MakeTraining) -> None:
    """Search, compare the best setting with the scenario's own, print and write the results.

    Raises `ValueError` for a wrong option and a folder that holds something else or in which
    another command is at work, `ModuleNotFoundError` where a package is not installed, and
    `JobsFailedError` if a run has failed.
    """
    check_optuna()
    options = reopened(options, TUNING)
    folder = options.out or default_folder(options, options.scenario, "-tune")
    system = _System(options, folder, console, make_training)
    schedulers = [Scheduler(name) for name in options.policies]
    named = named_by(options.compared(options.policies[0], {}), schedulers)
    named += options.try_compression
    told, names = [described(system.entrant(system.own).scenario)], list(system.choices)
    with claimed(folder, TUNING, options, told, named, console) as writes:
        tried = search(
            system.choices,
            [(policy, *system.own[1:]) for policy in system.choices["policy"]],
            system,
            trials=options.trials,
            seeds=options.search_seeds,
            on_generation=system.tell,
        )
        outcome = _compare(tried, system)
        rows = best_rows(tried, outcome.best, system.own, names)
        results = outcome.results
        board = Board(results.summary(), options.target_accuracy, results.caution())
        sentences = [counted(tried), *_sentences(outcome, system)]
        if writes:
            write_csv(folder / "trials.csv", trials_table(tried, names, system.seeds))
            write_csv(folder / "summary.csv", board.summary)
            save_trials(tried, system.choices, system.own, folder / "trials.png")
            (table,) = comparison_markdowns([board])
            title = f"# {dataset_of(options.compared(options.policies[0], {}))}"
            parts = [title, *sentences, markdown_table(rows), table]
            write_text(folder / "tune.md", "\n\n".join(parts) + "\n")
    print_whole(
        rich_table(rows, "The best settings on the seeds of the search, and the scenario's own"),
        console,
    )
    (held_out,) = comparison_tables([board], width=console.width, leader=True)
    print_whole(held_out, console)
    for sentence in sentences:
        console.print(sentence, highlight=False, soft_wrap=True)
    what = "Results" if writes else "Read, and nothing written to"
    console.print(f"{what}: {folder}", soft_wrap=True)


class _System:
    """A scenario whose settings are searched: points in the order of `choices`, first a policy."""

    def __init__(
        self, options: Options, folder: Path, console: Console, make_training: MakeTraining
    ) -> None:
        for name, least in (("trials", 2), ("search_seeds", 1), ("seeds", 2), ("first_seed", 0)):
            integer_at_least(least, name, getattr(options, name))
        if not options.policies:
            raise ValueError("policies must be one or more, got none")
        if options.try_compression and (own := [n for n in options.policies if "@" in n]):
            raise ValueError(
                f"{own[0]!r} names a compression, and compressions are searched: leave one of both "
                "out, the latter by --try-compression with nothing behind it"
            )
        self.options, self.folder, self.console = options, folder, console
        self._make_training = make_training
        self._entrants: dict[Point, Entrant] = {}
        last = options.first_seed + options.search_seeds
        self.seeds = range(options.first_seed, last)
        self.held_out = range(last, last + options.seeds)
        # Few seeds tell little of the constraints, and none of these may be held out.
        further = range(self.held_out.stop, self.held_out.stop + _STATUS_SEEDS - len(self.seeds))
        self._status_seeds = [*self.seeds, *further]
        self.choices, self.own = self._find_choices()

    def _find_choices(self) -> tuple[dict[str, tuple[Value, ...]], Point]:
        """The values to try of each option, the scenario's own among them, and its own point.

        Each value is tried on, so that a wrong one is refused before anything runs.
        """
        policies = tuple(dict.fromkeys(self.options.policies))
        entrant, *_ = (self._make(policy, {}) for policy in policies)
        choices: dict[str, tuple[Value, ...]] = {"policy": policies}
        own: list[Value] = [policies[0]]
        for name, given in self.options.to_try().items():
            if not given:
                continue
            its: Value = self._own(name, entrant)
            if name == "learning_rate":
                given = tuple(its * factor for factor in given)
            values = tuple(dict.fromkeys((its, *given)))
            for value in values[1:]:
                self._make(policies[0], {name: value})
            choices[name] = values if isinstance(its, str) else tuple(sorted(values))
            own.append(its)
        return choices, tuple(own)

    def _own(self, name: str, entrant: Entrant) -> Any:
        """What an option is if it is not given."""
        if (given := getattr(self.options, name)) is not None:
            return given
        if name == "learning_rate":
            training: Training = entrant.training  # type: ignore[assignment]
            return training.make_task().options.learning_rate
        # Work in proportion to speed goes by the epochs before.
        scenario = dataclasses.replace(self.options, work=None).make_scenario()
        values = np.unique(getattr(scenario, name))
        if len(values) > 1:
            option = name.replace("_", "-")
            raise ValueError(
                f"{name} of the scenario differs between devices, from {values[0]} to "
                f"{values[-1]}: give one for all with --{option}, or nothing to --try-{option}"
            )
        return values[0].item()

    def _make(self, policy: str, values: Mapping[str, Value]) -> Entrant:
        with warnings.catch_warnings():
            # Budgets that cannot be met show as the status of the setting.
            warnings.simplefilter("ignore", UserWarning)
            return make_setting(
                policy,
                self.options.compared(policy, values),
                [Scheduler(policy)],
                self._make_training,
            ).entrants[0]

    def entrant(self, point: Point) -> Entrant:
        """The policy of a point in its system, with training."""
        if point not in self._entrants:
            values = dict(zip(self.choices, point, strict=True))
            self._entrants[point] = self._make(str(values.pop("policy")), values)
        return self._entrants[point]

    def check(self, points: Sequence[Point]) -> list[Status | None]:
        """The status over whole episodes without training, where that teaches a policy nothing.

        Until the target is reached queues may still grow, and policies spend more than later.
        """
        untrained: list[tuple[Point, Job]] = []
        for point in points:
            _, policy, scenario, _ = self.entrant(point)
            learns = policy.uses_gradients or policy.uses_losses or policy.uses_update_norms
            if not (learns or policy.needs_training):
                jobs = make_jobs([policy], scenario, self._status_seeds)
                untrained += [(point, job) for job in jobs]
        played = self._run("constraints", [job for _, job in untrained])
        accounts: dict[Point, list[DeviceAccounts]] = {}
        for (point, _), one in zip(untrained, played, strict=True):
            if one is not None and one.devices is not None:
                accounts.setdefault(point, []).append(one.devices)
        return [judge(joined(accounts[point])) if point in accounts else None for point in points]

    def play(self, runs: Sequence[tuple[Point, int, float]]) -> list[Run]:
        """Train until the target is reached or a run takes too long."""
        target, jobs = self.options.target_accuracy, []
        for point, index, longest in runs:
            _, policy, scenario, training = self.entrant(point)
            (job,) = make_jobs([policy], scenario, [self.seeds[index]], training)
            jobs.append(dataclasses.replace(job, stop=Stop(target, longest)))
        return [_run_of(played, target) for played in self._run("training", jobs)]

    def _run(self, title: str, jobs: Sequence[Job]) -> list[Episodes | None]:
        """Run jobs; None for those whose training diverged."""
        if not jobs:
            return []
        try:
            return list(
                run_with_progress(
                    title,
                    jobs,
                    console=self.console,
                    transient=True,
                    folder=self.folder / "jobs",
                    workers=self.options.workers,
                    backend=self.options.backend,
                    address=self.options.address,
                    checkpoint_every=self.options.checkpoint_every,
                )
            )
        except JobsFailedError as error:
            if not all("\nFloatingPointError: " in trace for _, trace in error.failures):
                raise
            diverged = [job for job, _ in error.failures]
        left = [job for job in jobs if job not in diverged]
        played = iter(self._run(title, left))
        return [None if job in diverged else next(played) for job in jobs]

    def describe(self, point: Point) -> str:
        """The options by which a command is given a point."""
        names = ["policies", *list(self.choices)[1:]]
        return " ".join(
            f"--{name.replace('_', '-')} {value_text(value)}"
            for name, value in zip(names, point, strict=True)
        )

    def tell(self, tried: Sequence[Tried]) -> None:
        """Print how far the search has come."""
        far = f"{len(tried)} settings tried, "
        if complete := ranked(tried):
            far += f"the best {duration(complete[0].time)}: {self.describe(complete[0].point)}"
        else:
            far += "none has reached the target within the constraints"
        self.console.print(far, highlight=False, soft_wrap=True)


def _run_of(played: Episodes | None, target: float) -> Run:
    if played is None:
        return Run(math.inf, reached=False)
    time = played.rounds["elapsed_time"]
    measure = measure_of(played.rounds) or Measure()
    reached = time[measure.reached(played.rounds[f"test_{measure.name}"], target)]
    end = float(time.iloc[-1] if reached.empty else reached.iloc[0])
    return Run(end, not reached.empty, played.devices)


class _Outcome(NamedTuple):
    """Whole episodes on seeds held out, the best that stood there, and those passed over for it."""

    results: Results
    best: Tried | None
    passed_over: list[str]


def _compare(tried: Sequence[Tried], system: _System) -> _Outcome:
    """Play the best setting and the scenario's own on the seeds held out.

    One that is not ok there, or misses the target in a run, is passed over for the next.
    """
    passed_over: list[str] = []
    for one in [*ranked(tried), None]:
        entrants = [system.entrant(system.own)._replace(label=_OWN)]
        if one is not None and one.point != system.own:
            entrants.append(system.entrant(one.point)._replace(label=_BEST))
        setting = Setting(
            "held out",
            tuple(entrants),
            system.held_out,
            bounded=False,
            target=system.options.target_accuracy,
        )
        (results,) = run_settings([setting], system.folder, system.options, system.console)
        if one is None:
            break
        summary = results.summary()
        runs = summary[summary["policy"] == entrants[-1].label]
        why = runs["status_reason"].iloc[0]
        if missed := int(runs["time_to_target"].isna().sum()):
            why = f"misses the target in {missed} of {len(runs)} runs"
        if not why:
            break
        passed_over.append(f"{system.describe(one.point)} ({why})")
    return _Outcome(results, one, passed_over)


def _sentences(outcome: _Outcome, system: _System) -> list[str]:
    """What to set and what it brings, in words."""
    options, best = system.options, outcome.best
    measure = measure_of(outcome.results.summary()) or Measure()
    target, seeds = measure.text(options.target_accuracy), system.held_out
    unseen = f"seeds {seeds[0]} to {seeds[-1]}, which the search has not seen"
    said = [f"Passed over on {unseen}: {one}." for one in outcome.passed_over]
    if best is None:
        return [*said, f"No setting reaches {target} in all runs within the constraints."]
    if best.point == system.own:
        return [*said, f"No other setting is faster to {target}: {system.describe(best.point)}"]
    summary = outcome.results.summary()
    times = summary.pivot(index="seed", columns="policy", values="time_to_target")
    if times[_OWN].isna().any():
        gain = f"the scenario's own does not always reach {target}"
    else:
        mean, low, high = relative_interval(times[_BEST], times[_OWN])
        gain = (
            f"it reaches {target} in {100 * (1 + mean):.0f} % of the time of the scenario's own "
            f"(95 % interval: {100 * (1 + low):.0f} to {100 * (1 + high):.0f} %)"
        )
    if not_ok := summary.loc[summary["policy"] == _OWN, "status_reason"].iloc[0]:
        gain += f", which is not within the constraints: {not_ok}"
    note = network_note(options.compared(options.policies[0], {}))
    trained = dataset_of(options.compared(options.policies[0], {})) + (note and f", {note}")
    return [
        *said,
        f"Best: {system.describe(best.point)}",
        f"Trained on {trained}; on {unseen}, {gain}.",
        *at_an_end(best.point, system.choices),
    ]

"""The system of a log, and how well it predicts what it has not seen."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from fl_edge_env.files import atomic_path, writable_folder
from policies.benchmark.command_line import print_whole
from policies.benchmark.figures import save_figure
from policies.benchmark.tables import time_unit
from policies.measured.fit import Fit, fit
from policies.measured.log import Log, read_log, read_spells
from policies.measured.prediction import LEVEL, Prediction, coverage, median_error, predict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# So many devices are listed, and so many participations drawn.
_LISTED, _DRAWN = 30, 300


@dataclass(frozen=True)
class Options:
    """Make the system of a federation's log, and say how well it predicts rounds it has not seen.

    The system is written to a file for --scenario, and beside it a picture of the same name: times
    of the last quarter of the rounds, as measured and as predicted from the others.
    """

    log: tyro.conf.Positional[Path]
    """Log of a federation, CSV or Parquet: a row for each participation."""
    out: Path
    """TOML file to write."""
    availability: Path | None = None
    """When devices were available, CSV or Parquet: a row for each spell."""


def calibrate(options: Options, console: Console) -> None:
    """Fit, print and write; `ValueError` for a wrong file, and then nothing is written."""
    if options.out.suffix != ".toml":
        raise ValueError(f"out must end in .toml, got {str(options.out)!r}")
    log = read_log(options.log)
    spells = None if options.availability is None else read_spells(options.availability)
    fitted = fit(log.table, spells)
    scenario = fitted.scenario()
    prediction = predict(log.table)
    writable_folder(options.out.parent)
    picture = options.out.with_suffix(".png")
    if picture.is_dir():
        raise ValueError(f"cannot write the picture {str(picture)!r}: it is a folder")
    with atomic_path(options.out) as path:
        scenario.save(path)
        if prediction is not None:
            save_prediction(prediction, picture)
    print_whole(rich_table(device_rows(fitted), "Devices, with standard errors of means"), console)
    for sentence in [*sentences(fitted, log), *predicted(prediction)]:
        console.print(sentence, highlight=False, soft_wrap=True)
    written = options.out if prediction is None else f"{options.out} and {picture}"
    console.print(f"Written: {written}", highlight=False, soft_wrap=True)


def device_rows(fitted: Fit) -> list[dict[str, str]]:
    """What is known of each device, in text; of very many, of the first."""
    numbered = fitted.devices == tuple(range(len(fitted.devices)))
    always_there = np.all(fitted.availability == 1)
    several = fitted.rows.max() > 1  # else nothing says how much times vary
    rows = []
    for n, name in enumerate(fitted.devices[:_LISTED]):
        one_pass = duration(float(fitted.seconds_per_sample[n] * fitted.samples[n]))
        upload = f"{fitted.uplink_bps[n] / 1e6:.3g}"
        row = {"device": str(n)} | ({} if numbered else {"name": str(name)})
        row["rows"], row["samples"] = str(fitted.rows[n]), f"{fitted.samples[n]:g}"
        varies, error, upload_error = (
            _percent(values[n]) if several else "–"
            for values in (fitted.train_spread, fitted.seconds_error, fitted.uplink_error)
        )
        deviation = f"{fitted.uplink_deviation_bps[n] / 1e6:.2g}" if several else "–"
        row["one epoch"], row["it varies by"] = f"{one_pass} ± {error}", varies
        row["upload [Mbit/s]"], row["deviation"] = f"{upload} ± {upload_error}", deviation
        row["download"] = f"{fitted.download_bps[n] / 1e6:.3g}"
        rows.append(row | ({} if always_there else {"there": _percent(fitted.availability[n])}))
    return rows


def sentences(fitted: Fit, log: Log) -> list[str]:
    """What the log holds, what its system is, and what is not known."""
    count, parameters = len(fitted.devices), fitted.model_bits / 32
    said = [f"And {count - _LISTED} more devices."] if count > _LISTED else []
    said.append(
        f"{len(log.table)} participations of {count} devices in {fitted.num_rounds} rounds"
        + (f"; {log.left_out} older ones are left out." if log.left_out else ".")
    )
    lean = (
        f"{_percent(np.median(law.own[:-1]))} in {what} ({_percent(law.own[:-1].min())} at least)"
        for law, what in ((fitted.training, "training time"), (fitted.upload, "upload rate"))
    )
    if count > 1:
        said.append(
            "Devices lean on each other: in the median a device's own rows count "
            f"{' and '.join(lean)}, and the mean of all devices the rest."
        )
    said.append(
        f"{fitted.cohort_size} devices in a round; {parameters:.0f} parameters, compression "
        f"{fitted.compression}; a device keeps its rate with probability {fitted.persistence:.2g}; "
        f"a round takes {duration(fitted.overhead_s)} beside its longest participation."
    )
    return [*said, *fitted.unknown, *(f"Suspect: {note}" for note in log.notes)]


def predicted(prediction: Prediction | None) -> list[str]:
    """How well later rounds are predicted, in words."""
    if prediction is None:
        return ["The log has one round, so that there is nothing to predict, and no picture."]
    each, rounds = prediction.participations, prediction.rounds
    first, last = rounds["round"].iloc[[0, -1]]
    told = f"Round {last}" if first == last else f"Rounds {first} to {last}"
    errors = (
        f"{told}, predicted from those before: the median error of a "
        f"participation is {_percent(median_error(each))} and of a round "
        f"{_percent(median_error(rounds))}; {_percent(coverage(each))} of {len(each)} "
        f"participations and {_percent(coverage(rounds))} of {len(rounds)} rounds lie in their "
        f"{_percent(LEVEL)} intervals."
    )
    total = (
        f"Together these rounds took {duration(prediction.measured_total_s)} without pauses, and "
        f"{duration(prediction.predicted_total_s)} were predicted "
        f"({100 * prediction.total_error:+.1f} %)."
    )
    return [errors, total]


def save_prediction(prediction: Prediction, path: Path) -> None:
    """Draw predicted over measured times, of participations and of rounds."""
    panels = [
        partial(_draw, predicted=prediction.participations, title="Participations"),
        partial(_draw, predicted=prediction.rounds, title="Rounds: longest participation"),
    ]
    save_figure([panels], [path], panel_size=(3.5, 3.6))


def _draw(axes: Axes, predicted: pd.DataFrame, title: str) -> None:
    """Medians with their intervals, and the diagonal on which they should lie."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if len(predicted) > _DRAWN:
        predicted = predicted.iloc[np.linspace(0, len(predicted) - 1, _DRAWN).astype(np.int64)]
    unit, length = time_unit(float(predicted["measured_s"].median()))
    times = predicted[["measured_s", "predicted_s", "low_s", "high_s"]] / length
    measured, middle, low, high = times.to_numpy().T
    axes.errorbar(
        measured,
        middle,
        [middle - low, high - middle],
        fmt="o",
        color="#0072B2",
        ecolor="#0072B259",
        markersize=3.5,
        linewidth=1.2,
        label=f"median, {_percent(LEVEL)} interval",
    )
    ends = [0.9 * times.to_numpy().min(), 1.1 * times.to_numpy().max()]
    axes.plot(ends, ends, color="black", linewidth=1, label="as measured")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal", title=title)
    axes.set(xlabel=f"measured [{unit}]", ylabel=f"predicted [{unit}]")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda time, _: f"{time:g}"))
        axis.set_minor_formatter(NullFormatter())


def _percent(share: float) -> str:
    return f"{round(100 * share, 2):.2g} %" if share < 0.995 else "100 %"


def duration(seconds: float) -> str:
    """A time to three digits, in a unit in which it reads well."""
    unit, length = time_unit(seconds)
    return f"{seconds / length:.3g} {unit}"


def rich_table(rows: Sequence[Mapping[str, str]], title: str) -> Table:
    """Rows of text for the terminal, under headings in as many lines as keep columns narrow."""
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        width = max(10, *(len(row[name]) for row in rows))
        heading = textwrap.fill(name, width, break_long_words=False)
        justify: Literal["left", "right"] = "right" if name else "left"
        table.add_column(heading, justify=justify, vertical="bottom", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    return table

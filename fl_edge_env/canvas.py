"""The figures behind the pictures of a round: a bar for each device, or counts of many devices."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from fl_edge_env.decision import Setting
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import StepPatch
    from matplotlib.text import Text

_DPI = 100
_LEFT, _RIGHT, _BOTTOM, _TOP = 100, 16, 44, 96  # margins [px]
_GAP = 20  # between panels [px]
_BAR, _DRAWN, _FAINT = "#9DB8CC", "#D55E00", "#6B7280"

_NOTE_WIDTH = 36.0  # what a point of the note's font takes [px]
_LEAST_BAR_WITH_GAP = 4  # narrower bars touch [px]
_HEADINGS = (  # and where they stand, from the left end of the panels to the right one
    (0.20, "round"),
    (0.39, "last round"),
    (0.55, "time so far"),
    (0.73, "energy / budget (worst)"),
)


def labels(scenario: Scenario) -> dict[str, str]:
    """The panels by name, with their labels: what is observed, the selection, the settings."""
    parts = sorted(scenario.decision, key=lambda part: isinstance(part, Setting))
    decided = {part.name: part.label for part in parts}
    return {"channel_gain": "gain h", "queue": "queue Q, J"} | decided


class Canvas(ABC):
    """A figure of which the axes are drawn when they change, and the rest in every frame."""

    def __init__(self, scenario: Scenario, title: str, size: tuple[int, int]) -> None:
        self._size = width, height = size
        self._figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
        self._agg: Any = FigureCanvasAgg(self._figure)  # without types in matplotlib
        self._background: Any = None
        # The bounds of some channels are far above all gains that occur.
        self._usual_gain = 10.0 * max(float(scenario.mean_gain.max()), scenario.channel.gain_min)
        self._panels: dict[str, tuple[Axes, StepPatch, StepPatch]] = {}
        # What a queue or probability below these has to tell is that it is nothing.
        budget = float(scenario.energy_budget_j.min())
        self._smallest_tops = {
            "queue": 0.1 * budget,
            "q": 0.1 / scenario.num_devices,
            "bandwidth": scenario.bandwidth_hz / scenario.cohort_size / 1e3,
        }
        self._make_panels(scenario)
        q_axes = self._panels["q"][0]
        self._note = q_axes.text(
            0.5,
            0.5,
            "",
            transform=q_axes.transAxes,
            ha="center",
            va="center",
            color=_FAINT,
            animated=True,
        )
        self._note.set_fontsize(min(10.0, q_axes.get_position().width * width / _NOTE_WIDTH))
        self._text(0.0, 40, title, fontsize=18, fontweight="bold")
        self._numbers = []
        for x, heading in _HEADINGS:
            self._text(x, 28, heading, fontsize=10, color=_FAINT)
            self._numbers.append(self._text(x, 52, "", fontsize=15, animated=True))

    @abstractmethod
    def _make_panels(self, scenario: Scenario) -> None:
        """Add axes with what shows the other devices and the cohort for each of the `labels`."""

    @abstractmethod
    def _draw_devices(self, values: Mapping[str, FloatArray], drawn: BoolArray) -> None:
        """Draw what is observed and decided of each device."""

    @abstractmethod
    def _fit(self, name: str, largest: float) -> None:
        """Let an axis reach the largest value."""

    def _text(self, x: float, below_top: int, text: str, **style: Any) -> Text:
        width, height = self._size
        x = (_LEFT + x * (width - _LEFT)) / width
        return self._figure.text(x, 1 - below_top / height, text, va="center", **style)

    def draw(
        self,
        values: Mapping[str, FloatArray],
        largest: Mapping[str, float],
        drawn: BoolArray,
        numbers: list[str],
        note: str,
    ) -> NDArray[np.uint8]:
        """Draw a frame, shape (height, width, 3).

        `values` are those of the devices for each of the `labels`, `largest` what the axes of
        queues, probabilities and parts of the band have to reach, `drawn` is the cohort, `numbers`
        stand above the panels and the `note` in that of the probabilities.
        """
        for name, value in largest.items():
            self._fit(name, max(value, self._smallest_tops[name]))
        if self._background is None:
            self._agg.draw()
            self._background = self._agg.copy_from_bbox(self._figure.bbox)
        self._agg.restore_region(self._background)
        self._draw_devices(values, drawn)
        self._note.set_text(note)
        self._figure.draw_artist(self._note)
        for text, number in zip(self._numbers, numbers, strict=True):
            text.set_text(number)
            self._figure.draw_artist(text)
        return np.asarray(self._agg.buffer_rgba())[..., :3].copy()


def _rounded_up(top: float, largest: float) -> float:
    """An end of an axis at 1, 2 or 5 times a power of ten; the old one where it still fits."""
    if top / 4 < largest <= top:
        return top
    power = 10.0 ** math.floor(math.log10(largest))
    return next(k * power for k in (1, 2, 5, 10) if k * power >= largest)


class BarCanvas(Canvas):
    """A bar for each device in every panel; see `Canvas`."""

    def _make_panels(self, scenario: Scenario) -> None:
        width, height = self._size
        devices = scenario.num_devices
        # A whole number of pixels for each device keeps the bars crisp.
        room = width - _LEFT - _RIGHT
        bar = room // devices
        across = bar * devices or room
        panels = labels(scenario)
        high = (height - _TOP - _BOTTOM + _GAP) // len(panels) - _GAP
        gap = 1 / bar if bar >= _LEAST_BAR_WITH_GAP else 0.0
        self._heights = np.tile((1.0, 0.0), devices)
        edges = np.append((np.arange(devices)[:, None] + (0.0, 1.0 - gap)).ravel(), devices) - 0.5
        tops = {part.name: part.ends(scenario)[1] for part in scenario.decision}
        tops["channel_gain"] = min(scenario.channel.gain_max, self._usual_gain)
        for row, (name, label) in enumerate(panels.items()):
            bottom = height - _TOP - (row + 1) * high - row * _GAP
            axes = self._figure.add_axes(
                (_LEFT / width, bottom / height, across / width, high / height),
                xlim=(-0.5, devices - 0.5),
                ylim=(0, 1.05 * tops.get(name, 1.0)),
                ylabel=label,
            )
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelbottom=row == len(panels) - 1)
            axes.yaxis.set_label_coords(-78 / across, 0.5)
            others, cohort = (
                axes.stairs(0 * self._heights, edges, fill=True, color=color, animated=True)
                for color in (_BAR, _DRAWN)
            )
            self._panels[name] = axes, others, cohort
        axes.set_xlabel("device (orange: took part in the last round)")
        (self._marks,) = self._panels["channel_gain"][0].plot(
            [], [], "v", color=_DRAWN, markersize=8, clip_on=False, animated=True
        )

    def _draw_devices(self, values: Mapping[str, FloatArray], drawn: BoolArray) -> None:
        for name, (axes, others, cohort) in self._panels.items():
            for patch, shown in ((others, ~drawn), (cohort, drawn)):
                patch.set_data((values[name] * shown).repeat(2) * self._heights)
                axes.draw_artist(patch)
        gain_axes = self._panels["channel_gain"][0]
        places = np.flatnonzero(drawn)
        self._marks.set_data(places, np.full(places.shape, 1.1 * gain_axes.get_ylim()[1]))
        gain_axes.draw_artist(self._marks)

    def _fit(self, name: str, largest: float) -> None:
        axes = self._panels[name][0]
        top = axes.get_ylim()[1]
        if (new := _rounded_up(top, largest)) != top:
            axes.set_ylim(0, new)
            self._background = None


# Bins of a histogram, margins of its axes [px], and the heights at which an axis of counts begins
# and at which a bin without devices ends.
_BINS = 50
_COLUMN_GAP, _ROW_GAP = 90, 62
_COUNT_BOTTOM, _COUNT_NOTHING = 0.7, 0.5
# Gains this far below all mean gains are counted in the first bin.
_FAINT_GAIN = 1e-3
# An axis over more decades has a mark for each, and no others.
_MOST_MARKED_DECADES = 2.5

_COUNT_LABELS = {"channel_gain": "gain h (logarithmic)", "q": "sampling q, in 1/N"}


def counted(
    values: FloatArray, edges: FloatArray, members: BoolArray
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Devices in each bin, all and those of the cohort; what is beyond the ends is in the last."""
    bins = len(edges) - 1
    place = np.clip(edges.searchsorted(values, side="right") - 1, 0, bins - 1)
    return np.bincount(place, minlength=bins), np.bincount(place[members], minlength=bins)


class CountCanvas(Canvas):
    """A histogram of the devices in every panel, for very many of them; see `Canvas`."""

    def _make_panels(self, scenario: Scenario) -> None:
        width, height = self._size
        channel = scenario.channel
        least = max(channel.gain_min, _FAINT_GAIN * float(scenario.mean_gain.min()))
        panels = labels(scenario) | _COUNT_LABELS
        ends = {part.name: part.ends(scenario) for part in scenario.decision}
        ends["channel_gain"] = least, min(channel.gain_max, self._usual_gain)
        rows = len(panels) // 2 + 1  # with a place for what the colours mean
        self._edges: dict[str, FloatArray] = {}
        self._uniform = scenario.num_devices  # one over the probability of uniform sampling
        across = (width - _LEFT - _RIGHT - _COLUMN_GAP) // 2
        high = (height - _TOP - _ROW_GAP + 10) // rows - _ROW_GAP + 10
        for place, (name, label) in enumerate(panels.items()):
            row, column = divmod(place, 2)
            left = _LEFT + column * (across + _COLUMN_GAP)
            bottom = height - _TOP - (row + 1) * high - row * _ROW_GAP
            low, top = ends.get(name, (0.0, 1.0))
            if low >= top:  # all devices alike, without a choice
                low, top = 0.5 * top, 1.5 * top
            axes = self._figure.add_axes(
                (left / width, bottom / height, across / width, high / height),
                yscale="log",
                ylim=(_COUNT_BOTTOM, 2.0 * scenario.num_devices),
                xlabel=label,
                ylabel="" if column else "devices",
            )
            axes.spines[["top", "right"]].set_visible(False)
            axes.yaxis.set_major_locator(LogLocator(numticks=6))
            axes.yaxis.set_major_formatter("{x:,.0f}")
            axes.yaxis.set_minor_formatter(NullFormatter())
            if name == "channel_gain":
                axes.set_xscale("log")
                decades = math.log10(top / low)
                marks = (1.0, 2.0, 5.0) if decades < _MOST_MARKED_DECADES else (1.0,)
                axes.xaxis.set_major_locator(LogLocator(subs=marks))
                axes.xaxis.set_major_formatter("{x:g}")
                axes.xaxis.set_minor_formatter(NullFormatter())
                self._edges[name] = np.geomspace(low, top, _BINS + 1)
            else:
                self._edges[name] = np.linspace(low, top, _BINS + 1)
            axes.set_xlim(self._edges[name][0], self._edges[name][-1])
            everyone, cohort = (
                axes.stairs(
                    np.full(_BINS, _COUNT_NOTHING),
                    self._edges[name],
                    baseline=_COUNT_NOTHING,
                    fill=True,
                    color=color,
                    animated=True,
                )
                for color in (_BAR, _DRAWN)
            )
            self._panels[name] = axes, everyone, cohort
        # Where one more panel would stand.
        row, column = divmod(len(panels), 2)
        left = _LEFT + column * (across + _COLUMN_GAP)
        lines = (
            (_BAR, f"all {scenario.num_devices:,} devices"),
            (_DRAWN, "took part in the last round"),
        )
        top = height - _TOP - row * (high + _ROW_GAP)
        for line, (color, text) in enumerate(lines):
            y = (top - 20 - 26 * line) / height
            self._figure.text(left / width, y, "\u25a0", color=color, fontsize=16, va="center")
            self._figure.text((left + 24) / width, y, text, fontsize=10, va="center")
        explained = "Bars count devices, on a logarithmic axis.\nThe end bins hold all beyond."
        y = (top - 20 - 26 * len(lines)) / height
        self._figure.text(left / width, y, explained, fontsize=9, color=_FAINT, va="top")

    def _draw_devices(self, values: Mapping[str, FloatArray], drawn: BoolArray) -> None:
        for name, (axes, everyone, cohort) in self._panels.items():
            shown = values[name] * self._uniform if name == "q" else values[name]
            counts = counted(shown, self._edges[name], drawn)
            for patch, count in zip((everyone, cohort), counts, strict=True):
                # Probabilities, f and p are zero where there are none: before the first round, and
                # of a chosen cohort the first.
                there = name == "queue" or shown.any()
                heights = np.maximum(count if there else 0 * count, _COUNT_NOTHING)
                patch.set_data(heights, self._edges[name])
                axes.draw_artist(patch)

    def _fit(self, name: str, largest: float) -> None:
        if name == "q":
            largest *= self._uniform
        axes, *_ = self._panels[name]
        top = float(self._edges[name][-1])
        if (new := _rounded_up(top, largest)) != top:
            self._edges[name] = np.linspace(0.0, new, _BINS + 1)
            axes.set_xlim(0.0, new)
            self._background = None

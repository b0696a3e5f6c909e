"""A picture of a round: the observation of each device, the decision and the cohort."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fl_edge_env.allocation import Allocation
from fl_edge_env.round import Round
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, Observed

# The picture of 1200 by 800 pixels [in], and the edges of the panels in it.
_SIZE = 12.0, 8.0
_LEFT = 0.11
_RIGHT = 0.985
_BOTTOM = 0.08
_TOP = 0.88
_OTHERS = "#9DB8CC"
_COHORT = "#D55E00"
_FONTS = "font.family", "font.sans-serif", "font.serif", "font.monospace"


class _Panel(NamedTuple):
    label: str
    values: FloatArray  # shape (N,)
    top: float  # end of the axis, which starts at `bottom`
    bottom: float = 0.0
    scale: str = "linear"


def fonts() -> dict[Any, Any]:
    """The fonts of matplotlib's configuration: the default has no glyphs of many scripts."""
    given: Any = mpl.rcParams
    return {name: given[name] for name in _FONTS}


def draw(
    scenario: Scenario,
    round_index: int,
    observation: Observed,
    decision: Allocation | None = None,
    outcome: Round | None = None,
) -> NDArray[np.uint8]:
    """Draw a bar for each device in each panel, in orange for the cohort.

    Before the first round of an episode there is no decision or outcome, and the picture shows only
    the observation. Returns an array of shape (height, width, 3).
    """
    member = np.zeros(scenario.num_devices, dtype=np.bool_)
    if outcome is not None:
        member[outcome.cohort[outcome.cohort >= 0]] = True
    panels = _panels(scenario, observation, member, decision, outcome)
    # Pages show the picture at half its size.
    with mpl.rc_context(mpl.rcParamsDefault | fonts() | {"font.size": 14.0}):
        figure = Figure(_SIZE, dpi=100)
        canvas: Any = FigureCanvasAgg(figure)  # untyped in matplotlib
        rows = figure.subplots(len(panels), sharex=True)
        figure.subplots_adjust(_LEFT, _BOTTOM, _RIGHT, _TOP)
        for axes, panel in zip(rows, panels, strict=True):
            _draw_panel(axes, panel, member)
        cohort = np.flatnonzero(member)
        above = rows[0].get_xaxis_transform()  # of the first panel
        rows[0].plot(cohort, 0 * cohort + 1.08, "v", color=_COHORT, transform=above, clip_on=False)
        rows[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        rows[-1].set(xlim=(-0.5, scenario.num_devices - 0.5), xlabel="device (▼: in the cohort)")
        figure.suptitle(_title(scenario, round_index, outcome))
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _draw_panel(axes: Any, panel: _Panel, member: BoolArray) -> None:
    """Draw the bars of one panel; on a logarithmic axis, dashes."""
    room = (_RIGHT - _LEFT) * axes.figure.get_figwidth() * 72  # [pt]
    width = max(0.8 * room / member.size, 1.0)
    # The cohort last, in front of the others.
    for color, own in ((_OTHERS, ~member), (_COHORT, member)):
        devices = np.flatnonzero(own)
        tops = panel.values[devices]
        ends = (tops / 1.1, 1.1 * tops) if panel.scale == "log" else (panel.bottom, tops)
        axes.vlines(devices, *ends, color, lw=width, capstyle="butt", snap=True)
    axes.set(ylabel=panel.label, yscale=panel.scale, ylim=(panel.bottom, panel.top))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_label_coords(-0.07, 0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _panels(
    scenario: Scenario,
    observation: Observed,
    member: BoolArray,
    decision: Allocation | None,
    outcome: Round | None,
) -> list[_Panel]:
    """Panels from top to bottom; their number is fixed, so that a video does not jump."""
    # The bounds of some channels are far from the gains that occur.
    least = max(scenario.channel.gain_min, 1e-2 * scenario.mean_gain.min()) / 1.5
    most = min(scenario.channel.gain_max, 10.0 * scenario.mean_gain.max())
    queue = observation["queue"]
    label = "probability\nq"
    f, p, selection = np.zeros((3, scenario.num_devices))
    if decision is not None and outcome is not None:
        f = decision.f / 1e9
        p = decision.p
        label, selection = _selection(decision, outcome, member)
    return [
        _Panel("gain h\n(log axis)", observation["channel_gain"], most, least, "log"),
        _Panel("queue Q\n[J]", queue, _round_up(max(queue.max(), scenario.energy_budget_j.min()))),
        _Panel(label, selection, _round_up(max(selection.max(), 1 / scenario.num_devices))),
        _Panel("CPU f\n[GHz]", f, 1.05 * scenario.f_max.max() / 1e9),
        _Panel("power p\n[W]", p, 1.05 * scenario.p_max.max()),
    ]


def _selection(decision: Allocation, outcome: Round, member: BoolArray) -> tuple[str, FloatArray]:
    """The name and the values of the panel that shows how devices were selected."""
    if decision.q is not None:
        return "probability\nq", decision.q if outcome.q is None else outcome.q
    if decision.bandwidth is not None:
        return "band b\n[kHz]", np.where(member, decision.bandwidth, 0.0) / 1e3
    return "chosen", member.astype(np.float64)


def _round_up(largest: float) -> float:
    """Round up to 1, 2, 5 or 10 times a power of ten, so that an axis seldom changes."""
    power = 10.0 ** math.floor(math.log10(largest))
    return next((k * power for k in (1.0, 2.0, 5.0) if k * power >= largest), 10.0 * power)


def _title(scenario: Scenario, round_index: int, outcome: Round | None) -> str:
    title = f"round {round_index} of {scenario.num_rounds}"
    if outcome is None:
        return title
    ratio = outcome.energy_expected / scenario.energy_budget_j
    return (
        f"{title}:  {outcome.round_time:,.1f} s,  elapsed: {outcome.elapsed_time:,.1f} s\n"
        f"expected energy ÷ budget:  mean {ratio.mean():.2f},  largest {ratio.max():.2f}"
    )

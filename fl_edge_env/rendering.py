"""Pictures of a round, with every device, as an array or in a window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fl_edge_env.allocation import Allocation
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import StepPatch
    from matplotlib.text import Text

    from fl_edge_env.simulator import Round

_DPI = 100
_LEFT, _RIGHT, _BOTTOM, _TOP = 100, 16, 44, 96  # margins [px]
_GAP = 20  # between panels [px]
_BAR, _DRAWN, _FAINT = "#9DB8CC", "#D55E00", "#6B7280"

_PANELS = (
    ("channel_gain", "gain h"),
    ("queue", "queue Q, J"),
    ("q", "sampling q"),
    ("f", "CPU f, GHz"),
    ("p", "power p, W"),
)
_LEAST_BAR_WITH_GAP = 4  # narrower bars touch [px]
_HEADINGS = (  # and where they stand, from the left end of the panels to the right one
    (0.20, "round"),
    (0.39, "last round"),
    (0.55, "time so far"),
    (0.73, "energy / budget (worst)"),
)


class Dashboard:
    """A picture of the last round: what was observed, what was decided, who took part.

    One bar a device in each panel; the devices of the cohort stand out in another colour and
    have a mark above the panels. The energy is the expected one, averaged over the rounds that
    were recorded.

    Parameters
    ----------
    scenario : Scenario
        The system.
    title : str
        What stands in the corner.
    size : tuple of int
        Width and height [px].

    Attributes
    ----------
    numbers : list of str
        What stands above the panels: rounds played, time of the last one, time so far, energy
        over budget as the mean over devices and, in brackets, of the worst one.
    """

    def __init__(
        self, scenario: Scenario, title: str = "FLEdge", size: tuple[int, int] = (1200, 800)
    ) -> None:
        self.scenario = scenario
        self.title = title
        self.size = size
        self._canvas: _Canvas | None = None
        self._window: _Window | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_canvas": None, "_window": None}  # made anew by the copy

    def begin(self, observation: Mapping[str, FloatArray], round_index: int = 0) -> None:
        """Start with the observation that the next decision will be made from.

        Parameters
        ----------
        observation : mapping of ndarray, shape (N,)
            Channel gains and queues [J].
        round_index : int
            Number of rounds played already.
        """
        nothing = np.zeros(self.scenario.num_devices)
        self._bars = {name: nothing for name, _ in _PANELS} | dict(observation)
        self._drawn: BoolArray = nothing > 0
        self._round = round_index
        self._recorded = 0
        self._energy: FloatArray = nothing
        self._note = ""
        self.numbers = [f"{round_index} / {self.scenario.num_rounds}", "", "", ""]

    def record(
        self, observation: Mapping[str, FloatArray], allocation: Allocation, outcome: Round
    ) -> None:
        """Take in a round.

        Parameters
        ----------
        observation : mapping of ndarray, shape (N,)
            What the decision was made from.
        allocation : Allocation
            The decision, with fields of shape (N,).
        outcome : Round
            What `Simulator.advance` made of it.
        """
        scenario = self.scenario
        q = np.zeros(scenario.num_devices) if allocation.q is None else allocation.q
        q = q if outcome.q is None else outcome.q
        self._note = "cohort chosen by the policy, not drawn from q" if allocation.q is None else ""
        self._bars = dict(observation) | {"q": q, "f": allocation.f / 1e9, "p": allocation.p}
        self._drawn = np.isin(np.arange(scenario.num_devices), outcome.cohort)
        self._round += 1
        self._recorded += 1
        self._energy = self._energy + outcome.energy_expected
        ratio = self._energy / self._recorded / scenario.energy_budget_j
        self.numbers = [
            f"{self._round} / {scenario.num_rounds}",
            _duration(float(outcome.round_time)),
            _duration(float(outcome.elapsed_time)),
            f"{ratio.mean():.3f} ({ratio.max():.3f})",
        ]

    def draw(self, beside: Sequence[Dashboard] = ()) -> NDArray[np.uint8]:
        """The picture.

        Parameters
        ----------
        beside : sequence of Dashboard
            Others that it is shown with: the axes then have room for the bars of all.

        Returns
        -------
        ndarray of uint8, shape (height, width, 3)
        """
        if self._canvas is None:
            self._canvas = _Canvas(self.scenario, self.title, self.size)
        largest = {
            name: max(float(one._bars[name].max()) for one in (self, *beside))
            for name in ("queue", "q")
        }
        return self._canvas.draw(self._bars, largest, self._drawn, self.numbers, self._note)

    def show(self, frames_per_second: float) -> None:
        """Draw into a window, and wait until the picture before has stood long enough.

        Parameters
        ----------
        frames_per_second : float
            Highest rate.

        Raises
        ------
        gymnasium.error.DependencyNotInstalled
            If pygame is not installed.
        """
        if self._window is None:
            self._window = _Window(self.title, self.size)
        self._window.show(self.draw(), frames_per_second)

    def close(self) -> None:
        """Close the window, if one is open."""
        if self._window is not None:
            self._window.close()
            self._window = None


class _Canvas:
    """The figure behind a dashboard: axes are drawn when they change, bars in every frame."""

    def __init__(self, scenario: Scenario, title: str, size: tuple[int, int]) -> None:
        self._size = width, height = size
        self._figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
        self._agg: Any = FigureCanvasAgg(self._figure)  # without types in matplotlib
        self._background: Any = None
        self._panels: dict[str, tuple[Axes, StepPatch, StepPatch]] = {}
        devices = scenario.num_devices
        # A whole number of pixels for each device keeps the bars crisp.
        room = width - _LEFT - _RIGHT
        bar = room // devices
        across = bar * devices or room
        high = (height - _TOP - _BOTTOM + _GAP) // len(_PANELS) - _GAP
        gap = 1 / bar if bar >= _LEAST_BAR_WITH_GAP else 0.0
        self._heights = np.tile((1.0, 0.0), devices)
        edges = np.append((np.arange(devices)[:, None] + (0.0, 1.0 - gap)).ravel(), devices) - 0.5
        # The bounds of some channels are far above all gains that occur.
        usual = 10.0 * max(float(scenario.mean_gain.max()), scenario.channel.gain_min)
        tops = {
            "channel_gain": min(scenario.channel.gain_max, usual),
            "f": float(scenario.f_max.max()) / 1e9,
            "p": float(scenario.p_max.max()),
        }
        # What a queue or probability below these has to tell is that it is nothing.
        budget = float(scenario.energy_budget_j.min())
        self._smallest_tops = {"queue": 0.1 * budget, "q": 0.1 / devices}
        for row, (name, label) in enumerate(_PANELS):
            bottom = height - _TOP - (row + 1) * high - row * _GAP
            axes = self._figure.add_axes(
                (_LEFT / width, bottom / height, across / width, high / height),
                xlim=(-0.5, devices - 0.5),
                ylim=(0, 1.05 * tops.get(name, 1.0)),
                ylabel=label,
            )
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelbottom=row == len(_PANELS) - 1)
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
        self._text(0.0, 40, title, fontsize=18, fontweight="bold")
        self._numbers = []
        for x, heading in _HEADINGS:
            self._text(x, 28, heading, fontsize=10, color=_FAINT)
            self._numbers.append(self._text(x, 52, "", fontsize=15, animated=True))

    def _text(self, x: float, below_top: int, text: str, **style: Any) -> Text:
        width, height = self._size
        x = (_LEFT + x * (width - _LEFT)) / width
        return self._figure.text(x, 1 - below_top / height, text, va="center", **style)

    def draw(
        self,
        bars: Mapping[str, FloatArray],
        largest: Mapping[str, float],
        drawn: BoolArray,
        numbers: list[str],
        note: str,
    ) -> NDArray[np.uint8]:
        for name, value in largest.items():
            self._fit(self._panels[name][0], max(value, self._smallest_tops[name]))
        if self._background is None:
            self._agg.draw()
            self._background = self._agg.copy_from_bbox(self._figure.bbox)
        self._agg.restore_region(self._background)
        for name, (axes, others, cohort) in self._panels.items():
            for patch, shown in ((others, ~drawn), (cohort, drawn)):
                patch.set_data((bars[name] * shown).repeat(2) * self._heights)
                axes.draw_artist(patch)
        self._note.set_text(note)
        self._figure.draw_artist(self._note)
        gain_axes = self._panels["channel_gain"][0]
        places = np.flatnonzero(drawn)
        self._marks.set_data(places, np.full(places.shape, 1.1 * gain_axes.get_ylim()[1]))
        gain_axes.draw_artist(self._marks)
        for text, number in zip(self._numbers, numbers, strict=True):
            text.set_text(number)
            self._figure.draw_artist(text)
        return np.asarray(self._agg.buffer_rgba())[..., :3].copy()

    def _fit(self, axes: Axes, largest: float) -> None:
        """Let the axis end at 1, 2 or 5 times a power of ten; small changes leave it."""
        top = axes.get_ylim()[1]
        if not top / 4 < largest <= top:
            power = 10.0 ** math.floor(math.log10(largest))
            axes.set_ylim(0, next(k * power for k in (1, 2, 5, 10) if k * power >= largest))
            self._background = None


def _duration(seconds: float) -> str:
    """A number and its unit: s, min, h or d, whichever gives at least one."""
    units = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0))
    unit, length = next((each for each in units if seconds >= each[1]), ("s", 1.0))
    value = seconds / length
    return f"{value:.1f} {unit}" if value < 1000 else f"{value:.0f} {unit}"


class _Window:
    def __init__(self, title: str, size: tuple[int, int]) -> None:
        try:
            import pygame
        except ImportError as error:
            raise gym.error.DependencyNotInstalled(
                'render_mode="human" needs pygame: pip install "fl-edge-env[render]"'
            ) from error
        self._pygame = pygame
        pygame.display.init()
        pygame.display.set_caption(title)
        self._screen = pygame.display.set_mode(size)
        self._clock = pygame.time.Clock()

    def show(self, frame: NDArray[np.uint8], frames_per_second: float) -> None:
        self._pygame.event.pump()
        self._pygame.surfarray.blit_array(self._screen, frame.swapaxes(0, 1))
        self._pygame.display.flip()
        self._clock.tick(frames_per_second)

    def close(self) -> None:
        self._pygame.display.quit()

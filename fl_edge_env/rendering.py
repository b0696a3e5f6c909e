"""Pictures of a round, with every device or with counts of them, as an array or in a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from fl_edge_env.allocation import Allocation
from fl_edge_env.canvas import BarCanvas, Canvas, CountCanvas
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray

if TYPE_CHECKING:
    from fl_edge_env.simulator import Round

# With more devices than this, pictures count devices instead of showing each.
MOST_BARS = 1000


class Dashboard:
    """A picture of the last round: what was observed, what was decided, who took part.

    One bar a device in each panel; the devices of the cohort stand out in another colour and have a
    mark above the panels. Of more than a thousand devices each panel is a histogram instead, which
    counts every device once, and those of the cohort in another colour.

    `numbers`, above the panels, are the rounds played, the time of the last one, the time so far,
    and the expected energy over the budget in the rounds recorded: the mean over devices and, in
    brackets, the worst one.
    """

    def __init__(
        self, scenario: Scenario, title: str = "FLEdge", size: tuple[int, int] = (1200, 800)
    ) -> None:
        self.scenario = scenario
        self.title = title
        self.size = size
        self._canvas: Canvas | None = None
        self._window: _Window | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_canvas": None, "_window": None}  # made anew by the copy

    def begin(self, observation: Mapping[str, FloatArray], round_index: int = 0) -> None:
        """Start with the observation that the next decision will be made from."""
        nothing = np.zeros(self.scenario.num_devices)
        self._bars = {part.name: nothing for part in self.scenario.decision} | dict(observation)
        self._drawn: BoolArray = nothing > 0
        self._round = round_index
        self._recorded = 0
        self._energy: FloatArray = nothing
        self._note = ""
        self.numbers = [f"{round_index} / {self.scenario.num_rounds}", "", "", ""]

    def record(
        self, observation: Mapping[str, FloatArray], allocation: Allocation, outcome: Round
    ) -> None:
        """Take in a round: the observation that the decision was made from, and what came of it."""
        scenario = self.scenario
        decided = {}
        for part in scenario.decision:
            values = getattr(allocation, part.name)
            nothing = np.zeros(scenario.num_devices)
            decided[part.name] = nothing if values is None else values / part.shown_in
        if outcome.q is not None:
            decided["q"] = outcome.q
        self._drawn = np.isin(np.arange(scenario.num_devices), outcome.cohort)
        if "bandwidth" in decided:  # who takes part has some, also where nobody decided on it
            decided["bandwidth"] = self._drawn * allocation.band(scenario) / 1e3
        self._note = "cohort chosen by the policy, not drawn from q" if allocation.q is None else ""
        self._bars = dict(observation) | decided
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
        """The picture, shape (height, width, 3); its axes have room for those `beside` it, too."""
        if self._canvas is None:
            many = self.scenario.num_devices > MOST_BARS
            kind = CountCanvas if many else BarCanvas
            self._canvas = kind(self.scenario, self.title, self.size)
        shown = [name for name in ("queue", "q", "bandwidth") if name in self._bars]
        largest: dict[str, float] = {
            name: max(float(one._bars[name].max()) for one in (self, *beside)) for name in shown
        }
        return self._canvas.draw(self._bars, largest, self._drawn, self.numbers, self._note)

    def show(self, frames_per_second: float) -> None:
        """Draw into a window, and wait until the picture before has stood long enough.

        Raises `gymnasium.error.DependencyNotInstalled` without pygame.
        """
        if self._window is None:
            self._window = _Window(self.title, self.size)
        self._window.show(self.draw(), frames_per_second)

    def close(self) -> None:
        """Close the window, if one is open."""
        if self._window is not None:
            self._window.close()
            self._window = None


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

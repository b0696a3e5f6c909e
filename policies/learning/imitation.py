"""Imitation learning (DAgger) from an oracle that sees the true gains."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO

from fl_edge_env import Allocation, Scenario, physics
from fl_edge_env.allocation import encode_action, highest
from fl_edge_env.lyapunov import participation_weight
from fl_edge_env.typing import FloatArray
from policies.learning.views import SCORE, DeviceView, by_device
from policies.outcome import solve_round

_Rows = NDArray[np.float32]

# Proven relative distance of the oracle's decisions to the optimum.
_TOLERANCE = 1e-4
# Differences of costs, in shares of the time scale, that count by their logarithm from there on,
# and how many such logarithms the scores' range holds.
_UNIT, _LOGARITHMS = 0.05, 5.0
# Devices whose cost is further from having a place than this, in shares of the time scale, count
# less: whether they take part is not in doubt, and their settings do not matter.
_NEAR = 0.1
# Rounds between fits, steps and rows of a fit, and the learning rate at the start.
_EVERY, _STEPS, _ROWS, _LEARNING_RATE = 4, 8, 2048, 2e-3
# Rounds that the rows of a fit are from.
_ROUNDS = 32
# Of the fit to costs: the step of a slope, in halves of a range, the steepest one that counts and
# how much it does; the score of a device that costs nothing, and the cost that is worth one unit of
# the score, in shares of the time scale.
_STEP, _STEEPEST, _FOLLOWED, _TOP, _SPAN = 1e-3, 5.0, 0.1, 0.5, 4.0


def oracle_decision(view: DeviceView) -> tuple[_Rows, _Rows]:
    """Actions of `solve_round` on the true gains, (B, 3, N), and weights in a fit, (B, N).

    The score of a device grows with what it costs less than the dearest one that has a place.
    Weights have mean one.
    """
    scenario, simulator = view.scenario, view.batch.simulator
    gain, queue = simulator.channel_gain.copy(), simulator.queue.copy()
    assert simulator.participation_queue is not None
    worth = participation_weight(scenario) * simulator.participation_queue
    available = simulator.available
    solution = solve_round(
        gain,
        queue,
        worth,
        scenario,
        tolerance=_TOLERANCE,
        available=None if available is None else available.copy(),
    )
    time, energy = physics.time_and_energy(gain, solution.f, solution.p, scenario)
    late = np.maximum(time - np.asarray(solution.deadline)[:, None], 0.0)
    cost = late + (queue * energy - worth) / scenario.V
    inside = np.where(solution.participates, cost, -np.inf).max(axis=-1)
    outside = np.where(solution.participates, np.inf, cost).min(axis=-1)
    edge = np.where(np.isfinite(outside), 0.5 * (inside + outside), inside)
    distance = (cost - edge[:, None]) / view.scaling.time
    members = solution.participates
    cohort = highest(members.astype(np.float64), scenario.cohort_size, members)
    decision = Allocation(solution.f, solution.p, cohort=cohort)
    actions = encode_action(decision, scenario, view.softmax_scale)
    actions[:, SCORE] = np.clip(  # in the place of a mere cohort
        -np.arcsinh(distance / _UNIT) / _LOGARITHMS, -1.0, 1.0
    )
    weights: FloatArray = 0.02 + 1.0 / (1.0 + (distance / _NEAR) ** 2)
    return actions, (weights / weights.mean()).astype(np.float32)


def costs_and_slopes(
    unit: FloatArray, gain: FloatArray, m: FloatArray, z: FloatArray, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """Costs ``T/K + m E - z`` [s], (B, N), and their derivatives by f and p, (B, 2, N).

    `unit` has f and p in their ranges, from -1 to 1; each of K devices bears a share of T.
    """

    def cost(inside: FloatArray) -> FloatArray:
        f = scenario.f_mid + 0.5 * (scenario.f_max - scenario.f_min) * inside[:, 0]
        p = scenario.p_mid + 0.5 * (scenario.p_max - scenario.p_min) * inside[:, 1]
        time, energy = physics.time_and_energy(gain, f, p, scenario)
        value: FloatArray = time / scenario.cohort_size + m * energy - z
        return value

    centre = np.clip(unit, _STEP - 1.0, 1.0 - _STEP)
    slopes = []
    for step in _STEP * np.eye(2)[:, :, None]:
        slopes.append((cost(centre + step) - cost(centre - step)) / (2.0 * _STEP))
    return cost(np.clip(unit, -1.0, 1.0)), np.stack(slopes, axis=1)


def imitate(model: PPO, view: DeviceView, rounds: int, seed: int) -> None:
    """Teach an agent the best decisions, on the states that it comes to itself.

    The agent acts, for so many rounds of all systems together, and learns from all rounds so far:
    Ross, Gordon and Bagnell, "A reduction of imitation learning and structured prediction to
    no-regret online learning" (2011). Where the server knows the gains of the round, the means of
    its actions are fitted to the decision of `solve_round`; elsewhere the settings follow the
    slopes of the cost at the true gains and the score is fitted to that cost, so that the agent
    learns means over what it does not see.
    """
    policy: Any = model.policy
    rng = np.random.default_rng([seed, 2])
    optimizer = torch.optim.Adam(policy.parameters(), lr=_LEARNING_RATE)
    rows: _Rows = view.reset()
    steps = max(1, rounds // view.batch.num_envs)
    lesson = _Decisions() if view.scenario.csi == "full" else _Costs(view)
    policy.set_training_mode(True)
    for step in range(steps):
        actions, weights = oracle_decision(view)
        lesson.add(rows, actions, weights)
        # At first the oracle's own states: an agent that knows nothing leads astray.
        if step < 0.1 * steps:
            chosen = by_device(actions)
        else:
            chosen, _ = policy.predict(rows, deterministic=True)
        view.step_async(chosen)
        rows, _, _, _ = view.step_wait()
        if step % _EVERY == _EVERY - 1:
            for group in optimizer.param_groups:
                group["lr"] = _LEARNING_RATE * max(1.0 - step / steps, 0.02)
            for _ in range(_STEPS):
                optimizer.zero_grad()
                lesson.loss(policy, rng).backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()


class _Decisions:
    """Rounds whose best decision is known: any rows of them make a fit."""

    def __init__(self) -> None:
        self._kept: list[tuple[_Rows, ...]] = []

    def add(self, rows: _Rows, actions: _Rows, weights: _Rows) -> None:
        self._kept.append((rows, by_device(actions), weights.ravel()))

    def loss(self, policy: Any, rng: np.random.Generator) -> torch.Tensor:
        rounds = rng.integers(len(self._kept), size=_ROUNDS)
        share = _ROWS // _ROUNDS
        drawn = [rng.integers(len(self._kept[index][2]), size=share) for index in rounds]
        parts = zip(*(self._kept[i] for i in rounds), strict=True)
        rows, actions, weights = (
            torch.as_tensor(np.concatenate([v[at] for v, at in zip(part, drawn, strict=True)]))
            for part in parts
        )
        error = (_means(policy, rows) - actions) ** 2
        return (weights[:, None] * error).mean()


class _Costs(_Decisions):
    """Rounds whose gains are known only to the model: whole systems of them make a fit."""

    def __init__(self, view: DeviceView) -> None:
        super().__init__()
        self._view = view

    def add(self, rows: _Rows, actions: _Rows, weights: _Rows) -> None:  # noqa: ARG002
        scenario, simulator = self._view.scenario, self._view.batch.simulator
        assert simulator.participation_queue is not None
        gain = simulator.channel_gain.copy()
        z = participation_weight(scenario) / scenario.V * simulator.participation_queue
        own = rows.reshape(*gain.shape, -1)
        self._kept += list(zip(own, gain, simulator.queue / scenario.V, z, strict=True))

    def loss(self, policy: Any, rng: np.random.Generator) -> torch.Tensor:
        scenario = self._view.scenario
        count = max(1, _ROWS // scenario.num_devices)
        chosen = [self._kept[index] for index in rng.integers(len(self._kept), size=count)]
        rows, gain, m, z = (np.stack(part) for part in zip(*chosen, strict=True))
        means = _means(policy, torch.as_tensor(rows.reshape(-1, rows.shape[-1])))
        settings = means[:, :SCORE]
        unit = settings.detach().numpy().astype(np.float64).reshape(*gain.shape, -1)
        cost, slope = costs_and_slopes(unit.swapaxes(-1, -2), gain, m, z, scenario)
        scale = self._view.scaling.time
        steep = by_device(np.clip(slope / scale, -_STEEPEST, _STEEPEST).astype(np.float32))
        downhill = (torch.as_tensor(steep) * settings).sum(dim=-1)
        beyond = torch.relu(settings.abs() - 1.0).square().sum(dim=-1)
        score = np.clip(_TOP - cost.ravel() / (_SPAN * scale), -1.0, 1.0).astype(np.float32)
        error = (means[:, SCORE] - torch.as_tensor(score)) ** 2
        return (_FOLLOWED * downhill + beyond + error).mean()


def _means(policy: Any, rows: torch.Tensor) -> torch.Tensor:
    means: torch.Tensor = policy.get_distribution(rows).distribution.mean
    return means

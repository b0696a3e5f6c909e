"""Policies that combine a selector of devices with a rule for their resources."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from fl_edge_env import Allocation, physics
from fl_edge_env.checks import one_of
from fl_edge_env.observations import available_devices, gains_and_queues
from fl_edge_env.typing import FloatArray, Info, IntArray, Observed
from policies.base import Policy
from policies.resources import RESOURCES, ResourceName, ResourceRule
from policies.selection.selector import Candidates, Selector
from policies.solvers.inputs import check_state

# Separates the streams of schedulers from those that the environment spawns from the same seed.
_STREAM = 0x5EC7


class Scheduler(Policy):
    """Combines a selector with a rule for f, p and, optionally, bandwidth.

    Parameters
    ----------
    selector : Selector
        Chooses the devices.
    resources : {"static", "dynamic", "static-shared", "dynamic-shared"} or callable
        The rule for f and p, by default the selector's own if it has one, otherwise ``"dynamic"``.
        ``"static"``: f and p of Uni-S, for any cohort. ``"dynamic"``: f and p that minimise the
        round's drift-plus-penalty, in which a device's energy costs more as its queue grows; the
        devices of a chosen cohort finish together. ``"static-shared"`` and ``"dynamic-shared"``
        also set bandwidths with which a chosen cohort finishes together at these f and p. A
        callable is a user-defined rule, see `policies.resources.ResourceRule`.

    Attributes
    ----------
    selector : Selector
        A copy of the given one, with a memory that no other scheduler shares.

    Examples
    --------
    >>> from fl_edge_env import Scenario
    >>> from policies.selection import BestChannel
    >>> Scheduler(BestChannel(Scenario.cifar10()), resources="static").name
    'Best channel, static'
    """

    name = "Scheduler"

    def __init__(
        self, selector: Selector, resources: ResourceName | ResourceRule | None = None
    ) -> None:
        if not isinstance(selector, Selector):
            raise ValueError(f"selector must be a Selector, got {selector!r}")
        super().__init__(selector.scenario)
        self.name = selector.name
        # A whole copy, because another scheduler may use it, too, and it may hold its own methods.
        self.selector = copy.deepcopy(selector, {id(selector.scenario): selector.scenario})
        rule = self.selector.resources
        if rule is not None:
            if resources is not None:
                raise ValueError(
                    f"{self.name} sets f and p itself: leave resources out, got {resources!r}"
                )
        elif callable(resources):
            self.name += f", {getattr(resources, '__name__', 'own')}"
            rule = resources
        else:
            named = "dynamic" if resources is None else resources
            label = one_of("resources", named, tuple(RESOURCES))
            self.name += f", {label}"
            rule = RESOURCES[label]
        self._resources = rule
        self.uses_losses = selector.uses_losses
        self.uses_update_norms = selector.uses_update_norms
        self.needs_training = selector.uses_losses or selector.uses_update_norms
        self.reset(0)

    def reset(self, seed: int | Sequence[int]) -> None:
        """Forget the last episode; see `Policy.reset`."""
        seeds = np.asarray(seed, dtype=object)  # integers of any size
        self._seeds = seeds.ravel().tolist()
        self._batch = seeds.shape
        self._number = 0
        self.selector.memory = self.selector.start(self._batch)

    def feedback(self, info: Info) -> None:
        """Let the selector learn; `ValueError` without reports it needs. See `Policy.feedback`."""
        needed = {"local_losses": self.uses_losses, "update_norms": self.uses_update_norms}
        for field in needed:
            if needed[field] and field not in info:
                raise ValueError(
                    f"{self.name} needs the {field} of training: run it with training, in a "
                    f"TrainingWrapper with report_{field.removeprefix('local_')}"
                )
        self.selector.learn(info)

    def decide(self, observation: Observed) -> Allocation:
        """Let the selector choose, then compute f and p; see `Policy.decide`."""
        scenario = self.scenario
        gain, queue = check_state(*gains_and_queues(observation), scenario)
        f, p, *parts = self._resources(gain, queue, scenario, None)
        time, energy = physics.time_and_energy(gain, f, p, scenario)
        available = available_devices(observation)
        if available is None:
            available = np.ones(gain.shape, dtype=np.bool_)
        self._number += 1
        candidates = Candidates(gain, queue, available, time, energy, self._number, self._draw)
        chosen = self.selector.select(candidates)
        if self.selector.samples:
            f, p, *_ = self._resources(gain, queue, scenario, chosen)
            return Allocation(f, p, q=chosen)
        if self.selector.resources is None:
            # Check the cohort before the rule sees it, with f and p that do not depend on it.
            named = Allocation(f, p, cohort=chosen).of_shape(gain.shape).validate(scenario)
            f, p, *parts = self._resources(gain, queue, scenario, named.participates)
        return Allocation(f, p, cohort=chosen, **self._further(chosen, parts))

    def _further(self, cohort: IntArray, bandwidth: list[FloatArray]) -> dict[str, Any]:
        """The further fields of a chosen decision, if the rule or the selector gives any."""
        fields: dict[str, Any] = {"bandwidth": bandwidth[0]} if bandwidth else {}
        if self.selector.first is not None:
            number = np.count_nonzero(np.greater_equal(cohort, 0), axis=-1)
            fields["first"] = np.minimum(self.selector.first, number)
        if self.selector.weights is not None:
            fields["weights"] = self.selector.weights.take(cohort, mode="clip")
        return fields

    def _draw(self) -> FloatArray:
        """Random numbers for the coming round, shape (N,) or (B, N); each round has a stream."""
        num_devices = self.scenario.num_devices
        key = (_STREAM, self._number)
        rows = [
            np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key)).random(num_devices)
            for seed in self._seeds
        ]
        return np.array(rows).reshape(*self._batch, num_devices)

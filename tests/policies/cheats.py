"""A file of a user's own: policies that win by what no server can know, or by writing."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Allocation
from fl_edge_env.streams import Streams
from policies import Policy, UniS


class Prophet(Policy):
    """Takes its seed for the environment's, from which follows who will be drawn.

    Only these devices are given speed. The energy expected of a round, a mean over the draw, is
    then less than half of the budget.
    """

    def reset(self, seed):
        self.number = 0
        self.draws = [self._draws(one) for one in np.atleast_1d(seed).tolist()]

    def _draws(self, seed):
        streams = Streams(self.scenario)
        streams.start_episode(seed)
        return streams.next_rounds(self.scenario.num_rounds).draws

    def decide(self, observation):
        scenario = self.scenario
        honest = UniS(scenario).decide(observation)
        f, p, cdf = honest.f.copy(), honest.p.copy(), np.atleast_2d(honest.q)[0].cumsum()
        for row, draws in enumerate(self.draws):
            fast = np.zeros(scenario.num_devices, bool)
            fast[np.searchsorted(cdf, draws[self.number], side="right")] = True
            np.atleast_2d(f)[row] = np.where(fast, scenario.f_max, scenario.f_min)
            np.atleast_2d(p)[row] = np.where(fast, scenario.p_max, scenario.p_min)
        self.number += 1
        return Allocation(f, p, honest.q)


class Writer(UniS):
    """Writes into all that it is given."""

    def decide(self, observation):
        decision = super().decide(observation)
        self._write(observation)
        return decision

    def feedback(self, info):
        self._write(info)

    def _write(self, given):
        for name, value in dict(given).items():
            try:
                value.flags.writeable = True
                value *= 0
                given[name] = value
            except (AttributeError, TypeError):  # of numbers, and of a mapping that is read-only
                pass

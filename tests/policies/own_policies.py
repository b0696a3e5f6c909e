"""A file of a user's own, with two policies and a selector; tests copy it."""

from dataclasses import dataclass

import numpy as np

from fl_edge_env import Allocation
from policies import Policy
from policies.selection import Selector


@dataclass
class Speed:
    share: float


class Steady(Policy):
    def __init__(self, scenario, *, share=0.5):
        super().__init__(scenario)
        self.speed = Speed(share)

    def decide(self, observation):
        shape = observation["channel_gain"].shape
        f_min, f_max = self.scenario.f_min, self.scenario.f_max
        return Allocation(
            f=np.broadcast_to(f_min + self.speed.share * (f_max - f_min), shape),
            p=np.broadcast_to(self.scenario.p_max, shape),
            q=np.full(shape, 1 / shape[-1]),
        )


class Learner(Steady):
    needs_training = True

    def decide(self, _):
        raise AssertionError("run on made-up numbers")


class Last(Selector):
    def select(self, candidates):
        last = np.arange(self.scenario.num_devices)[-self.scenario.cohort_size :]
        return np.broadcast_to(last, (*candidates.channel_gain.shape[:-1], len(last)))

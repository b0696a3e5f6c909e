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

    def decide(self, _):
        f_min = self.scenario.f_min
        f_max = self.scenario.f_max
        return Allocation(
            f=f_min + self.speed.share * (f_max - f_min),
            p=self.scenario.p_max,
            q=1 / self.scenario.num_devices,
        )


class Needy(Steady):
    def __init__(self, scenario, share):
        super().__init__(scenario, share=share)


class Learner(Steady):
    needs_training = True

    def decide(self, _):
        raise AssertionError("run on made-up numbers")


class Last(Selector):
    def select(self, _):
        return np.arange(self.scenario.num_devices)[-self.scenario.cohort_size :]

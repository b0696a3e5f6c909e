"""The field's schedulers, each a subclass of `Selector`."""

from policies.selection.channel import BestChannel, Fastest, ProportionalFair
from policies.selection.loss import Oort, PowerOfChoice
from policies.selection.quickest import Quickest
from policies.selection.sampling import AdaptiveSampling, OptimalSampling
from policies.selection.scheduler import Scheduler
from policies.selection.selector import Candidates, Selector
from policies.selection.turns import OverSelection, Random, RoundRobin

__all__ = [
    "AdaptiveSampling",
    "BestChannel",
    "Candidates",
    "Fastest",
    "Oort",
    "OptimalSampling",
    "OverSelection",
    "PowerOfChoice",
    "ProportionalFair",
    "Quickest",
    "Random",
    "RoundRobin",
    "Scheduler",
    "Selector",
]

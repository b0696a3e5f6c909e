"""Policies for FLEdge, their evaluation, and the bound they are measured against."""

from policies.base import Policy
from policies.benchmark.bounds import LowerBound, lower_bound
from policies.benchmark.evaluate import evaluate
from policies.check_policy import check_policy
from policies.divfl import DivFL
from policies.lroa import LROA
from policies.opportunistic import Opportunistic
from policies.registry import POLICIES, make_policy
from policies.selection import Scheduler, Selector
from policies.uniform import UniD, UniS

__all__ = [
    "LROA",
    "POLICIES",
    "DivFL",
    "LowerBound",
    "Opportunistic",
    "Policy",
    "Scheduler",
    "Selector",
    "UniD",
    "UniS",
    "check_policy",
    "evaluate",
    "lower_bound",
    "make_policy",
]

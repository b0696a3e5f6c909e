"""Algorithms that other groups have published, by the rules of their papers."""

from policies.published.bc_bn2 import UpdateAware
from policies.published.hungarian import Hungarian

__all__ = ["Hungarian", "UpdateAware"]

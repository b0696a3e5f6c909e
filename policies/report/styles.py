"""A colour and a line style for each policy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any, NamedTuple

# Okabe and Ito's colours without their yellow, and four of Tol's; and dashes. As 11 and 6 have no
# common divisor, the first 66 policies differ in colour or dashes, and neighbours in both.
_COLORS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#882255"),
    *("#56B4E9", "#999933", "#332288", "#777777"),
)
_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
# These look the same in every figure.
_FIRST = (
    *("LROA", "Uni-D", "Uni-S", "DivFL", "Opportunistic", "Best channel, static"),
    *("Random, dynamic", "Quickest"),
)


class Look(NamedTuple):
    """The color and linestyle that matplotlib gives the line of a policy."""

    color: str
    linestyle: Any


def looks(names: Sequence[str]) -> dict[str, Look]:
    """The looks of the policies of a figure: the usual policies first, then others in order."""
    order = dict.fromkeys([*_FIRST, *names])
    found = dict(zip(order, map(Look, cycle(_COLORS), cycle(_LINES)), strict=False))
    return {name: found[name] for name in names}

"""A colour and a line style for each policy, the same in all figures and distinct in grey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

# Okabe and Ito's colours without their yellow, and four of Tol's; and dashes. As 11 and 6 have no
# common divisor, the places 0 to 65 have 66 pairs of colour and dashes, and neighbours share none.
_COLORS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#882255"),
    *("#56B4E9", "#999933", "#332288", "#777777"),
)
_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
# The families of policies by place: those that often share a figure have different colours.
FAMILIES = (
    *("LROA", "Uni-D", "Uni-S", "DivFL", "Opportunistic", "Best channel", "Fastest", "Random"),
    *("Round robin", "Proportional fair", "Power of choice", "Oort", "Over-selection"),
    *("Adaptive sampling", "Quickest", "Optimal sampling"),
)
# The part of a name after its family, and its marker; other parts take the next free marker.
_MARKERS = {
    "": "",
    "dynamic": "",
    "static": "o",
    "dynamic-shared": "^",
    "static-shared": "s",
    "qsgd:4": "D",
    "dynamic, qsgd:4": "D",
    "static, qsgd:4": "v",
    "dynamic-shared, qsgd:4": "P",
    "static-shared, qsgd:4": "X",
}
_MORE_MARKERS = "<>*phd8PXvDs^o"


class Look(NamedTuple):
    """How matplotlib draws the line of a policy."""

    color: str
    linestyle: Any
    marker: str

    def keywords(self) -> dict[str, Any]:
        """Keywords of a line, with markers at even distances."""
        return self._asdict() | ({"markevery": 0.15} if self.marker else {})


def looks(names: Sequence[str]) -> dict[str, Look]:
    """The looks of the policies of a figure, by their names.

    A policy has the colour and dashes of its family, the name up to the first comma. The rest of
    the name decides the marker: ``"Best channel, static"`` is the line of ``"Best channel,
    dynamic"`` with circles. A policy of this package looks the same in every figure. Another one
    has a pair of colour and dashes of its own, if possible with an unused colour.
    """
    families = dict.fromkeys(name.partition(", ")[0] for name in names)
    places = {family: FAMILIES.index(family) for family in families if family in FAMILIES}
    own = range(len(FAMILIES), len(_COLORS) * len(_LINES))
    for family in [family for family in families if family not in places]:
        taken = list(places.values())
        colors, lines = ([place % n for place in taken] for n in (len(_COLORS), len(_LINES)))
        places[family] = min(
            own,
            key=lambda place: (
                taken.count(place),
                colors.count(place % len(_COLORS)),
                lines.count(place % len(_LINES)),
            ),
        )
    chosen: dict[str, Look] = {}
    # Names with a known marker choose first.
    for name in sorted(names, key=lambda name: name.partition(", ")[2] not in _MARKERS):
        family, _, variant = name.partition(", ")
        color = _COLORS[places[family] % len(_COLORS)]
        line = _LINES[places[family] % len(_LINES)]
        markers = [*([_MARKERS[variant]] if variant in _MARKERS else []), *_MORE_MARKERS]
        options = [Look(color, line, marker) for marker in markers]
        chosen[name] = next((one for one in options if one not in chosen.values()), options[-1])
    return {name: chosen[name] for name in names}

"""By what trained models are judged: accuracy, or the metric of one's own task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd

ACCURACY = "accuracy"


class Measure(NamedTuple):
    """A metric of models on the test set."""

    name: str = ACCURACY
    larger_is_better: bool = True

    @property
    def unit(self) -> tuple[float, str]:
        """What values are shown in: a factor, and the words behind the name."""
        return (100.0, ", %") if self.name == ACCURACY else (1.0, "")

    def text(self, value: float) -> str:
        """A value in words, such as ``90 %`` or ``rmse 0.5``."""
        return f"{100 * value:g} %" if self.name == ACCURACY else f"{self.name} {value:g}"

    def reached(self, values: ArrayLike, target: float) -> NDArray[np.bool_]:
        """Where values are as good as a target; those not known, NaN, are not."""
        compare = np.greater_equal if self.larger_is_better else np.less_equal
        return np.asarray(compare(values, target))


def measure_of(told: Mapping[str, Any] | pd.DataFrame) -> Measure | None:
    """The measure of an info, of a table of rounds or of a summary; None without training.

    Its name is that of the entry or column ``test_…`` or, in a summary, ``final_…``.
    """
    for column in told:
        kind, _, name = str(column).partition("_")
        if kind in ("test", "final") and name != "loss":
            return Measure(name, bool(np.all(told.get("larger_is_better", True))))
    return None

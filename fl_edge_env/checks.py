"""What counts as a number in the arguments of the packages."""

from __future__ import annotations

import numbers
from typing import TypeGuard


def is_integer(value: object) -> TypeGuard[int]:
    """Whether `value` is an integer; True and False are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_real(value: object) -> TypeGuard[float]:
    """Whether `value` is a real number; True and False are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)

"""Checks of arguments and observations; `name` is the argument's name in error messages."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.files import one_line
from fl_edge_env.typing import BoolArray, FloatArray

Array = TypeVar("Array", bound=NDArray[Any])

_EXACT = (np.dtype(np.float64), np.dtype(np.float32))  # types that need no further check


# NumPy's durations seem integers.
_NO_NUMBERS = (bool, np.timedelta64)


def is_integer(value: object) -> TypeGuard[int]:
    """True if `value` is an integer; True, False and durations are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, _NO_NUMBERS)


def is_real(value: object) -> TypeGuard[float]:
    """True if `value` is a real number; True, False and durations are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, _NO_NUMBERS)


def is_line(value: object) -> TypeGuard[str]:
    """True if `value` is a text of one line that is not blank and has no spaces around it."""
    return isinstance(value, str) and "" != value == value.strip() and value.isprintable()


def quoted(value: object) -> str:
    """A wrong value in an error message, in one line."""
    return one_line(repr(value))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the closest known name, or nothing if none is close."""
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f": did you mean {nearest[0]!r}?" if nearest else ""


def real_array(name: str, value: object) -> FloatArray:
    """Return real numbers as a contiguous array of float64.

    Contiguous, because the last bit of a sum may depend on the layout.
    """
    if type(value) is np.ndarray and value.dtype in _EXACT:
        return value.astype(np.float64, order="C", copy=False)
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiu" or np.ma.is_masked(value):
            raise TypeError("not real numbers")
        with np.errstate(over="ignore"):  # too large for float64: infinite
            return array.astype(np.float64, order="C", copy=False)
    except (TypeError, ValueError, RuntimeError):  # the last of tensors with a gradient
        raise ValueError(f"{name} must hold real numbers, got {quoted(value)}") from None


def integer_at_least(least: int, name: str, value: object) -> int:
    """Return `value` as an int if it is an integer of at least `least`."""
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {quoted(value)}")
    return int(value)


def all_true(condition: BoolArray) -> bool:
    """Return ``condition.all()``, several times faster."""
    return int(np.count_nonzero(condition)) == condition.size


def positive_integer(name: str, value: object, most: int = 2**31 - 1) -> int:
    """Return `value` as an int if it is an integer from 1 to `most`."""
    count = integer_at_least(1, name, value)
    if count > most:
        raise ValueError(f"{name} must be at most {most:,}, got {count:,}")
    return count


class Range(NamedTuple):
    """A range of allowed numbers: its wording in errors, and a test for numbers or arrays."""

    must: str
    holds: Callable[[Any], Any]


POSITIVE = Range("be positive and finite", lambda x: (x > 0) & (x < math.inf))
POSITIVE_OR_INFINITE = Range("be positive (infinity is allowed)", lambda x: x > 0)
NOT_NEGATIVE = Range("be at least zero and finite", lambda x: (x >= 0) & (x < math.inf))
FINITE = Range("be finite", np.isfinite)
BELOW_ONE = Range("lie in [0, 1)", lambda x: (x >= 0) & (x < 1))
PROBABILITY = Range("lie in (0, 1]", lambda x: (x > 0) & (x <= 1))


def number_in(allowed: Range, name: str, value: object) -> float:
    """Return `value` as a float if it is a real number in the range."""
    try:
        number = float(value) if is_real(value) else math.nan
    except OverflowError:  # an integer too large for a float
        number = math.nan
    if not allowed.holds(number):
        raise ValueError(f"{name} must {allowed.must}, got {quoted(value)}")
    return number


finite_number = partial(number_in, POSITIVE)
finite_or_zero = partial(number_in, NOT_NEGATIVE)
number_below_one = partial(number_in, BELOW_ONE)
natural_number = partial(integer_at_least, 0)


def one_of(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return `value` if it is one of the allowed words."""
    if not (isinstance(value, str) and value in allowed):
        meant = did_you_mean(value, allowed) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {quoted(value)}{meant}")
    return value


def check_all(name: str, values: FloatArray, allowed: Range) -> None:
    """Raise `ValueError` unless all numbers of an array are in the range."""
    if not all_true(allowed.holds(values)):
        raise ValueError(
            f"{name} must {allowed.must}, got values from {values.min()} to {values.max()}"
        )


def set_checked(owner: object, check: Callable[[str, object], object], *names: str) -> None:
    """Replace fields of a frozen dataclass by their checked values."""
    for name in names:
        object.__setattr__(owner, name, check(name, getattr(owner, name)))


def per_device(name: str, value: object, num_devices: int, allowed: Range = POSITIVE) -> FloatArray:
    """Return a scalar or an (N,) array of numbers in a range as a read-only (N,) array."""
    values = real_array(name, value)
    if values.shape not in ((), (num_devices,)):
        raise ValueError(
            f"{name} must be a scalar or have shape ({num_devices},), got shape {values.shape}"
        )
    right = np.atleast_1d(allowed.holds(values))
    if not right.all():
        device = int(right.argmin())
        where = f", first at device {device}" if values.ndim else ""
        got = float(np.atleast_1d(values)[device])
        raise ValueError(f"{name} must {allowed.must} for every device, got {got!r}{where}")
    return read_only(np.broadcast_to(values, num_devices).copy())


def read_only(values: Array) -> Array:
    """Make an array read-only, and return it."""
    values.setflags(write=False)
    return values


def freeze(values: Iterable[object]) -> None:
    """Make the arrays among some values read-only."""
    for value in values:
        if isinstance(value, np.ndarray):
            value.setflags(write=False)

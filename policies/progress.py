"""Progress of long computations, told to a listener; by default nobody listens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

# Called with a few words for the work, the steps done so far, and all its steps. In the last call
# for a piece of work they are equal, whether it was finished or given up.
Listener: TypeAlias = Callable[[str, int, int], None]

_Item = TypeVar("_Item")

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)

# Least time between two calls of a listener for the same work [s].
_INTERVAL = 0.1


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Tell a listener how far the computations of the block have come, and no other meanwhile."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def steps(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function to be called with the number of steps done since its last call.

    The block may end after fewer than `total` steps.

    Examples
    --------
    >>> with listening(print), steps("adding", 2) as advance:
    ...     advance(2)
    adding 0 2
    adding 2 2
    """
    listener = _listener.get()
    if listener is None:
        yield lambda _: None
        return
    done, told = 0, time.monotonic()

    def advance(number: int) -> None:
        nonlocal done, told
        done += number
        if done < total and time.monotonic() - told >= _INTERVAL:
            told = time.monotonic()
            listener(what, done, total)

    listener(what, 0, total)
    try:
        yield advance
    finally:
        listener(what, total, total)


def track(items: Sequence[_Item], what: str) -> Iterator[_Item]:
    """The items one by one, while the listener is told how many are done."""
    with steps(what, len(items)) as advance:
        for item in items:
            yield item
            advance(1)

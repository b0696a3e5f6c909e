"""A command that is told to end does so in one line, from its first moment on."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_in_one_line() -> Iterator[None]:
    """End the program at Ctrl-C and SIGTERM with a message and the status that shells expect.

    Within the block both are a `KeyboardInterrupt`, so that what is begun is cleaned up.
    """
    status = 128 + signal.SIGINT

    def terminated(number: int, _: FrameType | None) -> None:
        nonlocal status
        status = 128 + number
        raise KeyboardInterrupt

    alone = threading.current_thread() is threading.main_thread()  # no other can set a handler
    before = signal.signal(signal.SIGTERM, terminated) if alone else None
    try:
        yield
    except KeyboardInterrupt:
        told = "interrupted" if status == 128 + signal.SIGINT else "terminated"
        print(f"{told}: what is finished is kept, and the same command goes on from there")
        sys.exit(status)
    finally:
        if alone:
            signal.signal(signal.SIGTERM, before)

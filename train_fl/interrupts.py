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

    Within the block both are a `KeyboardInterrupt`, so that what is begun is cleaned up. One that
    is raised where Python ignores all exceptions, as in a callback of numba's compiler, comes again
    a moment later.
    """
    status = 128 + signal.SIGINT

    def terminated(number: int, _: FrameType | None) -> None:
        nonlocal status
        status = 128 + number
        raise KeyboardInterrupt

    def ignored(what: sys.UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            main = threading.main_thread().ident
            again = threading.Timer(0.1, signal.pthread_kill, [main, status - 128])
            again.daemon = True
            again.start()
        else:
            hook(what)

    alone = threading.current_thread() is threading.main_thread()  # no other can set a handler
    before = signal.signal(signal.SIGTERM, terminated) if alone else None
    hook, sys.unraisablehook = sys.unraisablehook, ignored
    try:
        yield
    except KeyboardInterrupt:
        how = "interrupted" if status == 128 + signal.SIGINT else "terminated"
        print(f"{how}: rerun the command to resume")
        sys.exit(status)
    finally:
        sys.unraisablehook = hook
        if alone:
            signal.signal(signal.SIGTERM, before)

"""A command that is told to end does so in one line, from its first moment on."""

from __future__ import annotations

import os
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
    a moment later. During an import the program ends at once: libraries in C++ abort at exceptions.
    """
    status = 128 + signal.SIGINT

    def ended(number: int, frame: FrameType | None) -> None:
        nonlocal status
        status = 128 + number
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                print(_message(status), flush=True)
                os._exit(status)
            frame = frame.f_back
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
    numbers = [signal.SIGTERM] if alone else []
    if alone and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        numbers.append(signal.SIGINT)
    before = {number: signal.signal(number, ended) for number in numbers}
    hook, sys.unraisablehook = sys.unraisablehook, ignored
    try:
        yield
    except KeyboardInterrupt:
        print(_message(status))
        sys.exit(status)
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _message(status: int) -> str:
    how = "interrupted" if status == 128 + signal.SIGINT else "terminated"
    return f"{how}: rerun the command to resume"

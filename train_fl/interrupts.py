"""A command that is told to end does so in one line, from its first moment on."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HOW: dict[int, str] = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


@contextmanager
def interrupts_in_one_line() -> Iterator[None]:
    """End the program at Ctrl-C and SIGTERM with a message and the status that shells expect.

    Within the block both are a `KeyboardInterrupt`, so that what is begun is cleaned up. One that
    is raised where Python ignores all exceptions, as in a callback of numba's compiler, comes again
    a moment later. During an import the program ends at once: libraries in C++ abort at exceptions.
    """
    number: int = signal.SIGINT

    def ended(what: int, frame: FrameType | None) -> None:
        nonlocal number
        number = what
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                print(f"{_HOW[number]}: rerun the command to resume", flush=True)
                os._exit(128 + number)
            frame = frame.f_back
        raise KeyboardInterrupt

    def ignored(what: sys.UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            main = threading.main_thread().ident
            again = threading.Timer(0.1, signal.pthread_kill, [main, number])
            again.daemon = True
            again.start()
        else:
            hook(what)

    alone = threading.current_thread() is threading.main_thread()  # no other can set a handler
    heard = [one for one in _HOW if alone and signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, ended) for one in heard}
    hook, sys.unraisablehook = sys.unraisablehook, ignored
    try:
        yield
    except KeyboardInterrupt:
        print(f"{_HOW[number]}: rerun the command to resume")
        sys.exit(128 + number)
    finally:
        sys.unraisablehook = hook
        for one, handler in before.items():
            signal.signal(one, handler)

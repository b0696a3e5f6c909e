"""Ctrl-C and SIGTERM end a command with a one-line message."""

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
    """End the program on Ctrl-C and SIGTERM with a message and the exit status shells expect.

    Within the block both raise `KeyboardInterrupt`, so unfinished work is cleaned up. If Python
    ignores the exception, as in a callback of numba's compiler, the signal is sent again. During an
    import the program ends at once, as C++ libraries abort on exceptions.
    """
    number: int = signal.SIGINT

    def ended(signum: int, frame: FrameType | None) -> None:
        nonlocal number
        number = signum
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                print(f"{_HOW[number]}: rerun the command to resume", file=sys.stderr)
                os._exit(128 + number)
            frame = frame.f_back
        raise KeyboardInterrupt

    def ignored(error: sys.UnraisableHookArgs) -> None:
        if issubclass(error.exc_type, KeyboardInterrupt):
            main = threading.main_thread().ident
            # Windows has no pthread_kill; elsewhere it also interrupts a system call.
            send = getattr(signal, "pthread_kill", lambda _, one: signal.raise_signal(one))
            again = threading.Timer(0.1, send, [main, number])
            again.daemon = True
            again.start()
        else:
            hook(error)

    in_main = threading.current_thread() is threading.main_thread()  # others set no handlers
    handled = [one for one in _HOW if in_main and signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, ended) for one in handled}
    hook = sys.unraisablehook
    sys.unraisablehook = ignored
    try:
        yield
    except KeyboardInterrupt:
        print(f"{_HOW[number]}: rerun the command to resume", file=sys.stderr)
        sys.exit(128 + number)
    finally:
        sys.unraisablehook = hook
        for one, handler in before.items():
            signal.signal(one, handler)

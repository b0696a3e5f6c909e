"""Failed runs: their errors in one line each."""

from __future__ import annotations

import re
import traceback
from typing import NamedTuple

from policies.benchmark.run import AnyRun
from policies.user_files import is_user_file


class RunsFailedError(RuntimeError):
    """Some runs failed, with their tracebacks in `failures`; the message has at most ten.

    A run of several seeds is reduced to one that fails alone with the same error, if there is one.
    """

    def __init__(self, failures: list[tuple[AnyRun, Failure]]) -> None:
        self.failures = [(run, failure.traceback) for run, failure in failures]
        lines = [f"{run.name}: {failure.summary}" for run, failure in failures[:10]]
        lines += [f"and {len(failures) - 10} more"] if len(failures) > 10 else []
        number = "1 run" if len(failures) == 1 else f"{len(failures)} runs"
        super().__init__(f"{number} failed:\n" + "\n".join(lines))


class Failure(NamedTuple):
    """The error of a run: one line with its place in the user's code, and the full traceback."""

    summary: str
    traceback: str

    @property
    def kind(self) -> str:
        """The line without its numbers, which may count seeds."""
        return re.sub(r"[-+]?\d[\d.e+-]*", "#", self.summary)


def failure_of(error: BaseException) -> Failure:
    """The failure of a run that raised an error."""
    lines = traceback.format_exception_only(error)
    summary = next(line for line in lines if not line.startswith(" ")).splitlines()[0]
    place = ""
    part: BaseException | None = error
    while part is not None and not place:
        for frame, line in traceback.walk_tb(part.__traceback__):
            # Functions that cloudpickle has sent know their file only by their globals.
            file = frame.f_globals.get("__file__", frame.f_code.co_filename)
            if is_user_file(file):
                place = f" ({file}:{line} in {frame.f_code.co_name})"
        part = part.__cause__
    return Failure(summary + place, "".join(traceback.format_exception(error)))

"""The rounds of a training run on disk as they are played, for those who look on meanwhile."""

from __future__ import annotations

import csv
import io
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeAlias

from fl_edge_env.files import reason

# A round: the policy, the seed, the number of the round, and its numbers by the names of columns.
Row: TypeAlias = Mapping[str, str | int | float]

# What TensorBoard shows.
SCALARS = (
    "test_accuracy",
    "mean_device_accuracy",
    "worst_tenth_accuracy",
    "test_loss",
    "train_loss",
    "elapsed_time",
    "energy_ratio",
    "spent_ratio",
    "mean_queue",
    "max_queue",
)


class Recorder(Protocol):
    """Somewhere to write the rounds of one run."""

    def recording(self) -> AbstractContextManager[Callable[[Row], None]]:
        """Begin anew; gives what is to be called with every round from the first.

        A run that goes on from a checkpoint tells the rounds before it again.
        """


@contextmanager
def recorded(recorders: Sequence[Recorder]) -> Iterator[Callable[[Row], None]]:
    """A function that tells a round to several recorders; those that fail are left out."""
    with ExitStack() as stack:
        adds: list[tuple[Recorder, Callable[[Row], None]]] = []
        for recorder in recorders:
            try:
                adds.append((recorder, stack.enter_context(recorder.recording())))
            except OSError as error:
                _warn(recorder, error)

        def tell(row: Row) -> None:
            for pair in list(adds):
                try:
                    pair[1](row)
                except OSError as error:
                    adds.remove(pair)
                    _warn(pair[0], error)

        yield tell


def _warn(recorder: Recorder, error: OSError) -> None:
    why = error.strerror or reason(error)
    message = f"{recorder} is not written any further: {why}. The run goes on"
    warnings.warn(message, RuntimeWarning, stacklevel=3)


@dataclass(frozen=True)
class RoundsFile:
    """A CSV file of the form of ``rounds.csv``, to which every round adds a row at once."""

    path: Path

    def __str__(self) -> str:
        return repr(str(self.path))

    @contextmanager
    def recording(self) -> Iterator[Callable[[Row], None]]:
        """See `Recorder`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)  # never through a link or into a pipe of a stranger
        # Unbuffered: a row is in the file when it is told, and closing has nothing left to write.
        with self.path.open("wb", buffering=0) as file:

            def add(row: Row) -> None:
                text = io.StringIO()
                writer = csv.writer(text, lineterminator=os.linesep)
                if file.tell() == 0:
                    writer.writerow(row)
                writer.writerow("" if value != value else value for value in row.values())  # NaN
                file.write(text.getvalue().encode())

            yield add


@dataclass(frozen=True)
class TensorBoardEvents:
    """Event files of TensorBoard with the `SCALARS` of every round, in a folder of the run's own.

    Those of before are replaced.
    """

    folder: Path

    def __str__(self) -> str:
        return f"what TensorBoard shows of {str(self.folder)!r}"

    @contextmanager
    def recording(self) -> Iterator[Callable[[Row], None]]:
        """See `Recorder`."""
        from torch.utils.tensorboard import SummaryWriter

        for old in self.folder.glob("events.out.tfevents.*"):
            old.unlink(missing_ok=True)
        writer = SummaryWriter(str(self.folder), flush_secs=10)

        def add(row: Row) -> None:
            for name in SCALARS:
                value = row.get(name, math.nan)
                if value == value:  # of rounds without an evaluation it is NaN
                    writer.add_scalar(name, value, row["round"])

        try:
            yield add
        finally:
            with suppress(OSError):
                writer.close()


def live_files(folder: Path, *, tensorboard: bool = False) -> Callable[[str], list[Recorder]]:
    """A function that gives the recorders of a run by its name, in ``live`` and ``tensorboard``."""
    whole = folder.resolve()  # workers may have been started in another folder

    def recorders(name: str) -> list[Recorder]:
        files: list[Recorder] = [RoundsFile(whole / "live" / f"{name}.csv")]
        return [*files, TensorBoardEvents(whole / "tensorboard" / name)] if tensorboard else files

    return recorders


def check_tensorboard(asked: bool, *, trained: bool) -> None:
    """Refuse event files where no models are trained, or TensorBoard is not installed."""
    if asked and not trained:
        raise ValueError("--tensorboard is for runs that train models, and none are trained here")
    if asked:
        import_module("tensorboard")

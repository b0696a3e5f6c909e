"""The program ``fl-edge``; each of its commands is imported only when it is called."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from types import NoneType
from typing import Any, get_args


def _compare() -> type:
    """Compare policies, with or without training."""
    from train_fl.commands.options import CompareOptions

    return CompareOptions


def _leaderboard() -> type:
    """Rank schedulers in the settings of a file."""
    from train_fl.commands.leaderboard import Options

    return Options


# Functions that import the options of a command, which tyro reads; their docstrings are its help.
_COMMANDS = {"compare": _compare, "leaderboard": _leaderboard}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a wrong option or a failed run ends it with a one-line message.

    Parameters
    ----------
    arguments : sequence of str, optional
        The name of a command and its options, by default from the command line.

    Raises
    ------
    SystemExit
        With status 2 for a wrong option or a missing package, 1 for failed runs, 130 after Ctrl-C,
        141 if nobody reads the output, and 143 after SIGTERM.
    """
    if arguments is None:
        _fix_process()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # ASCII, for example, lacks the frames of --help.
        sys.stdout.reconfigure(errors="replace")
    if os.environ.get("COLUMNS") == "0":  # some terminals do not know their width
        del os.environ["COLUMNS"]
    if "matplotlib" not in sys.modules:
        os.environ["MPLBACKEND"] = "agg"  # a notebook's backend may not be installed
    with _ends_in_one_line(), _short_warnings():
        _run(sys.argv[1:] if arguments is None else arguments)


def _fix_process() -> None:
    """Restart a script with fixed hashes of texts, on which the order of sets depends.

    And with one thread in libraries, as workers have, because more change the last digits.
    """
    if os.name == "posix":  # processes that a policy forks end by SIGTERM
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    script = hasattr(sys.modules["__main__"], "__file__")
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    fixed = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": threads}
    if script and os.name == "posix" and not fixed.items() <= os.environ.items():
        os.environ.update(fixed)
        os.execv(sys.executable, sys.orig_argv)


@contextmanager
def _ends_in_one_line() -> Iterator[None]:
    """End the program with one line and the usual status if it cannot continue.

    SIGTERM raises `KeyboardInterrupt` as Ctrl-C does, so unfinished work is cleaned up. A closed
    pipe, as after ``| head``, needs no line.
    """
    status = 130  # 128 + SIGINT

    def terminate(*_: object) -> None:
        nonlocal status
        status = 143
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted: rerun the command to resume", file=sys.stderr)
        sys.exit(status)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's last flush
        if isinstance(error, BrokenPipeError):
            sys.exit(141)  # 128 + SIGPIPE, which Windows does not have
        print(f"error: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Show each warning once, as one line without the line of code."""
    before = warnings.showwarning
    shown = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in shown:
            print(f"warning: {message}", file=sys.stderr)
        shown.add(str(message))

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _run(given: Sequence[str]) -> None:
    import tyro

    if given[:1] == ["--version"]:
        print(f"fl-edge {version('fl-edge-env')}")
        return
    if given and not given[0].startswith("-") and given[0] not in _COMMANDS:
        from fl_edge_env.checks import one_of
        from train_fl.commands.console import errors_in_one_line

        with errors_in_one_line():
            one_of("command", given[0], list(_COMMANDS))
    # Only the name, so that the other commands need not be imported.
    kind = tyro.extras.subcommand_cli_from_dict(
        _COMMANDS,
        prog="fl-edge",
        description="FLEdge: a benchmark for federated learning at the wireless edge.\n\n"
        "`fl-edge COMMAND --help` lists the options of a command.\n\n"
        "`fl-edge --version` prints the version.",
        args=given[:1],
    )
    name = given[0]
    options = parse(kind, given[1:], f"fl-edge {name}")

    from train_fl.commands.console import errors_in_one_line, output_console

    console = output_console()
    flags = [word.partition("=")[0].replace("_", "-") for word in given if word.startswith("--")]
    with errors_in_one_line():
        for flag in flags:
            if flag != "--set" and flags.count(flag) > 1:
                raise ValueError(f"{flag} is given twice: give all its values once")
        getattr(import_module(f"train_fl.commands.{name}"), name)(options, console)


def parse(kind: type, given: Sequence[str], program: str | None = None) -> Any:
    """The options of a command, read from words of the command line."""
    import tyro
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

    registry = ConstructorRegistry()

    @registry.primitive_rule
    def optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        """Read an option that is None by default as its other type."""
        kinds = get_args(info.type)
        if NoneType not in kinds:
            return None
        (other,) = (each for each in kinds if each is not NoneType)
        inner = registry.get_primitive_spec(PrimitiveTypeInfo.make(other, info.markers))
        assert isinstance(inner, PrimitiveConstructorSpec)
        return replace(inner, is_instance=lambda _: True, str_from_instance=lambda _: [])

    return tyro.cli(
        kind,
        prog=program,
        args=given,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        registry=registry,
    )

"""Commands as a user gives them, in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from train_fl.command_line import main


@pytest.fixture
def call(monkeypatch, capsys) -> Callable[[str], str]:
    """Run a command, named first; returns what it prints."""
    monkeypatch.setenv("COLUMNS", "130")

    def run(command: str) -> str:
        main(command.split())
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(call, capsys) -> Callable[[str], str]:
    """Run a command that is wrong; returns the error that it prints at its end, in one line."""

    def run(command: str) -> str:
        with pytest.raises(SystemExit) as raised:
            call(command)
        assert raised.value.code == 2
        _, found, error = capsys.readouterr().err.rpartition("error: ")
        assert found
        return " ".join(error.split())

    return run

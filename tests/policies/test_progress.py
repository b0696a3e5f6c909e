"""Long computations tell how far they have come, and what runs elsewhere is heard too."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
from rich.console import Console

from fl_edge_env import Scenario
from policies import UniS, progress
from policies.benchmark.board import watched
from policies.benchmark.bounds import find_prices
from policies.benchmark.command_line import errors_in_one_line
from policies.benchmark.jobs import BoundJob, make_jobs
from policies.benchmark.runner import run_jobs
from policies.progress import listening, steps, track
from train_fl.interrupts import interrupts_in_one_line


def heard_in_order(calls: list[tuple[str, int, int]]) -> dict[str, list[int]]:
    """The steps done of each piece of work, from nothing to all and never back."""
    done: dict[str, list[int]] = {}
    for what, number, total in calls:
        done.setdefault(what, []).append(number)
        assert 0 <= number <= total
    for what, numbers in done.items():
        (total,) = {total for name, _, total in calls if name == what}
        assert numbers == sorted(numbers)
        assert (numbers[0], numbers[-1]) == (0, total)
    return done


def test_steps__are_told_from_none_to_all_also_where_the_work_is_given_up(monkeypatch):
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)
    calls: list[tuple[str, int, int]] = []

    def listener(*call: object) -> None:
        calls.append(call)

    def outer() -> None:
        for item in track(range(5), "outer"):
            with steps("inner", 10) as advance:
                advance(4)
                if item == 2:
                    raise RuntimeError

    with listening(listener), pytest.raises(RuntimeError):
        outer()
    inner = [call for call in calls if call[0] == "inner"]
    assert inner == 3 * [("inner", 0, 10), ("inner", 4, 10), ("inner", 10, 10)]
    assert heard_in_order([call for call in calls if call[0] == "outer"])["outer"] == [0, 1, 2, 5]
    list(track(range(5), "unheard"))
    assert not any(what == "unheard" for what, *_ in calls)


@pytest.mark.parametrize("workers", [1, 2])
def test_run_jobs__tells_how_much_is_done_of_jobs_that_run(workers, monkeypatch):
    monkeypatch.setattr("policies.benchmark.board._LOOK_EVERY", 1e-3)
    scenario = Scenario.digits(num_devices=6, num_rounds=1000)
    heard: list[float] = []
    jobs = make_jobs([UniS(scenario)], scenario, [0])
    run_jobs([*jobs, *jobs], workers=workers, on_progress=heard.append)
    assert 0 <= min(heard) <= max(heard) <= 2
    assert any(0 < share % 1 < 1 for share in heard)


def test_jobs__have_as_many_parts_as_they_tell_of_after_the_search_for_prices():
    scenario = Scenario.digits(num_devices=6, num_rounds=3)
    calls: list[tuple[str, int, int]] = []
    with listening(lambda *call: calls.append(call)):
        prices = find_prices(scenario)
    heard = heard_in_order(calls)
    assert {"prices of the bound", "prices of the outcome, start"} < heard.keys()
    for job in (*make_jobs([UniS(scenario)], scenario, [0]), BoundJob(scenario, 0, prices)):
        calls = []
        with listening(lambda *call, to=calls: to.append(call)):
            job.run()
        assert len(heard_in_order(calls)) == job.parts


@pytest.mark.parametrize("devices", [10, 2**20, 400_000])
def test_make_jobs__divides_seeds_among_batches_that_fit_in_memory(devices):
    scenario = Scenario.cifar10(num_devices=devices, lambda_=1.0, V=1.0)
    jobs = make_jobs([UniS(scenario)], scenario, range(5, 16))
    assert [seed for job in jobs for seed in job.seeds] == list(range(5, 16))
    assert all(len(job.seeds) * devices <= 2**20 for job in jobs)
    assert len(jobs) == int(np.ceil(11 / (2**20 // devices))) if devices > 10 else len(jobs) == 1


def test_interrupt__in_a_compiled_function_ends_in_one_line(capsys):
    outer, inner = SystemError("outer"), SystemError("inner")  # as numba raises
    outer.__cause__, inner.__cause__ = inner, KeyboardInterrupt()
    with pytest.raises(SystemExit) as end, interrupts_in_one_line(), errors_in_one_line(Console()):
        raise outer
    assert end.value.code == 130
    assert capsys.readouterr().out.startswith("interrupted:")
    with pytest.raises(SystemError, match="another"), errors_in_one_line(Console()):
        raise SystemError("another")


def test_watched__removes_the_board_of_a_killed_process_and_of_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (left := tmp_path / "fl-edge-left").mkdir()
    (left / "board").touch()
    (tmp_path / "fl-edge-of-a-user").mkdir()
    with watched(1, print) as first, watched(1, print) as second:
        assert first.path.exists()
        assert second.path.exists()
        assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["fl-edge-of-a-user"]

"""Random systems, policies, trainings and kills for ten minutes: what always holds, does.

``SOAK_SECONDS`` says how long, and ``SOAK_SEED`` where to begin. A failure names the seed of its
case, which ``SOAK_SECONDS=0 SOAK_SEED=…`` plays alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import (
    CellChannel,
    ExponentialChannel,
    MarkovChannel,
    Scenario,
    TraceChannel,
    UplinkChannel,
    with_proportional_work,
)
from policies import evaluate, make_policy
from policies.base import Policy
from policies.benchmark import bounds
from policies.benchmark.evaluate import summarise
from policies.benchmark.jobs import make_jobs
from policies.outcome import prices
from policies.registry import POLICIES
from tests.support import Constant, end_session, of_session
from train_fl import TrainingEnvFactory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

# Where a policy chooses its cohort, and where nobody has trained or tested.
MAY_BE_NAN = {"sampling_error", "penalty", "train_loss", "test_loss", "test_accuracy"}
MAY_BE_NAN |= {"mean_device_accuracy", "worst_tenth_accuracy"}
COMPRESSIONS = ("none", "none", "qsgd:1", "qsgd:4", "topk:0.01", "topk:0.5")
COMMAND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from policies.benchmark import bounds; from policies.outcome import prices\n"
    "bounds._PRICE_ROUNDS, prices._STAGES = 50, (20,)\n"  # any prices give valid bounds
    "from train_fl.command_line import main; main()"
)


def test_soak__holds_what_always_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "_PRICE_ROUNDS", 50)
    monkeypatch.setattr(prices, "_STAGES", (20,))
    seconds = float(os.environ.get("SOAK_SECONDS", "600"))
    end = time.monotonic() + seconds
    seed = first = int(os.environ.get("SOAK_SEED", "0"))
    played: Counter[str] = Counter()
    while seed == first or time.monotonic() < end:
        rng = np.random.default_rng(seed)
        case = CASES[37 * seed % 100]  # of 100 successive seeds each once, well mixed
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            with warnings.catch_warnings():  # random systems are odd, which is told
                warnings.simplefilter("ignore", UserWarning)
                warnings.filterwarnings("ignore", "the update of device .* is not finite")
                rounds = case(rng, folder)
        except BaseException as error:
            error.add_note(f"{case.__name__}: SOAK_SECONDS=0 SOAK_SEED={seed} repeats it")
            raise
        played.update({case.__name__: 1, "rounds": rounds})
        print(f"seed {seed}: {case.__name__}, {rounds} rounds", flush=True)
        seed += 1
    print(dict(played))
    assert played["rounds"] >= LEAST_ROUNDS * seconds, "it hardly plays"
    assert seconds < 600 or {case.__name__ for case in CASES} <= {*played}


def play_batch(rng: np.random.Generator, folder: Path) -> int:
    """A policy on a batch, twice, and one of its systems alone."""
    scenario = random_scenario(rng, folder)
    policy = random_policy(rng, scenario)
    easy = scenario.csi == "full"
    seeds = rng.choice(10**6, rng.choice([64, 256] if easy else [2, 4]), replace=False).tolist()
    batch, again = (make_jobs([policy], scenario, seeds)[0].run() for _ in range(2))
    assert_same(batch.rounds, again.rounds)
    alone = make_jobs([policy], scenario, seeds[1:2])[0].run().rounds
    assert_same(batch.rounds[batch.rounds["seed"] == seeds[1]].reset_index(drop=True), alone)
    assert_rounds(batch.rounds, scenario)
    summary = summarise(batch.rounds, devices={policy.name: batch.devices})
    assert (summary["total_time"] > 0).all()
    return 2 * len(batch.rounds) + len(alone)


def play_gaps(rng: np.random.Generator, folder: Path) -> int:
    """No policy passes a bound."""
    scenario = random_scenario(rng, folder).replace(num_rounds=30)
    table = evaluate([random_policy(rng, scenario)], scenario, [0, 1], progress=False)
    assert not (table[["gap", "outcome_gap"]] < -1e-9).to_numpy().any(), table.to_string()
    return 60


def play_training(rng: np.random.Generator, folder: Path) -> int:
    """Real models, twice."""
    base = random_scenario(rng, folder).replace(num_rounds=6)
    training = TrainingEnvFactory(base, "digits", eval_every=2, on_non_finite="skip").fitted()
    scenario = training.scenario
    policy = random_policy(rng, scenario, trained=True)
    first, again = (make_jobs([policy], scenario, [3], training)[0].run().rounds for _ in range(2))
    assert_same(first, again)
    assert_rounds(first, scenario)
    assert first["test_accuracy"].iloc[-1] >= 0
    return 12


def play_killed(rng: np.random.Generator, folder: Path) -> int:
    """A comparison that is killed at random moments, and goes on, ends in the same bytes."""
    if rng.random() < 0.5:
        system = f"digits --num-devices 8 --rounds 60 --overhead-s {rng.integers(2)} "
        system += "--on-non-finite skip"
        names = list(POLICIES)
    else:
        scenario = random_scenario(rng, folder, saved=True).replace(num_rounds=40)
        scenario.save(folder / "system.toml")
        system, names = f"{folder}/system.toml --no-train", fitting(scenario)
    command = (
        f"compare --scenario {system} --seeds 2 --compression {rng.choice(COMPRESSIONS)} "
        f"--checkpoint-every 10 --policies {' '.join(rng.choice(names, 2))}"
    )
    if len(set(command.split()[-2:])) < 2:  # twice the same
        command = command.rpartition(" ")[0]
    run(f"{command} --workers 1 --out {folder}/whole")
    killed = folder / "killed"
    again = f"{command} --workers 2 --out {killed}"
    for kind in rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], 3):
        run(again, int(kind), rng.exponential(8.0))
        if (killed / "config.json").exists():
            again = f"compare --resume {killed} --workers 2"
    run(again)
    for name in ("rounds.csv", "summary.csv", "bounds.csv"):
        assert (killed / name).read_bytes() == (folder / "whole" / name).read_bytes()
    assert {path.name for path in folder.rglob(".*")} <= {".lock"}
    return 2 * len(pd.read_csv(killed / "rounds.csv"))


CASES: list[Callable[[np.random.Generator, Path], int]] = [
    *[play_batch] * 80,
    *[play_gaps] * 10,
    *[play_training] * 7,
    *[play_killed] * 3,
]
LEAST_ROUNDS = 10  # in a second: a few batches; on average they are hundreds


def run(command: str, kind: int | None = None, after: float = 0.0) -> None:
    """Run a command to its end, or give all its processes a signal after so many seconds."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + after
        while kind and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if kind and process.poll() is None:
            os.killpg(process.pid, kind)
        said, _ = process.communicate(timeout=900)
        ends = {0} if kind is None else {0, -kind, 128 + kind}
        assert process.returncode in ends, f"{command}\n{said}"
        deadline = time.monotonic() + 60
        while left := of_session(process.pid):
            assert time.monotonic() < deadline, f"{command}\n{left}"
            time.sleep(0.1)
    finally:
        end_session(process.pid)
        process.wait()


def random_scenario(rng: np.random.Generator, folder: Path, *, saved: bool = False) -> Scenario:
    """A valid system drawn from all fields and channels; what is refused is drawn again."""
    while True:
        try:
            scenario = Scenario(**random_fields(rng, folder, saved))
            return with_proportional_work(scenario) if rng.random() < 0.1 else scenario
        except ValueError:
            continue


def random_fields(rng: np.random.Generator, folder: Path, saved: bool) -> dict[str, Any]:
    devices = int(rng.choice([1, 2, 5, 12, 30]))

    def some(of: float, decades: float = 0.5) -> Any:
        """A number about this one, or one for each device."""
        return of * 10 ** rng.uniform(-decades, decades, () if rng.random() < 0.5 else devices)

    fields = {
        "num_devices": devices,
        "cohort_size": int(rng.integers(1, 6)),
        "num_rounds": int(rng.choice([20, 60, 150])),
        "bandwidth_hz": 1e6 * 10 ** rng.uniform(-1, 1),
        "model_bits": 3e8 * 10 ** rng.uniform(-3, 0.3),
        "num_samples": some(400.0),
        "cycles_per_sample": some(3e9, 1.0),
        "capacitance": some(2e-28),
        "energy_budget_j": some(15.0, 1.5),
        "channel": random_channel(rng, devices, folder, saved),
        "mu": float(rng.choice([0.1, 1.0, 10.0])),
        "nu": 1e5 * 10 ** rng.uniform(-2, 2),
        "latency": str(rng.choice(["proxy", "round_time"])),
        "csi": str(rng.choice(["full", "full", "delayed", "participants"])),
        "objective": str(rng.choice(["penalty", "outcome"])),
        "compression": str(rng.choice(COMPRESSIONS)),
        "download_compression": str(rng.choice(COMPRESSIONS)),
    }
    for name, of in (("f", 1e9), ("p", 0.03)):
        fields[f"{name}_min"], fields[f"{name}_max"] = np.sort(
            of * 10 ** rng.uniform(-0.5, 0.5, (2, devices)), axis=0
        )
    often = {
        "local_epochs": some(1.0, 1.0),
        "download_rate_bps": some(1e7),
        "initial_queue": some(10.0),
        "availability": rng.uniform(0.2, 1.0, devices),
        "upload_failure": rng.uniform(0, 0.5),
        "deadline_s": 10 ** rng.uniform(1, 5),
        "overhead_s": some(10.0),
    }
    return fields | {name: value for name, value in often.items() if rng.random() < 0.3}


def random_channel(rng: np.random.Generator, devices: int, folder: Path, saved: bool) -> Any:
    mean = 0.1 * 10 ** rng.uniform(-1, 1)
    law = ExponentialChannel(mean, 0.1 * mean, 5 * mean, str(rng.choice(["clip", "resample"])))
    rows = [f"{r},{n},{mean * rng.uniform(0.2, 3):.6g}" for r in range(9) for n in range(devices)]
    (trace := folder / "gains.csv").write_text("\n".join(("round,device,gain", *rows)) + "\n")
    channels = [
        law,
        MarkovChannel.correlated(rng.uniform(0, 0.98), num_states=4, marginal=law),
        MarkovChannel([0.1 * mean, mean], [[0.5, 0.5], [0.1, 0.9]]),
        CellChannel(mean=mean, persistence=float(rng.choice([0.0, 0.9]))),
        UplinkChannel(),
        TraceChannel(str(trace)),
        Constant(mean),  # which no file can hold
    ]
    return channels[rng.integers(len(channels) - saved)]


def fitting(scenario: Scenario, *, trained: bool = False) -> list[str]:
    """Policies that a system does not refuse."""
    names = []
    for name in POLICIES:
        try:
            if not make_policy(name, scenario).needs_training or trained:
                names.append(name)
        except ValueError:
            continue
    return names


def random_policy(rng: np.random.Generator, scenario: Scenario, *, trained: bool = False) -> Policy:
    return make_policy(str(rng.choice(fitting(scenario, trained=trained))), scenario)


def assert_same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    kept = [name for name in left if name != "real_time"]
    pd.testing.assert_frame_equal(left[kept], right[kept], check_exact=True)


def assert_rounds(rounds: pd.DataFrame, scenario: Scenario) -> None:
    """Finite where it must be, and within what it can be."""
    numbers = rounds.select_dtypes("number")
    assert {name for name in numbers if numbers[name].isna().any()} <= MAY_BE_NAN
    assert not np.isinf(numbers.to_numpy(dtype=float)).any()
    assert rounds["round_time"].between(0, scenario.deadline_s * (1 + 1e-12)).all()
    assert (rounds[["mean_queue", "max_queue", "spent_ratio", "never_seen"]] >= 0).all(axis=None)

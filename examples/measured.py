"""A federation of ten programs on this machine, held against the clock.

It starts Flower's server and ten of its clients, whose processors and uplinks are slowed (see
`measured_app`), and runs one federation after the other, each with another scheduler, for real.
Every run writes its log. Where a system is given, as `fl-edge calibrate` makes it of a log, the
schedulers decide in it, and a table has what the system predicts beside what the clock says.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tyro

APP = Path(__file__).with_name("measured_app")
sys.path.insert(0, str(APP))

from system import NUM_DEVICES, make_digits, make_system  # noqa: E402 - the app's own

from policies import evaluate, make_policy  # noqa: E402
from train_fl import TrainingEnvFactory  # noqa: E402


@dataclass(frozen=True)
class Options:
    """Run schedulers in a federation on this machine, one after the other."""

    policies: tuple[str, ...] = ("round-robin",)
    """Schedulers, named as for fl-edge compare."""
    system: Path | None = None
    """Scenario that fl-edge calibrate has written; without one, rounds are only logged."""
    rounds: int = 60
    """Number of rounds."""
    first_round: int = 0
    """The uplinks are as in the rounds from this one on."""
    seed: int = 0
    """Seed of the data's split, of training and of the policies."""
    compression: str = "none"
    """Compression of the updates."""
    local_epochs: float = 0.0
    """Local epochs; by default those of the system."""
    learning_rate: float = 0.0
    """Learning rate; by default that of digits."""
    target_accuracy: float = 0.9
    """Test accuracy whose first time is measured and predicted."""
    predicted_seeds: int = 10
    """Number of simulated runs of a prediction."""
    out: Path = Path("runs/measured")
    """Folder for <policy>.csv, the log of each run, and <policy>.json, its times and accuracies."""

    def check(self) -> None:
        """End the program where a run cannot begin, or would take the place of an earlier one."""
        if find_spec("flwr") is None:
            sys.exit('error: Flower is needed: pip install -e ".[federation]"')
        if len(set(self.policies)) < len(self.policies):
            sys.exit(f"error: each policy is run once, got {' '.join(self.policies)}")
        names = [f"{policy}.{kind}" for policy in self.policies for kind in ("csv", "json")]
        for path in [self.out / name for name in (*names, "summary.csv")]:
            if path.exists():
                sys.exit(f"error: {str(path)!r} is there already: give another folder, --out")

    def config(self, policy: str) -> dict[str, Any]:
        """What the app is told of a run."""
        named = {name: getattr(self, name) for name in ("rounds", "seed", "compression")}
        return named | {
            "policy": policy,
            "first-round": self.first_round,
            "local-epochs": self.local_epochs,
            "learning-rate": self.learning_rate,
            "system": "" if self.system is None else str(self.system.resolve()),
            "log": str((self.out / f"{policy}.csv").resolve()),
            "report": str((self.out / f"{policy}.json").resolve()),
        }


@contextmanager
def federation() -> Iterator[dict[str, str]]:
    """Flower's server and a client for each device; gives the environment for ``flwr run``."""
    programs = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as home, ExitStack() as running:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        address = f"127.0.0.1:{port}"
        link = f'[superlink.measured]\naddress = "{address}"\ninsecure = true\n'
        (Path(home) / "config.toml").write_text(link)
        environment = os.environ | {
            "FLWR_HOME": home,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }

        def start(*command: str) -> subprocess.Popen[bytes]:
            log = running.enter_context((Path(home) / "log.txt").open("a"))
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            running.callback(process.wait)
            running.callback(process.terminate)
            return process

        server = start("flower-superlink", "--insecure", "--port", str(port), _NO_INSTALL)
        while not listens(port):
            if server.poll() is not None:
                told = (Path(home) / "log.txt").read_text()[-3000:]
                raise RuntimeError(f"flower-superlink has ended:\n{told}")
            time.sleep(0.2)
        for device in range(NUM_DEVICES):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                own = str(free.getsockname()[1])
            program = f"{home}/device-{device}"
            start(sys.executable, str(APP / "device.py"), str(device), program)
            node = f"partition-id={device} program='{program}'"
            start(
                *("flower-supernode", "--insecure", "--superlink", address),
                *("--port", own, "--node-config", node),
            )
        yield environment


def listens(port: int) -> bool:
    """Tell if a program of this machine takes connections at a port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


_NO_INSTALL = "--disable-runtime-dependency-installation"


def run(options: Options, policy: str, environment: dict[str, str]) -> dict[str, list[float]]:
    """One federation; the end of each round [s], and the accuracy of its model."""
    config = options.config(policy)
    told = " ".join(f"{name}={value!r}" for name, value in config.items())
    done = subprocess.run(
        ["flwr", "run", str(APP), "measured", "--stream", "--run-config", told],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if not Path(config["report"]).exists():
        raise RuntimeError(f"the run of {policy} did not end:\n{done.stdout[-3000:]}")
    report: dict[str, list[float]] = json.loads(Path(config["report"]).read_text())
    return report


def predicted(options: Options, policy: str) -> pd.DataFrame:
    """Runs of the same in the calibrated system, with training."""
    task = make_digits(options.learning_rate)
    scenario = make_system(options.config(policy), task)
    return evaluate(
        [make_policy(policy, scenario)],
        scenario,
        range(options.seed + 1, options.seed + 1 + options.predicted_seeds),
        make_env=TrainingEnvFactory(scenario, task, eval_every=1),
        target_accuracy=options.target_accuracy,
        gaps=False,
        workers=os.cpu_count() or 1,
    )


def first_time(report: dict[str, list[float]], target: float) -> float:
    """When the target was first reached [s]; NaN if never."""
    reached = np.array(report["accuracy"]) >= target
    return report["end_s"][int(reached.argmax())] if reached.any() else np.nan


def main(options: Options) -> None:
    """Run all, and print the table."""
    options.check()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with federation() as environment:
        for policy in options.policies:
            report = run(options, policy, environment)
            log = pd.read_csv(options.out / f"{policy}.csv")
            longest = (log.down_s + log.train_s + log.up_s).groupby(log["round"]).max().sum()
            row = {"policy": policy, "measured, s": report["end_s"][-1], "devices, s": longest}
            target = f"{100 * options.target_accuracy:g} %"
            row[f"{target}, s"] = first_time(report, options.target_accuracy)
            print(pd.DataFrame([row]).to_string(index=False), flush=True)
            rows.append(row)
    if options.system is not None:
        for row in rows:
            runs = predicted(options, str(row["policy"]))
            for name, column in (("measured, s", "total_time"), (f"{target}, s", "time_to_target")):
                low, middle, high = runs[column].quantile([0.1, 0.5, 0.9])
                row[f"{name[:-3]} predicted"] = f"{middle:.0f} ({low:.0f}–{high:.0f})"
                row[f"{name[:-3]} error, %"] = f"{100 * (middle / float(row[name]) - 1):+.1f}"
    table = pd.DataFrame(rows)
    table.to_csv(options.out / "summary.csv", index=False)
    print(table.to_string(index=False, float_format="%.1f"))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))

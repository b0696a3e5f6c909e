"""What several test modules share: scenarios, channels, damaged files and what a round must be."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from fl_edge_env import (
    Allocation,
    ExponentialChannel,
    FLEdgeEnv,
    MarkovChannel,
    Scenario,
    physics,
)
from fl_edge_env.channels import ChannelModel
from fl_edge_env.lyapunov import objective
from fl_edge_env.streams import policy_seed
from policies import Policy
from policies.benchmark.records import Record
from policies.benchmark.run import PolicyText, Run

# A command in a process of its own, with short searches for prices: any prices give valid bounds.
MAIN = (
    "from policies.benchmark import bounds; from policies.outcome import prices\n"
    "bounds._PRICE_ROUNDS, prices._STAGES = 50, (20,)\n"
    "from train_fl.command_line import main; main()"
)
ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SMALL = Scenario.femnist(num_devices=5, cohort_size=3, num_rounds=6)
# Of runs that take no time; its weights need no calibration.
BRIEF = Scenario.digits(num_devices=4, num_rounds=3, lambda_=1.0, V=1.0)
ANY_SEED = st.integers(0, 2**32 - 1)
# All reports of training.
REPORTS = {"report_gradients": True, "report_losses": True, "report_update_norms": True}


def python(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def drift_plus_penalty(channel_gain, queue, f, p, q, system) -> np.ndarray:
    """Objective of P2, ``V (latency + lambda sum w^2/q) + sum Q a``, shape (...)."""
    device_time, device_energy, _ = physics.by_deadline(channel_gain, f, p, system)
    return objective(device_time, device_energy, queue, q, system)


def chosen(scenario: Scenario, *cohort: int, **more: Any) -> Allocation:
    """A decision for this cohort, with f and p in the middle of their ranges."""
    return Allocation(scenario.f_mid, scenario.p_mid, cohort=cohort, **more)


def random_actions(*shape: int) -> np.ndarray:
    """Actions of environments, some of them beyond the box."""
    return np.random.default_rng(0).uniform(-1.2, 1.2, shape).astype(np.float32)


@dataclass(frozen=True)
class Constant:
    """A channel of the user's own: one gain for all."""

    mean: float = 0.1

    @property
    def gain_min(self) -> float:
        return self.mean

    @property
    def gain_max(self) -> float:
        return self.mean

    def draw(self, _, rounds, num_devices, **__):
        return np.full((rounds, num_devices), self.mean)

    def sample(self, _, count, num_devices):
        return np.full((count, num_devices), self.mean)


def missed(decision: Allocation, scenario: Scenario, sign: int = 1) -> Allocation:
    """A decision that misses its bounds by as much as `Allocation.validate` lets pass."""
    beyond = 1 + 9e-8
    fields = {"f": decision.f, "p": decision.p}
    for name in fields:
        low = getattr(scenario, f"{name}_min")
        high = getattr(scenario, f"{name}_max")
        fields[name] = np.where(fields[name] >= high, high * beyond, fields[name])
        fields[name] = np.where(fields[name] <= low, low / beyond, fields[name])
    if decision.q is not None:
        fields["q"] = np.minimum(decision.q * (1 + sign * 9e-7), 1.0)
    if decision.bandwidth is not None:
        fields["bandwidth"] = decision.bandwidth * beyond
    return replace(decision, **fields)


def played(policy: Policy, seed: int = 0) -> list[dict[str, Any]]:
    """The infos of an episode in the policy's own scenario."""
    env = FLEdgeEnv(policy.scenario)
    infos = []
    observation, info = env.reset(seed=seed)
    policy.reset(policy_seed(seed))
    policy.feedback(info)
    for _ in range(policy.scenario.num_rounds):
        observation, *_, info = env.step(policy.decide(observation))
        policy.feedback(info)
        infos.append(info)
    return infos


def text_run(name: str, scenario: Scenario, *seeds: int, **options: Any) -> Run:
    """A run as commands make it, which a folder keeps."""
    text = PolicyText(name, options)
    policy = text.make(scenario)
    return Run(policy.name, policy, scenario, seeds or (0,), text=text)


def run_of(policy: Policy, *seeds: int) -> Run:
    """A run of a policy in its own scenario, under the seed 0 if none is given."""
    return Run(policy.name, policy, policy.scenario, seeds or (0,))


def assert_same_records(some: Sequence[Record], others: Sequence[Record]) -> None:
    """Runs agree to the bit in their rounds and their accounts."""
    for one, other in zip(some, others, strict=True):
        pd.testing.assert_frame_equal(one.rounds, other.rounds, check_exact=True)
        for values, same in zip(one.accounts, other.accounts, strict=True):
            np.testing.assert_array_equal(values, same)


def channel_of(kind: str, mean: float) -> ChannelModel:
    low = 0.1 * mean
    high = 5 * mean
    if kind in ("clip", "resample"):
        return ExponentialChannel(mean, low, high, kind)  # type: ignore[arg-type]
    if kind == "narrow":
        return ExponentialChannel(mean, mean, np.nextafter(mean, math.inf))
    if kind == "correlated":
        law = ExponentialChannel(mean, low, high)
        gains = law.truncated(np.array([1, 3, 5]) / 6)
        return MarkovChannel(gains, 0.9 * np.eye(3) + 0.1 / 3)
    if kind == "markov":
        return MarkovChannel([low, mean, high], [[0.5, 0.5, 0], [0.2, 0.6, 0.2], [0.1, 0, 0.9]])
    return Constant(mean)


@st.composite
def field_values(draw, decades: float) -> dict[str, Any]:
    """Fields up to so many decades from the defaults, alike for all devices or not."""
    num_devices = draw(st.sampled_from([1, 2, 3, 8]))
    decade = st.one_of(st.just(0.0), st.floats(-decades, decades))

    def number(default: float) -> float:
        return default * 10 ** draw(decade)

    def numbers(default: float):
        size = draw(st.sampled_from([1, num_devices]))
        values = np.array([number(default) for _ in range(size)])
        return values if size == num_devices else float(values[0])

    f, p = ((np.asarray(numbers(x)), np.asarray(numbers(x))) for x in (1e9, 0.01))
    return {
        "num_devices": num_devices,
        "cohort_size": draw(st.sampled_from([1, 2, 5, 40])),
        "local_epochs": draw(st.sampled_from([1, 2, 1000])),
        "num_rounds": draw(st.sampled_from([1, 3])),
        "bandwidth_hz": number(1e6),
        **draw(
            st.sampled_from([{"noise_power_w": number(1e-2)}, {"noise_density_w_hz": number(2e-8)}])
        ),
        "model_bits": number(3e8),
        "num_samples": numbers(400.0),
        "cycles_per_sample": numbers(3e9),
        "capacitance": numbers(2e-28),
        "f_min": np.minimum(*f),
        "f_max": np.maximum(*f),
        "p_min": np.minimum(*p),
        "p_max": np.maximum(*p),
        "energy_budget_j": numbers(15.0),
        "download_rate_bps": draw(st.sampled_from([math.inf, numbers(1e6)])),
        "overhead_s": draw(st.sampled_from([0.0, numbers(10.0)])),
        "channel": channel_of(
            draw(st.sampled_from(["clip", "resample", "narrow", "markov", "constant"])),
            number(0.1),
        ),
        "mu": draw(st.sampled_from([0.0, number(1.0)])),
        "nu": number(1e5),
        "latency": draw(st.sampled_from(["proxy", "round_time"])),
        "csi": draw(st.sampled_from(["full", "delayed"])),
    }


def layouts(values: np.ndarray) -> dict[str, Any]:
    """The same numbers in other memory."""
    read_only = values.copy()
    read_only.flags.writeable = False
    return {
        "Fortran": np.asfortranarray(values),
        "strided": np.repeat(values, 2, axis=-1)[..., ::2],
        "backwards": values[..., ::-1].copy()[..., ::-1],
        "read-only": read_only,
        "big-endian": values.astype(values.dtype.newbyteorder(">")),
        "list": values.tolist(),
        "subclass": np.ma.masked_array(values),
        "longdouble": values.astype(np.longdouble),
    }


def spoil(*handed_out: Any) -> None:
    """Write into all arrays of what was handed out, as far as NumPy can be talked into it."""
    arrays = list(arrays_in(handed_out))
    assert not any(array.flags.writeable for array in arrays)
    for array in arrays:
        with suppress(ValueError):  # of memory that is not NumPy's own
            if isinstance(array.base, np.ndarray):
                array.base.flags.writeable = True
            array.flags.writeable = True
            array[...] = 1


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """The arrays in nested dictionaries, lists and tuples."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from arrays_in(part)


def assert_round(env: FLEdgeEnv, result) -> None:
    """What a step returned is finite and in its space."""
    observation, reward, terminated, _, info = result
    assert env.observation_space.contains(observation)
    assert math.isfinite(reward)
    assert terminated is False
    assert all(np.isfinite(value).all() for value in info.values())


def assert_data(dataset, images: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> None:
    """The images, for training and testing, standardised by channel with the training moments."""
    axes = (0, 2, 3)
    mean = images[0].mean(axis=axes, keepdims=True)
    deviation = images[0].std(axis=axes, ddof=1, keepdims=True)
    for found, expected in zip((dataset.train_inputs, dataset.test_inputs), images, strict=True):
        assert found.numpy().dtype == np.float32
        assert found.is_contiguous()
        np.testing.assert_allclose(found, (expected - mean) / deviation, rtol=1e-4, atol=1e-5)
    for found, expected in zip((dataset.train_targets, dataset.test_targets), labels, strict=True):
        assert found.numpy().dtype == np.int64
        np.testing.assert_array_equal(found, expected)


def global_states() -> tuple[object, ...]:
    """The states of the global generators."""
    import torch

    return random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())  # noqa: NPY002


@contextmanager
def torch_seeded() -> Iterator[None]:
    """Torch draws the same numbers in every such block, and as before after it."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@contextmanager
def little_memory() -> Iterator[None]:
    """Fails where the block takes 32 MiB or more."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**25


def of_session(number: int) -> dict[int, str]:
    """The processes of a session, with their commands."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and state != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    return found


def end_session(number: int) -> None:
    """Kill all processes of a session."""
    for process in of_session(number):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

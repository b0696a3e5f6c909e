"""Logs of federations whose laws are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd


class Truth(NamedTuple):
    """Laws of the devices, shape (N,), and of all."""

    seconds: np.ndarray  # mean of a sample
    spread: float  # of its logarithm
    uplink_bps: np.ndarray
    deviation_bps: np.ndarray
    persistence: float
    download_bps: np.ndarray
    samples: np.ndarray
    parameters: int = 20_000
    epochs: float = 2.0
    overhead_s: float = 0.4


def draw_truth(
    rng: np.random.Generator,
    devices: int = 20,
    persistence: float = 0.0,
    spread: float = 0.15,
    apart: float = 0.5,
) -> Truth:
    mean = 1e6 * np.exp(apart * rng.standard_normal(devices))
    return Truth(
        0.01 * np.exp(apart * rng.standard_normal(devices)),
        spread,
        mean,
        mean * rng.uniform(0.2, 0.6, devices),
        persistence,
        4e6 * np.exp(apart * rng.standard_normal(devices)),
        rng.integers(50, 200, devices).astype(float),
    )


def round_robin(truth: Truth, rounds: int, cohort: int) -> np.ndarray:
    """Participants, shape (rounds, cohort)."""
    turns = np.arange(rounds * cohort) % len(truth.seconds)
    return turns.reshape(rounds, cohort)


def simulate(rng: np.random.Generator, truth: Truth, cohorts: Sequence[np.ndarray]) -> pd.DataFrame:
    """The log of rounds with these cohorts."""
    rounds, devices = len(cohorts), len(truth.seconds)
    shape = (truth.uplink_bps / truth.deviation_bps) ** 2
    rate = rng.gamma(shape, truth.uplink_bps / shape, (rounds, devices))
    kept = rng.random((rounds, devices)) < truth.persistence
    for index in range(1, rounds):
        rate[index] = np.where(kept[index], rate[index - 1], rate[index])
    noise = truth.spread * rng.standard_normal((rounds, devices)) - 0.5 * truth.spread**2
    train = truth.seconds * truth.samples * truth.epochs * np.exp(noise)
    down = 32 * truth.parameters / truth.download_bps
    down = down * np.exp(0.1 * rng.standard_normal((rounds, devices)) - 0.005)
    taken, starts = down + train + 32 * truth.parameters / rate, [100.0]
    for index, cohort in enumerate(cohorts):
        rest = truth.overhead_s * rng.uniform(0.5, 1.5)
        starts.append(starts[-1] + taken[index, cohort].max() + rest)
    device = np.concatenate([np.sort(cohort) for cohort in cohorts])
    index = np.repeat(np.arange(rounds), [len(cohort) for cohort in cohorts])
    return pd.DataFrame(
        {
            "round": index,
            "device": device,
            "start_s": np.array(starts)[index],
            "samples": truth.samples[device],
            "epochs": truth.epochs,
            "parameters": float(truth.parameters),
            "bytes_up": 4.0 * truth.parameters,
            "bytes_down": 4.0 * truth.parameters,
            "train_s": train[index, device],
            "up_s": 32 * truth.parameters / rate[index, device],
            "down_s": down[index, device],
        }
    )

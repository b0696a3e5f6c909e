"""Ten devices out of one machine: slowed processors, and uplinks that are limited.

What a device is like is drawn from the lists of measured phones and uplinks: its processor works
for a part of the time that goes with the speed of a phone, and it sends at a rate that changes from
round to round, with the mean and the deviation of an uplink.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

from fl_edge_env.channels.uplink import MEASURED_UPLINKS_BPS
from fl_edge_env.scenario.phones import phone_speeds

NUM_DEVICES = 10
_SEED = 3
# The part of the time in which the processor of a phone of median speed works.
_MEDIAN_DUTY = 0.1
# How strongly the logarithm of a rate follows that of the round before.
_MEMORY = 0.6
DOWNLINK_BPS = 28.02e6
_SLICE_S = 0.002
_BUCKET_BYTES = 16_384

_DUTY = np.minimum(_MEDIAN_DUTY * phone_speeds(NUM_DEVICES, seed=_SEED), 1.0)


@cache
def rates(rounds: int) -> np.ndarray:
    """Rate of each uplink in the rounds of a federation [bit/s], shape (rounds, N).

    The logarithm of a rate is an autoregression. Its law is not one that FLEdge has.
    """
    rng = np.random.default_rng(_SEED)
    uplinks = rng.choice(len(MEASURED_UPLINKS_BPS), size=NUM_DEVICES, replace=False)
    mean, deviation = np.array(MEASURED_UPLINKS_BPS)[uplinks].T
    spread = np.sqrt(np.log1p((deviation / mean) ** 2))
    noise = rng.standard_normal((rounds, NUM_DEVICES))
    path = np.empty_like(noise)
    path[0] = noise[0]
    for now in range(1, rounds):
        path[now] = _MEMORY * path[now - 1] + np.sqrt(1 - _MEMORY**2) * noise[now]
    return mean * np.exp(spread * path - spread**2 / 2)


@contextmanager
def slowed(device: int) -> Iterator[None]:
    """Let this thread compute for the device's part of the time: after each slice it rests."""
    computed, started = time.thread_time(), time.perf_counter()

    def rest(*_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        due = (time.thread_time() - computed) / _DUTY[device]
        time.sleep(max(0.0, due - (time.perf_counter() - started)))
        signal.setitimer(signal.ITIMER_PROF, _SLICE_S)

    before = signal.signal(signal.SIGPROF, rest)
    signal.setitimer(signal.ITIMER_PROF, _SLICE_S)
    try:
        yield
        rest()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def pace(size: int, rate_bps: float) -> float:
    """Take so many bytes out of a token bucket of a rate; how long it took [s]."""
    started = refilled = time.perf_counter()
    tokens, left = 0.0, size
    while left > 0:
        needed = min(left, _BUCKET_BYTES)
        time.sleep(max(0.0, 8 * (needed - tokens) / rate_bps))
        now = time.perf_counter()
        tokens = min(tokens + (now - refilled) * rate_bps / 8, _BUCKET_BYTES)
        refilled = now
        if tokens >= needed:
            tokens, left = tokens - needed, left - needed
    return time.perf_counter() - started

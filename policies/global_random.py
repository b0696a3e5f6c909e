"""The global generators of random numbers: Python's, NumPy's and, if it is loaded, torch's."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


def get_states() -> list[Any]:
    """The states of Python's, NumPy's and torch's generators."""
    states = [random.getstate(), np.random.get_state()]  # noqa: NPY002 - what users draw from
    torch = sys.modules.get("torch")
    return states if torch is None else [*states, torch.get_rng_state()]


def set_states(states: Sequence[Any]) -> None:
    """Let the generators continue from states; torch's only if it was loaded then and is now."""
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None:
        for state in states[2:]:
            torch.set_rng_state(state)


_LOCK = threading.RLock()  # one thread at a time, as all share the generators


@contextmanager
def seeded(*seeds: int) -> Iterator[None]:
    """Seed the generators in a block, so that user code draws the same numbers in every process.

    After the block they continue as before it.
    """
    with _LOCK:
        before = get_states()
        words = np.random.SeedSequence(seeds).generate_state(4)
        random.seed(words.tobytes())
        np.random.seed(words)  # noqa: NPY002
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.default_generator.manual_seed(int(words[0]))  # leaves GPUs alone
        try:
            yield
        finally:
            set_states(before)

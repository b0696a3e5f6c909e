"""PyTorch's default modes, independent of the caller's settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch


@contextmanager
def default_modes() -> Iterator[None]:
    """Run the block with gradients, outside inference mode, and in float32 by default."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)


@contextmanager
def repeatable(device: torch.device, threads: int) -> Iterator[None]:
    """Run the block with this number of threads, full precision and deterministic kernels."""
    cudnn = torch.backends.cudnn
    before = torch.get_num_threads(), cudnn.deterministic, cudnn.benchmark
    torch.set_num_threads(threads)
    cudnn.deterministic = True
    cudnn.benchmark = False
    precision = None
    with suppress(RuntimeError):  # raised if the caller has set it by torch's newer interface
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
    try:
        with default_modes(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_num_threads(before[0])
        cudnn.deterministic, cudnn.benchmark = before[1:]
        if precision is not None:
            torch.set_float32_matmul_precision(precision)

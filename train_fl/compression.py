"""Compressors of updates, between local training and the server.

An update is a list of float32 arrays, one for each parameter tensor of the model. A compressor
encodes it as bytes on the device and decodes it on the server; the system counts these bytes
(`fl_edge_env.Scenario.upload_bits`).

References
----------
.. [Alistarh2017] Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-efficient SGD via
   gradient quantization and encoding", NeurIPS 2017.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fl_edge_env.checks import read_only
from fl_edge_env.compression import Compression, index_width, is_custom, kept_parameters
from fl_edge_env.typing import Float32Array
from policies.user_code import load_reference, user_errors

Shape: TypeAlias = tuple[int, ...]
Update: TypeAlias = list[Float32Array]

_FLOAT = np.dtype("<f4")  # the byte order of uploads, on any machine


class Compressor(ABC):
    """Encodes updates as bytes and decodes them.

    A user-defined compressor is a subclass with these two methods, given as ``make_task(…,
    compression=…)``. It must write the same number of bytes for all updates of the same shapes, as
    the server plans a round before devices train, and draw random numbers only from `rng`.

    Attributes
    ----------
    error_feedback : bool
        True if devices add the residual of their earlier updates to each update (Stich et al.,
        "Sparsified SGD with memory", NeurIPS 2018).
    """

    error_feedback: ClassVar[bool] = False

    @abstractmethod
    def encode(self, update: Update, rng: Generator) -> bytes:
        """Encode a device's update; `rng` is the device's random stream in this round."""

    @abstractmethod
    def decode(self, data: bytes, shapes: Sequence[Shape]) -> Update:
        """Decode an update with arrays of these shapes, in float32."""


@dataclass(frozen=True)
class QSGD(Compressor):
    """Unbiased rounding to a few bits per parameter, scaled by each tensor's largest magnitude.

    With s this magnitude and ``L = 2**(bits - 1) - 1``, a parameter u is rounded at random to one
    of the two nearest multiples of s/L, with mean u [Alistarh2017]_. The error of a parameter is at
    most s/L and its variance at most ``(s / L)**2 / 4``. With one bit the values are s and -s, and
    the variance is ``s**2 - u**2``.

    Parameters
    ----------
    bits : int
        Bits per parameter, from 1 to 16.
    """

    bits: int

    def encode(self, update: Update, rng: Generator) -> bytes:
        """Write the scales, then the codes; see `Compressor.encode`."""
        flat = _flat(update)
        sizes = [part.size for part in update]
        steps = self._steps
        scales = np.maximum.reduceat(np.abs(flat), np.cumsum([0, *sizes[:-1]]))
        scale = np.repeat(np.where(scales > 0.0, scales, np.float32(1.0)), sizes)
        level = flat / scale * np.float32(steps) + np.float32(steps % 1.0)
        below = np.floor(level)
        up = rng.random(flat.size, dtype=np.float32) < level - below
        codes = below.astype(np.int32) + (int(steps) + up)
        return scales.astype(_FLOAT).tobytes() + _pack(codes, self.bits)

    def decode(self, data: bytes, shapes: Sequence[Shape]) -> Update:
        """See `Compressor.decode`."""
        sizes = [math.prod(shape) for shape in shapes]
        steps = np.float32(self._steps)
        scales = np.frombuffer(data, _FLOAT, len(shapes)).astype(np.float32)
        codes = _unpack(data[_FLOAT.itemsize * len(shapes) :], self.bits, sum(sizes))
        return _split((codes.astype(np.float32) - steps) / steps * np.repeat(scales, sizes), shapes)

    @property
    def _steps(self) -> float:
        """Number of steps from 0 to s: one half with one bit, as one step leads from -s to s."""
        return max(2.0 ** (self.bits - 1) - 1.0, 0.5)


@dataclass(frozen=True)
class TopK(Compressor):
    """Sends the largest entries of an update; devices keep the rest for later rounds.

    Parameters
    ----------
    share : float
        Fraction of the parameters that is sent, in (0, 1].
    """

    share: float
    error_feedback = True

    def encode(self, update: Update, rng: Generator) -> bytes:  # noqa: ARG002
        """Write the indices, then the values; see `Compressor.encode`."""
        flat = _flat(update)
        kept = kept_parameters(self.share, flat.size)
        indices = np.sort(np.argpartition(-np.abs(flat), kept - 1)[:kept])
        return _pack(indices, index_width(flat.size)) + flat[indices].astype(_FLOAT).tobytes()

    def decode(self, data: bytes, shapes: Sequence[Shape]) -> Update:
        """See `Compressor.decode`."""
        flat = np.zeros(sum(map(math.prod, shapes)), dtype=np.float32)
        kept = kept_parameters(self.share, flat.size)
        width = index_width(flat.size)
        values = data[-_FLOAT.itemsize * kept :]
        flat[_unpack(data, width, kept)] = np.frombuffer(values, _FLOAT)
        return _split(flat, shapes)


class Uploads(NamedTuple):
    """How updates with these shapes get from a device to the server."""

    shapes: Sequence[Shape]
    compressor: Compressor | None = None

    @property
    def remembers(self) -> bool:
        """True if devices keep residuals of their updates, for error feedback."""
        return self.compressor is not None and self.compressor.error_feedback

    def encoded(self, update: Float32Array, rng: Generator) -> bytes:
        """An update, shape (d,), as the compressor encodes it."""
        assert self.compressor is not None
        return self.compressor.encode(_split(read_only(update.view()), self.shapes), rng)

    def sent(
        self,
        update: Float32Array,
        left: Float32Array | None,
        rng: Generator,
    ) -> tuple[bytes, Float32Array | None]:
        """Encode an update plus the residual `left`; return the bytes and the new residual.

        Residuals are None if the compressor has no error feedback.
        """
        if left is None:
            return self.encoded(update, rng), None
        whole = update + left
        data = self.encoded(whole, rng)
        return data, whole - self.decoded(data)

    def decoded(self, data: bytes) -> Float32Array:
        """The update that the server decodes, shape (d,)."""
        assert self.compressor is not None
        return _flat(self.compressor.decode(data, self.shapes))


def load_compressor(name: str) -> Compressor:
    """Load a user-defined compressor by ``my_file.py:MyCompressor``; `ValueError` if it fails."""
    if not is_custom(name):
        raise ValueError(
            "the compression of a task must be a user-defined compressor, such as "
            f"my_file.py:MyCompressor, got {name!r}: qsgd and topk belong to the scenario"
        )
    kind = load_reference(name, kind="subclass of Compressor", bases=(Compressor,))
    with user_errors(name):
        return kind()


def make_compressor(compression: str) -> Compressor | None:
    """The compressor for a scenario's setting: None for ``"none"``, `ValueError` for ``"bits"``."""
    kind, number = Compression.parse("compression", compression)
    if kind == "bits":
        raise ValueError(
            f"compression {compression!r} gives only the size of an upload: give the compressor "
            "itself, a class with encode and decode"
        )
    if kind == "none":
        return None
    return QSGD(int(number)) if kind == "qsgd" else TopK(number)


def upload_bytes(compressor: Compressor, shapes: Sequence[Shape]) -> int:
    """Number of bytes that a compressor writes for updates with these shapes.

    Raises `ValueError` if the number depends on the update, the result is not finite float32 of the
    same shapes, or results differ for the same random stream.
    """
    name = f"the compressor {type(compressor).__name__}"
    rng = np.random.default_rng(0)
    trial = rng.standard_normal(sum(map(math.prod, shapes)), dtype=np.float32)
    uploads = Uploads(shapes, compressor)
    with user_errors(name):
        first, again, nothing = (
            uploads.encoded(update, np.random.default_rng(1))
            for update in (trial, trial, np.zeros_like(trial))
        )
    if not isinstance(first, bytes):
        raise ValueError(f"{name} must encode to bytes, got {type(first).__name__}")
    if len(nothing) != len(first):
        raise ValueError(
            f"{name} must write the same number of bytes for all updates of the same shapes, got "
            f"{len(first)} and {len(nothing)}: pad the shorter ones"
        )
    with user_errors(name):
        decoded = [compressor.decode(data, shapes) for data in (first, again)]
    _check_decoded(name, decoded[0], shapes)
    if not all(map(np.array_equal, *decoded)):
        raise ValueError(
            f"{name} gives different results for the same update and stream: it must draw only "
            "from the rng that encode is given, and keep no state"
        )
    return len(first)


def _check_decoded(name: str, decoded: Any, shapes: Sequence[Shape]) -> None:
    """Raise `ValueError` unless these are finite float32 arrays of the shapes."""
    if not isinstance(decoded, list) or len(decoded) != len(shapes):
        raise ValueError(f"{name} must decode to a list of {len(shapes)} arrays, got {decoded!r}")
    for part, shape in zip(decoded, shapes, strict=True):
        kind = getattr(part, "dtype", type(part).__name__)
        if np.shape(part) != shape or kind != np.float32 or not np.isfinite(part).all():
            raise ValueError(
                f"{name} must decode to finite float32 of shape {shape}, got {kind} of shape "
                f"{np.shape(part)}"
            )


def _flat(update: Update) -> Float32Array:
    return np.concatenate([part.ravel() for part in update])


def _split(flat: Float32Array, shapes: Sequence[Shape]) -> Update:
    parts = []
    start = 0
    for shape in shapes:
        size = math.prod(shape)
        parts.append(flat[start : start + size].reshape(shape))
        start += size
    return parts


# Integers are packed one after the other, the most significant bit first.


def _pack(numbers: NDArray[Any], width: int) -> bytes:
    kind = np.dtype(">u2" if width <= 16 else ">u4")
    bits = np.unpackbits(numbers.astype(kind).view(np.uint8)).reshape(-1, 8 * kind.itemsize)
    return np.packbits(bits[:, -width:]).tobytes()


def _unpack(data: bytes, width: int, count: int) -> NDArray[Any]:
    packed = np.frombuffer(data, np.uint8, -(-width * count // 8))
    kind = np.dtype(">u2" if width <= 16 else ">u4")
    bits = np.zeros((count, 8 * kind.itemsize), dtype=np.uint8)
    bits[:, -width:] = np.unpackbits(packed, count=width * count).reshape(count, width)
    return np.packbits(bits).view(kind).astype(np.int64)

"""Sizes of compressed uploads: the number of bits that the encoders in `train_fl` write."""

from __future__ import annotations

from typing import NamedTuple

from fl_edge_env.checks import did_you_mean, quoted

MOST_BITS = 16
_NUMBER = 32  # bits of a parameter that is not compressed
# The kinds before the colon, and the values allowed after it.
_KINDS = {
    "qsgd": f"an integer from 1 to {MOST_BITS}, the bits of a parameter",
    "topk": "a number in (0, 1], the fraction of the parameters to keep",
    "bits": "a positive integer, the bits of an upload",
}


class Compression(NamedTuple):
    """A kind of compression and its number.

    ``"none"``; ``"qsgd"`` with the bits per parameter; ``"topk"`` with the fraction of the
    parameters to keep; or ``"bits"`` with the upload size of a user-defined compressor.
    """

    kind: str
    number: float = 0.0

    @classmethod
    def parse(cls, name: str, text: object) -> Compression:
        """Parse a text such as ``"qsgd:4"``; a `ValueError` calls the argument `name`."""
        if isinstance(text, str) and text == "none":
            return cls("none")
        kind, _, number = text.partition(":") if isinstance(text, str) else ("", "", "")
        if kind not in _KINDS:
            meant = did_you_mean(kind, ("none", *_KINDS))
            raise ValueError(
                f"{name} must be none, qsgd:BITS, topk:SHARE or bits:NUMBER, got {quoted(text)}"
                f"{meant}"
            )
        try:
            value = float(number) if kind == "topk" else float(int(number))
        except (ValueError, OverflowError):
            value = 0.0
        most = {"qsgd": MOST_BITS, "topk": 1.0}.get(kind, 1e15)
        if not 0 < value <= most:
            raise ValueError(f"{name} {kind} needs {_KINDS[kind]}, got {text!r}")
        return cls(kind, value)

    def size(self, model_bits: float, num_tensors: int) -> float:
        """Upload size of a model with this many bits and tensors [bit]."""
        if self.kind == "none":
            return model_bits
        if self.kind == "bits":
            return self.number
        parameters = round(model_bits / _NUMBER)
        if self.kind == "qsgd":
            return float(_whole_bytes(int(self.number) * parameters) + _NUMBER * num_tensors)
        kept = kept_parameters(self.number, parameters)
        return float(_whole_bytes(index_width(parameters) * kept) + _NUMBER * kept)


def sent_bits(name: str, text: str, model_bits: float, num_tensors: int) -> float:
    """Size of a model with this many bits and tensors after compression [bit].

    Raises `ValueError` for the field `name` if its text is invalid or makes the model larger.
    """
    compression = Compression.parse(name, text)
    if compression.kind in ("topk", "bits") and name == "download_compression":
        raise ValueError(
            "download_compression must be none or qsgd:BITS, as devices need every parameter "
            f"of the model, got {text!r}"
        )
    bits = compression.size(model_bits, num_tensors)
    if bits > model_bits:
        raise ValueError(
            f"{name} {text!r} writes {bits:.0f} bits, more than the uncompressed model's "
            f"{model_bits:.0f}: choose a smaller number, or none"
        )
    return bits


def is_custom(text: str) -> bool:
    """True for a user-defined compressor, as ``my_file.py:MyCompressor``."""
    kind, _, name = text.rpartition(":")
    return kind not in ("", *_KINDS) and name.isidentifier()


def kept_parameters(share: float, parameters: int) -> int:
    """Number of parameters that ``"topk"`` sends."""
    return max(1, round(share * parameters))


def index_width(parameters: int) -> int:
    """Number of bits that encode the index of a parameter."""
    return max(1, (parameters - 1).bit_length())


def _whole_bytes(bits: int) -> int:
    return 8 * -(-bits // 8)

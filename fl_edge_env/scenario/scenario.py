"""The federated edge system as one immutable, validated object."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fl_edge_env import physics
from fl_edge_env.channels import ChannelModel, ExponentialChannel
from fl_edge_env.channels.protocol import check_channel, mean_gains
from fl_edge_env.checks import (
    BELOW_ONE,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_INFINITE,
    PROBABILITY,
    did_you_mean,
    is_real,
    number_in,
    one_of,
    per_device,
    positive_integer,
    read_only,
)
from fl_edge_env.compression import sent_bits
from fl_edge_env.files import as_value_error, atomic_path, user_path
from fl_edge_env.scenario import presets, toml
from fl_edge_env.scenario.calibration import calibrate, check_finite
from fl_edge_env.scenario.from_log import system_of_log
from fl_edge_env.typing import FloatArray

# A per-device field is given as a scalar or an (N,) array and is kept as an (N,) array.
PerDevice: TypeAlias = Any

# Ranges of numeric fields other than positive and finite, and allowed words of text fields.
_RANGES = {
    "download_rate_bps": POSITIVE_OR_INFINITE,
    "mu": NOT_NEGATIVE,
    "lambda_": NOT_NEGATIVE,
    "availability": PROBABILITY,
    "upload_failure": BELOW_ONE,
    "deadline_s": POSITIVE_OR_INFINITE,
    "overhead_s": NOT_NEGATIVE,
}
_WORDS = {
    "latency": ("proxy", "round_time"),
    "csi": ("full", "delayed", "participants"),
    "objective": ("penalty", "outcome"),
}
# Pairs of fields that replace each other: only one can be given.
_EITHER = {"lambda_": "mu", "V": "nu", "noise_density_w_hz": "noise_power_w"}
# Fields that a saved scenario leaves out if they have their defaults.
_OPTIONS = ["csi", "objective", "availability", "upload_failure", "deadline_s", "overhead_s"]
_OPTIONS += ["download_rate_bps", "compression", "download_compression", "model_tensors"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario:
    """A federated learning system at the wireless edge and the weights of its objective.

    The defaults are the paper's CIFAR-10 system. Fields marked (N,) take a scalar or one value
    for each device and are kept as read-only float arrays.

    Parameters
    ----------
    num_devices : int
        Number of devices N, at most 10,000,000.
    cohort_size : int
        Number of draws with replacement in a round, K, at most 10,000,000.
    num_rounds : int
        Length of an episode [rounds].
    bandwidth_hz : float
        Uplink bandwidth B [Hz].
    noise_power_w : float, optional
        Total noise power N0 in B/K of the band [W], by default 0.01. In the paper it is the same
        for every K, so the noise density, and with it the upload time, grows with K.
    noise_density_w_hz : float, optional
        Noise density [W/Hz], instead of `noise_power_w`, which is then the density times B/K.
    model_bits : float
        Size of a model update M, 32 bits a parameter [bit].
    num_samples : float, (N,)
        Local data set sizes D_n. By default 50,000 samples are split evenly.
    local_epochs : float, (N,)
        Local epochs E; a fraction is a part of a pass over the data.
    cycles_per_sample : float, (N,)
        CPU cycles to process one sample, c_n.
    capacitance : float, (N,)
        Capacitance coefficient alpha_n [W/Hz^3]; computing at f draws the power alpha f^3 / 2.
    f_min, f_max : float, (N,)
        CPU frequency range [Hz].
    p_min, p_max : float, (N,)
        Transmission power range [W].
    energy_budget_j : float, (N,)
        Time-average energy budget of each device [J per round].
    download_rate_bps : float, (N,)
        Download rate [bit/s]; infinite (no download time) by default, as in the paper.
    channel : ChannelModel, str or dict
        How gains are drawn; ``"markov:0.8"`` or the table of a file describes a channel.
    mu, nu : float
        Scale factors of the calibrated lambda and V.
    lambda_, V : float, optional
        Weight of the sampling error [s] and of the penalty against the queues [J^2/s], instead of
        the calibrated ones.
    latency : {"proxy", "round_time"}
        Latency in penalty and reward: the paper's ``sum_n q_n T_n``, or the expected longest time
        in the cohort.
    csi : {"full", "delayed", "participants"}
        Channel state information, the gains that the server knows when it decides: of the coming
        round, of the previous round, or from each device's last participation.
    objective : {"penalty", "outcome"}
        What the reward measures: the paper's drift-plus-penalty; or the round time alone, with
        energy and participation as constraints (see `FLEdgeEnv`).
    availability : float, (N,)
        Probability that a device is available in a round, in (0, 1]; see
        `fl_edge_env.streams.draw_available`.
    upload_failure : float
        Probability that an upload fails after the device has spent its time and energy, in [0, 1).
    deadline_s : float
        Time after which the server ends the round, even if devices have not finished [s]; infinite
        by default. A late device has spent energy until then, and its update is lost.
    compression : str
        How updates are compressed for the upload: ``"none"``; ``"qsgd:4"``, unbiased rounding to
        this many bits per parameter, from 1 to 16, with a scale for each tensor; ``"topk:0.01"``,
        this fraction of the parameters, with the largest updates; or ``"bits:48720"``, the upload
        size of a user-defined compressor. See `upload_bits` and `train_fl.compression`.
    download_compression : str
        How the model that the server sends is compressed: ``"none"`` or ``"qsgd:8"``.
    model_tensors : int
        Number of parameter tensors in the model.
    overhead_s : float, (N,)
        Fixed overhead per participation [s], for example messages and program start, before
        download and computing; it takes no energy. Zero by default.

    Attributes
    ----------
    weights : ndarray, shape (N,)
        Data weights w_n = D_n / sum D.
    lambda_ : float
        Weight of the sampling error [s]: as given, or ``mu * lambda0``.
    V : float
        Weight of the penalty against the queues [J^2/s]: as given, or ``nu * V0``.

    Raises
    ------
    ValueError
        If a field has a wrong value; the message names the field, the value and what is allowed.
        Also if the fields together give an infinite time or energy, or a V of zero.
    TypeError
        If a keyword is not a field.

    Examples
    --------
    >>> scenario = Scenario.cifar10(cohort_size=4)
    >>> scenario.num_devices, scenario.cohort_size
    (120, 4)
    """

    num_devices: int = 120
    cohort_size: int = 2
    num_rounds: int = 1000
    bandwidth_hz: float = 1e6
    noise_power_w: Any = None
    noise_density_w_hz: Any = None
    model_bits: float = 32.0 * presets.RESNET18_PARAMETERS
    num_samples: PerDevice = None
    local_epochs: PerDevice = 2.0
    cycles_per_sample: PerDevice = 3e9
    capacitance: PerDevice = 2e-28
    f_min: PerDevice = 1e9
    f_max: PerDevice = 2e9
    p_min: PerDevice = 0.001
    p_max: PerDevice = 0.1
    energy_budget_j: PerDevice = 15.0
    download_rate_bps: PerDevice = math.inf
    channel: ChannelModel = field(default_factory=ExponentialChannel)
    mu: float = 1.0
    nu: float = 1e5
    lambda_: Any = None
    V: Any = None
    latency: str = "proxy"
    csi: str = "full"
    objective: str = "penalty"
    availability: PerDevice = 1.0
    upload_failure: float = 0.0
    deadline_s: float = math.inf
    compression: str = "none"
    download_compression: str = "none"
    model_tensors: int = presets.RESNET18_TENSORS
    overhead_s: PerDevice = 0.0

    def __post_init__(self) -> None:
        values = vars(self)  # which can be set although the dataclass is frozen
        if self.noise_power_w is None and self.noise_density_w_hz is None:
            values["noise_power_w"] = 0.01  # the paper's
        for each in dataclasses.fields(self):
            values[each.name] = self._checked(each.name, each.type)
        self._check_pairs()
        values["_given"] = {n: values[n] for n in ("lambda_", "V", "noise_power_w")}
        if self.noise_density_w_hz is not None:
            noise = self.noise_density_w_hz * self.bandwidth_hz / self.cohort_size
            values["noise_power_w"] = number_in(
                POSITIVE, "noise_density_w_hz * bandwidth_hz / cohort_size", noise
            )
        if isinstance(self.channel, str | dict):
            values["channel"] = toml.make_channel(self.channel)
        if hasattr(self.channel, "in_system"):
            values["channel"] = self.channel.in_system(self)
        check_channel(self.channel, self.num_devices)
        check_finite(self, self.channel.gain_min)  # with the sizes of what is sent
        values["lambda_"], values["V"] = calibrate(self, lambda_=self.lambda_, V=self.V)

    def _checked(self, name: str, kind: Any) -> Any:
        """Return a field's value as it is kept; `ValueError` if it is wrong by itself."""
        value = getattr(self, name)
        if name in ("num_devices", "cohort_size"):
            return presets.check_number(value, name)
        if name == "num_samples" and value is None:
            value = presets.CIFAR10_SAMPLES / self.num_devices
        allowed = _RANGES.get(name, POSITIVE)
        if kind == "int":
            return positive_integer(name, value)
        if kind == "PerDevice":
            return per_device(name, value, self.num_devices, allowed)
        if kind == "float" or (kind == "Any" and value is not None):
            return number_in(allowed, name, value)
        return one_of(name, value, _WORDS[name]) if name in _WORDS else value

    def _check_pairs(self) -> None:
        """Raise `ValueError` if two fields exclude each other."""
        for name, other in _EITHER.items():
            one = getattr(self, name)
            instead = getattr(self, other)
            if one is not None and instead != getattr(type(self), other):
                raise ValueError(
                    f"{name} replaces {other}: give one of them, got {name} = {one} and "
                    f"{other} = {instead}"
                )
        for low, high in (("f_min", "f_max"), ("p_min", "p_max")):
            ends = getattr(self, low), getattr(self, high)
            wrong = ends[0] > ends[1]
            if wrong.any():
                raise ValueError(
                    f"{low} must not exceed {high}, got {_show(ends[0])} and {_show(ends[1])}, "
                    f"first at device {int(wrong.argmax())}"
                )

    @classmethod
    def preset(cls, name: str, /, **fields: Any) -> Scenario:
        """Make a preset by name, with any fields changed; see `fl_edge_env.scenario.presets`.

        The names are ``"cifar10"``, ``"femnist"``, ``"fashion_mnist"``, ``"digits"``, ``"cell"``,
        ``"phones"`` and ``"mobile"``. Raises `ValueError` if there is no preset of that name.
        """
        cls._check_names(fields)
        preset = presets.PRESETS[one_of("scenario", name, list(presets.PRESETS))]
        number = presets.check_number(fields.get("num_devices", preset.num_devices))
        return cls(**preset.fields_for(number) | _displaced(fields) | fields)

    @classmethod
    def cifar10(cls, **fields: Any) -> Scenario:
        """The paper's CIFAR-10 system: ResNet-18, 50,000 images split evenly."""
        return cls.preset("cifar10", **fields)

    @classmethod
    def femnist(cls, **fields: Any) -> Scenario:
        """The paper's FEMNIST system: a CNN, and devices with unequal data."""
        return cls.preset("femnist", **fields)

    @classmethod
    def fashion_mnist(cls, **fields: Any) -> Scenario:
        """The FEMNIST system with the 60,000 images of Fashion-MNIST."""
        return cls.preset("fashion_mnist", **fields)

    @classmethod
    def digits(cls, **fields: Any) -> Scenario:
        """A small system that trains within seconds: a CNN on scikit-learn's digits."""
        return cls.preset("digits", **fields)

    @classmethod
    def cell(cls, **fields: Any) -> Scenario:
        """The CIFAR-10 system with near and far devices, a default `CellChannel`."""
        return cls.preset("cell", **fields)

    @classmethod
    def phones(cls, **fields: Any) -> Scenario:
        """The CIFAR-10 system on phones of measured speeds and uplinks."""
        return cls.preset("phones", **fields)

    @classmethod
    def mobile(cls, **fields: Any) -> Scenario:
        """The system of `phones` with download times at a measured rate."""
        return cls.preset("mobile", **fields)

    @classmethod
    def from_log(cls, path: str | Path, **fields: Any) -> Scenario:
        """Make the scenario of a federation's log, with any fields changed.

        See `fl_edge_env.scenario.from_log`. Raises `ValueError` if the file is missing or
        malformed, or has no measured training or upload time; the message names the file, row and
        column.
        """
        cls._check_names(fields)
        given = fields.get("cohort_size"), fields.get("capacitance", cls.capacitance)
        return cls(**system_of_log(path, *given) | _displaced(fields) | fields)

    def replace(self, **fields: Any) -> Scenario:
        """Return a copy with some fields changed.

        When `num_devices` changes and all devices have equally many samples, the same samples are
        split among the new number of devices. Other per-device fields with one common value keep
        it, and the rest must be given again. A given weight (`lambda_`, `V`) replaces its scale
        (`mu`, `nu`), and vice versa; so do noise power and noise density. Raises `ValueError` if a
        value is wrong, or a per-device field does not fit the new `num_devices`, and `TypeError` if
        a keyword is not a field.
        """
        self._check_names(fields)
        own = self.to_dict()
        number = presets.check_number(fields.get("num_devices", self.num_devices))
        if number != self.num_devices and is_real(own["num_samples"]):
            own["num_samples"] = presets.split_anew(own["num_samples"], self.num_devices, number)
        return type(self)(**own | _displaced(fields) | fields)

    @classmethod
    def _check_names(cls, names: Iterable[str]) -> None:
        known = [field.name for field in dataclasses.fields(cls)]
        for name in names:
            if name not in known:
                raise TypeError(
                    f"got an unexpected keyword argument '{name}', which is not a field of Scenario"
                    f"{did_you_mean(name, known)}"
                )

    @classmethod
    def load(cls, path: str | Path, **fields: Any) -> Scenario:
        """Read a scenario from a TOML file as written by `save`, with any fields changed.

        A key ``preset`` names the preset that supplies the fields not given, CIFAR-10 by default.
        If `num_devices` changes, equal samples are split as in `replace`.

        Raises `ValueError` if the file is missing, not TOML, has an unknown key or a wrong value,
        or has per-device fields that do not fit another `num_devices`.
        """
        cls._check_names(fields)
        values = toml.read(Path(path))
        with as_value_error(f"in the scenario {str(path)!r}{' as changed' if fields else ''}: "):
            return cls.from_dict(values, **fields)

    @classmethod
    def from_dict(cls, values: dict[str, Any], **fields: Any) -> Scenario:
        """Make a scenario from the values of a file, as `load` does, with the same errors."""
        own = dict(values)
        name = own.pop("preset", "cifar10")
        if "num_devices" in fields and is_real(own.get("num_samples")):
            number = own.get("num_devices") or cls.preset(name).num_devices
            before = presets.check_number(number)
            own["num_samples"] = presets.split_anew(
                own["num_samples"], before, fields["num_devices"]
            )
        return cls.preset(name, **own | _displaced(fields) | fields)

    def save(self, path: str | Path) -> None:
        """Write all fields, except options that are off, to a TOML file, atomically.

        Raises `ValueError` if the channel is user-defined, and `OSError` if the file cannot be
        written.
        """
        path = user_path(path)
        text = toml.dumps(self.saved_fields(), path.parent)
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, as given; a value common to all devices is a scalar."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | self._given
        for name in self.per_device_fields:
            if np.all(values[name] == values[name][0]):
                values[name] = float(values[name][0])
        return values

    def saved_fields(self) -> dict[str, Any]:
        """Return the values that `save` writes; `ValueError` if the channel is user-defined."""
        fields = self.to_dict()
        off = [name for name in _OPTIONS if np.all(fields[name] == getattr(type(self), name))]
        return toml.plain({name: fields[name] for name in fields if name not in off})

    def __repr__(self) -> str:
        shown = (
            f"{name}={_show(value) if isinstance(value, np.ndarray) else repr(value)}"
            for name, value in self.to_dict().items()
            if value is not None
        )
        return f"Scenario({', '.join(shown)})"

    # Equality and pickling use the fields: a dataclass would compare arrays with `==`, and a
    # pickled array would become writeable.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scenario):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name))
            for f in dataclasses.fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.num_devices, self.cohort_size, self.model_bits, self.mu, self.nu))

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_fields, (type(self), self.to_dict())

    _given: ClassVar[dict[str, float | None]]  # calibrated or derived fields, None if not given
    per_device_fields: ClassVar[tuple[str, ...]]

    # Derived quantities

    @cached_property
    def weights(self) -> FloatArray:
        """Data weights w_n, shape (N,)."""
        return read_only(self.num_samples / np.sum(self.num_samples))

    @cached_property
    def mean_gain(self) -> FloatArray:
        """Nominal mean channel gain of each device, shape (N,)."""
        return read_only(mean_gains(self.channel, self.num_devices))

    @cached_property
    def mean_time(self) -> float:
        """Mean device time [s] at the mean gain and the middle of all ranges."""
        time, _ = physics.time_and_energy(self.mean_gain, self.f_mid, self.p_mid, self)
        return float(time.mean())

    @cached_property
    def drops_out(self) -> bool:
        """True if some device is not always available."""
        return bool(np.any(self.availability < 1))

    @cached_property
    def upload_bits(self) -> float:
        """Size of an upload [bit]."""
        return sent_bits("compression", self.compression, self.model_bits, self.model_tensors)

    @cached_property
    def cycles_per_round(self) -> FloatArray:
        """CPU cycles of a round, E_n c_n D_n, shape (N,)."""
        return read_only(self.local_epochs * self.cycles_per_sample * self.num_samples)

    @cached_property
    def energy_per_hz2(self) -> FloatArray:
        """Computing energy of a round over f^2, alpha_n E_n c_n D_n / 2 [J/Hz^2], shape (N,)."""
        return read_only(0.5 * self.capacitance * self.cycles_per_round)

    @cached_property
    def waiting_time(self) -> FloatArray:
        """Time until each device computes [s]: overhead and download, equation (7), shape (N,)."""
        sent = self.model_bits, self.model_tensors
        bits = sent_bits("download_compression", self.download_compression, *sent)
        return read_only(bits / self.download_rate_bps + self.overhead_s)

    @cached_property
    def f_mid(self) -> FloatArray:
        """Middle of the frequency range [Hz], shape (N,)."""
        return read_only(0.5 * (self.f_min + self.f_max))

    @cached_property
    def p_mid(self) -> FloatArray:
        """Middle of the power range [W], shape (N,)."""
        return read_only(0.5 * (self.p_min + self.p_max))


Scenario.per_device_fields = tuple(
    field.name for field in dataclasses.fields(Scenario) if field.type == "PerDevice"
)


def _displaced(fields: dict[str, Any]) -> dict[str, Any]:
    """Reset values of the fields that the given ones replace."""
    displaced = {}
    for one, other in _EITHER.items():
        if fields.get(one) is not None:
            displaced[other] = getattr(Scenario, other)
        elif other in fields:
            displaced[one] = None
    return displaced


def _from_fields(kind: type[Scenario], fields: dict[str, Any]) -> Scenario:
    with warnings.catch_warnings(action="ignore"):  # the original has warned
        return kind(**fields)


def _show(values: FloatArray) -> str:
    return np.array2string(values, threshold=6, edgeitems=2)

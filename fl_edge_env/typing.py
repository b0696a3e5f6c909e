"""Types shared by the packages, and the system in the paper's equations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Float32Array: TypeAlias = NDArray[np.float32]
Observed: TypeAlias = Mapping[str, FloatArray]  # an observation that is only read
Info: TypeAlias = Mapping[str, Any]  # the info of a reset or of a step, only read


class System(Protocol):
    """The constants of the paper's equations, as in `Scenario`; arrays have shape (N,)."""

    @property
    def num_devices(self) -> int: ...  # N
    @property
    def cohort_size(self) -> int: ...  # K
    @property
    def num_rounds(self) -> int: ...  # R
    @property
    def bandwidth_hz(self) -> float: ...  # B [Hz]
    @property
    def noise_power_w(self) -> float: ...  # N0, in B/K of the band [W]
    @property
    def upload_bits(self) -> float: ...  # M [bit]
    @property
    def waiting_time(self) -> FloatArray: ...  # before computing [s]
    @property
    def deadline_s(self) -> float: ...  # infinite if the server waits for all [s]
    @property
    def cycles_per_round(self) -> FloatArray: ...  # E c_n D_n
    @property
    def capacitance(self) -> FloatArray: ...  # alpha_n [W/Hz^3]
    @property
    def energy_per_hz2(self) -> FloatArray: ...  # alpha_n E c_n D_n / 2 [J/Hz^2]
    @property
    def energy_budget_j(self) -> FloatArray: ...  # [J]
    @property
    def weights(self) -> FloatArray: ...  # w_n
    @property
    def latency(self) -> str: ...  # "proxy" or "round_time"
    @property
    def lambda_(self) -> float: ...  # [s]
    @property
    def V(self) -> float: ...  # [J^2/s]
    @property
    def mu(self) -> float: ...
    @property
    def nu(self) -> float: ...
    @property
    def mean_gain(self) -> FloatArray: ...
    @property
    def f_min(self) -> FloatArray: ...  # [Hz]
    @property
    def f_mid(self) -> FloatArray: ...
    @property
    def f_max(self) -> FloatArray: ...
    @property
    def p_min(self) -> FloatArray: ...  # [W]
    @property
    def p_mid(self) -> FloatArray: ...
    @property
    def p_max(self) -> FloatArray: ...

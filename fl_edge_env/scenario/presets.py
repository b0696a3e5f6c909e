"""Fields of the named systems, for any number of devices.

- ``cifar10``: the paper's system with ResNet-18 and 50,000 images split evenly.
- ``femnist``: the paper's system with a CNN and unequal data. The data set is not needed: the
  writers' sample counts are drawn with a fixed seed from LEAF's statistics, a normal distribution
  with mean 226.83 and standard deviation 88.94. Writers with fewer than 50 samples are dropped, as
  in the paper. Devices train on nine tenths of their samples; the others are for testing.
- ``fashion_mnist``: the FEMNIST system with freely available images. The CNN has ten classes, all
  devices hold equally many samples, and the budget is scaled with them.
- ``digits``: a small system, with the model size and sample counts of `train_fl`. With its cycles
  and budget, computing and uploading take about the same time, and a frequency in the interior of
  the range meets the budget.
- ``cell``: the CIFAR-10 system with near and far devices, a default `CellChannel`. Its noise is
  a density, as in the presets below, so K does not change a device's rate in a given bandwidth.
- ``phones``: the CIFAR-10 system on phones of measured speeds (see `fl_edge_env.scenario.phones`)
  with the uplinks of a default `UplinkChannel`. The median phone is the paper's device, with up to
  2 GHz and 15 J a round. At full power in half the bandwidth a device has its measured rate. The
  bandwidth is 10 MHz, with a mean gain of 0.07; in 1 MHz the rates would need gains far above the
  paper's.
- ``mobile``: ``phones`` with download times at 28.02 Mbit/s, the global mean of mobile downloads in
  August 2019 (Speedtest Global Index), from the same time as the phones' speeds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fl_edge_env.checks import positive_integer
from fl_edge_env.scenario.phones import phone_factors
from fl_edge_env.typing import FloatArray

RESNET18_PARAMETERS = 11_172_342
RESNET18_TENSORS = 62
CIFAR10_SAMPLES = 50_000
_MOST_DEVICES = 10_000_000  # more would fill the memory


def check_number(number: object, name: str = "num_devices") -> int:
    """Return a number of devices or draws as an int; `ValueError` if it is none or too large."""
    return positive_integer(name, number, _MOST_DEVICES)


def split_anew(share: float, before: int, num_devices: object) -> float:
    """Samples of each device after the same samples have been split among another number."""
    samples = float(f"{share * before:.12g}")  # without the rounding of the first split
    return samples / check_number(num_devices)


class Preset(NamedTuple):
    """The fields that differ from the defaults, and what else makes a system.

    Attributes
    ----------
    fields : dict
        The fields, for the median phone if the devices are `phones`.
    dataset : str
        Name of the data set.
    samples : int, optional
        Samples that are split evenly; None for FEMNIST's, which are drawn.
    num_devices : int
        Number of devices by default.
    phones : bool
        Whether the devices are phones of measured speeds.
    """

    fields: dict[str, Any]
    dataset: str
    samples: int | None = CIFAR10_SAMPLES
    num_devices: int = 120
    phones: bool = False

    def fields_for(self, num_devices: int) -> dict[str, Any]:
        """The fields of a system with this many devices."""
        fields = {"num_devices": num_devices} | self.fields
        if self.samples is None:
            fields["num_samples"] = _femnist_sample_counts(num_devices)
        else:
            fields["num_samples"] = self.samples / num_devices
        if self.phones:
            for name, factor in phone_factors(num_devices).items():
                fields[name] = fields[name] * factor
        return fields


def _femnist_sample_counts(num_devices: int) -> FloatArray:
    rng = np.random.default_rng(0)
    counts = np.empty(0)
    while counts.size < num_devices:
        draw = np.rint(rng.normal(226.83, 88.94, num_devices))
        counts = np.append(counts, draw[draw >= 50])
    counts = counts[:num_devices]
    return counts - np.rint(0.1 * counts)


_PHONES = {
    "f_min": 1e9,
    "f_max": 2e9,
    "capacitance": 2e-28,
    "energy_budget_j": 15.0,
    "bandwidth_hz": 10e6,
    "noise_density_w_hz": 2e-9,
    "channel": "uplinks",
}
PRESETS = {
    "cifar10": Preset({}, "cifar10"),
    "femnist": Preset(
        {
            "model_bits": 32.0 * 6_603_710,
            "model_tensors": 8,
            "cycles_per_sample": 2e9,
            "energy_budget_j": 5.0,
        },
        "femnist",
        samples=None,
    ),
    "fashion_mnist": Preset(
        {
            "model_bits": 32.0 * 6_497_162,
            "model_tensors": 8,
            "cycles_per_sample": 2e9,
            "energy_budget_j": 11.0,
        },
        "fashion_mnist",
        samples=60_000,
    ),
    "digits": Preset(
        {
            "num_rounds": 300,
            "model_bits": 32.0 * 6_090,
            "model_tensors": 6,
            "cycles_per_sample": 2e7,
            "energy_budget_j": 0.02,
        },
        "digits",
        samples=1_440,
        num_devices=40,
    ),
    "cell": Preset({"noise_density_w_hz": 2e-8, "channel": "cell"}, "cifar10"),
    "phones": Preset(_PHONES, "cifar10", phones=True),
    "mobile": Preset({**_PHONES, "download_rate_bps": 28.02e6}, "cifar10", phones=True),
}

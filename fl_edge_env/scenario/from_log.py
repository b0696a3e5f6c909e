"""Scenarios from the logs of federations.

A log is a CSV file with a row for each participation of a device in a round, and the columns
`COLUMNS` in any order, in SI units:

- ``round``: number of the round, an integer from 0;
- ``device``: name of the device, any text; at most once in a round;
- ``samples``, ``epochs``: the device's samples, and its passes over them;
- ``parameters``: parameters of the model;
- ``bytes_up``: size of the upload [bytes];
- ``train_s``, ``up_s``: time of training and of the upload [s]; empty if it was not measured.

`train_fl.federation.PolicyStrategy` writes such logs. Devices are sorted: numbers by value, then
names. Each device has the medians of its samples, epochs, training time and upload rate; a device
without a measured time gets the median of the others. K is the largest number of participants in a
round.

All devices have a frequency of 1 GHz and a power of 0.1 W; cycles and gains reproduce the logged
times. The mean rates of the `UplinkChannel` are the logged medians. Their relative deviation, the
same for all, is 1.48 times the median relative distance of a rate from its device's median, and at
least 3 %. The energy budget is a hundred times the energy of a participation, so that it never
binds. All else is as in the paper's CIFAR-10 system.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fl_edge_env.channels.uplink import LEAST_DEVIATION, MOST_DEVIATION, UplinkChannel
from fl_edge_env.checks import POSITIVE, per_device, positive_integer
from fl_edge_env.files import as_value_error, user_path
from fl_edge_env.tables import COUNTED, read_table
from fl_edge_env.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("round", "device", "samples", "epochs", "parameters", "bytes_up", "train_s", "up_s")
_TIMES = ("train_s", "up_s")

# Not in a log: the frequency, and the budget as a multiple of a round's energy.
_FREQUENCY_HZ = 1e9
_BUDGET = 100.0
# Ratio of standard deviation to median absolute deviation of a normal distribution.
_NORMAL = 1.4826
# An upload of at least this fraction of the model is not compressed.
_WHOLE = 0.98


def system_of_log(path: str | Path, cohort_size: Any, capacitance: Any) -> dict[str, Any]:
    """Return the fields of the scenario of a log; see `fl_edge_env.Scenario.from_log`."""
    table = _read(user_path(path))
    samples, epochs, cycles, rate = _medians(table)
    model_bits = 32.0 * table["parameters"].iloc[0]
    sent_bits = 8.0 * table["bytes_up"].median()
    compressed = sent_bits < _WHOLE * model_bits
    upload_bits = round(sent_bits) if compressed else model_bits
    rate = rate * (upload_bits / sent_bits)  # message headers must not change the times
    if cohort_size is None:
        cohort_size = table.groupby("round").size().max()
    cohort_size = positive_integer("cohort_size", cohort_size)
    channel = UplinkChannel(
        # In a smaller bandwidth the fastest rates would need gains far above one.
        share_hz=max(UplinkChannel.share_hz, float(rate.max())),
        mean_bps=tuple(rate),
        deviation_bps=tuple(_relative_deviation(table) * rate),
    )
    power_w = channel.reference_power_w
    capacitance = per_device("capacitance", capacitance, len(rate))
    compute_j = 0.5 * capacitance * cycles * samples * epochs * _FREQUENCY_HZ**2
    return {
        "num_devices": len(rate),
        "cohort_size": cohort_size,
        "bandwidth_hz": cohort_size * channel.share_hz,
        "noise_density_w_hz": channel.noise_power_w / channel.share_hz,
        "model_bits": model_bits,
        "num_samples": samples,
        "local_epochs": epochs,
        "cycles_per_sample": cycles,
        "f_min": _FREQUENCY_HZ,
        "f_max": _FREQUENCY_HZ,
        "p_min": power_w,
        "p_max": power_w,
        "energy_budget_j": _BUDGET * (compute_j + power_w * upload_bits / rate),
        "channel": channel,
        "compression": f"bits:{upload_bits}" if compressed else "none",
    }


def _medians(table: pd.DataFrame) -> Iterator[FloatArray]:
    """Each device's median samples, epochs, cycles of a sample and upload rate, which it adds."""
    table["cycles"] = _FREQUENCY_HZ * table["train_s"] / (table["samples"] * table["epochs"])
    table["rate"] = 8.0 * table["bytes_up"] / table["up_s"]
    medians = table.groupby("device", observed=True).median()
    for name in ("samples", "epochs", "cycles", "rate"):
        yield medians[name].fillna(medians[name].median()).to_numpy()


def _relative_deviation(table: pd.DataFrame) -> float:
    """Robust relative standard deviation of the rates, the same for all devices."""
    rates = table.groupby("device", observed=True)["rate"]
    distance = (table["rate"] / rates.transform("median") - 1.0).abs()
    distance = distance[rates.transform("count") > 1]
    deviation = 0.0 if distance.empty else _NORMAL * distance.median()
    return float(np.clip(deviation, LEAST_DEVIATION, MOST_DEVIATION))


def _read(path: Path) -> pd.DataFrame:
    """Read and check the rows of a log; devices are categories in their order."""
    import pandas as pd  # the environment itself does not need it

    with as_value_error(f"cannot read the log {str(path)!r}: "):
        rows = read_table(path, COLUMNS)
        table = pd.DataFrame({"round": rows.numbers("round", COUNTED)})
        table["device"] = rows.columns["device"]
        for name in COLUMNS[2:]:
            table[name] = rows.numbers(name, POSITIVE, optional=name in _TIMES)
        rows.check("device", table["device"] != "", "be a name")
        rows.check("device", ~table.duplicated(["round", "device"]), "be unique in its round")
        rows.check("parameters", table["parameters"] % 1 == 0, "be an integer")
        same = table["parameters"] == table["parameters"].iloc[0]
        rows.check("parameters", same, "be the same in all rows")
        for name in _TIMES:
            if table[name].isna().all():
                raise ValueError(f"{name} must have been measured at least once, got no time")
        devices = sorted(table["device"].unique(), key=_place)
        table["device"] = pd.Categorical(table["device"], devices, ordered=True)
    return table


def _place(device: str) -> tuple[bool, int, str, str]:
    """Sort key of devices: numbers first, by value, then names."""
    digits = device.lstrip("0") if device.isdecimal() else ""
    return not device.isdecimal(), len(digits), digits, device

"""A system of the log of a federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import psi

from fl_edge_env import Scenario, UplinkChannel
from fl_edge_env.typing import FloatArray, IntArray
from policies.measured.shrinkage import (
    MOST_PERSISTENCE,
    Law,
    centre_and_spread,
    estimate,
    inverse_trigamma,
    persistence,
)

# What is not measured.
_FREQUENCY_HZ = 1e9
# The standard deviation over the mean of an uplink that `UplinkChannel` takes; beyond one the ends
# at which it cuts rates would count.
_LEAST_DEVIATION, _MOST_DEVIATION = 0.03 * (1 + 1e-9), 1.0
# Budgets of so many times the energy of a round bind nobody.
_FREE = 100.0
# An upload of so much of the model or more is not compressed.
_WHOLE = 0.98
# A time between rounds of more than so many medians is a pause.
_PAUSE = 10.0
_LEAST_AVAILABILITY = 0.001


@dataclass(frozen=True, eq=False)
class Fit:
    """What a log says of its federation; arrays have shape (N,), devices in sorted order.

    Attributes
    ----------
    devices : tuple
        Their names in the log.
    rows : ndarray
        Participations of each device in the log.
    num_rounds : int
        Rounds in the log.
    samples, epochs : ndarray
        Median of each device.
    seconds_per_sample, seconds_error : ndarray
        Mean training time of a sample in one epoch at the median frequency [s], and its standard
        error over it.
    train_spread : ndarray
        Standard deviation of the logarithm of that time from round to round.
    cycles_per_sample, f_min, f_max : ndarray
        What these times mean at the frequencies of the device, or at 1 GHz [Hz].
    uplink_bps, uplink_deviation_bps, uplink_error : ndarray
        Mean rate of the upload and its standard deviation from round to round [bit/s], for
        `model_bits`, or what `compression` makes of them; and the mean's standard error over it.
    persistence : float
        Probability that a device keeps its rate from round to round.
    download_bps : ndarray
        What gives the mean download time with `model_bits`; infinite where none was measured.
    overhead_s : float
        What a round takes beside its longest participation, on average [s].
    cohort_size : int
        Median number of participants of a round.
    model_bits : float
        32 bits a parameter.
    compression : str
        ``"none"``, or ``"bits:<median of the uploads>"``.
    availability : ndarray
    availability_persistence : float
    capacitance : ndarray
    power_w : float
        See `Scenario`; p_min = p_max = `power_w`.
    training, upload, download : Law
        Laws of the logarithms of cycles a sample, bytes a second up, and seconds a byte down.
    rate_shape : ndarray, shape (N + 1,)
        Shape of the gamma distribution of the rate of each device, and of one without rows.
    unknown : tuple of str
        What could not be known and what stands in its place, in sentences.
    """

    devices: tuple[Any, ...]
    rows: IntArray
    num_rounds: int
    samples: FloatArray
    epochs: FloatArray
    seconds_per_sample: FloatArray
    seconds_error: FloatArray
    train_spread: FloatArray
    cycles_per_sample: FloatArray
    f_min: FloatArray
    f_max: FloatArray
    uplink_bps: FloatArray
    uplink_deviation_bps: FloatArray
    uplink_error: FloatArray
    persistence: float
    download_bps: FloatArray
    overhead_s: float
    cohort_size: int
    model_bits: float
    compression: str
    availability: FloatArray
    availability_persistence: float
    capacitance: FloatArray
    power_w: float
    training: Law
    upload: Law
    download: Law | None
    rate_shape: FloatArray
    unknown: tuple[str, ...]

    def scenario(self, **fields: Any) -> Scenario:
        """The system of these estimates, with any fields changed.

        Power is fixed, and frequency in the range of the log, or fixed. The band is K times the
        channel's share, so that a device of an equal part has its measured rate. The energy budget
        is a hundred times what a device spends in a round at its largest frequency and mean rate:
        it binds nobody, also where devices work more.
        """
        mean, deviation = self.uplink_bps, self.uplink_deviation_bps
        channel = UplinkChannel(
            # With less the fastest rates would need gains far above one.
            share_hz=max(UplinkChannel.share_hz, float(mean.max())),
            reference_power_w=self.power_w,
            mean_bps=tuple(mean),
            deviation_bps=tuple(deviation),
            persistence=self.persistence,
        )
        cohort_size = fields.get("cohort_size", self.cohort_size)
        bits = float(self.compression.removeprefix("bits:").replace("none", str(self.model_bits)))
        cycles = self.cycles_per_sample * self.samples * self.epochs
        energy_j = 0.5 * self.capacitance * cycles * self.f_max**2 + self.power_w * bits / mean
        own: dict[str, Any] = {
            "num_devices": len(self.devices),
            "cohort_size": cohort_size,
            "num_rounds": self.num_rounds,
            "bandwidth_hz": cohort_size * channel.share_hz,
            "noise_power_w": channel.noise_power_w,
            "model_bits": self.model_bits,
            "num_samples": self.samples,
            "local_epochs": self.epochs,
            "cycles_per_sample": self.cycles_per_sample,
            "capacitance": self.capacitance,
            "f_min": self.f_min,
            "f_max": self.f_max,
            "p_min": self.power_w,
            "p_max": self.power_w,
            "energy_budget_j": _FREE * energy_j,
            "download_rate_bps": self.download_bps,
            "overhead_s": self.overhead_s,
            "channel": channel,
            "availability": self.availability,
            "availability_persistence": self.availability_persistence,
            "compression": self.compression,
        }
        return Scenario(**own | fields)


def fit(table: pd.DataFrame, spells: pd.DataFrame | None = None) -> Fit:
    """Estimate the system of a log; devices with few rows lean on the others.

    `table` is that of a `policies.measured.log.Log`, and `spells` as of `read_spells`. How devices
    lean on each other is said in `policies.measured.shrinkage`; laws are of logarithms.

    - Computing: ``train_s / (samples epochs)``, times the frequency where the log has it. Its
      logarithm x is normal with mean m and variance s^2, so that the mean time is ``exp(m + s^2 /
      2)``. How well m is known does not count as spread.
    - Upload: bytes_up / up_s with the law that `UplinkChannel` takes, the gamma distribution whose
      logarithm has the mean m and the variance s^2: its shape k and scale theta are those with
      ``trigamma(k) = s^2`` and ``digamma(k) + log(theta) = m``, k from 1 to 1111.
    - Download: down_s / bytes_down as for computing, of its mean.
    - What a round takes beside its longest participation: see `rests`.
    - Availability: see `_availability`. Energy: see `_powers`.

    Raises
    ------
    ValueError
        If the log is of models of several sizes.
    """
    if len(sizes := np.unique(table["parameters"])) > 1:
        raise ValueError(
            f"a system has one model, but the log has models of {sizes[0]:.0f} to {sizes[-1]:.0f} "
            "parameters: give the rows of one of them"
        )
    unknown: list[str] = []
    devices, device = np.unique(table["device"].to_numpy(), return_inverse=True)
    # By device, and within it by round.
    order = np.argsort(device, kind="stable")
    device, rows = device[order], table.iloc[order]
    count = len(devices)

    def median(values: FloatArray) -> FloatArray:
        return np.asarray(pd.Series(values).groupby(device).median(), dtype=np.float64)

    samples, epochs = (median(rows[name].to_numpy()) for name in ("samples", "epochs"))
    frequency = frequencies(rows)
    if "frequency_hz" not in table:
        unknown.append(
            f"Frequencies are unmeasured: each is fixed at {_FREQUENCY_HZ / 1e9:g} GHz, and cycles "
            "follow from it."
        )
    f_median = median(frequency)
    ranges = pd.Series(frequency).groupby(device)
    work = (rows["samples"] * rows["epochs"]).to_numpy()
    training = estimate(np.log(rows["train_s"].to_numpy() * frequency / work), device, count)
    cycles = np.exp(training.mean + 0.5 * training.variance)[:-1]

    rate = np.log((rows["bytes_up"] / rows["up_s"]).to_numpy())
    number = rows["round"].to_numpy()
    apart = np.maximum(np.diff(number, prepend=0), 1).astype(np.float64)
    kept = persistence(rate, device, count, apart)
    if kept == 0:
        unknown.append(
            "That a device keeps its rate from round to round cannot be told from chance: "
            "persistence is 0."
        )
    upload = estimate(rate, device, count, kept**apart)
    if not (np.bincount(device) > 1).any():
        unknown.append(
            "No device has two rows: how much times vary from round to round is unknown, and "
            f"counted as nothing for training and {100 * _LEAST_DEVIATION:.0f} % for uploads."
        )
    shape = np.clip(
        inverse_trigamma(np.maximum(upload.variance, 1e-8)),
        _MOST_DEVIATION**-2,
        _LEAST_DEVIATION**-2,
    )
    model_bits = 32.0 * sizes[0]
    bits_up = 8.0 * float(rows["bytes_up"].median())
    whole = bits_up >= _WHOLE * model_bits
    upload_bits = model_bits if whole else max(round(bits_up), 1)
    uplink = shape * np.exp(upload.mean - psi(shape)) * (8.0 * upload_bits / bits_up)

    download, download_bps = _download(rows, device, count, model_bits, unknown)
    rest = rests(table)
    if rest.isna().all():
        unknown.append(
            "No two successive rounds: what a round takes beside its longest "
            "participation is unknown, and overhead_s is 0."
        )
    availability, availability_persistence = _availability(table, spells, devices, unknown)
    capacitance, power_w = _powers(rows, frequency / f_median[device], f_median, unknown)
    return Fit(
        devices=tuple(devices.tolist()),
        rows=np.bincount(device),
        num_rounds=table["round"].nunique(),
        samples=samples,
        epochs=epochs,
        seconds_per_sample=cycles / f_median,
        seconds_error=training.relative_error[:-1],
        train_spread=np.sqrt(training.variance[:-1]),
        cycles_per_sample=cycles,
        f_min=np.asarray(ranges.min(), dtype=np.float64),
        f_max=np.asarray(ranges.max(), dtype=np.float64),
        uplink_bps=uplink[:-1],
        uplink_deviation_bps=(uplink / np.sqrt(shape))[:-1],
        uplink_error=upload.relative_error[:-1],
        persistence=kept,
        download_bps=download_bps,
        overhead_s=0.0 if rest.isna().all() else max(float(rest.mean()), 0.0),
        cohort_size=max(round(float(table.groupby("round").size().median())), 1),
        model_bits=model_bits,
        compression="none" if whole else f"bits:{upload_bits}",
        availability=availability,
        availability_persistence=availability_persistence,
        capacitance=capacitance,
        power_w=power_w,
        training=training,
        upload=upload,
        download=download,
        rate_shape=shape,
        unknown=tuple(unknown),
    )


def rests(table: pd.DataFrame) -> pd.Series:
    """What each round takes beside its longest participation, until the next starts [s].

    NaN where that is not known: for the last round, before a round that is not in the log, and for
    pauses, of more than ten times the median time between two starts.
    """
    taken = table["down_s"] + table["train_s"] + table["up_s"]
    start = table.groupby("round")["start_s"].min()
    successive = np.diff(start.index, append=start.index[-1]) == 1
    gap = (-start.diff(-1)).where(successive)
    rest = gap - taken.groupby(table["round"]).max()
    return rest.where(rest <= _PAUSE * gap.median())


def frequencies(table: pd.DataFrame) -> FloatArray:
    """CPU frequency in each row [Hz]: that measured, the device's median, the log's, or 1 GHz."""
    if "frequency_hz" not in table:
        return np.full(len(table), _FREQUENCY_HZ)
    measured = table["frequency_hz"]
    own = measured.groupby(table["device"]).transform("median")
    return measured.fillna(own).fillna(measured.median()).to_numpy()


def _download(
    rows: pd.DataFrame, device: IntArray, count: int, model_bits: float, unknown: list[str]
) -> tuple[Law | None, FloatArray]:
    """The law of seconds a byte, and the rates with the mean times of `model_bits`."""
    timed = (rows["down_s"] > 0).to_numpy()
    if not timed.any():
        unknown.append("No download was measured: it takes no time.")
        return None, np.full(count, np.inf)
    if others := count - len(np.unique(device[timed])):
        unknown.append(f"No download of {others} devices was measured: theirs is that of others.")
    size, time = rows["bytes_down"].to_numpy()[timed], rows["down_s"].to_numpy()[timed]
    law = estimate(np.log(time / size), device[timed], count)
    seconds = np.exp(law.mean + 0.5 * law.variance)[:-1] * np.median(size)
    return law, model_bits / seconds


def _availability(
    table: pd.DataFrame,
    spells: pd.DataFrame | None,
    devices: NDArray[Any],
    unknown: list[str],
) -> tuple[FloatArray, float]:
    """Share of the rounds in which a device is there, and how long it keeps its state.

    Spells on and off are taken as exponential, with rates ``a`` and ``b`` of ending that are the
    number of ends over the time spent so. Then states d seconds apart have the correlation
    ``exp(-(a + b) d)``: with the median time d between rounds, the persistence. The share of a time
    T in which a device with share s was there has the variance ``2 s (1 - s) / ((a + b) T)``, by
    which shares lean on each other as in `policies.measured.shrinkage`.
    """
    count = len(devices)
    if spells is None:
        unknown.append("When devices were available is not said: each always is.")
        return np.ones(count), 0.0
    device = pd.Index(devices).get_indexer(pd.Index(spells["device"]))
    spells, device = spells[device >= 0], device[device >= 0]
    if spells.empty:
        raise ValueError(
            "no device of the availability is in the log, which has "
            f"{devices.tolist()[0]!r} and others: name devices in both alike"
        )
    start, end = spells["from_s"].to_numpy(), spells["to_s"].to_numpy()
    first, last = start.min(), end.max()
    on = np.bincount(device, end - start, count)
    seen = np.bincount(device, minlength=count) > 0
    if others := int((~seen).sum()):
        unknown.append(f"{others} devices have no spell: they are there as often as the others.")
    off = seen.sum() * (last - first) - on.sum()
    if off <= 0:
        return np.ones(count), 0.0
    whole = np.append(False, (start[1:] == end[:-1]) & (device[1:] == device[:-1])).sum()
    changes = ((end < last).sum() - whole) / on.sum() + ((start > first).sum() - whole) / off
    share = on / (last - first)
    mean = share[seen].mean()
    variance = mean * (1.0 - mean) * min(2.0 / (changes * (last - first)), 1.0)
    centre, spread = centre_and_spread(share[seen], np.full(seen.sum(), variance))
    share = np.where(seen, centre + spread / (spread + variance) * (share - centre), centre)
    gap = table.groupby("round")["start_s"].min().diff().median()
    if np.isnan(gap):
        gap = (table["down_s"] + table["train_s"] + table["up_s"]).max()
    persistence = min(float(np.exp(-changes * gap)), MOST_PERSISTENCE)
    return np.clip(share, _LEAST_AVAILABILITY, 1.0), persistence


def _powers(
    rows: pd.DataFrame, relative: FloatArray, f_median: FloatArray, unknown: list[str]
) -> tuple[FloatArray, float]:
    """Capacitance of each device, and transmission power of all [W].

    Least squares of the energy in training and upload times, without negative powers. The power of
    computing, at each device's median frequency, is common to all, and goes with the cube of the
    frequency `relative` to that.
    """
    power_w, default = UplinkChannel.reference_power_w, float(Scenario.capacitance)
    capacitance = np.full(len(f_median), default)
    if "energy_j" not in rows:
        unknown.append(
            f"Energy is unmeasured: capacitance is {default:g} and the power of uploads "
            f"{power_w:g} W; the budget is {_FREE:g} times what a round takes: it binds nobody."
        )
        return capacitance, power_w
    there = rows["energy_j"].notna().to_numpy()
    times = np.column_stack([rows["train_s"] * relative**3, rows["up_s"]])[there]
    (measured, sent), _ = nnls(times, rows["energy_j"].to_numpy()[there])
    if measured > 0:
        capacitance = 2.0 * measured / f_median**3
    else:
        unknown.append(f"The energies tell no power of computing: capacitance is {default:g}.")
    if sent > 0:
        power_w = float(sent)
    else:
        unknown.append(f"The energies tell no power of uploads: it is {power_w:g} W.")
    return capacitance, power_w

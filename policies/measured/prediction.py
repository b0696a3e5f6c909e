"""How well a fit predicts rounds that it has not seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import polygamma, psi

from fl_edge_env.typing import FloatArray, IntArray
from policies.measured.fit import Fit, fit, frequencies, rests
from policies.measured.shrinkage import Law

LEVEL = 0.8
_QUANTILES = (0.5, 0.5 - LEVEL / 2, 0.5 + LEVEL / 2)
# Of each participation, and fewer where there are very many.
_MOST_DRAWS, _LEAST_DRAWS, _NUMBERS = 1000, 100, 20_000_000
# Logarithms of times are drawn within these: what a few wild rows tell may lie anywhere.
_LEAST_LOG, _MOST_LOG = -600.0, 600.0


class Prediction(NamedTuple):
    """Times of later rounds, measured and predicted from earlier ones.

    `participations` has a row for each, with ``round device``, and `rounds` one for each round, of
    its longest participation: `measured_s`, the median `predicted_s`, and the ends `low_s` and
    `high_s` of an interval that should hold 80 % [s]. `measured_total_s` is the time of all these
    rounds, with what lies between them where it is known, and `predicted_total_s` its mean by the
    laws as fitted.
    """

    participations: pd.DataFrame
    rounds: pd.DataFrame
    measured_total_s: float
    predicted_total_s: float

    @property
    def total_error(self) -> float:
        """How much longer than measured the total was predicted, relative."""
        return self.predicted_total_s / self.measured_total_s - 1.0


def median_error(predicted: pd.DataFrame) -> float:
    """Median of how far predictions are from the times measured, relative."""
    return float((predicted["predicted_s"] / predicted["measured_s"] - 1.0).abs().median())


def coverage(predicted: pd.DataFrame) -> float:
    """Share of the times measured that lie in their intervals."""
    return float(predicted["measured_s"].between(predicted["low_s"], predicted["high_s"]).mean())


def predict(table: pd.DataFrame, *, share: float = 0.25, seed: int = 0) -> Prediction | None:
    """Fit the earlier rounds of a log, and predict the last `share` of them, one at least.

    Of the later rounds is used who took part with how many samples, epochs and bytes and at which
    frequency, and no time. Each time is drawn from the laws of the fit. Their means and variances
    are drawn as well, as well as they are known: the mean m from a normal law, and ``d s^2 /
    chi^2(d)`` in place of the variance s^2 that is known with d degrees of freedom. None for a log
    of one round.
    """
    numbers = table["round"].unique()
    later = max(round(share * len(numbers)), 1)
    if later == len(numbers):
        return None
    if "frequency_hz" in table:
        table = table.assign(frequency_hz=frequencies(table))
    unseen = table["round"] >= numbers[-later]
    fitted = fit(table[~unseen])
    rows = table[unseen].reset_index(drop=True)
    # A device that is new has index -1: in the laws it is the last.
    device = pd.Index(fitted.devices).get_indexer(pd.Index(rows["device"]))
    work = (rows["samples"] * rows["epochs"]).to_numpy() / frequencies(rows)
    rng = np.random.default_rng(seed)
    draws = int(np.clip(_NUMBERS // len(rows), _LEAST_DRAWS, _MOST_DRAWS))
    each, longest, mean_s = [], [], []
    for places in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows["round"])) + 1):
        likely, known = _draw(fitted, rows.iloc[places], work[places], device[places], draws, rng)
        each.append(np.quantile(likely, _QUANTILES, axis=0).T)
        longest.append(np.quantile(likely.max(axis=1), _QUANTILES))
        mean_s.append(known.max(axis=1).mean())
    rows["measured_s"] = rows["down_s"] + rows["train_s"] + rows["up_s"]
    ends = ["predicted_s", "low_s", "high_s"]
    rows[ends] = np.concatenate(each)
    rounds = rows.groupby("round")[["measured_s"]].max().reset_index()
    rounds[ends] = np.array(longest)
    rest = rests(rows)
    return Prediction(
        rows[["round", "device", "measured_s", *ends]],
        rounds,
        float(rounds["measured_s"].sum() + rest.sum()),
        float(np.sum(mean_s) + fitted.overhead_s * rest.notna().sum()),
    )


def _draw(
    fitted: Fit,
    rows: pd.DataFrame,
    work: FloatArray,
    device: IntArray,
    draws: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Times of the participations of a round, shape (draws, rows).

    First with laws as uncertain as they are known, and then with those that are fitted.
    """
    size = draws, len(rows)
    shape = fitted.rate_shape[device]
    gamma = (np.log(rng.standard_gamma(shape, size)) - psi(shape)) / np.sqrt(polygamma(1, shape))
    parts: list[tuple[Law, FloatArray, FloatArray]] = [
        (fitted.training, rng.standard_normal(size), work),
        (fitted.upload, gamma, rows["bytes_up"].to_numpy()),
    ]
    if fitted.download is not None:
        parts.append((fitted.download, rng.standard_normal(size), rows["bytes_down"].to_numpy()))
    likely, known = np.zeros(size), np.zeros(size)
    for law, noise, amount in parts:
        sign = -1.0 if law is fitted.upload else 1.0  # bytes a second, and not seconds a byte
        mean, freedom = law.mean[device], law.freedom[device]
        noise = np.sqrt(law.variance[device]) * noise
        known += amount * _exp(sign * (mean + noise))
        mean = mean + np.sqrt(law.mean_variance[device]) * rng.standard_normal(size)
        # With a fraction of a degree of freedom a draw may underflow.
        noise = noise / np.sqrt(np.maximum(rng.chisquare(freedom, size), 1e-200) / freedom)
        likely += amount * _exp(sign * (mean + noise))
    return likely, known


def _exp(logarithm: FloatArray) -> FloatArray:
    return np.exp(np.clip(logarithm, _LEAST_LOG, _MOST_LOG))

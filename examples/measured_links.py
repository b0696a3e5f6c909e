"""Opportunistic's lead on measured links, and on simulated channels with the same means.

python examples/measured_links.py data/uplinks --seeds 10

Plays a system with light computing, without training, in which a device uploads ResNet-18 or
10 Mbit: on the links of a folder (see `fl_edge_env.LinkChannel`), on independent rates with the
links' means and deviations, and on the paper's exponential fading with the mean gain of each link.
Prints priced times over Opportunistic's, with 95 % intervals over seeds, in parentheses if a policy
is not ok.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import tyro

from fl_edge_env import LinkChannel, Scenario, UplinkChannel, physics
from policies import evaluate, make_policy
from policies.benchmark.intervals import mean_interval, rounded

NAMES = ("lroa", "uni-d", "quickest", "round-robin:dynamic", "best-channel:static")
# Cycles of a sample and energy budgets [J] with which computing takes less time than an upload.
UPLOADS = {
    "358 Mbit": {"cycles_per_sample": 3e8, "energy_budget_j": 1.8},
    "10 Mbit": {"model_bits": 1e7, "cycles_per_sample": 1e7, "energy_budget_j": 0.06},
}
SHARED = {"bandwidth_hz": 10e6, "noise_density_w_hz": 2e-9}


@dataclass(frozen=True)
class ExponentialLinks:
    """Exponential gains around each device's mean, clipped to the paper's 0.1 to 5 means."""

    means: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean gain over devices."""
        return float(np.mean(self.means))

    @property
    def gain_min(self) -> float:
        """Smallest gain."""
        return 0.1 * min(self.means)

    @property
    def gain_max(self) -> float:
        """Largest gain."""
        return 5.0 * max(self.means)

    def device_mean(self, _: int) -> np.ndarray:
        """Mean gain of each device before clipping."""
        return np.array(self.means)

    def draw(self, rng, rounds: int, num_devices: int, **_) -> np.ndarray:
        """Gains of the next rounds."""
        fading = -np.log1p(-rng.random((rounds, num_devices)))
        return np.clip(fading, 0.1, 5.0) * self.means

    sample = draw


def channels(measured: Scenario) -> dict[str, object]:
    """Simulated channels like the links of a scenario."""
    links = measured.channel.recording.split()
    rates = [physics.upload_rate(gains[:, None], measured.p_max, measured)[:, 0] for gains in links]
    means = np.array([rate.mean() for rate in rates])
    deviations = np.array([rate.std() for rate in rates])
    like = UplinkChannel(mean_bps=means, deviation_bps=np.maximum(deviations, 0.03 * means))
    return {
        "measured": measured.channel,
        "rates with the same moments": like,
        "exponential, same means": ExponentialLinks(tuple(measured.mean_gain.tolist())),
    }


def ratios(scenario: Scenario, seeds: range) -> dict[str, str]:
    """Priced times over Opportunistic's by policy."""
    policies = [make_policy(name, scenario) for name in ("opportunistic", *NAMES)]
    table = evaluate(policies, scenario, seeds, gaps=False)
    found = {}
    best = table.loc[table["policy"] == "Opportunistic", "priced_time"].to_numpy()
    for name, runs in table.groupby("policy", sort=False):
        text = rounded(mean_interval(runs["priced_time"] / best), 2)
        found[name] = text if runs["status"].iloc[0] == "ok" else f"({text})"
    return found


def main(
    folder: tyro.conf.Positional[Path],
    seeds: int = 10,
    out: Path = Path("runs/measured_links"),
    rounds: int = 1000,
) -> None:
    """Play all systems, print the table and write it."""
    rows = {}
    for upload, fields in UPLOADS.items():
        options = {"num_rounds": rounds, **SHARED, **fields}
        measured = Scenario.cifar10(channel=LinkChannel(folder), **options)
        for channel, model in channels(measured).items():
            scenario = measured.replace(channel=model)
            rows[f"{upload}, {channel}"] = ratios(scenario, range(seeds))
    table = pd.DataFrame(rows).T.rename_axis("system")
    print(table.to_string())
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "measured_links.csv")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)

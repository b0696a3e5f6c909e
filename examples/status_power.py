"""False alarms and detected faults of the status: the tables of docs/ranking.md.

python examples/status_power.py

The simulated schedulers choose devices at random. On average, devices without a fault spend exactly
their budgets, and their influence is exactly their share of the data.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from policies.benchmark.status import MOST_WEIGHT, OK, TOO_SHORT, DeviceAccounts, judge

SEEDS = (2, 3, 5, 10, 30)
ROUNDS = (20, 100, 300, 1000)


@dataclass(frozen=True)
class Lot:
    """A simulated scheduler that draws K of N devices in each round.

    If `unequal`, devices have up to eight times as much data as others and take part in proportion,
    and each participation takes a random energy between 1 and 40 J. A drawn cohort stays for
    `burst` rounds. A fraction `faulty` of the devices spends `energy` times its budget, or takes
    part `share` times as often as it should; if `weighted`, their aggregation weights compensate
    for it.
    """

    devices: int = 120
    cohort: int = 2
    unequal: bool = False
    burst: int = 1
    faulty: float = 0.0
    energy: float = 1.0
    share: float = 1.0
    weighted: bool = False

    def accounts(self, rounds: int, seeds: int, rng: np.random.Generator) -> DeviceAccounts:
        """Simulate runs, and return their accounts."""
        n = self.devices
        faulty = np.arange(self.devices) < self.faulty * self.devices
        data = np.exp(rng.uniform(0, np.log(8), n)) if self.unequal else np.ones(n)
        data /= data.sum()
        share = np.where(faulty, self.share, 1.0)
        share /= np.sum(data * share)
        count = rng.multinomial(rounds * self.cohort // self.burst, data * share, size=seeds)
        cost = count.astype(float)  # of all participations of a device, 1 each on average
        if self.unequal:
            device = np.repeat(np.arange(count.size), count.ravel())
            each = np.exp(rng.uniform(0, np.log(40), device.size)) * np.log(40) / 39
            cost = np.bincount(device, each, count.size).reshape(count.shape)
        asked = rounds * self.cohort * data
        times, spent = (value * self.burst / asked for value in (count, cost))
        spent *= np.where(faulty, self.energy, 1.0) / np.maximum(share, 1e-9)
        weights = np.minimum(1 / np.maximum(share, 1e-9), MOST_WEIGHT) if self.weighted else 1.0
        whole = np.tile(asked, (seeds, 1))
        ones = np.ones(seeds)
        lasting = np.full(seeds, float(self.burst))
        return DeviceAccounts(
            spent, times * weights, times, whole, ones, ones, lasting, drawn=False
        )


FAIR = {
    "120 devices, alike": Lot(),
    "120 devices, unequal": Lot(unequal=True),
    "120 devices, the same for 10 rounds": Lot(burst=10),
    "20 devices, unequal, 4 a round": Lot(20, 4, unequal=True),
}
FAULTS = {
    "all spend 4.5 % more": Lot(faulty=1, energy=1.045),
    "all spend 4.5 % more, unequal": Lot(unequal=True, faulty=1, energy=1.045),
    "ten spend 50 % more": Lot(faulty=1 / 12, energy=1.5),
    "a third at 0.27 of their share, weighted": Lot(faulty=1 / 3, share=0.27, weighted=True),
    "ten at a fifth of their share": Lot(faulty=1 / 12, share=0.2),
    "half at 0.7 of their share": Lot(faulty=1 / 2, share=0.7),
    "ten never asked": Lot(faulty=1 / 12, share=0),
    "half never asked": Lot(faulty=1 / 2, share=0),
}


def not_ok(lot: Lot, rounds: int, seeds: int, times: int, table: int = 1) -> float:
    """Fraction of simulated tables of `table` schedulers each in which one is not ok."""
    rng = np.random.default_rng([rounds, seeds])
    unfound = OK, TOO_SHORT
    runs = (lot.accounts(rounds, seeds, rng) for _ in range(times * table))
    found = [judge(accounts).name not in unfound for accounts in runs]
    return float(np.reshape(found, (times, table)).any(axis=1).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=40, help="tables for each number of rounds")
    times = parser.parse_args().times
    print(f"{'false alarms in tables of 15, %':37}" + "".join(f"{s:>9}" for s in SEEDS))
    for name, lot in FAIR.items():
        shares = [np.mean([not_ok(lot, r, s, times, 15) for r in ROUNDS]) for s in SEEDS]
        print(f"  {name:35}" + "".join(f"{100 * share:9.1f}" for share in shares), flush=True)
    print(f"{'found in 300 / in 1000 rounds, %':37}" + "".join(f"{s:>9}" for s in SEEDS))
    for name, lot in FAULTS.items():
        found = [[100 * not_ok(lot, r, s, 3 * times) for r in (300, 1000)] for s in SEEDS]
        cells = (f"{short:.0f}/{long:.0f}" for short, long in found)
        print(f"  {name:35}" + "".join(f"{cell:>9}" for cell in cells), flush=True)

"""The comparison of trained agents with analytic policies that `docs/protocol.md` sets down."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from fl_edge_env import Scenario, Simulator
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.belief import best_delay
from policies.benchmark.rollout import ENERGY_TOLERANCE
from policies.benchmark.statistics import crossed_interval, probability_of_improvement
from policies.lroa import LROA
from policies.uniform import UniD

TEST_SEEDS = range(30)
# Apart from the test seeds, and from those of training episodes, which begin at a million.
VALIDATION_SEEDS = range(10_000, 10_005)

# Factors on the scenario's mu and nu with which the analytic policies may decide.
_AS_IT_IS = (1.0, 1.0)
# As it is comes first, so that it is kept where others are no better.
TUNING = sorted(
    itertools.product((0.5, 0.7, 1.0, 1.4), (0.5, 0.8, 1.0)), key=lambda pair: pair != _AS_IT_IS
)


def tuning_candidates(scenario: Scenario) -> list[Policy]:
    """LROA and Uni-D as they are, and as they would decide with other mu and nu, named by both."""
    candidates: list[Policy] = []
    kinds: tuple[type[LROA | UniD], ...] = (LROA, UniD)
    for kind, (mu, nu) in itertools.product(kinds, TUNING):
        policy = kind(scenario.reweighted(mu=mu, nu=nu), delay=best_delay(scenario))
        if (mu, nu) != _AS_IT_IS:
            policy.name = f"{kind.name} μ×{mu:g} ν×{nu:g}"
        candidates.append(policy)
    return candidates


def tuned(candidates: Sequence[Policy], validation: pd.DataFrame) -> list[Policy]:
    """The best candidate of each kind by its rounds on the validation seeds."""
    runs = run_table(validation)
    allowed = allowed_energy(runs.loc[runs["policy"] == LROA.name, "worst_energy_ratio"])
    best: dict[type[Policy], tuple[tuple[float, float], Policy]] = {}
    for policy in candidates:
        mine = runs[runs["policy"] == policy.name]
        rank = constrained_rank(mine["penalty"].mean(), mine["worst_energy_ratio"].max(), allowed)
        if type(policy) not in best or rank < best[type(policy)][0]:
            best[type(policy)] = (rank, policy)
    return [policy for _, policy in best.values()]


def allowed_energy(lroa: pd.Series) -> float:
    """Most energy over budget of a device: one, or that of the worst device in LROA's runs."""
    return max(1.0, float(lroa.max()))


def constrained_rank(penalty: float, worst: float, allowed: float) -> tuple[float, float]:
    """A rank, least for the best: excess over the allowed energy first, then penalty [s]."""
    excess = worst - allowed
    return (excess if excess > ENERGY_TOLERANCE else 0.0), penalty


# Narrower, the table would lose digits and marks.
TABLE_WIDTH = 126


def run_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """A row for each run.

    `penalty` is a time average [s], `over_budget` a share of devices and `largest_queue` over
    devices and rounds [J]; `priced`, the time average of the priced objective [s], is there for
    rounds with prices.
    """
    groups = rounds.groupby(["policy", "seed"], sort=False)
    table = groups.agg(
        penalty=("penalty", "mean"),
        worst_energy_ratio=("worst_energy_ratio", "last"),
        over_budget=("over_budget", "last"),
        largest_queue=("max_queue", "max"),
    )
    if "priced_objective" in rounds:
        table["priced"] = groups["priced_objective"].mean()
    return table.reset_index()


def method_table(
    rounds: pd.DataFrame,
    methods: Mapping[str, Sequence[str]],
    bounds: pd.DataFrame,
    seed: int = 0,
) -> pd.DataFrame:
    """A row for each method by the protocol, those within the constraint first, then by score.

    Parameters
    ----------
    rounds : pandas.DataFrame
        On the same seeds for every policy, with LROA and Uni-D.
    methods : mapping
        For each method the names of its policies, one for each training seed.
    bounds : pandas.DataFrame
        Of a `BoundJob` for each of the seeds, at the prices of `rounds`: the score's 1.
    seed : int
        Seed of the resamples for `better`, which are drawn anew for each method.

    Returns
    -------
    pandas.DataFrame
        `method`; `score`, `score_low`, `score_high`; `trainings`, the score of each training seed;
        `penalty` (mean over runs [s]); `better`, `better_low`, `better_high`, the probability to be
        better than LROA; `worst_energy_ratio`, `over_budget`, `largest_queue`; and `allowed`,
        whether the worst device uses no more than `allowed_energy`.
    """
    runs = run_table(rounds)
    by_policy = {str(name): group.set_index("seed") for name, group in runs.groupby("policy")}
    seeds = by_policy[UniD.name].index

    def values(names: Sequence[str], column: str) -> FloatArray:
        return np.array([by_policy[name][column].loc[seeds] for name in names])

    # Of the priced objective, which no policy brings below the bound of the path.
    zero = values([UniD.name], "priced")
    span = zero - bounds.groupby("seed")["bound"].mean().loc[seeds].to_numpy()
    reference = values([LROA.name], "penalty")
    allowed = allowed_energy(by_policy[LROA.name]["worst_energy_ratio"])
    rows = []
    for method, names in methods.items():
        mine = values(names, "penalty")
        rng = np.random.default_rng(seed)
        scores = (zero - values(names, "priced")) / span
        score = crossed_interval(scores)
        better = probability_of_improvement(-mine, -reference, rng)
        all_runs = pd.concat([by_policy[name] for name in names])
        worst = float(all_runs["worst_energy_ratio"].max())
        rows.append(
            {
                "method": method,
                "score": score.mean,
                "score_low": score.low,
                "score_high": score.high,
                "trainings": " ".join(f"{mean:.3f}" for mean in scores.mean(axis=1)),
                "penalty": float(mine.mean()),
                "better": better.mean,
                "better_low": better.low,
                "better_high": better.high,
                "worst_energy_ratio": worst,
                "over_budget": float(all_runs["over_budget"].mean()),
                "largest_queue": float(all_runs["largest_queue"].max()),
                "allowed": constrained_rank(0.0, worst, allowed)[0] == 0.0,
            }
        )
    order, ascending = ["allowed", "score", "penalty"], [False, False, True]
    return pd.DataFrame(rows).sort_values(order, ascending=ascending, ignore_index=True)


class Cost(NamedTuple):
    """A method's decision time [s], number of training seeds, and mean training (rounds, min)."""

    decision: float
    trainings: int = 0
    rounds: float = 0.0
    minutes: float = 0.0


def decision_time(policy: Policy, scenario: Scenario, repetitions: int = 200) -> float:
    """Median time of a decision for one system on this machine [s], in successive rounds."""
    simulator = Simulator(scenario)
    simulator.reset([VALIDATION_SEEDS[0]])
    policy.reset(0)
    simulator.advance(policy.decide(simulator.observe()))  # the first one may compile or build
    seconds = []
    for _ in range(repetitions):
        observation = simulator.observe()
        start = time.perf_counter()
        allocation = policy.decide(observation)
        seconds.append(time.perf_counter() - start)
        simulator.advance(allocation)
    return float(np.median(seconds))


def _interval(mean: float, low: float, high: float) -> str:
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _range(scores: str) -> str:
    """The least and the greatest of several scores."""
    several = [float(score) for score in scores.split()]
    return f"{min(several):.2f} to {max(several):.2f}"


def printed_table(methods: pd.DataFrame, costs: Mapping[str, Cost], title: str) -> Table:
    """The table of the methods for the terminal."""
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    names = "score", "trainings", "penalty, s", "better", "worst", "over", "queue, J", "decide"
    for name in ("", *names, "train"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for row in methods.to_dict("records"):
        cost = costs[row["method"]]
        table.add_row(
            row["method"],
            _interval(row["score"], row["score_low"], row["score_high"]),
            _range(row["trainings"]) if cost.trainings else "",
            f"{row['penalty']:.1f}",
            f"{row['better']:.2f}" if row["method"] != LROA.name else "",
            f"{row['worst_energy_ratio']:.4f}" + (" " if row["allowed"] else "!"),
            f"{100 * row['over_budget']:.0f} %",
            f"{row['largest_queue']:.4g}",
            f"{1e3 * cost.decision:.2f} ms",
            f"{cost.trainings} x {cost.minutes:.1f} min" if cost.trainings else "",
        )
    table.caption = (
        "Score: 0 is Uni-D, 1 what no policy that samples can beat on the same channel, with "
        "energy beyond the budget counted at its price; mean and 95 % interval over training and "
        "test seeds. Trainings: the least and the greatest score of one, as no interval tells how "
        "often others fail if none of these did. Better: probability to be better than LROA. "
        "Worst: largest energy of a device over its budget, with ! where that is more than one "
        "and than LROA's. Over: share of devices over budget. Queue: the largest. "
        "Decide: median time for one system. Train: training seeds and mean time of each."
    )
    return table

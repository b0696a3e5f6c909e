"""The comparison of trained agents with analytic policies that `docs/protocol.md` sets down."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from policies.benchmark.status import OK
from policies.benchmark.tables import time_unit
from policies.lroa import LROA
from policies.opportunistic import Opportunistic
from policies.selection import ProportionalFair, Scheduler
from policies.uniform import UniD


class Rules(NamedTuple):
    """What is counted where the objective is the penalty, or the outcome.

    Attributes
    ----------
    seeds : int
        Number of test seeds.
    cost : str
        Column of the rounds from whose mean the score of a run follows, and whether it is better
        than another [s].
    tuned_by : str
        Column of `run_table` that tuning makes small.
    energy : str
        Column of the rounds whose last value is the energy of the worst device over its budget.
    as_lroa : bool
        Whether no device may use more energy than LROA's; elsewhere it has its price alone.
    zero : str
        The policy of score 0.
    ends : str
        The ends of the score in words.
    """

    seeds: int
    cost: str
    tuned_by: str
    energy: str
    as_lroa: bool
    zero: str
    ends: str


RULES = {
    "penalty": Rules(
        seeds=30,
        cost="priced_objective",
        tuned_by="penalty",
        energy="worst_energy_ratio",
        as_lroa=True,
        zero=UniD.name,
        ends="0 is Uni-D, 1 what no policy that samples can beat on the same channel, with energy "
        "beyond the budget counted at its price",
    ),
    "outcome": Rules(
        seeds=10,
        cost="priced_outcome",
        tuned_by="cost",
        energy="worst_spent_ratio",
        as_lroa=False,
        zero="Proportional fair, static",
        ends="0 is proportional fair with static resources, 1 Opportunistic that knows the gains, "
        "with energy and participation counted at their prices",
    ),
}
# Opportunistic that knows the gains, where the server does not.
KNOWS_GAINS = "Opportunistic, gains known"
# Apart from the test seeds, and from those of training episodes, which begin at a million.
VALIDATION_SEEDS = range(10_000, 10_005)

# Factors on the scenario's mu and nu with which the analytic policies may decide.
_AS_IT_IS = (1.0, 1.0)
# As it is comes first, so that it is kept where others are no better.
TUNING = sorted(
    itertools.product((0.5, 0.7, 1.0, 1.4), (0.5, 0.8, 1.0)), key=lambda pair: pair != _AS_IT_IS
)


# Factors on the steps of Opportunistic's prices, and what is added to its name.
STEPS = {1.0: "", 0.5: ", half steps", 0.25: ", quarter steps", 0.125: ", eighth steps"}


def analytic_policies(scenario: Scenario, objective: str) -> list[Policy]:
    """The policies that every table of an objective has beside the agents, as they are."""
    lroa = LROA(scenario, delay=best_delay(scenario))
    if objective == "penalty":
        return [lroa, UniD(scenario, delay=best_delay(scenario))]
    fair = Scheduler(ProportionalFair(scenario), resources="static")
    return [lroa, fair, Opportunistic(scenario, delay=best_delay(scenario))]


def tuning_candidates(scenario: Scenario, objective: str) -> list[Policy]:
    """LROA and Uni-D as they are, and as they would decide with other mu and nu, named by both.

    For the objective ``"outcome"`` Opportunistic with the `STEPS`; where the server knows the gains
    of participants alone it keeps common prices (``follow=False``).
    """
    candidates: list[Policy] = []

    def add(policy: Policy, told: str) -> None:
        policy.name += told
        candidates.append(policy)

    delay = best_delay(scenario)
    if objective == "outcome":
        common = ", common prices" if scenario.csi == "participants" else ""
        for step_scale, told in STEPS.items():
            policy = Opportunistic(scenario, follow=False, step_scale=step_scale, delay=delay)
            add(policy, common + told)
        return candidates
    kinds: tuple[type[LROA | UniD], ...] = (LROA, UniD)
    for kind, (mu, nu) in itertools.product(kinds, TUNING):
        told = "" if (mu, nu) == _AS_IT_IS else f" μ×{mu:g} ν×{nu:g}"
        add(kind(scenario.reweighted(mu=mu, nu=nu), delay=delay), told)
    return candidates


def tuned(candidates: Sequence[Policy], validation: pd.DataFrame, rules: Rules) -> list[Policy]:
    """The best candidate of each kind by its rounds on the validation seeds."""
    runs = run_table(validation, rules)
    allowed = _allowed(runs, rules)
    best: dict[type[Policy], tuple[tuple[float, float], Policy]] = {}
    for policy in candidates:
        mine = runs[runs["policy"] == policy.name]
        rank = constrained_rank(mine[rules.tuned_by].mean(), mine["worst_energy"].max(), allowed)
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


def _allowed(runs: pd.DataFrame, rules: Rules) -> float:
    """Most energy over budget of a device in these runs."""
    if not rules.as_lroa:
        return math.inf
    return allowed_energy(runs.loc[runs["policy"] == LROA.name, "worst_energy"])


def run_table(rounds: pd.DataFrame, rules: Rules) -> pd.DataFrame:
    """A row for each run.

    `total_time` [s]; `penalty`, a time average [s], NaN for cohorts that are chosen; `cost`, that
    of the rules [s]; `worst_energy`, the energy of the worst device over its budget; `influence` of
    the device with the least; and the `status` of the policy.
    """
    groups = rounds.groupby(["policy", "seed"], sort=False)
    table = groups.agg(
        total_time=("elapsed_time", "last"),
        penalty=("penalty", "mean"),
        cost=(rules.cost, "mean"),
        worst_energy=(rules.energy, "last"),
        influence=("influence", "last"),
        status=("status", "last"),
    )
    return table.reset_index()


def method_table(
    runs: pd.DataFrame,
    methods: Mapping[str, Sequence[str]],
    one: pd.Series,
    rival: str,
    rules: Rules,
    seed: int = 0,
) -> pd.DataFrame:
    """A row for each method by the protocol, those within the constraint first, then by score.

    Score and probability to be better follow from the `cost` of each run alone.

    Parameters
    ----------
    runs : pandas.DataFrame
        A table of `run_table`, on the same seeds for every policy, with those of the rules.
    methods : mapping
        For each method the names of its policies, one for each training seed.
    one : pandas.Series
        The cost of score 1 by seed [s].
    rival : str
        The policy than which others are better or not.
    rules : Rules
        What is counted.
    seed : int
        Seed of the resamples for `better`, which are drawn anew for each method.

    Returns
    -------
    pandas.DataFrame
        `method`; `total_time` and `penalty`, means over runs [s]; `worst_energy`, of the worst run;
        `influence`, the mean of the least; `score`, `score_low`, `score_high`; `trainings`, the
        score of each training seed; `better`, `better_low`, `better_high`, the probability to have
        less cost than the rival on a test seed; `status`, with numbers of trainings where they
        differ; and `allowed`, whether all are ok and within the energy of the rules.
    """
    by_policy = {str(name): group.set_index("seed") for name, group in runs.groupby("policy")}
    seeds = by_policy[rules.zero].index

    def costs(names: Sequence[str]) -> FloatArray:
        return np.array([by_policy[name]["cost"].loc[seeds] for name in names])

    zero, reference = costs([rules.zero]), costs([rival])
    span = zero - one.loc[seeds].to_numpy()
    limit = _allowed(runs, rules)
    rows = []
    for method, names in methods.items():
        mine = costs(names)
        scores = (zero - mine) / span
        score = crossed_interval(scores)
        better = probability_of_improvement(-mine, -reference, np.random.default_rng(seed))
        all_runs = pd.concat([by_policy[name] for name in names])
        worst = float(all_runs["worst_energy"].max())
        status = _counted(by_policy[name]["status"].iloc[0] for name in names)
        rows.append(
            {
                "method": method,
                "total_time": float(all_runs["total_time"].mean()),
                "penalty": float(all_runs["penalty"].mean()),
                "worst_energy": worst,
                "influence": float(all_runs["influence"].mean()),
                "score": score.mean,
                "score_low": score.low,
                "score_high": score.high,
                "trainings": " ".join(f"{mean:.3f}" for mean in scores.mean(axis=1)),
                "better": better.mean,
                "better_low": better.low,
                "better_high": better.high,
                "status": status,
                "allowed": status == OK and constrained_rank(0.0, worst, limit)[0] == 0.0,
            }
        )
    order, ascending = ["allowed", "score", "total_time"], [False, False, True]
    return pd.DataFrame(rows).sort_values(order, ascending=ascending, ignore_index=True)


def _counted(statuses: Iterable[str]) -> str:
    """A status, or several with how many trainings have each."""
    counts = Counter(statuses)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def decision_time(policy: Policy, repetitions: int = 200) -> float:
    """Median time of a decision for one system on this machine [s], in successive rounds."""
    simulator = Simulator(policy.scenario)
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
    return f"{min(several):.2f} to {max(several):.2f}" if len(several) > 1 else ""


# Narrower, the table would lose digits and marks.
TABLE_WIDTH = 150


def printed_table(methods: pd.DataFrame, title: str, rival: str, rules: Rules) -> Table:
    """The table of the methods for the terminal."""
    unit, length = time_unit(float(methods["total_time"].max()))
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    names = f"time, {unit}", "penalty, s", "energy", "influence", "score", "trainings", "better"
    for name in ("", *names, "status"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for row in methods.to_dict("records"):
        table.add_row(
            row["method"],
            f"{row['total_time'] / length:.2f}",
            f"{row['penalty']:.1f}" if math.isfinite(row["penalty"]) else "–",
            f"{row['worst_energy']:.4f}" + (" " if row["allowed"] else "!"),
            f"{row['influence']:.2f}",
            _interval(row["score"], row["score_low"], row["score_high"]),
            _range(row["trainings"]),
            f"{row['better']:.2f} [{row['better_low']:.2f}, {row['better_high']:.2f}]"
            if row["method"] != rival
            else "–",
            row["status"],
        )
    limit = " or that uses more of it than LROA's worst device" if rules.as_lroa else ""
    table.caption = (
        f"Score: {rules.ends}; mean and 95 % interval over training and test seeds. Trainings: the "
        "least and the greatest score of one, as no interval tells how often others fail if none "
        f"of these did. Better: probability to cost less than {rival} in the numbers of which the "
        "score is made. Energy: that of the worst device of the worst run over its budget, with ! "
        f"for a method that is not ok{limit}. Influence: the least of a device, in the mean over "
        "runs."
    )
    return table

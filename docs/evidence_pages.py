"""What the pages say of results: tables, and sentences with numbers, from the stored files.

Each function tells the numbers of a page, or of a part of it: a `Block` stands on the page between
``<!-- evidence: NAME -->`` and ``<!-- end -->``; a string is a piece of a sentence that is on the
page once, in which `n` marks what is a number of the files. `docs/evidence.py` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

import pandas as pd
from evidence_files import (
    ROOT,
    Runs,
    Standings,
    n,
    printed,
    span,
    table,
)

# The names of some schedulers and settings in the leaderboards.
LROA, OURS, DIVFL, UNI_D, UNI_S = "LROA", "Opportunistic", "DivFL", "Uni-D", "Uni-S"
BEST, FAIR = "Best channel, static", "Proportional fair, static"
QUICKEST = "Quickest"
IID, CELL, PHONES = "CIFAR-10, iid channel", "cell", "phones"


class Block(NamedTuple):
    """A table or a printed text, by its name on the page."""

    name: str
    text: str


Told: TypeAlias = Iterator[Block | str]


def _leaderboard_system() -> Told:
    s = Standings("system")
    yield f"channels with static resources take {n(s.ratio(IID, BEST, LROA), '.2f')} of LROA's time"
    yield f"Opportunistic takes {n(s.ratio(IID, OURS, LROA), '.2f')}:"
    out, over = (s.counted(CELL, BEST, what) for what in ("leaves out {}", "{} of 120 devices"))
    yield f"but leave out {n(out)} of the 120 devices, and {n(over)} spend more than their budgets"
    out = s.counted(CELL, "Fastest, dynamic", "leaves out {}")
    yield f"*Fastest* keeps the budgets and leaves out {n(out)}."
    ours, fair = (s.ratio(CELL, name, LROA) for name in (OURS, FAIR))
    yield (
        f"Opportunistic takes {n(ours, '.2f')} of LROA's time, and proportional fair with static "
        f"resources {n(fair, '.2f')}."
    )
    fastest = [name for name in s.ran(PHONES) if name.startswith("Fastest")]
    out = [int(s.counted(PHONES, name, "leaves out {}")) for name in fastest]
    yield f"but leave out {n(min(out))} or more of the 120 phones"
    yield f"and needs {n(s.ratio(PHONES, OURS, UNI_S), '.2f')} of the time of Uni-S."
    longer = 100 * (s.ratio(PHONES, LROA, OURS) - 1)
    spent = s.counted(PHONES, LROA, "all together {} % over")
    yield (
        f"LROA takes {n(longer, '.0f')} % longer than Opportunistic, and spends "
        f"{n(float(spent), '.0f')} % more energy than the budgets allow"
    )


def _leaderboard_digits() -> Told:
    s, final, tenth = Standings("digits"), "final_accuracy", "worst_tenth_accuracy"
    _, cell, places = s.settings
    ours, lroa = s.times(OURS, "min"), s.times(LROA, "min")
    yield (
        f"Opportunistic reaches it first, in {ours[0]}, {ours[1]} and {ours[2]} minutes, where "
        f"LROA takes {lroa[0]}, {lroa[1]} and {lroa[2]}."
    )
    out = s.counted(cell, BEST, "leaves out {}")
    yield f"In the cell the best channels leave out {n(out)} of 40 devices."

    def shown(setting: str, name: str, column: str) -> str:
        return n(s.shown(setting, name, column, "%", 2))

    yield f"end at {shown(cell, BEST, final)} % in place of {shown(cell, OURS, final)} %."
    yield (
        f"they need {n(s.ratio(places, BEST, OURS), '.1f')} times as long and end at "
        f"{shown(places, BEST, final)} %, and the tenth"
    )
    yield f"has {shown(places, BEST, tenth)} % in place of {shown(places, OURS, tenth)} %."
    lack = [
        n(s.counted(s.settings[0], f"{name}, dynamic", "devices lack {} %"))
        for name in ("Power of choice", "Oort")
    ]
    yield f"in the first setting devices lack {lack[0]} and {lack[1]} % of their participation."


def _uploads() -> Told:
    s = Standings("uploads")
    names = [OURS, QUICKEST, FAIR, BEST, LROA, UNI_D, UNI_S, "Round robin, dynamic"]
    rows = []
    for setting in s.settings:
        unit = "min" if "digits" in setting else "d"
        row = [f"{setting}, {unit}"]
        for name in names:
            cell = s.time(setting, name, unit) if name in s.ran(setting) else "–"
            row.append(f"**{cell}**" if s.ok(setting)[:1] == [name] else cell)
        rows.append(row)
    yield Block("uploads", table(["setting", *names], rows))
    cifar, cell = (
        [n(s.ratio(f"{system}, {bit} bits", LROA, OURS), ".1f") for bit in (32, 8, 4, 2)]
        for system in ("CIFAR-10", "cell")
    )
    yield (
        f"LROA takes {cifar[0]} times as long as Opportunistic with 32 bits, {cifar[1]} times with "
        f"8, {cifar[2]} with 4 and {cifar[3]} with 2. In the cell these are {cell[0]}, {cell[1]}, "
        f"{cell[2]} and {cell[3]}:"
    )

    def saved(name: str) -> float:
        times = [s.of(f"phones, {bit} bits", name, "time") for bit in (4, 32)]
        return 100 * (1 - times[0] / times[1])

    others = [saved(name) for name in names if name != OURS]
    yield (
        f"With phones 4 bits save {n(saved(OURS), '.0f')} % of Opportunistic's time and "
        f"{span(others)} % of the others'."
    )
    worst = n(s.counted("phones, 2 bits", OURS, "the worst {} %"))
    yield f"With 2 bits, two phones spend up to {worst} % too much with Opportunistic"
    digits = [(each, name) for each in s.settings if "digits" in each for name in s.ran(each)]
    finals = [s.of(*each, "final_accuracy", "%") for each in digits]
    yield f"({span(finals, '.1f')} % in all sixteen cases)"
    few = [f"digits, {bit} bits" for bit in (4, 2)]
    spent = [s.of(each, name, "spent_ratio", "%") - 100 for each in few for name in (LROA, UNI_D)]
    yield f"LROA and Uni-D then spend {span(spent)} % too much"
    days = [n(s.of(f"cell, {bit} bits", UNI_S, "time", "d"), ".0f") for bit in (32, 4)]
    yield f"take Uni-S in the cell from {days[0]} to {days[1]} days"
    slowest = [
        span(
            [
                max(s.ratio(each, name, OURS) for name in s.ran(each))
                for each in s.settings
                if each.endswith(f" {bit} bits")
            ],
            ".1f",
        )
        for bit in (32, 4)
    ]
    yield (
        f"With 32 bits the slowest takes {slowest[0]} times as long as Opportunistic, with 4 bits "
        f"{slowest[1]} times."
    )


def _work() -> Told:
    s, accuracies = Standings("work"), ("final_accuracy", "worst_tenth_accuracy")
    told = {
        "phones, equal work": "phones, untrained: equal work",
        "digits, labels alike, equal work": "digits to 90 %: equal work",
        "digits, labels by speed, equal work": "labels by speed: equal work",
    }
    rows = []
    for setting in s.settings:
        short = "the same, normalised" if "normalised" in setting else "work by speed"
        trained = "digits" in setting
        unit = "min" if trained else "d"
        times = [s.time(setting, name, unit) for name in (OURS, QUICKEST, UNI_S)]
        shares = [s.shown(setting, OURS, each, "%", 2) for each in accuracies if trained]
        rows.append([f"{told.get(setting, short)}, {unit}", *times, ", ".join(shares)])
    head = "final accuracy, worst tenth of the devices (Opportunistic), %"
    yield Block("work", table(["", OURS, QUICKEST, UNI_S, head], rows))
    labels = "digits, labels by speed"
    final, tenth = (
        s.of(f"{labels}, equal work", OURS, each, "%")
        - s.of(f"{labels}, work by speed", OURS, each, "%")
        for each in accuracies
    )
    yield f"{n(final, '.1f')} points in the end, and {n(tenth, '.1f')} for the worst tenth"


def _topk() -> Told:
    runs = Runs("topk")
    few, many, ours, bits = (
        f"{OURS}, topk:0.02", f"{OURS}, topk:0.1", OURS, f"{OURS}, qsgd:4",
    )  # fmt: skip
    times = {name: n(runs.shown(name, "time_to_target", "min")) for name in (few, many, ours, bits)}
    yield (
        f"90 % takes {times[many]} minutes in place of {times[bits]}, longer than with 32 bits "
        f"({times[ours]}). With a fiftieth it takes {times[few]}, and the final accuracy is "
        f"{n(runs.shown(few, 'final_accuracy', '%', 2))} in place of "
        f"{n(runs.of(ours, 'final_accuracy', '%'), '.1f')} %."
    )


def _measured() -> Told:
    s = Standings("opportunistic")
    head = ["", f"time, {LROA}", OURS, QUICKEST]
    for what in ("energy", "participation", "distance"):
        head += [f"{what}, {LROA}", OURS]
    rows = []
    for setting in s.settings:
        unit = "min" if "digits" in setting else "d"
        row = [setting]
        names = LROA, OURS, QUICKEST
        row += [f"{s.of(setting, name, 'total_time', unit):.2f} {unit}" for name in names]
        for column, spec in (
            ("worst_spent_ratio", ".0f"), ("least_participation", ".0f"), ("outcome_gap", ".3g"),
        ):  # fmt: skip
            row += [f"{s.of(setting, name, column, '%'):{spec}} %" for name in (LROA, OURS)]
        rows.append(row)
    yield Block("measured", table(head, rows))


def _tradeoff() -> Told:
    data = pd.read_csv(ROOT / "docs/evidence/tradeoff.csv").dropna(subset=["variant"])
    columns = {
        "spent, %": ("spent_ratio", ".1f"),
        "worst device, %": ("worst_spent_ratio", ".0f"),
        "least participation, %": ("least_participation", ".0f"),
        "distance, %": ("outcome_gap", ".3g"),
    }
    told = {
        "cold start": '`start="cold"`',
        "cold start, steps × 5": '`start="cold"`, `step_scale=5`',
        "steps × 5": "`step_scale=5`",
        "no price moves": "`step_scale=0`",
        "resources of Uni-D": "the same cohorts, f and p of Uni-D",
    }
    rows = []
    for _, row in data.iterrows():
        first = [told.get(row["variant"], row["variant"]), f"{row['round_time']:.4g}"]
        rows.append(first + [f"{100 * row[name]:{spec}}" for name, spec in columns.values()])
    yield Block("tradeoff", table(["variant", "mean round, s", *columns], rows))


def _fashion_small() -> Told:
    s = Standings("fashion_mnist_small")
    head = ["", "time to 80 %, d", "final accuracy, %", "total time, d", "spent, % of budget"]
    head += ["worst device, %", "outcome bound, %", "status"]
    rows = []
    for setting in s.settings:
        for name in [
            *s.ok(setting),
            *(each for each in s.ran(setting) if each not in s.ok(setting)),
        ]:
            row = [name + (", 4 bits" if "4 bits" in setting else "")]
            row += [s.shown(setting, name, each, "d") for each in ("time_to_target", "total_time")]
            row.insert(2, s.shown(setting, name, "final_accuracy", "%", 2))
            row += [
                s.shown(setting, name, column, "%", most)
                for column, most in (
                    ("spent_ratio", 1),
                    ("worst_spent_ratio", 0),
                    ("outcome_gap", 2),
                )
            ]
            rows.append([*row, str(s.rows.loc[(setting, name), "status"])])
    yield Block("fashion-mnist", table(head, rows))
    full, few = s.settings
    best, ours = (n(s.ratio(full, name, LROA), ".2f") for name in (BEST, OURS))
    yield f"are at 80 % first, in {best} and {ours} of LROA's time;"
    out, final = (
        n(s.shown(full, DIVFL, *of)) for of in (("never_seen",), ("final_accuracy", "%", 2))
    )
    spent = n(s.of(full, DIVFL, "worst_spent_ratio"), ".0f")
    yield (
        f"In a run DivFL leaves out {out} of the 120 devices, lets another spend {spent} times its "
        f"budget, and ends at {final} %."
    )
    lroa = [n(s.ratio(each, LROA, OURS), ".1f") for each in (few, full)]
    yield f"LROA takes {lroa[0]} times as long as Opportunistic, after {lroa[1]} times with 32."
    kept = s.of(few, UNI_S, "time") / s.of(full, UNI_S, "time")
    yield f"and needs {n(kept, '.2f')} of its time."
    over = {n(s.counted(few, name, "all together {} % over")) for name in (LROA, UNI_D)}
    yield f"LROA and Uni-D then spend {' and '.join(sorted(over))} % more than the budgets."


def _large_weights() -> Told:
    adam, average, usual = (
        n(Runs(f"large-weights-{name}").shown(LROA, "final_accuracy", "%", 2))
        for name in ("fedadam", "fedavg", "mu-1")
    )
    yield (
        f"ends at {adam} % accuracy (mean with 95 % interval), with plain `fedavg` at {average} %, "
        f"and with `fedavg` and `mu=1` at {usual} %."
    )


def _readme() -> Told:
    s = Standings("system")
    yield f"is within {n(s.of(IID, LROA, 'gap', '%'), '.2f')} % of the best that sampling can reach"
    above = s.of(IID, OURS, "outcome_gap", "%")
    yield f"is {n(above, '.1f')} % above the bound."


def _show(name: str) -> Told:
    yield Block(name, f"```text\n{printed(name)}\n```")


PAGES: dict[str, list[Callable[[], Told]]] = {
    "README.md": [
        _readme,
        partial(_show, "readme-digits"),
        partial(_show, "readme-cifar10"),
    ],
    "docs/leaderboard.md": [_leaderboard_system, _leaderboard_digits],
    "docs/uploads.md": [_uploads, _work, _topk],
    "docs/opportunistic.md": [_measured, _tradeoff],
    "docs/training.md": [_fashion_small, _large_weights],
    "docs/status.md": [partial(_show, "status-power")],
    "docs/agents.md": [
        partial(_show, name)
        for name in (
            "task-paper",
            "task-longest",
            "task-blind",
            "train-ppo",
            "train-cmdp",
            "train-sb3",
        )
    ],
    "docs/not_modelled.md": [partial(_show, "asynchronous")],
    "docs/paper.md": [
        partial(_show, f"paper-{name}") for name in ("baselines", "lambda", "v", "k", "bound")
    ],
}


def told(page: str) -> Told:
    """What the files say of a page."""
    for part in PAGES[page]:
        yield from part()

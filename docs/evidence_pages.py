"""What the pages say of results: tables, and sentences with numbers, from the stored files.

Each function tells the numbers of a page, or of a part of it: a `Block` stands on the page between
``<!-- evidence: NAME -->`` and ``<!-- end -->``; a string is a piece of a sentence that is on the
page once, in which `n` marks what is a number of the files. A claim is such a piece with whether
the files bear it out. `docs/evidence.py` writes and checks them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

import pandas as pd
from evidence_files import (
    ROOT,
    n,
    played,
    printed,
    span,
    standings,
    table,
)

# The names of some schedulers and settings in the leaderboards.
LROA, OURS, DIVFL, UNI_D, UNI_S = "LROA", "Opportunistic", "DivFL", "Uni-D", "Uni-S"
BEST, FAIR = "Best channel, static", "Proportional fair, static"


class Block(NamedTuple):
    """A table or a printed text, by its name on the page."""

    name: str
    text: str


class Claim(NamedTuple):
    """A piece of a sentence without numbers of its own, and whether it is so."""

    text: str
    holds: bool


Told: TypeAlias = Iterator[Block | Claim | str]


class Part(NamedTuple):
    """What a page says of some results, which are named as in the index."""

    page: str
    results: tuple[str, ...]
    tell: Callable[[], Told]


PARTS: list[Part] = []


def part(page: str, *results: str) -> Callable[[Callable[[], Told]], Callable[[], Told]]:
    """Enter a function that tells a part of a page."""

    def enter(tell: Callable[[], Told]) -> Callable[[], Told]:
        PARTS.append(Part(page, results, tell))
        return tell

    return enter


IID, CELL, PHONES = "CIFAR-10, iid channel", "cell", "phones"


@part("docs/leaderboard.md", "system")
def _leaderboard_system() -> Told:
    s = standings("system")
    last = len(s.ran(IID))
    yield Claim("compares fifteen schedulers in four systems", (last, len(s.settings)) == (15, 4))
    yield f"channels with static resources take {n(s.ratio(IID, BEST, LROA), '.2f')} of LROA's time"
    yield f"Opportunistic takes {n(s.ratio(IID, OURS, LROA), '.2f')}:"
    yield Claim("LROA is eighth:", s.ok(IID).index(LROA) == 7)
    faster = s.ratio(CELL, BEST, OURS)
    yield Claim("The best channels are a tenth faster than Opportunistic", 0.85 < faster < 0.93)
    out, over = (s.counted(CELL, BEST, what) for what in ("leaves out {}", "{} of 120 devices"))
    yield f"but leave out {n(out)} of the 120 devices, and {n(over)} spend more than their budgets"
    worst = s.of(CELL, BEST, "worst_spent_ratio")
    yield Claim("one of them eleven times", 10.5 <= worst < 11.5)
    out = s.counted(CELL, "Fastest, dynamic", "leaves out {}")
    yield f"*Fastest* keeps the budgets and leaves out {n(out)}."
    yield Claim("Only four schedulers are ok:", len(s.ok(CELL)) == 4)
    ours, fair = (s.ratio(CELL, name, LROA) for name in (OURS, FAIR))
    yield (
        f"Opportunistic takes {n(ours, '.2f')} of LROA's time, and proportional fair with static "
        f"resources {n(fair, '.2f')}."
    )
    fastest = [name for name in s.ran(PHONES) if name.startswith("Fastest")]
    out = [int(s.counted(PHONES, name, "leaves out {}")) for name in fastest]
    third = max(s.ratio(PHONES, name, OURS) for name in fastest) < 0.34
    yield Claim("fastest devices need a third of Opportunistic's time or less", third)
    yield f"but leave out {n(min(out))} or more of the 120 phones"
    yield f"and needs {n(s.ratio(PHONES, OURS, UNI_S), '.2f')} of the time of Uni-S, the second"
    yield Claim("of Uni-S, the second that is ok", s.ok(PHONES)[:2] == [OURS, UNI_S])
    longer = 100 * (s.ratio(PHONES, LROA, OURS) - 1)
    spent = s.counted(PHONES, LROA, "all together {} % over")
    yield (
        f"LROA takes {n(longer, '.0f')} % longer than Opportunistic, and spends "
        f"{n(float(spent), '.0f')} % more energy than the budgets allow"
    )


@part("docs/leaderboard.md", "digits")
def _leaderboard_digits() -> Told:
    s, final, tenth = standings("digits"), "final_accuracy", "worst_tenth_accuracy"
    _, cell, places = s.settings
    ours, lroa = s.times(OURS, "min"), s.times(LROA, "min")
    yield (
        f"Opportunistic reaches it first, in {ours[0]}, {ours[1]} and {ours[2]} minutes, where "
        f"LROA takes {lroa[0]}, {lroa[1]} and {lroa[2]}."
    )
    only = s.ok(cell) == [OURS, FAIR, LROA]
    yield Claim("In the cell only Opportunistic, proportional fair and LROA are ok.", only)
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
    out = [n(s.counted(each, "Oort, dynamic", "leaves out {}")) for each in s.settings[:2]]
    yield f"in the first two settings leaves out {out[0]} and {out[1]} of 40."


@part("docs/leaderboard.md", "fashion_mnist")
def _leaderboard_fashion() -> Told:
    s = standings("fashion_mnist")
    ours, lroa = s.times(OURS, "h"), s.times(LROA, "h")
    yield (
        f"Opportunistic reaches 80 % after {ours[0]} hours with the iid channel, {ours[1]} in the "
        f"cell and {ours[2]} with labels by place, and LROA after {lroa[0]}, {lroa[1]} and "
        f"{lroa[2]}."
    )
    over = [100 * (s.of(each, LROA, "spent_ratio") - 1) for each in s.settings]
    yield f"whose queues start empty, spends {span(over)} % more than the budgets"


@part("docs/uploads.md", "uploads")
def _uploads() -> Told:
    s = standings("uploads")
    names = [OURS, FAIR, BEST, LROA, UNI_D, UNI_S, "Round robin, dynamic"]
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
    fastest = s.of("CIFAR-10, 32 bits", OURS, "time")
    slow = [each for each in names if s.of("CIFAR-10, 4 bits", each, "time") > fastest]
    yield Claim("every scheduler but Uni-S is faster with 4 bits than the", slow == [UNI_S])
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
    phones = [f"phones, {bit} bits" for bit in (4, 2)]
    over = [s.counted(each, OURS, "{} of 120 devices over") for each in phones]
    yield Claim("one phone of 120 then spends", over == ["1", "2"])
    worst = [n(s.counted(each, OURS, "the worst {} %")) for each in phones]
    yield f"then spends {worst[0]} % too much, and with 2 bits two phones up to {worst[1]} %"
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


@part("docs/uploads.md", "uploads_fashion_mnist")
def _uploads_fashion() -> Told:
    s = standings("uploads_fashion_mnist")
    ours, lroa = s.times(OURS, "h"), s.times(LROA, "h")
    yield (
        f"Opportunistic reaches 80 % after {ours[0]} hours with 32 bits and {ours[1]} with 4, "
        f"LROA after {lroa[0]} and {lroa[1]}:"
    )
    over = [n(s.of(each, LROA, "spent_ratio", "%") - 100, ".0f") for each in s.settings]
    yield f"LROA spends {over[0]} and {over[1]} % more than the budgets"


@part("docs/uploads.md", "work")
def _work() -> Told:
    s, accuracies = standings("work"), ("final_accuracy", "worst_tenth_accuracy")
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
        times = [s.time(setting, name, unit) for name in (OURS, UNI_S)]
        shares = [s.shown(setting, OURS, each, "%", 2) for each in accuracies if trained]
        rows.append([f"{told.get(setting, short)}, {unit}", *times, ", ".join(shares)])
    head = "final accuracy, worst tenth of the devices (Opportunistic), %"
    yield Block("work", table(["", OURS, UNI_S, head], rows))
    labels = "digits, labels by speed"
    final, tenth = (
        s.of(f"{labels}, equal work", OURS, each, "%")
        - s.of(f"{labels}, work by speed", OURS, each, "%")
        for each in accuracies
    )
    yield f"{n(final, '.1f')} points in the end, and {n(tenth, '.1f')} for the worst tenth"


@part("docs/uploads.md", "topk")
def _topk() -> Told:
    runs = played("topk")
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


@part("docs/uploads.md", "tune")
def _tune() -> Told:
    text = printed("tune")
    best = "'compression': 'qsgd:2', 'local_epochs': 0.25, 'cohort_size': 6"
    found = re.search(rf"^best .* ok .*{best}", text, re.MULTILINE) is not None
    yield Claim("the best setting has 2 bits, a quarter of an epoch and six devices", found)
    share = float(re.search(r"needs ([\d.]+) % of the default's time", text)[1])
    yield Claim("It reaches 90 % in less than a tenth of the default's time", share < 10)


@part("docs/opportunistic.md", "system")
def _bound() -> Told:
    s = standings("system")
    fastest, turns = "Fastest, static", "Round robin, dynamic"
    most = int(s.counted(PHONES, fastest, "leaves out {}")) > 60
    closer = 5 * s.of(PHONES, fastest, "outcome_gap") < s.of(PHONES, turns, "outcome_gap")
    yield Claim("*fastest* leaves out most of them and is far closer to the", most and closer)


@part("docs/opportunistic.md", "opportunistic")
def _measured() -> Told:
    s = standings("opportunistic")
    head = [""]
    for what in ("time", "energy", "participation", "distance"):
        head += [f"{what}, {LROA}", OURS]
    rows = []
    for setting in s.settings:
        unit = "min" if "digits" in setting else "d"
        row = [setting]
        row += [f"{s.of(setting, name, 'total_time', unit):.2f} {unit}" for name in (LROA, OURS)]
        for column, spec in (
            ("worst_spent_ratio", ".0f"), ("least_participation", ".0f"), ("outcome_gap", ".3g"),
        ):  # fmt: skip
            row += [f"{s.of(setting, name, column, '%'):{spec}} %" for name in (LROA, OURS)]
        rows.append(row)
    yield Block("measured", table(head, rows))


@part("docs/opportunistic.md", "tradeoff")
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
        "no price of participation moves": "`participation=False`",
        "no price moves": "`step_scale=0`",
        "resources of Uni-D": "the same cohorts, f and p of Uni-D",
    }
    rows = []
    for _, row in data.iterrows():
        first = [told.get(row["variant"], row["variant"]), f"{row['round_time']:.4g}"]
        rows.append(first + [f"{100 * row[name]:{spec}}" for name, spec in columns.values()])
    yield Block("tradeoff", table(["variant", "mean round, s", *columns], rows))


@part("docs/training.md", "fashion_mnist_small")
def _fashion_small() -> Told:
    s = standings("fashion_mnist_small")
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
    leaders = s.ok(full)[:2] == [BEST, OURS]
    low, high = (s.of(full, OURS, f"longer_than_leader_{end}") for end in ("low", "high"))
    yield Claim("which of the two is ahead is luck.", leaders and low < 0 < high)
    most, least = (
        extreme(s.of(full, name, f"final_accuracy_{end}") for name in s.ok(full))
        for extreme, end in ((max, "low"), (min, "high"))
    )
    yield Claim("that are ok end at the same accuracy within", most < least)
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
    kept = {name: s.of(few, name, "time") / s.of(full, name, "time") for name in s.ran(few)}
    yield Claim("With 4 bits all five are faster,", len(kept) == 5 and max(kept.values()) < 1)
    yield Claim("Uni-S gains most,", min(kept, key=kept.__getitem__) == UNI_S)
    yield f"and needs {n(kept[UNI_S], '.2f')} of its time."
    over = {n(s.counted(few, name, "all together {} % over")) for name in (LROA, UNI_D)}
    yield f"LROA and Uni-D then spend {' and '.join(sorted(over))} % more than the budgets."


@part("docs/training.md", "large-weights")
def _large_weights() -> Told:
    adam, average, usual = (
        n(played(f"large-weights-{name}").shown(LROA, "final_accuracy", "%", 2))
        for name in ("fedadam", "fedavg", "mu-1")
    )
    yield (
        f"ends at {adam} % accuracy (mean with 95 % interval), with plain `fedavg` at {average} %, "
        f"and with `fedavg` and `mu=1` at {usual} %."
    )


@part("docs/tour.md", "tour")
def _tour() -> Told:
    yield Claim("The first draws this picture, `overview.png`:", True)


@part("README.md", "system")
def _readme() -> Told:
    s = standings("system")
    yield f"is within {n(s.of(IID, LROA, 'gap', '%'), '.2f')} % of the best that sampling can reach"
    above = s.of(IID, OURS, "outcome_gap", "%")
    yield f"is {n(above, '.1f')} % above the bound."
    half = 0.45 < s.ratio(IID, OURS, LROA) < 0.55
    yield Claim("it needs half of LROA's time at the same energy", half)
    first = all(s.ok(setting)[0] == OURS for setting in s.settings)
    yield Claim(
        "Opportunistic is the fastest scheduler that is ok in all four systems.",
        first,
    )


# The page that shows the text that a command printed.
PRINTED = {
    "readme-digits": "README.md",
    "readme-cifar10": "README.md",
    "status-power": "docs/status.md",
    "asynchronous": "docs/not_modelled.md",
    "paper-baselines": "docs/paper.md",
    "paper-lambda": "docs/paper.md",
    "paper-v": "docs/paper.md",
    "paper-k": "docs/paper.md",
    "paper-bound": "docs/paper.md",
}


def _show(name: str) -> Told:
    yield Block(name, f"```text\n{printed(name)}\n```")


for _name, _page in PRINTED.items():
    part(_page, _name)(partial(_show, _name))

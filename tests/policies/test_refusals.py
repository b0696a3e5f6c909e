"""Wrong arguments of the policies' public doors: one clear message each."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_edge_env import Scenario
from policies import (
    LROA,
    DivFL,
    Opportunistic,
    Scheduler,
    Selector,
    UniD,
    UniS,
    check_policy,
    make_policy,
    selection,
)
from policies.outcome import DualPrices, solve_round
from policies.p2 import best_resources, solve_p2

SYSTEM = Scenario.femnist(num_devices=5, cohort_size=3)
ONES = np.ones(5)
OPPORTUNISTIC = partial(Opportunistic, SYSTEM, prices=DualPrices(ONES, ONES))
BLIND = partial(Opportunistic, SYSTEM.replace(csi="participants"), prices=DualPrices(ONES, ONES))
P2, ROUND = (partial(solve, ONES, ONES) for solve in (solve_p2, solve_round))


def deciding(kind=LROA, **changed: Any):
    observation = {"channel_gain": ONES, "queue": ONES} | changed
    return lambda: kind(SYSTEM).decide(observation)


def spoilt(value: float) -> np.ndarray:
    return np.where(np.arange(5) == 2, value, 1.0)


def choosing(*cohort: float):
    class Wrong(Selector):
        def select(self, _):
            return np.array(cohort)

    return deciding(lambda scenario: Scheduler(Wrong(scenario)))


CALLS = [
    # Observations: all policies check them in one place.
    (lambda: LROA(SYSTEM).decide(None), "observation must be a mapping .*, got NoneType"),
    (lambda: UniD(SYSTEM).decide({"queue": ONES}), r"must be a mapping with .*, got \['queue'\]"),
    (deciding(channel_gain=["0.1"] * 5), "channel_gain must hold real numbers"),
    (deciding(channel_gain=np.ones(4)), r"channel_gain must have shape .*N = 5 and .*, got \(4,\)"),
    (deciding(channel_gain=np.ones((0, 5)), queue=np.ones((0, 5))), "at least one row"),
    (deciding(queue=np.ones((3, 5))), r"queue must have the shape .*\(5,\), got \(3, 5\)"),
    (deciding(UniS, channel_gain=spoilt(0.0)), "channel_gain must be positive and finite"),
    (deciding(queue=spoilt(math.inf)), "queue must be at least zero and finite"),
    *(
        (deciding(partial(make_policy, name), available=available), "observation's available must")
        for name in ("opportunistic", "fastest")
        for available in (2 * ONES, spoilt(math.nan), "text", ONES[:4], np.ones((2, 5)), 0 * ONES)
    ),
    # P2 and the outcome problem.
    (lambda: P2(SYSTEM, exact=1), "exact must be True or False, got 1"),
    (lambda: LROA(SYSTEM, variant="papr"), "variant must be one of .*: did you mean 'paper'"),
    (lambda: best_resources(ONES, ONES, ONES[:4], SYSTEM), r"q must .* \(5,\), got \(4,\)"),
    (lambda: best_resources(ONES, ONES, spoilt(1.6), SYSTEM), r"in \(0, 1\], got .* to 1.6"),
    (lambda: ROUND(ONES[:3], SYSTEM), "participation_queue must have the shape"),
    (lambda: ROUND(spoilt(math.nan), SYSTEM), "participation_queue must be finite"),
    (lambda: ROUND(ONES, SYSTEM, V=0.0), "V must be positive and finite, got 0.0"),
    (lambda: ROUND(ONES, SYSTEM, tolerance="1"), r"tolerance must lie in \(0, 1\], got '1'"),
    (lambda: ROUND(ONES, SYSTEM, available=ONES), "available must be bool with the shape"),
    (lambda: ROUND(ONES, SYSTEM, available=ONES < 1), "at least one device in every round"),
    # Policies and selectors.
    (lambda: LROA("cifar10"), r"scenario must be a Scenario, .*: use Scenario.preset\('cifar10'\)"),
    (lambda: OPPORTUNISTIC(start="warm"), "start must be one of settled, cold, got 'warm'"),
    (lambda: OPPORTUNISTIC(step_scale=-1.0), "step_scale must be"),
    (lambda: OPPORTUNISTIC(prices=(0.4, 800.0)), "prices must be DualPrices"),
    (lambda: OPPORTUNISTIC(prices=DualPrices(ONES[:4], ONES)), r"prices.energy must .* \(5,\)"),
    (deciding(lambda _: BLIND()), r"age must have the shape of channel_gain, \(5,\), got \(\)"),
    (
        deciding(lambda _: BLIND(), channel_gain=ONES[:4], age=ONES[:4]),
        r"channel_gain .* N = 5",
    ),
    (lambda: DivFL(Scenario(num_devices=4097)), "num_devices must be at most 4096, got 4097"),
    (choosing(25, -1), "indices from 0 to 4"),
    (lambda: Scheduler(selection.BestChannel(SYSTEM), "greedy"), "static, dynamic"),
    (lambda: Scheduler(selection.BestChannel), "selector must be a Selector, got <class"),
    (lambda: make_policy("quickest:static", SYSTEM), "Quickest sets f and p itself"),
    (lambda: selection.Quickest(SYSTEM, groups=6), "groups must be at most 5, got 6"),
    (lambda: check_policy("lroa"), "policy must be an instance of Policy, got 'lroa'"),
    # Names.
    (lambda: make_policy(None, SYSTEM), "policy must be a name or .* string, got None"),
    (lambda: make_policy("lroa", SYSTEM, varaint="paper"), "lroa has no option 'varaint': did you"),
    (
        lambda: make_policy("lroa", SYSTEM, self=1),
        "lroa has no option 'self': it has variant, exac",
    ),
    (lambda: make_policy("quickest", SYSTEM, group=2), "no option 'group': did you mean 'groups'"),
    (lambda: make_policy("mine.py:Steady", SYSTEM, shape=2), "has no option 'shape': did you mean"),
    (lambda: make_policy("mine.py:Needy", SYSTEM), "mine.py:Needy needs the option share"),
    (lambda: make_policy("predict", SYSTEM, model=1, scale=2), "predict has no option 'scale'"),
    (lambda: make_policy("", SYSTEM), "policy must be one of lroa, .*, got ''"),
    (lambda: make_policy("lora", SYSTEM), r"got 'lora': did you mean 'lroa'\?"),
    (lambda: make_policy("fastest:static", SYSTEM, resources="dynamic"), "give the resources once"),
    (lambda: make_policy("lroa,uni-d", SYSTEM), "got 'lroa,uni-d': separate names with spaces"),
    (lambda: make_policy("mine.py:Last:statik", SYSTEM), r"'statik': did you mean 'static'\?"),
    (lambda: make_policy("absent.py:Steady", SYSTEM), "the file 'absent.py' does not exist"),
    (
        lambda: make_policy("no_module:Steady", SYSTEM),
        "import 'no_module': ModuleNotFoundError",
    ),
    (lambda: make_policy("broken.py:Steady", SYSTEM), "import 'broken.py': NameError: name"),
    (lambda: make_policy("quits.py:Steady", SYSTEM), "import 'quits.py': SystemExit: 0"),
    (lambda: make_policy("mine.py:Stedy", SYSTEM), r"has no 'Stedy': did you mean 'Steady'\?"),
    (lambda: make_policy("mine.py:Speed", SYSTEM), "must be a subclass of Policy or Selector"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message for _, message in CALLS])
def test_wrong_arguments__are_named(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("undefined")
    Path("quits.py").write_text("import sys\nsys.exit(0)")
    Path("mine.py").write_text(Path(__file__).with_name("own_policies.py").read_text())
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)

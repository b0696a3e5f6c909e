"""The looks of policies in figures."""

from __future__ import annotations

from fl_edge_env import Scenario
from policies import make_policy
from policies.report.styles import looks

USUAL = ("quickest", "random", "opportunistic", "divfl", "uni-s", "uni-d", "lroa")


def test_looks__differ_and_usual_policies_keep_theirs():
    usual = [make_policy(name, Scenario.digits()).name for name in USUAL] + ["Best channel, static"]
    names = [f"policy {number}" for number in range(58)] + usual
    chosen = looks(names)
    assert len({(look.color, str(look.linestyle)) for look in chosen.values()}) == len(names)
    assert all(looks([name])[name] == chosen[name] for name in usual)
    assert len({look.color for look in looks(names[-11:]).values()}) == 11

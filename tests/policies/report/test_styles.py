"""The looks of policies: one for each in every picture, and apart from each other."""

from __future__ import annotations

import pytest

from fl_edge_env import Scenario
from policies import make_policy
from policies.registry import POLICIES, SELECTORS
from policies.report.styles import FAMILIES, looks
from policies.resources import RESOURCES

DEFAULT = ["LROA", "Uni-D", "Uni-S", "DivFL", "Best channel, static", "Opportunistic"]


@pytest.fixture(scope="module")
def names() -> list[str]:
    """Every name of a policy that `make_policy` gives, with two compressions or none."""
    scenario = Scenario.digits()
    selectors = [name for name in SELECTORS if name != "quickest"]  # which has its own resources
    made = [(name, {}) for name in POLICIES if name not in selectors]
    made += [(name, {"resources": rule}) for name in selectors for rule in RESOURCES]
    policies = [make_policy(name, scenario, **options).name for name, options in made]
    return [f"{name}{end}" for name in policies for end in ("", ", qsgd:4", ", topk:0.01")]


def test_looks__differ_by_family_and_variant(names):
    chosen = looks(names)
    assert list(chosen) == names
    families: dict[str, set[tuple[str, str]]] = {}
    for name, look in chosen.items():
        families.setdefault(name.partition(", ")[0], set()).add((look.color, str(look.linestyle)))
    assert set(families) == set(FAMILIES)
    assert all(len(lines) == 1 for lines in families.values())
    assert len(set.union(*families.values())) == len(families)
    assert len(set(chosen.values())) == len(names)


def test_looks__of_a_policy_do_not_depend_on_the_company(names):
    known = [name for name in names if not name.endswith("topk:0.01")]
    together = looks(["mine", *reversed(known), "another, static"])
    assert all(together[name] == looks([name])[name] for name in known)


def test_looks__of_policies_of_ones_own_are_nobody_elses(names):
    chosen = looks([*(own := [f"policy {number}" for number in range(24)]), *names])
    assert len(set(chosen.values())) == len(chosen)
    lines = {name: (look.color, str(look.linestyle)) for name, look in chosen.items()}
    assert len({lines[name] for name in own}) == len(own)
    assert not {lines[name] for name in own} & {lines[name] for name in names}
    few = looks(["mine", *DEFAULT])
    assert len({look.color for look in few.values()}) == len(few)
    assert len({str(few[name].linestyle) for name in DEFAULT}) == len(DEFAULT)  # apart in grey

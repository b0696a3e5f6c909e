"""The seeds of policies, apart from the streams of environments."""

from __future__ import annotations

from fl_edge_env.streams import policy_seed

SEEDS = [*range(300), 2**31, 2**63, 2**100]


def test_policy_seed__is_the_same_in_each_process():
    own = [policy_seed(seed) for seed in SEEDS]
    assert len({*SEEDS, *own}) == 2 * len(SEEDS)
    assert policy_seed(0) == 3732504019415209689
    assert max(own) < 2**63

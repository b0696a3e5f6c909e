"""The seeds of policies, apart from the streams of environments."""

from __future__ import annotations

from numpy.random import SeedSequence

from fl_edge_env.streams import policy_seed

SEEDS = [*range(300), 2**31, 2**63, 2**100]


def test_policy_seed__is_another_for_each_seed_and_the_same_in_each_process():
    own = [policy_seed(seed) for seed in SEEDS]
    assert len({*SEEDS, *own}) == 2 * len(SEEDS)
    assert policy_seed(0) == 3732504019415209689
    assert max(own) < 2**63


def words(sequence: SeedSequence) -> set[int]:
    """Numbers that generators of a sequence and of those spawned from it begin with."""
    spawned = [*sequence.spawn(6), *(two for one in sequence.spawn(2) for two in one.spawn(6))]
    return {int(word) for one in (sequence, *spawned) for word in one.generate_state(4, "uint64")}


def test_policy_seed__shares_no_stream_with_the_environment():
    environment = set().union(*(words(SeedSequence(seed)) for seed in SEEDS))
    policy = set().union(*(words(SeedSequence(policy_seed(seed))) for seed in SEEDS))
    assert len(environment) > 20_000
    assert not environment & policy

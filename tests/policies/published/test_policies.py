"""The published algorithms as policies, in shared and equal systems."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import FLEdgeEnv, FLEdgeVectorEnv, Scenario
from policies import check_policy, make_policy
from tests.policies.published.systems import EQUAL, SHARED

NAMES = ["greedy-latency", "ocean", "fedl", "min-energy"]
SYSTEMS = {
    "shared": SHARED,
    "equal": EQUAL,
    "shared, some away": SHARED.replace(availability=0.5),
    "equal, some away": EQUAL.replace(availability=0.5),
    "fedl2019": Scenario.preset("fedl2019", num_devices=5),
    "yang2021": Scenario.preset("yang2021", num_devices=5),
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", NAMES)
def test_published__are_valid_policies_alone_and_in_a_batch(name, system):
    policy = make_policy(name, SYSTEMS[system])
    assert policy.resumable
    check_policy(policy)
    observation, info = FLEdgeVectorEnv(3, policy.scenario).reset(seed=[4, 5, 6])
    policy.reset([4, 5, 6])
    policy.feedback(info)
    batch = policy.decide(observation)
    assert (batch.bandwidth is not None) == (policy.scenario.bandwidth_split == "shared")
    for row in range(3):
        alone = make_policy(name, policy.scenario)
        alone.reset(4 + row)
        decision = alone.decide({key: value[row] for key, value in observation.items()})
        np.testing.assert_array_equal(decision.participates, batch.participates[row])
        np.testing.assert_allclose(decision.p, batch.p[row], rtol=1e-6)


@pytest.mark.parametrize("name", ["fedl", "min-energy"])
def test_published__let_everybody_take_part_in_each_round_of_their_own_system(name):
    system = SYSTEMS[{"fedl": "fedl2019", "min-energy": "yang2021"}[name]]
    policy, env = make_policy(name, system), FLEdgeEnv(system)
    observation, _ = env.reset(seed=0)
    policy.reset(0)
    for _ in range(3):
        observation, *_, info = env.step(policy.decide(observation))
        policy.feedback(info)
        assert np.all(info["energy_spent"] > 0)

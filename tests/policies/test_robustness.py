"""Every policy decides validly in every scenario."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given

from fl_edge_env import FLEdgeEnv, Scenario
from policies import LROA, UniD, UniS
from tests.support import ANY_SEED, SMALL, assert_round, field_values, layouts

POLICIES = [LROA, partial(LROA, exact=True), partial(LROA, variant="paper"), UniD, UniS]


@given(field_values(8), ANY_SEED)
def test_policies__decide_validly_around_the_defaults(fields, seed):
    scenario = Scenario(**fields)
    env = FLEdgeEnv(scenario)
    for make in POLICIES:
        policy = make(scenario)
        observation, _ = env.reset(seed=seed)
        for _ in range(scenario.num_rounds):
            result = env.step(policy.decide(observation))
            assert_round(env, result)
            observation = result[0]
            if isinstance(policy, LROA):
                assert np.isfinite([policy.solution.objective, policy.solution.lower_bound]).all()


@pytest.mark.parametrize("batch", [(), (4,)])
def test_decide__the_layout_of_an_observation_changes_nothing(batch):
    policy = LROA(SMALL)
    rng = np.random.default_rng(1)
    gain = rng.uniform(0.01, 0.5, (*batch, 5))
    queue = rng.uniform(0, 300, (*batch, 5))
    wanted = policy.decide({"channel_gain": gain, "queue": queue})
    for gains, queues in zip(layouts(gain).values(), layouts(queue).values(), strict=True):
        decision = policy.decide({"channel_gain": gains, "queue": queues})
        np.testing.assert_equal(vars(decision), vars(wanted))

"""An oracle for the blind task: Opportunistic with the gains that the last round lets it expect.

python examples/expecting.py

It sees the gains of all devices in the last round, and knows every device's mean gain and how long
fading stays. The command prints its score.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import gymnasium as gym
import numpy as np

import fl_edge_env  # noqa: F401 - registers the environments
from fl_edge_env import Allocation, Scenario
from fl_edge_env.tasks import SEEDS, TASKS, normalized_score
from fl_edge_env.typing import FloatArray
from policies import Opportunistic, evaluate
from policies.outcome import DualPrices, expected_gain, outcome_prices

TUNING_SEEDS = range(100, 106)
STEPS = 4.0, 1.0  # of the prices, in two simulations of an episode


class Expecting(Opportunistic):
    """Opportunistic with expected gains, and with prices that it learned in simulations."""

    def __init__(
        self, scenario: Scenario, *, prices: DualPrices | None = None, step_scale: float = 1.0
    ) -> None:
        prices = learned_prices(scenario) if prices is None else prices
        super().__init__(scenario, prices=prices, step_scale=step_scale)

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """Minimise the expected cost of the round."""
        gain = expected_gain(observation["channel_gain"], np.ones(1), self.scenario)
        return super().decide({**observation, "channel_gain": gain})


@lru_cache
def learned_prices(scenario: Scenario) -> DualPrices:
    """Mean prices in the second half of simulated episodes, from the prices of the bound on."""
    prices = outcome_prices(scenario)
    envs = gym.make_vec(
        "FLEdge-v0",
        num_envs=len(TUNING_SEEDS),
        vectorization_mode="vector_entry_point",
        scenario=scenario,
    )
    for step_scale in STEPS:
        rule = Expecting(scenario, prices=prices, step_scale=step_scale)
        # An episode begins at the low end of the prices, see `Opportunistic`.
        low_end = np.subtract(rule.current_prices, rule.prices)
        kept = []
        observation, _ = envs.reset(seed=list(TUNING_SEEDS))
        for index in range(scenario.num_rounds):
            observation, *_, info = envs.step(rule.decide(observation))
            rule.feedback(info)
            if index >= scenario.num_rounds // 2:
                kept.append(np.mean(rule.current_prices, axis=1))
        energy, participation = np.mean(kept, axis=0) - low_end
        prices = DualPrices(np.maximum(energy, 0.0), participation)
    return prices


def main() -> None:
    """Print the oracle's score on the held-out seeds, and its status."""
    scenario = TASKS["FLEdgeBlind-v0"].scenario.replace(csi="delayed")
    table = evaluate([Expecting(scenario)], scenario, SEEDS)
    score = normalized_score("FLEdgeBlind-v0", table["outcome_gap"].mean())
    print(f"oracle: {score:.3f}, {table['status'][0]}")


if __name__ == "__main__":
    main()

"""What the checker tells the author of a policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fl_edge_env import Allocation, Scenario
from policies import LROA, Opportunistic, UniD, UniS, check_policy, make_policy
from policies.outcome import DualPrices

SCENARIO = Scenario.digits(num_devices=6)


class Weighted(UniS):
    """Uniform sampling, with the probabilities times a factor."""

    def decide(self, observation):
        decision = super().decide(observation)
        q = decision.q * (1 + self.factor(observation["channel_gain"]))
        return replace(decision, q=q / q.sum(axis=-1, keepdims=True))


class GlobalDraws(Weighted):
    def factor(self, gain):
        return np.random.rand(*gain.shape)  # noqa: NPY002


class NeverForgets(Weighted):
    rounds = 0

    def factor(self, gain):
        self.rounds += 1
        return self.rounds * np.arange(gain.shape[-1])


class OneStreamForAll(Weighted):
    def reset(self, seed):
        self.rng = np.random.default_rng(seed)

    def factor(self, gain):
        return self.rng.random(gain.shape)


class Batched(UniS):
    """Uniform sampling by a network of float32, which computes a batch in another order."""

    error = 1e-6

    def decide(self, observation):
        decision = super().decide(observation)
        error = self.error * (len(decision.f) > 1)
        return replace(decision, f=decision.f + error * (self.scenario.f_mid - decision.f))


class BatchedWrongly(Batched):
    error = 1e-3


class ChangesWhatItSees(Weighted):
    def factor(self, gain):
        gain += 1
        return gain


class AddsToInfo(UniS):
    def feedback(self, info):
        info["mine"] = 1.0


class TooManyDevices(UniS):
    def decide(self, observation):
        decision = super().decide(observation)
        return Allocation(decision.f, decision.p, cohort=[0, 1, 2])


class Deaf(UniS):
    def decide(self, observation):
        decision = super().decide(observation)
        return Allocation(decision.f, decision.p, cohort=[0, 1])


@pytest.mark.parametrize("kind", [LROA, UniD, UniS, Opportunistic])
def test_check_policy__passes_our_own(kind):
    scenario = SCENARIO.replace(cohort_size=4, availability=0.4, upload_failure=0.3)
    prices = DualPrices(np.full(6, 0.4), np.full(6, 1e3))
    check_policy(kind(scenario, **({"prices": prices} if kind is Opportunistic else {})))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (GlobalDraws, "GlobalDraws draws random numbers that its seed does not determine"),
        (NeverForgets, "NeverForgets decides differently in a second episode"),
        (OneStreamForAll, "OneStreamForAll decides differently for a batch"),
        (BatchedWrongly, "BatchedWrongly decides differently for a batch"),
        (ChangesWhatItSees, "read-only"),
        (AddsToInfo, "does not support item assignment"),
        (TooManyDevices, "decide of TooManyDevices is not valid: cohort must have shape"),
        (Deaf, r'which is not: choose devices with observation\["available"\]'),
    ],
)
def test_check_policy__names_what_is_wrong(kind, message):
    scenario = SCENARIO.replace(availability=0.4) if kind is Deaf else SCENARIO
    with pytest.raises((ValueError, TypeError), match=message):
        check_policy(kind(scenario))


def test_check_policy__allows_rounding_and_bandwidths():
    check_policy(Batched(SCENARIO))
    check_policy(make_policy("best-channel:static-shared", SCENARIO))

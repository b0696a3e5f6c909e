"""What the checker tells the author of a policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fl_edge_env import Allocation, Scenario
from policies import LROA, DivFL, Opportunistic, UniD, UniS, check_policy
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


class ForgetsInState(NeverForgets):
    def reset(self, _):
        self.rounds = 0

    def state(self):
        return {}

    def restore(self, state):
        pass


class OneStreamForAll(Weighted):
    def reset(self, seed):
        self.rng = np.random.default_rng(seed)

    def factor(self, gain):
        return self.rng.random(gain.shape)


class AcrossTheBatch(Weighted):
    def factor(self, gain):
        return gain - gain.mean()


class ChangesWhatItSees(Weighted):
    def factor(self, gain):
        gain += 1
        return gain


class TooManyDevices(UniS):
    def decide(self, observation):
        decision = super().decide(observation)
        cohort = np.broadcast_to([0, 1, 2], (*decision.f.shape[:-1], 3))
        return Allocation(decision.f, decision.p, cohort=cohort)


class Mixed(UniS):
    def decide(self, _):
        return (0.0, 0.0)


class Deaf(DivFL):
    def decide(self, observation):
        return super().decide({k: v for k, v in observation.items() if k != "available"})


@pytest.mark.parametrize("kind", [LROA, UniD, UniS, DivFL, Opportunistic])
def test_check_policy__finds_nothing_in_our_own_and_leaves_them_alone(kind):
    scenario = SCENARIO.replace(
        cohort_size=4, availability=0.4, availability_persistence=0.5, upload_failure=0.3
    )
    prices = DualPrices(np.full(6, 0.4), np.full(6, 1e3))
    policy = kind(scenario, **({"prices": prices} if kind is Opportunistic else {}))
    before = policy.__getstate__().copy()
    check_policy(policy)
    np.testing.assert_equal(policy.__getstate__(), before)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (GlobalDraws, "GlobalDraws draws from a global random generator"),
        (NeverForgets, "a second episode of NeverForgets with the same seeds decides otherwise"),
        (OneStreamForAll, "OneStreamForAll decides otherwise for a batch"),
        (AcrossTheBatch, "AcrossTheBatch decides otherwise for a batch"),
        (ForgetsInState, r"ForgetsInState decides otherwise after restore\(state\(\)\)"),
        (ChangesWhatItSees, "decide of ChangesWhatItSees changes the observation"),
        (TooManyDevices, "decide of TooManyDevices is not valid: cohort must have shape"),
        (Mixed, "decide of Mixed must return an Allocation, got a tuple"),
        (Deaf, r'which is not: observation\["available"\]'),
    ],
)
def test_check_policy__names_what_is_wrong(kind, message):
    scenario = SCENARIO.replace(availability=0.4) if kind is Deaf else SCENARIO
    with pytest.raises(ValueError, match=message):
        check_policy(kind(scenario))


def test_check_policy__takes_a_policy_alone():
    with pytest.raises(ValueError, match="policy must be an instance of Policy, got 'lroa'"):
        check_policy("lroa")

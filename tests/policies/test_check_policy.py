"""What the checker tells the author of a policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fl_edge_env import Allocation, Scenario
from policies import LROA, DivFL, Opportunistic, UniD, UniS, check_policy
from policies.outcome import DualPrices

SCENARIO = Scenario.digits(num_devices=6)


def weighted(allocation: Allocation, factor: np.ndarray) -> Allocation:
    q = allocation.q * factor
    return replace(allocation, q=q / q.sum(axis=-1, keepdims=True))


class GlobalDraws(UniS):
    def decide(self, observation):
        decision = super().decide(observation)
        return weighted(decision, 1 + np.random.rand(*decision.f.shape))  # noqa: NPY002


class NeverForgets(UniS):
    rounds = 0

    def decide(self, observation):
        self.rounds += 1
        decision = super().decide(observation)
        return weighted(decision, 1 + self.rounds * np.arange(decision.f.shape[-1]))


class OneStreamForAll(UniS):
    def reset(self, seed):
        self.rng = np.random.default_rng(seed)

    def decide(self, observation):
        decision = super().decide(observation)
        return weighted(decision, 1 + self.rng.random(decision.f.shape))


class ForgetsInState(UniS):
    def reset(self, _):
        self.rounds = 0

    def feedback(self, _):
        self.rounds += 1

    def state(self):
        return {}

    def restore(self, state):
        pass

    def decide(self, observation):
        decision = super().decide(observation)
        return weighted(decision, 1 + self.rounds * np.arange(decision.f.shape[-1]))


class ChangesWhatItSees(UniS):
    def decide(self, observation):
        decision = super().decide(observation)
        observation["queue"] += 1
        return decision


class AcrossTheBatch(UniS):
    def decide(self, observation):
        gain = observation["channel_gain"]
        return weighted(super().decide(observation), 1 + gain - gain.mean())


class TooManyDevices(UniS):
    def decide(self, observation):
        decision = super().decide(observation)
        cohort = np.broadcast_to([0, 1, 2], (*decision.f.shape[:-1], 3))
        return Allocation(decision.f, decision.p, cohort=cohort)


class Mixed(UniS):
    def decide(self, _):
        return (0.0, 0.0)


@pytest.mark.parametrize("kind", [LROA, UniD, UniS, DivFL])
def test_check_policy__finds_nothing_in_our_own_and_leaves_them_alone(kind):
    policy = kind(SCENARIO)
    before = policy.__getstate__().copy()
    check_policy(policy)
    np.testing.assert_equal(policy.__getstate__(), before)


@pytest.mark.parametrize("kind", [LROA, UniD, UniS, DivFL, Opportunistic])
def test_check_policy__finds_nothing_in_our_own_where_devices_drop_out(kind):
    scenario = SCENARIO.replace(
        cohort_size=4, availability=0.4, availability_persistence=0.5, upload_failure=0.3
    )
    prices = DualPrices(np.full(6, 0.4), np.full(6, 1e3))
    check_policy(kind(scenario, **({"prices": prices} if kind is Opportunistic else {})))


def test_check_policy__finds_a_policy_that_chooses_who_is_not_there():
    class Deaf(DivFL):
        def decide(self, observation):
            return super().decide({k: v for k, v in observation.items() if k != "available"})

    with pytest.raises(ValueError, match=r'which is not: observation\["available"\]'):
        check_policy(Deaf(SCENARIO.replace(availability=0.4)))


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
    ],
)
def test_check_policy__names_what_is_wrong(kind, message):
    with pytest.raises(ValueError, match=message):
        check_policy(kind(SCENARIO))


def test_check_policy__takes_a_policy_alone():
    with pytest.raises(ValueError, match="policy must be an instance of Policy, got 'lroa'"):
        check_policy("lroa")

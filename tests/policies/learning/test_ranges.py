"""Ranges of features: what training has seen, and what another system brings."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import Scenario, physics
from fl_edge_env.scaling import FEATURES
from policies.learning.ranges import FEATURE_MARGIN, departures, foreseen_departures
from policies.learning.views import DeviceView

CIFAR10 = Scenario.cifar10()


def test_seen__is_the_range_of_all_features_that_training_was_given():
    view = DeviceView(Scenario.femnist(num_devices=6, num_rounds=5), 3)
    assert view.seen.by_name() == {}
    rng = np.random.default_rng(0)
    given = [view.reset()]
    for _ in range(12):
        actions = rng.uniform(-1, 1, (view.num_envs, *view.action_space.shape))
        observation, _, _, infos = view.step(actions.astype(np.float32))
        given.append(observation)
        given += [info["terminal_observation"] for info in infos if info]
    every = np.concatenate([rows.reshape(-1, rows.shape[-1]) for rows in given])[:, : len(FEATURES)]
    expected = zip(every.min(axis=0).tolist(), every.max(axis=0).tolist(), strict=True)
    assert view.seen.by_name() == dict(zip(FEATURES, expected, strict=True))


def test_departures__begin_beyond_the_margin_and_tell_the_ratio():
    known = {"queue": (-1.0, 1.0)}
    inside = 0.99 * FEATURE_MARGIN
    assert departures({"queue": (-1.0 - inside, 1.0 + inside)}, known) == {}
    text = departures({"queue": (-1.0 - np.log(1.25), 1.0 + np.log(1.2))}, known)["queue"]
    assert text == "queue up to 1.2 times the largest and down to 0.8 of the smallest in training"


@pytest.mark.parametrize(
    ("scenario", "names"),
    [
        (CIFAR10, []),
        (CIFAR10.replace(num_rounds=50, nu=1e3), []),  # features do not depend on them
        (CIFAR10.replace(mu=0.9), []),
        (CIFAR10.replace(mu=0.1), ["error weight"]),
        (CIFAR10.replace(mu=0.0), ["error weight"]),
        (CIFAR10.replace(cohort_size=4), ["device time"]),
        (Scenario.femnist(), ["device time", "compute time", "data weight"]),
    ],
)
def test_foreseen__names_what_leaves_the_range(scenario, names):
    assert list(foreseen_departures(scenario, CIFAR10, {})) == names


def test_foreseen__tells_how_much_longer_the_times_are_over_their_mean():
    def longest(scenario: Scenario) -> float:
        worst, mean = (
            physics.time_and_energy(gain, scenario.f_mid, scenario.p_mid, scenario)[0].mean()
            for gain in (scenario.channel.gain_min * np.ones(120), scenario.mean_gain)
        )
        return float(worst / mean)

    other = CIFAR10.replace(cohort_size=6)
    text = foreseen_departures(other, CIFAR10, {})["device time"]
    assert f"up to {longest(other) / longest(CIFAR10):.3g} times the largest" in text
    # What training has met otherwise, as gains of another trace, is no departure.
    assert foreseen_departures(other, CIFAR10, {"device time": (-5.0, 5.0)}) == {}
    # A weight that training did not have is infinitely larger.
    text = foreseen_departures(CIFAR10, CIFAR10.replace(mu=0.0), {})["error weight"]
    assert "inf times" in text

"""What policies take the gains of the coming round to be, where they see those of the last."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import CellChannel, FLEdgeEnv, MarkovChannel, Scenario, TraceChannel, UplinkChannel
from fl_edge_env.channels import GainLaw, conditional_law
from policies import LROA, Opportunistic, UniD, check_policy
from policies.belief import Belief
from policies.outcome import DualPrices
from tests.support import expected_drift_plus_penalty

# A small model and a fast processor, so that the power does not always sit at its bounds.
OLD = Scenario(
    num_devices=10,
    num_rounds=40,
    cycles_per_sample=1e5,
    capacitance=2e-26,
    p_max=10.0,
    channel=MarkovChannel.correlated(0.5),
    csi="delayed",
)
PRICES = DualPrices(np.full(10, 0.5), np.full(10, 50.0))


def test_belief__is_the_observed_gain_unless_that_is_old():
    observation = {"channel_gain": np.linspace(0.02, 0.4, 10), "queue": np.zeros(10)}
    for belief in (Belief(OLD.replace(csi="full")), Belief(OLD, "ignored")):
        assert belief.present_gain(observation) is observation["channel_gain"]
    law = Belief(OLD).present_gain(observation)
    assert isinstance(law, GainLaw)
    expected = conditional_law(OLD.channel, observation["channel_gain"])
    for part, other in zip(law, expected, strict=True):
        np.testing.assert_array_equal(part, other)


def test_belief__a_gain_never_measured_is_none_whatever_the_number_of_rounds():
    scenario = OLD.replace(csi="participants", num_rounds=5)
    observation, _ = FLEdgeEnv(scenario).reset(seed=0)
    law, longer = (
        Belief(made_for).present_gain(observation)
        for made_for in (scenario, scenario.replace(num_rounds=500))
    )
    for part, other in zip(law, longer, strict=True):
        np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize(
    "make",
    [LROA, UniD, lambda scenario, **o: Opportunistic(scenario, prices=PRICES, **o)],
    ids=["lroa", "uni-d", "opportunistic"],
)
def test_policies__follow_their_belief(make, tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{t},{n},{0.1 + 0.01 * t}" for t in range(3) for n in range(10)]
    path.write_text("\n".join(["round,device,gain", *rows]))
    trace = OLD.replace(channel=TraceChannel(path))
    with pytest.raises(ValueError, match=r"TraceChannel.*method conditional.*delay='ignored'"):
        make(trace)
    make(trace, delay="ignored")
    make(trace.replace(csi="full"))
    with pytest.raises(ValueError, match="delay must be 'expected' or 'ignored', got 'old'"):
        make(OLD, delay="old")
    check_policy(make(OLD))
    # Old gains that are taken for the present ones are decided like present ones.
    rng = np.random.default_rng(0)
    gain = OLD.channel.draw(rng, 1, 10)[0]
    observation = {"channel_gain": gain, "queue": OLD.V * rng.uniform(0, 30, 10)}
    expected, ignored, present = (
        policy.decide(observation)
        for policy in (make(OLD), make(OLD, delay="ignored"), make(OLD.replace(csi="full")))
    )
    np.testing.assert_array_equal([ignored.f, ignored.p], [present.f, present.p])
    assert not np.array_equal(expected.p, ignored.p)


@pytest.mark.parametrize(
    "channel",
    [MarkovChannel.correlated(0.5), CellChannel(persistence=0.7), UplinkChannel()],
    ids=lambda channel: type(channel).__name__,
)
@pytest.mark.parametrize("kind", [LROA, UniD])
def test_expectation__is_never_worse_than_the_old_gain_in_what_is_expected(kind, channel):
    scenario = OLD.replace(channel=channel)
    expected, ignored = kind(scenario), kind(scenario, delay="ignored")
    rng = np.random.default_rng(0)
    gain = channel.sample(rng, 50, 10)
    queue = scenario.V * 10 ** rng.uniform(-2, 1, gain.shape)
    values = []
    for policy in (expected, ignored):
        d = policy.decide({"channel_gain": gain, "queue": queue})
        law = conditional_law(channel, gain)
        values.append(expected_drift_plus_penalty(law, queue, d.f, d.p, d.q, scenario))
    scale = scenario.V * scenario.lambda_
    assert np.all(values[0] <= values[1] + 1e-9 * scale)
    assert np.mean(values[1] - values[0]) > 1e-4 * scale

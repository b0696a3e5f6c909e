"""What all channels have in common, and the mean gains of those that know them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fl_edge_env import (
    CellChannel,
    ExponentialChannel,
    MarkovChannel,
    Scenario,
    TraceChannel,
    UplinkChannel,
    physics,
)
from fl_edge_env.channels import mean_gains
from tests.support import Constant


@dataclass(frozen=True)
class Halves(Constant):
    """The first half of the devices is nearer than the second."""

    def device_mean(self, num_devices):
        return np.where(np.arange(num_devices) < num_devices / 2, 2 * self.mean, 0.5 * self.mean)


def test_mean_gain__is_the_channels_mean_where_devices_are_alike():
    for channel in (ExponentialChannel(0.3), MarkovChannel.correlated(0.5), Constant(0.2)):
        scenario = Scenario(num_devices=7, channel=channel)
        np.testing.assert_array_equal(scenario.mean_gain, np.full(7, channel.mean))
        with pytest.raises(ValueError, match="read-only"):
            scenario.mean_gain[0] = 1.0


def test_mean_gain__of_each_recorded_device_and_of_all_for_the_others(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("round,device,gain\n0,0,0.1\n1,0,0.3\n0,1,0.5\n1,1,0.7\n")
    channel = TraceChannel(path)
    np.testing.assert_allclose(Scenario(num_devices=2, channel=channel).mean_gain, [0.2, 0.6])
    np.testing.assert_allclose(mean_gains(channel, 1), [0.2])
    np.testing.assert_allclose(mean_gains(channel, 4), [0.2, 0.6, 0.4, 0.4])


def test_calibration__is_at_the_mean_gain_of_each_device():
    scenario = Scenario.digits(channel=Halves(), num_devices=10)
    times = [
        physics.time_and_energy(gain, scenario.f_mid, scenario.p_mid, scenario)[0].mean()
        for gain in (0.2, 0.05)
    ]
    assert scenario.lambda_ == pytest.approx(np.mean(times))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (0.1, r"device_mean of Wrong must have shape \(3,\), got shape \(\)"),
        (np.ones(2), r"device_mean of Wrong must have shape \(3,\), got shape \(2,\)"),
        (np.array([0.1, -0.1, 0.1]), "of Wrong must be positive .*got -0.1, .*device 1"),
        ("near", "device_mean of Wrong must hold real numbers, got 'near'"),
    ],
)
def test_mean_gains__of_another_form_are_refused(returned, message):
    class Wrong(Constant):
        def device_mean(self, _):
            return returned

    with pytest.raises(ValueError, match=message):
        Scenario(num_devices=3, channel=Wrong())


@pytest.mark.parametrize(
    "channel",
    [
        ExponentialChannel(),
        ExponentialChannel(filter="resample"),
        CellChannel(persistence=0.7, fading="rician"),
        MarkovChannel.correlated(0.5, num_states=3),
        UplinkChannel(),
    ],
)
def test_draw__splitting_the_rounds_changes_nothing(channel):
    whole = channel.draw(np.random.default_rng(3), 10, 4)
    rng = np.random.default_rng(3)
    first = channel.draw(rng, 3, 4)
    rest = channel.draw(rng, 7, 4, first_round=3, previous=first[-1])
    np.testing.assert_array_equal(whole, np.concatenate([first, rest]))

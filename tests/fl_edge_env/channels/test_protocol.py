"""What all channels have in common, and the mean gains of those that know them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import CellChannel, ExponentialChannel, MarkovChannel, Scenario, UplinkChannel
from fl_edge_env.channels.protocol import mean_gains
from tests.support import ANY_SEED, Constant, channel_of


@pytest.mark.parametrize(
    "channel",
    [
        ExponentialChannel(),
        ExponentialChannel(filter="resample"),
        CellChannel(persistence=0.7, fading="rician"),
        MarkovChannel.correlated(0.5),
        UplinkChannel(),
        UplinkChannel(mean_bps=[1e6] * 4, deviation_bps=[1e5, 5e5, 1e6, 2e6]),
    ],
)
def test_draw__splitting_the_rounds_changes_nothing(channel):
    whole = channel.draw(np.random.default_rng(3), 10, 4)
    rng = np.random.default_rng(3)
    first = channel.draw(rng, 3, 4)
    rest = channel.draw(rng, 7, 4, first_round=3, previous=first[-1])
    np.testing.assert_array_equal(whole, np.concatenate([first, rest]))


class FromWhatItKept:
    """A walk from the last round that was drawn, whoever drew it."""

    def __call__(self, rng, rounds, num_devices, *, first_round, **_):
        start = 0.1 if first_round == 0 else self.last
        walk = start + np.cumsum(rng.uniform(0.0, 0.01, (rounds, num_devices)), axis=0)
        self.last = walk[-1]
        return walk


OWN = np.random.default_rng(1)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, rounds, n, **_: rng.uniform(0.02, 0.4, (n, rounds)).T,  # device by device
        FromWhatItKept(),
        lambda _, rounds, n, **__: OWN.uniform(0.02, 0.4, (rounds, n)),
        lambda _, rounds, n, **__: np.full((rounds, n), 0.1 + 1e-14 * rounds),  # by rounding
    ],
)
def test_scenario__refuses_channels_that_repeat_their_blocks(draw):
    class Own(ExponentialChannel):
        pass

    Own.draw = staticmethod(draw)
    with pytest.raises(ValueError, match=r"^draw of Own must give the same gains"):
        Scenario(num_devices=7, channel=Own())


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("mean", "1", "the channel's mean must be positive and finite, got '1'"),
        ("gain_min", -1.0, "the channel's gain_min must be positive and finite, got -1.0"),
        ("gain_max", 0.01, "gain_min must not exceed its gain_max, got 0.1 and 0.01"),
        ("draw", lambda *_, **__: None, "draw of Own must return floats of shape .*, got None"),
        ("draw", lambda _, __, r, n, **___: np.full((r, n), 0.2), "0.1 to 0.1, got 0.2 to 0.2"),
        ("sample", lambda *_: None, "sample of Own must return floats of shape .*, got None"),
        ("device_mean", lambda *_: np.ones(2), r"device_mean of Own .*got shape \(2,\)"),
        ("device_mean", lambda *_: [0.1, -0.1, 0.1], "device_mean .*got -0.1, first at device 1"),
        ("device_mean", lambda *_: "near", "device_mean of Own must hold real numbers, got 'near'"),
    ],
)
def test_scenario__names_what_is_wrong_with_a_users_channel(member, value, message):
    class Own(Constant):
        mean = gain_min = gain_max = 0.1
        __init__ = object.__init__

    setattr(Own, member, value)
    with pytest.raises(ValueError, match=message):
        Scenario(num_devices=3, channel=Own())


MARKOV = channel_of("markov", 0.1)
WIDE = {"fading_min": 1e-12, "fading_max": 1e12}  # nothing is cut
COUNT = 40_000


@pytest.mark.parametrize(
    "channel",
    [
        MARKOV,
        CellChannel(**WIDE),
        CellChannel(**WIDE, fading="rician", rician_factor=2.5),
        UplinkChannel(2.5e6, place_seed=5),
        UplinkChannel(mean_bps=np.full(19, 3e6), deviation_bps=3e6 * np.geomspace(0.03, 2.0, 19)),
    ],
)
def test_gains__average_to_the_mean_of_each_device(channel):
    gains = channel.sample(np.random.default_rng(1), COUNT, 19)
    error = gains.std(axis=0) / np.sqrt(COUNT)
    assert np.all(np.abs(gains.mean(axis=0) - mean_gains(channel, 19)) < 4.5 * error)
    assert channel.mean == pytest.approx(mean_gains(channel, 19).mean())


CELLS = st.builds(
    CellChannel,
    mean=st.floats(1e-3, 10),
    radius_m=st.floats(50, 2000),
    least_distance_m=st.floats(1, 50),
    shadowing_db=st.floats(0, 12),
    fading=st.sampled_from(["rayleigh", "rician"]),
    persistence=st.floats(0, 0.99),
    place_seed=ANY_SEED,
)
UPLINKS = st.builds(
    UplinkChannel,
    st.floats(1e6, 1e8),
    st.floats(1e-3, 10),
    place_seed=ANY_SEED,
)


@given(st.one_of(CELLS, UPLINKS, st.just(MARKOV)), st.integers(1, 40), ANY_SEED)
def test_gains__keep_within_their_bounds(channel, num_devices, seed):
    rng = np.random.default_rng(seed)
    mean = mean_gains(channel, num_devices)
    gains = channel.draw(rng, 20, num_devices), channel.sample(rng, 20, num_devices)
    assert all(each.shape == (20, num_devices) for each in gains)
    for values in (*gains, mean):
        assert np.all((values >= channel.gain_min) & (values <= channel.gain_max))
    if isinstance(channel, CellChannel):
        assert mean.mean() == pytest.approx(channel.mean)
        assert np.all((gains >= 0.0999 * mean) & (gains <= 5.001 * mean))


OWN_UPLINKS = partial(UplinkChannel, mean_bps=[1e6, 2e6], deviation_bps=[1e6, 1e6])


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (ExponentialChannel, {"gain_min": 0.6}, "gain_min must be below gain_max, got 0.6 and 0.5"),
        (ExponentialChannel, {"mean": "1"}, "mean must be positive and finite, got '1'"),
        (ExponentialChannel, {"filter": {"a": 1}}, "filter must be one of .*got {'a': 1}"),
        (CellChannel, {"least_distance_m": 300}, "must not exceed radius_m, got 300.0 and 25"),
        (CellChannel, {"shadowing_db": -1}, "shadowing_db must be at least zero and finite, got"),
        (CellChannel, {"fading": None}, "fading must be one of rayleigh, rician, got None"),
        (CellChannel, {"rician_factor": 2.0}, "rician_factor needs fading='rician', got 2.0"),
        (CellChannel, {"persistence": 1}, r"persistence must lie in \[0, 1\), got 1"),
        (CellChannel, {"place_seed": -1}, "place_seed must be an integer of at least 0, got -1"),
        (CellChannel, {"fading_min": 5}, "fading_min must be below fading_max, got 5.0 and 5.0"),
        (OWN_UPLINKS, {"mean_bps": [1e6]}, r"equal length, .*got shapes \(1,\) and \(2,\)"),
        (OWN_UPLINKS, {"mean_bps": "fast"}, "mean_bps must hold real numbers, got 'fast'"),
        (OWN_UPLINKS, {"mean_bps": [1e6, -2e6]}, "mean_bps must be .*got -2000000.0, .*device 1"),
        (OWN_UPLINKS, {"deviation_bps": [1e6, 0]}, "from 0.03 to 2 times mean_bps .*got 0.0 with"),
        (MarkovChannel, {"gains": [0.2, 0.1]}, "gains must be two or more, positive and ascending"),
        (MarkovChannel, {"transition": [[1.0, 0.0]]}, r"transition must have shape \(2, 2\)"),
        (MarkovChannel, {"transition": [[1.5, -0.5], [0.5, 0.5]]}, "every row of transition must"),
        (MarkovChannel, {"transition": np.eye(2)}, "a chain that has several"),
        (MarkovChannel.correlated, {"persistence": 1.0}, r"persistence must lie in \[0, 1\)"),
    ],
)
def test_channel__names_what_is_wrong(kind, fields, message):
    defaults = {
        MarkovChannel: {"gains": [0.1, 0.2], "transition": [[0.5, 0.5], [0.5, 0.5]]},
        MarkovChannel.correlated: {"persistence": 0.5},
    }
    with pytest.raises(ValueError, match=message):
        kind(**defaults.get(kind, {}) | fields)


@pytest.mark.parametrize("channel", [CellChannel(least_distance_m=1e-90), UplinkChannel(1e4)])
def test_scenario__refuses_channels_without_finite_bounds(channel):
    with pytest.raises(ValueError, match=r"the channel's gain_m.* must be positive and finite"):
        Scenario(channel=channel)

"""The law of the next gains: against draws, and against integrals taken another way."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from fl_edge_env import CellChannel, ExponentialChannel, MarkovChannel, TraceChannel, UplinkChannel
from fl_edge_env.channels import GainLaw, conditional_law
from fl_edge_env.channels.law import rice_power_law
from tests.support import Constant

FUNCTIONS = {
    "gain": (lambda h: h, lambda h: np.ones_like(h)),
    "upload": (
        lambda h: 1 / np.log1p(5 * h),
        lambda h: -5 / ((1 + 5 * h) * np.log1p(5 * h) ** 2),
    ),
}


def expectation(law: GainLaw, value) -> np.ndarray:
    return np.sum(law.probability * value(law.gain), axis=-1)


def by_parts(low: float, high: float, above, name: str) -> float:
    """E g(h) = g(low) + integral of g'(h) P(H > h): needs no density, and knows no atoms."""
    value, slope = FUNCTIONS[name]
    node, weight = np.polynomial.legendre.leggauss(12)
    edges = np.geomspace(low, high, 101)
    half = 0.5 * np.diff(edges)[:, None]
    h = edges[:-1, None] + half * (1 + node)
    return float(value(np.array(low)) + np.sum(half * weight * slope(h) * above(h)))


@pytest.mark.parametrize(
    "channel",
    [
        ExponentialChannel(),
        ExponentialChannel(filter="resample"),
        MarkovChannel([0.02, 0.1, 0.4], [[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 0.4, 0.6]]),
        CellChannel(persistence=0.6),
        CellChannel(fading="rician"),
        UplinkChannel(),
        UplinkChannel(
            mean_bps=[1e5, 1e6, 2e6, 3e6, 4e6, 5e6],
            deviation_bps=[2e5, 1e6, 1e6, 1e6, 4e5, 2e5],
        ),
    ],
    ids=lambda channel: type(channel).__name__,
)
def test_conditional_law__has_the_moments_of_what_is_drawn_next(channel):
    rng = np.random.default_rng(3)
    previous = channel.draw(rng, 1, 6)[0]
    law = conditional_law(channel, previous)
    drawn = np.concatenate(
        [channel.draw(rng, 1, 6, first_round=1, previous=previous) for _ in range(6000)]
    )
    for value, _ in FUNCTIONS.values():
        values = value(drawn)
        error = values.std(axis=0) / np.sqrt(len(values)) + 1e-15
        assert np.all(np.abs(values.mean(axis=0) - expectation(law, value)) < 4.5 * error)
    batch = conditional_law(channel, np.stack([previous, previous[::-1]]))
    for alone, part in zip(law, batch, strict=True):
        np.testing.assert_array_equal(part[0], alone)


@given(
    st.floats(0.05, 30),
    st.floats(1e-3, 1e2),
    st.floats(1.01, 1e3),
    st.sampled_from(["clip", "resample"]),
)
def test_conditional_law__of_exponential_gains_is_right_to_a_millionth(scale, low, ratio, kind):
    mean = scale * low
    channel = ExponentialChannel(mean, low, low * ratio, filter=kind)

    def above(h):
        if kind == "clip":
            return np.exp(-h / mean)
        return 1 - np.expm1((low - h) / mean) / np.expm1((low - channel.gain_max) / mean)

    law = conditional_law(channel, np.array([low]))
    for name, (value, _) in FUNCTIONS.items():
        reference = by_parts(low, channel.gain_max, above, name)
        np.testing.assert_allclose(expectation(law, value), reference, rtol=1e-6)


@given(st.sampled_from([0.0, 0.5, 4.0, 30.0, 300.0, 1e4]), st.floats(0.01, 2), st.floats(1.1, 100))
def test_rice_power_law__is_right_to_a_millionth(factor, least, ratio):
    law = rice_power_law(factor, least, least * ratio)
    scale = 2 * (1 + factor)
    for name, (value, _) in FUNCTIONS.items():
        reference = by_parts(
            least, least * ratio, lambda x: stats.ncx2.sf(scale * x, 2, 2 * factor), name
        )
        np.testing.assert_allclose(expectation(law, value), reference, rtol=1e-6)


SPREADS = np.append(np.geomspace(0.03, 2.0, 18), 1.0)


@pytest.mark.parametrize(
    "channel",
    [
        UplinkChannel(share_hz=2.5e6, place_seed=5),
        UplinkChannel(mean_bps=np.full(19, 3e6), deviation_bps=3e6 * SPREADS),
    ],
    ids=["measured", "own"],
)
def test_conditional_law__of_each_uplink_is_right_to_a_millionth(channel):
    law = conditional_law(channel, np.full(19, 0.1))
    np.testing.assert_allclose(expectation(law, lambda h: h), channel.device_mean(19), rtol=1e-6)
    for device, index in enumerate(channel.uplinks(19)):
        shape, scale, *ends = (values[index] for values in channel._rates)
        least, most = (channel._gain(end) for end in ends)

        def above(h, shape=shape, scale=scale):
            factor = channel.reference_power_w / channel.noise_power_w
            rate = channel.share_hz * np.log2(1 + factor * h)
            return special.gammaincc(shape, rate / scale)

        for name, (value, _) in FUNCTIONS.items():
            reference = by_parts(least, most, above, name)
            np.testing.assert_allclose(expectation(law, value)[device], reference, rtol=1e-6)


def test_conditional_law__channels_that_cannot_say_it_are_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("round,device,gain\n0,0,0.1\n1,0,0.3\n")
    for channel in (TraceChannel(path), SimpleNamespace(mean=0.1)):
        name = type(channel).__name__
        with pytest.raises(ValueError, match=f"{name} does not say .* conditional.*delay='ignored"):
            conditional_law(channel, np.array([0.1]))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (0.1, "conditional of Own must return a GainLaw, got 0.1"),
        (GainLaw(np.ones((2, 1)), np.ones((2, 1))), r"must have shape \(3, J\), got \(2, 1\)"),
        (GainLaw(np.ones((3, 2)), np.ones((3, 1))), r"shape of its gain, \(3, 2\), got \(3, 1\)"),
        (GainLaw(np.zeros((3, 1)), np.ones((3, 1))), "must be positive and finite, got 0.0 to 0.0"),
        (GainLaw(np.ones((3, 2)), np.ones((3, 2))), "sum to one .*sums from 2.0 to 2.0"),
        (
            GainLaw(np.ones((3, 2)), np.array([1.5, -0.5]) * np.ones((3, 2))),
            "at least zero .*values from -0.5",
        ),
    ],
)
def test_conditional_law__of_another_form_is_refused(returned, message):
    @dataclass(frozen=True)
    class Own(Constant):
        def conditional(self, _):
            return returned

    with pytest.raises(ValueError, match=message):
        conditional_law(Own(0.1), np.full(3, 0.1))
    with pytest.raises(ValueError, match="previous must hold the positive, finite gains"):
        conditional_law(SimpleNamespace(conditional=lambda _: returned), np.array([0.1, -1.0]))

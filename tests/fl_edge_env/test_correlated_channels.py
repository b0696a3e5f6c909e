"""Markov channels and recorded traces."""

from __future__ import annotations

import gzip
import io
import itertools
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_edge_env import ExponentialChannel, MarkovChannel, Scenario, Simulator, TraceChannel
from fl_edge_env.allocation import decode_action

CHAIN = MarkovChannel([0.02, 0.1, 0.4], [[0.5, 0.5, 0.0], [0.2, 0.6, 0.2], [0.1, 0.0, 0.9]])


def test_markov__stationary_distribution_is_kept_by_a_step():
    np.testing.assert_allclose(CHAIN.stationary @ np.array(CHAIN.transition), CHAIN.stationary)
    assert CHAIN.stationary.sum() == pytest.approx(1)
    assert CHAIN.mean == pytest.approx(CHAIN.stationary @ np.array(CHAIN.gains))


def test_markov__transitions_have_the_given_frequencies_from_the_first_round_on():
    gains = CHAIN.draw(np.random.default_rng(0), 60, 2000)
    states = np.searchsorted(CHAIN.gains, gains)
    for index in (0, 59):
        share = np.bincount(states[index], minlength=3) / 2000
        assert np.all(np.abs(share - CHAIN.stationary) < 4 * np.sqrt(0.25 / 2000))
    for state, row in enumerate(CHAIN.transition):
        after = states[1:][states[:-1] == state]
        share = np.bincount(after, minlength=3) / len(after)
        assert np.all(np.abs(share - row) <= 4 * np.sqrt(0.25 / len(after)))
        assert np.all(share[np.array(row) == 0] == 0)


def test_markov__splitting_the_rounds_changes_nothing():
    whole = CHAIN.draw(np.random.default_rng(3), 10, 4)
    rng = np.random.default_rng(3)
    first = CHAIN.draw(rng, 3, 4)
    second = CHAIN.draw(rng, 7, 4, first_round=3, previous=first[-1])
    np.testing.assert_array_equal(whole, np.concatenate([first, second]))


def test_markov__correlation_of_successive_rounds_is_the_persistence():
    channel = MarkovChannel.correlated(0.8)
    gains = channel.draw(np.random.default_rng(0), 2, 200_000)
    assert np.corrcoef(gains)[0, 1] == pytest.approx(0.8, abs=0.01)
    np.testing.assert_allclose(channel.stationary, 1 / 16, rtol=1e-9)
    law = ExponentialChannel(filter="resample").draw(np.random.default_rng(1), 1, 200_000)
    assert channel.mean == pytest.approx(law.mean(), rel=0.02)


def test_markov__sample_draws_independent_rounds():
    gains = MarkovChannel.correlated(0.99).sample(np.random.default_rng(0), 2000, 50)
    assert abs(np.corrcoef(gains[:-1, 0], gains[1:, 0])[0, 1]) < 4 / math.sqrt(2000)


def test_simulator__carries_the_chain_over_blocks_and_episodes():
    # 20,000 devices leave room for no more than one round in a block.
    scenario = Scenario(num_devices=20_000, channel=CHAIN, num_rounds=4)
    simulator = Simulator(scenario, 1)
    simulator.reset([0])
    allocation = decode_action(np.zeros((1, 3, 20_000)), scenario, 2.0)
    states = []
    for _ in range(4):
        states.append(np.searchsorted(CHAIN.gains, simulator.observe()["channel_gain"][0]))
        simulator.advance(allocation)
    impossible = [(0, 2), (2, 1)]
    for before, after in itertools.pairwise(states):
        assert not any(np.any((before == a) & (after == b)) for a, b in impossible)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.1], [[1.0]]), r"gains must be two or more, positive and ascending, got \(0.1,\)"),
        (([0.2, 0.1], np.eye(2)), "gains must be two or more"),
        (([0.0, 0.1], np.eye(2)), "gains must be two or more"),
        (([0.1, 0.2], [[1.0, 0.0]]), r"transition must have shape \(2, 2\)"),
        (([0.1, 0.2], [[0.5, 0.6], [0.5, 0.5]]), "every row of transition must be a distribution"),
        (([0.1, 0.2], [[1.5, -0.5], [0.5, 0.5]]), "every row of transition"),
        (([0.1, 0.2], np.eye(2)), "a chain that falls apart"),
    ],
)
def test_markov__names_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        MarkovChannel(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"persistence": 1.0}, r"persistence must lie in \[0, 1\), got 1.0"),
        ({"persistence": 0.5, "num_states": 1}, "num_states must be .* at least 2, got 1"),
    ],
)
def test_correlated__names_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        MarkovChannel.correlated(**arguments)


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([range(5), range(3)], names=["round", "device"])
    return pd.DataFrame({"gain": rng.uniform(0.01, 0.5, 15)}, index=index).reset_index()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_trace__replays_the_recorded_gains_and_starts_again(table, tmp_path: Path, suffix):
    path = tmp_path / f"trace.{suffix}"
    shuffled = table.sample(frac=1, random_state=0)
    if suffix == "csv":
        shuffled.to_csv(path, index=False)
    else:
        pytest.importorskip("pyarrow")
        shuffled.to_parquet(path)
    channel = TraceChannel(str(path))
    recorded = table["gain"].to_numpy().reshape(5, 3)
    if suffix == "csv":  # older versions of pandas read decimal numbers to the last digit but one
        np.testing.assert_allclose(channel.trace, recorded, rtol=1e-13)
        recorded = channel.trace
    assert (channel.gain_min, channel.gain_max) == (recorded.min(), recorded.max())
    scenario = Scenario(num_devices=3, channel=channel, num_rounds=12)
    simulator = Simulator(scenario, 1)
    simulator.reset([0])
    allocation = decode_action(np.zeros((1, 3, 3)), scenario, 2.0)
    for index in range(12):
        seen = simulator.observe()["channel_gain"][0]
        np.testing.assert_allclose(seen, recorded[index % 5], rtol=1e-15)
        simulator.advance(allocation)


def test_trace__of_other_devices_is_refused(table, tmp_path):
    table.to_csv(tmp_path / "trace.csv", index=False)
    simulator = Simulator(Scenario(num_devices=4, channel=TraceChannel(tmp_path / "trace.csv")), 1)
    with pytest.raises(ValueError, match="has 3 devices and the scenario 4: set num_devices=3"):
        simulator.reset([0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="gain"), "cannot read the trace .*gain"),
        (lambda t: t.iloc[:-1], "one row for each pair of round and device"),
        (lambda t: pd.concat([t, t.iloc[:1]]), "one row for each pair"),
        (lambda t: t.assign(device=t.device + 1), "counted from 0"),
        (lambda t: t.assign(gain=-t.gain), "gain must be positive and finite"),
        (lambda t: t.assign(gain=t.gain.where(t.index > 3)), "gain must be positive and finite"),
        (lambda t: t.assign(gain="loud"), "cannot read the trace"),
        (lambda t: t.iloc[:0], "must have rows, got none"),
    ],
)
def test_trace__a_table_of_another_form_is_refused(table, tmp_path, change, message):
    path = tmp_path / "trace.csv"
    change(table).to_csv(path, index=False)
    with pytest.raises(ValueError, match=message) as raised:
        TraceChannel(path)
    assert "trace.csv" in str(raised.value)


def test_trace__a_missing_or_foreign_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read the trace .*nothing.csv"):
        TraceChannel(tmp_path / "nothing.csv")
    for name in ("noise.csv", "noise.parquet"):
        (tmp_path / name).write_bytes(bytes(range(256)))
        with pytest.raises(ValueError, match=f"cannot read the trace .*{name}"):
            TraceChannel(tmp_path / name)


def written(table: pd.DataFrame, form: str) -> bytes:
    buffer = io.BytesIO()
    if form == "csv":
        table.to_csv(buffer, index=False)
    else:
        pytest.importorskip("pyarrow")
        table.to_parquet(buffer)
    return buffer.getvalue()


@settings(max_examples=300)
@given(st.data())
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_trace__damage_is_named_or_gives_another_whole_trace(tmp_path_factory, form, data):
    index = pd.MultiIndex.from_product([range(12), range(5)], names=["round", "device"])
    gain = np.linspace(0.1, 0.4, 60)
    whole = bytearray(written(pd.DataFrame({"gain": gain}, index=index).reset_index(), form))
    position = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[position] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del whole[position:]
    path = tmp_path_factory.mktemp("trace") / f"trace.{form}"
    path.write_bytes(whole)
    try:
        trace, message = TraceChannel(path).trace, repr(str(path))
    except ValueError as error:
        trace, message = np.ones((1, 1)), str(error)
    assert repr(str(path)) in message
    assert trace.size <= 60  # neither form has checksums of its own
    assert np.all((trace > 0) & np.isfinite(trace))


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    "rows",
    [
        [(1e15, 0)],
        [(0, 1e15)],
        [(2**31, 2**31)],
        [(1e308, 1e308)],
        [(math.nan, 0), (0, 0)],
        [(math.inf, 0), (0, math.inf)],
        [(-3, -6), (-3, -5), (-3, -4), (-3, -3)],  # -2 by -2 rows, counted from 0
        [(0, 0), (0, 1), (0.5, 1)],
        [(0, 0), (0, 0.5), (0, 1)],
    ],
)
def test_trace__rounds_and_devices_that_do_not_count_are_refused_at_once(tmp_path, rows, form):
    path = tmp_path / f"trace.{form}"
    table = pd.DataFrame(rows, columns=["round", "device"], dtype=np.float64).assign(gain=0.1)
    path.write_bytes(written(table, form))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="one row for each pair of round and device") as raised:
            TraceChannel(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert repr(str(path)) in str(raised.value)


def test_trace__what_may_be_without_end_is_refused(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "zeros.csv").symlink_to("/dev/zero")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(b"round,device,gain\n0,0,0.1\n"))
    for name in ("folder.csv", "zeros.csv", "packed.csv.gz"):
        with pytest.raises(ValueError, match=f"cannot read the trace .*{name}"):
            TraceChannel(tmp_path / name)


def test_trace__columns_of_another_type_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "trace.parquet"
    times = pd.to_datetime(["2024-01-01"])
    for column, values in (("round", times), ("gain", [[0.1, 0.2]]), ("gain", [b"x"])):
        table = pd.DataFrame({"round": [0], "device": [0], "gain": [0.1]} | {column: values})
        path.write_bytes(written(table, "parquet"))
        with pytest.raises(ValueError, match=r"trace\.parquet'"):
            TraceChannel(path)

"""Scenarios as TOML files."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import (
    CellChannel,
    ExponentialChannel,
    LinkChannel,
    MarkovChannel,
    Scenario,
    TraceChannel,
    UplinkChannel,
)
from fl_edge_env.core import resolve_scenario


@given(st.floats(1e-3, 1e300), st.lists(st.floats(1e-30, 1e30), min_size=3, max_size=3))
def test_file__keeps_every_digit(tmp_path_factory, number, budgets):
    path = tmp_path_factory.mktemp("file") / "scenario.toml"
    scenario = Scenario(num_devices=3, download_rate_bps=number, energy_budget_j=budgets)
    options = {
        "noise_density_w_hz": 1e-8,
        "availability": 0.9,
        "csi": "participants",
        "objective": "outcome",
    }
    for saved in (scenario, scenario.replace(upload_failure=0.1, overhead_s=budgets, **options)):
        saved.save(path)
        assert Scenario.load(path) == saved
    scenario.save(path)
    assert not any(name in path.read_text() for name in (*options, "upload_failure"))


def test_file__keeps_the_rates_of_own_uplinks(tmp_path):
    channel = UplinkChannel(mean_bps=np.array([1e6, 1 / 3e-7]), deviation_bps=[1e5, 2e6 / 3])
    scenario = Scenario(num_devices=2, channel=channel)
    scenario.save(tmp_path / "own.toml")
    assert Scenario.load(tmp_path / "own.toml") == scenario


def test_file__needs_only_what_differs_from_its_preset(tmp_path):
    path = tmp_path / "scenario.toml"
    # Some editors of Windows begin a file with a mark.
    path.write_text('\ufeffpreset = "digits"\ncohort_size = 3\n\n[channel]\ntype = "exponential"\n')
    assert Scenario.load(path) == Scenario.digits(cohort_size=3)
    path.write_text('preset = "cell"\nnoise_power_w = 0.02')
    assert Scenario.load(path, num_devices=6) == Scenario.cell(num_devices=6, noise_power_w=0.02)
    path.write_text('preset = "femnist"')  # whose devices differ
    assert Scenario.load(path, num_devices=60) == Scenario.femnist(num_devices=60)
    path.write_text('channel = "cell:0.5"')
    assert Scenario.load(path) == Scenario(channel=CellChannel(persistence=0.5))


@pytest.mark.parametrize(
    ("wrong", "given"),
    [
        ('channel = "absent.csv"', {"channel": "cell"}),
        ("energy_budget_j = [1.0, -2.0]", {"energy_budget_j": 3.0, "num_devices": 6}),
        ("num_devices = 4\nnum_samples = 360", {"num_devices": 5}),  # as many in all as the preset
    ],
)
def test_file__a_given_field_replaces_its_own(tmp_path, wrong, given):
    path = tmp_path / "scenario.toml"
    path.write_text(f'preset = "digits"\n{wrong}')
    for source in (path, tomllib.loads(path.read_text())):
        assert resolve_scenario(source, **given) == Scenario.digits(**given)


@pytest.mark.parametrize("where", ["", "data/", "../", "absolute"])
@pytest.mark.parametrize(
    "description",
    ['"{}"', '"links:{}"', '{{type = "trace", path = "{}"}}', '{{type = "links", path = "{}"}}'],
)
def test_file__names_a_record_relative_to_itself(tmp_path, monkeypatch, where, description):
    home = tmp_path / "one" / "home"
    record = Path(os.path.normpath(home / where.replace("absolute", "../../far") / "record.csv"))
    for folder in (home, record.parent):
        folder.mkdir(parents=True, exist_ok=True)
    kind = TraceChannel
    if "links" in description:
        kind = LinkChannel
        record.mkdir()
        (record / "one.csv").write_text("time [s],rate [bit/s]\n0,25000\n20,50000\n")
    else:
        record.write_text("round,device,gain\n0,0,0.25\n1,0,0.5\n")
    named = record if where == "absolute" else f"{where}record.csv"
    (home / "mine.toml").write_text(
        f"num_devices = 1\nnum_rounds = 1\nchannel = {description.format(named)}\n"
    )
    expected = Scenario.cifar10(num_devices=1, num_rounds=1, channel=kind(record))
    for here in (home, tmp_path, record.parent):
        monkeypatch.chdir(here)
        loaded = Scenario.load(os.path.relpath(home / "mine.toml"))
        assert loaded == expected
        for folder in (home, Path(os.path.relpath(record.parent))):
            loaded.save(folder / "saved.toml")
            assert Scenario.load(folder / "saved.toml") == loaded
    if where in ("", "data/"):  # a folder with both may be moved
        home.rename(tmp_path / "moved")
        for name in ("mine", "saved"):
            assert Scenario.load(tmp_path / "moved" / f"{name}.toml") == loaded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cohort_sise = 3", "cohort_sise"),
        ("cohort_size = 0", "cohort_size must be an integer of at least 1, got 0"),
        ('preset = "mnist"', "must be one of cifar10, .*, got 'mnist'"),
        ('[channel]\ntype = "exponential"\nmeen = 0.1', "meen"),
        ("mu = " + "[" * 5000, "recursion"),
        ("mu = " + "9" * 5000, "integer string conversion"),
        ("[channel]\ntype = [1]", "channel must have a type of exponential, .*1"),
        ('[channel]\ntype = "exponential"\nmean = ' + "9" * 400, "in the scenario"),
        ('[channel]\ntype = "trace"\npath = "a\\u0000b"', "cannot read the trace"),
    ],
)
def test_file__a_hostile_one_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        Scenario.load(path)
    assert "mine.toml" in str(raised.value)


def test_file__of_the_wrong_kind_is_named(tmp_path):
    (tmp_path / "folder.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("none.toml", "folder.toml", "pipe.toml", "/dev/zero"):
        with pytest.raises(ValueError, match=rf"cannot read the scenario '.*{name}': "):
            Scenario.load(tmp_path / name)


def test_save__refuses_a_channel_derived_from_ours(tmp_path):
    class Own(ExponentialChannel):
        pass

    with pytest.raises(ValueError, match=r"only channels of type exp.*can be saved, got "):
        Scenario(channel=Own()).save(tmp_path / "scenario.toml")
    assert not list(tmp_path.iterdir())


def test_load__shares_out_all_samples_of_a_saved_scenario(tmp_path):
    path = tmp_path / "scenario.toml"
    Scenario.digits().save(path)
    assert Scenario.load(path, num_devices=60) == Scenario.digits(num_devices=60)
    assert Scenario.load(path, num_devices=40) == Scenario.digits()
    Scenario.femnist().save(path)
    with pytest.raises(ValueError, match=r"num_samples must .*shape \(60,\)"):
        Scenario.load(path, num_devices=60)


QUARTER = [np.float32(0.25), np.longdouble(0.25), np.float64(0.25)]


@pytest.mark.parametrize("number", QUARTER, ids=lambda number: type(number).__name__)
@pytest.mark.parametrize(
    "channel",
    [
        lambda x: ExponentialChannel(x, x / 2, 1),
        lambda x: MarkovChannel([x, 2 * x], [[x, 3 * x], [2 * x, 2 * x]]),
        lambda x: CellChannel(x, persistence=x, fading_min=x, place_seed=np.int64(12 * x)),
        lambda x: UplinkChannel(noise_power_w=x),
    ],
)
def test_file__holds_numbers_of_every_type_as_floats(tmp_path, number, channel):
    path = tmp_path / "scenario.toml"
    Scenario(num_devices=4, channel=channel(number), V=8 * number, mu=number).save(path)
    assert "np." not in path.read_text() + repr(channel(number))
    assert Scenario.load(path) == Scenario(num_devices=4, channel=channel(0.25), V=2.0, mu=0.25)

"""From the log of a federation to its system, by the command."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from fl_edge_env import Scenario
from policies.measured.fit import fit
from policies.measured.log import read_log
from tests.policies.measured.federations import draw_truth, round_robin, simulate


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    truth = draw_truth(rng)
    return simulate(rng, truth, round_robin(truth, 24, 5))


def test_calibrate__writes_the_system_and_a_picture(call, tmp_path, table):
    table["device"] = [f"phone-{device:02}" for device in table["device"]]
    table.to_csv(tmp_path / "log.csv", index=False)
    printed = call(f"calibrate {tmp_path}/log.csv --out {tmp_path}/new/system.toml")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "system.png",
        "system.toml",
    ]
    expected = fit(read_log(tmp_path / "log.csv").table).scenario()
    assert Scenario.load(tmp_path / "new" / "system.toml") == expected
    with Image.open(tmp_path / "new" / "system.png") as picture:
        assert picture.width > 1000
    assert "phone-19" in printed
    assert "Rounds 18 to 23, predicted from those before" in printed
    assert "Energy is unmeasured" in printed


def test_calibrate__lists_the_first_of_very_many_devices_and_draws_no_picture_of_one_round(
    call, tmp_path
):
    rng = np.random.default_rng(0)
    truth = draw_truth(rng, devices=200)
    simulate(rng, truth, round_robin(truth, 1, 200)).to_csv(tmp_path / "log.csv", index=False)
    printed = call(f"calibrate {tmp_path}/log.csv --out {tmp_path}/system.toml")
    assert "And 170 more devices." in printed
    assert "nothing to predict" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"log.csv", "system.toml"}
    # A row alone does not tell how much times vary.
    (first,) = [line.split() for line in printed.splitlines() if line.split()[:2] == ["0", "1"]]
    assert first.count("–") == 4
    assert "%" not in first


def test_calibrate__one_device_leans_on_nobody_and_one_round_is_one(call, tmp_path, table):
    alone = table[table["device"] == 0].iloc[:4]
    alone.to_csv(tmp_path / "log.csv", index=False)
    printed = call(f"calibrate {tmp_path}/log.csv --out {tmp_path}/system.toml")
    assert "lean on each other" not in printed
    assert f"\nRound {alone['round'].iloc[-1]}, predicted from those before" in printed


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("train_s", -1.0, "train_s must be positive and at most 1e+15"),
        ("parameters", np.r_[np.ones(119), 2.0], "models of 1 to 2 parameters"),
    ],
)
def test_calibrate__a_wrong_log_leaves_nothing(refused, tmp_path, table, column, value, message):
    table.assign(**{column: value}).to_csv(tmp_path / "log.csv", index=False)
    assert message in refused(f"calibrate {tmp_path}/log.csv --out {tmp_path}/new/system.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_calibrate__a_picture_that_cannot_be_made_leaves_no_system(refused, tmp_path, table):
    table.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "system.png").mkdir()
    (tmp_path / "system.png" / "something").touch()
    told = refused(f"calibrate {tmp_path}/log.csv --out {tmp_path}/system.toml")
    assert "system.png': it is a folder" in told
    assert not (tmp_path / "system.toml").exists()


def test_calibrate__out_is_a_toml_file(refused, tmp_path):
    assert "out must end in .toml" in refused(f"calibrate log.csv --out {tmp_path}/system")

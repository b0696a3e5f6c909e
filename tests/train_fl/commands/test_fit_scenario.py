"""A user's values for a system stay in training, or are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tomli_w

from train_fl.commands.leaderboard_file import read_leaderboard
from train_fl.commands.settings import make_setting

FITTED = {"model_bits": 194_880.0, "num_samples": 36.0}  # 6,090 parameters, 1,440 of 40 devices
OWN = """
import numpy as np
from train_fl import Dataset

def data():
    images, labels = np.zeros((80, 1, 28, 28)), np.arange(80) % 10
    return Dataset.from_arrays("zeros", images, labels, images, labels)
"""


@pytest.fixture
def scenario_of(tmp_path, monkeypatch):
    """The system in which a setting with training runs, and its scenario file if it has fields."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)

    def scenario(fields, **values):
        setting = {"name": "a", "train": True, "schedulers": ["uni-s"], "dataset": "digits"}
        if fields is not None:
            Path("mine.toml").write_text(tomli_w.dumps({"preset": "digits"} | fields))
            setting["scenario"] = "mine.toml"
        Path("board.toml").write_text(tomli_w.dumps({"settings": [setting | values]}))
        (read,) = read_leaderboard(Path("board.toml"))
        return make_setting("a", read.options, read.schedulers).scenario

    return scenario


@pytest.mark.parametrize(
    ("fields", "options", "expected"),
    [
        ({"model_bits": 194880.0, "num_samples": 36}, {}, FITTED),
        ({"compression": "qsgd:4"}, {"compression": "topk:0.1"}, FITTED),
        ({"num_samples": 35.6}, {}, {"num_samples": 35.6}),  # an even split leaves a fraction
        (
            {},
            {"model": "small", "dataset": "own.py:data", "learning_rate": 0.1},
            {"model_bits": 32 * 206_922, "num_samples": 2.0},
        ),
        (None, {"num_devices": 20}, {"num_samples": 72.0}),
    ],
)
def test_scenario__is_fitted_to_the_data_where_the_user_gave_nothing_else(
    scenario_of, fields, options, expected
):
    scenario = scenario_of(fields, **options)
    for name, value in expected.items():
        np.testing.assert_array_equal(getattr(scenario, name), value)


def test_scenario__of_a_file_is_refused_where_training_would_change_it(scenario_of):
    fields = {"model_bits": 1e6, "num_samples": [*[30.0] * 39, 50.0]}
    with pytest.raises(ValueError, match=r"model_bits .* 1000000 and must be 194880 for digits"):
        scenario_of(fields)
    replaced = scenario_of(fields, fit_scenario=True)
    for name, value in FITTED.items():
        np.testing.assert_array_equal(getattr(replaced, name), value)

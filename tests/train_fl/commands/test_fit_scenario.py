"""What a user says of a system stays in training, or is refused."""

from __future__ import annotations

import numpy as np
import pytest
import tomli_w

from train_fl.commands.leaderboard_file import read_leaderboard
from train_fl.commands.settings import make_setting

FITTED = {"model_bits": 194_880.0, "num_samples": 36.0}  # 6,090 parameters, 1,440 of 40 devices


@pytest.fixture
def file(tmp_path):
    def write(**fields):
        lines = [f"{name} = {value!r}" for name, value in fields.items()]
        (tmp_path / "mine.toml").write_text('preset = "digits"\n' + "\n".join(lines))
        return str(tmp_path / "mine.toml")

    return write


@pytest.fixture
def scenario_of(tmp_path):
    """The system in which a setting with training runs."""

    def read(**values):
        board = tmp_path / "board.toml"
        settings = {"name": "a", "train": True, "schedulers": ["uni-s"], **values}
        board.write_text(tomli_w.dumps({"settings": [settings]}))
        (told,) = read_leaderboard(board)
        return make_setting("a", told.options, told.schedulers).scenario

    return read


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({"model_bits": 1e6}, {}, "model_bits is 1000000 and must be 194880. Change that"),
        ({"num_samples": [*[30.0] * 39, 50.0]}, {}, "num_samples is 30 to 50 and must be 36"),
        ({"model_bits": 194880, "num_samples": 35}, {}, "network: num_samples is 35 and"),
        ({}, {"model": "small", "dataset": "{mine}:data"}, None),
        ({"model_bits": 194880.0, "num_samples": 36}, {}, None),
        ({"compression": "qsgd:4"}, {"compression": "topk:0.1"}, None),
    ],
)
def test_scenario__of_a_file_is_refused_where_training_would_change_it(
    file, scenario_of, tmp_path, fields, options, message
):
    (tmp_path / "own.py").write_text(
        "import numpy as np\nfrom train_fl.data.dataset import Dataset\n"
        "def data():\n"
        "    images, labels = np.zeros((80, 1, 28, 28)), np.arange(80) % 10\n"
        "    return Dataset.from_arrays('zeros', images, labels, images, labels)\n"
    )
    given = {"dataset": "digits", "learning_rate": 0.1} | options
    given["dataset"] = given["dataset"].format(mine=tmp_path / "own.py")
    given["scenario"] = file(**fields)
    if message is None:
        fitted = scenario_of(**given)
        own = {} if "model" not in options else {"model_bits": 32 * 206_922, "num_samples": 2.0}
        for name, value in (FITTED | own).items():
            np.testing.assert_array_equal(getattr(fitted, name), value)
        return
    with pytest.raises(ValueError, match=message):
        scenario_of(**given)
    replaced = scenario_of(**given, fit_scenario=True)
    for name, value in FITTED.items():
        np.testing.assert_array_equal(getattr(replaced, name), value)


def test_scenario__a_fraction_of_a_sample_stays_as_it_was_given(file, scenario_of):
    scenario = scenario_of(scenario=file(num_samples=35.6), dataset="digits")
    np.testing.assert_array_equal(scenario.num_samples, 35.6)


def test_scenario__of_a_preset_is_fitted_to_the_data(scenario_of):
    fitted = scenario_of(num_devices=20, dataset="digits")
    np.testing.assert_array_equal(fitted.num_samples, 72.0)

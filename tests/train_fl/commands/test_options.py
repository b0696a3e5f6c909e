"""Options of a command against the fields that they set, and their help."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario, TraceChannel, with_phones, with_proportional_work
from fl_edge_env.channels import MarkovChannel
from train_fl.command_line import _COMMANDS, main, parse
from train_fl.commands.options import SCENARIO_FIELDS, TRAINING_FIELDS, CompareOptions
from train_fl.commands.settings import PolicySpec, make_setting, split_compression

# A value that each field can take, where half as much again is none.
VALUES = {
    "availability": 0.5, "upload_failure": 0.5, "download_rate_bps": 1e6, "deadline_s": 1e9,
    "p_min": 0.002, "f_min": 1.1e9, "num_devices": 7, "channel": "markov:0.9", "csi": "delayed",
    "latency": "round_time", "objective": "outcome", "compression": "qsgd:4",
    "download_compression": "qsgd:8", "lambda_": 3.0, "V": 0.5, "noise_density_w_hz": 1e-8,
}  # fmt: skip


def compared(words: str) -> CompareOptions:
    options = parse(_COMMANDS["compare"](), words.split())
    assert isinstance(options, CompareOptions)
    return options


@pytest.mark.parametrize("name", SCENARIO_FIELDS)
def test_set__changes_its_field_alone(name):
    default = getattr(Scenario.digits(), name)
    value = VALUES.get(name)
    if value is None:
        start = float(np.ravel(default)[0])
        value = SCENARIO_FIELDS[name](1.5 * start or 1)
    made = compared(f"--set {name}={value}").make_scenario()
    value = MarkovChannel.correlated(0.9) if name == "channel" else value
    assert made == Scenario.digits(**{name: value})


def test_set__reaches_the_scenario_and_the_training():
    options = compared("--rounds 7 --set mu=0.5 momentum=0.25 --set compression=qsgd:4 server=a=b")
    scenario = options.make_scenario()
    training = options.training_options()
    assert (scenario.num_rounds, scenario.mu, scenario.compression) == (7, 0.5, "qsgd:4")
    expected = {"momentum": 0.25, "compression": None, "server": "a=b"}
    assert {name: training[name] for name in expected} == expected
    assert not {"dataset", "eval_every"} & TRAINING_FIELDS.keys()  # these have flags


def test_scenario__of_a_file_has_the_changes_of_all_options(tmp_path):
    trace = tmp_path / "trace.csv"
    file = tmp_path / "mine.toml"
    index = pd.MultiIndex.from_product([range(21), range(6)], names=["round", "device"])
    gains = pd.Series(np.linspace(0.05, 0.3, 126), index=index, name="gain")
    gains.reset_index().to_csv(trace, index=False)
    file.write_text('preset = "femnist"\nnum_devices = 6\nnum_rounds = 5\n')
    words = f"--scenario {file} --rounds 20 --set channel={trace} mu=2 --tiers phones"
    base = Scenario.femnist(num_devices=6, num_rounds=20, channel=TraceChannel(trace), mu=2)
    assert compared(words).make_scenario() == with_phones(base)
    assert compared(f"{words} --work proportional").make_scenario() == with_proportional_work(
        with_phones(base)
    )


FITTED = {"model_bits": 194_880.0, "num_samples": 36.0}  # 6,090 parameters, 1,440 of 40 devices


@pytest.fixture
def trained_on(tmp_path, monkeypatch) -> Callable[..., Scenario]:
    """The system in which models are trained, by the fields of its file and more options."""
    monkeypatch.chdir(tmp_path)

    def scenario(fields: str, words: str = "") -> Scenario:
        Path("mine.toml").write_text(f'preset = "digits"\n{fields}')
        options = compared(f"--scenario mine.toml --dataset digits {words}")
        return make_setting("a", options, [PolicySpec("uni-s")]).scenario

    return scenario


@pytest.mark.parametrize(
    ("fields", "words", "expected"),
    [
        ("model_bits = 194880.0\nnum_samples = 36", "", FITTED),
        ('compression = "qsgd:4"', "--set compression=topk:0.1", FITTED),
        ("num_samples = 35.6", "", {"num_samples": 35.6}),  # an even split leaves a fraction
        ("", "--scenario digits --set num_devices=20", {"num_samples": 72.0}),
        ("model_bits = 1e6\nnum_samples = 30", "--fit-scenario", FITTED),
    ],
)
def test_training__fits_fields_that_nobody_gave(trained_on, fields, words, expected):
    scenario = trained_on(fields, words)
    for name, value in expected.items():
        np.testing.assert_array_equal(getattr(scenario, name), value)


def test_training__never_changes_a_given_value(trained_on):
    with pytest.raises(ValueError, match=r"model_bits .* 1000000 and must be 194880 for digits"):
        trained_on("model_bits = 1e6")


@pytest.mark.parametrize("command", _COMMANDS)
def test_help__fits_a_terminal_and_shows_no_none(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    _, boxes = capsys.readouterr().out.split("-h, --help", 1)  # old libraries wrap only these
    assert max(map(len, boxes.splitlines())) <= 80
    assert not re.search(r"\bNone\b", boxes)
    options = re.findall(r"^\W{1,2}--([a-z][a-z-]*)", boxes, re.MULTILINE)
    assert len(options) <= 25


def test_split_compression__leaves_paths_whole():
    names = ["a@b/mine.py:Mine", "a@b.py:Mine", "a@b/agent.zip", "uni-d"]
    assert [split_compression(name) for name in names] == [(name, "") for name in names]
    assert split_compression("a@b/mine.py:Mine@qsgd:4") == ("a@b/mine.py:Mine", "qsgd:4")

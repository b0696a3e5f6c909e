"""Agents, checkpoints and results that are damaged or hostile: as missing, or refused by name."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario
from policies.learned import SB3Policy, weights_of
from policies.learning.settings import AgentSettings
from tests.support import Malicious, draw_damage, little_memory

SCENARIO = Scenario.femnist(num_devices=6, num_rounds=15)


@pytest.fixture(scope="module")
def agent() -> SB3Policy:
    torch.manual_seed(0)
    network = AgentSettings().make_network(SCENARIO)
    return SB3Policy(SCENARIO, AgentSettings(), weights_of(network), cost={"minutes": 0.5})


@pytest.fixture(scope="module")
def saved(agent, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "agent.pt"
    agent.save(path)
    return path.read_bytes()


@given(st.data())
def test_agent__damage_is_named_or_means_nothing(tmp_path_factory, agent, saved, data):
    path = tmp_path_factory.mktemp("agent") / "agent.pt"
    path.write_bytes(draw_damage(data, saved))
    told = f"cannot use the agent {str(path)!r}: "
    try:
        loaded, message = SB3Policy.load(path), told
    except ValueError as error:
        loaded, message = agent, str(error)
    assert message.startswith(told)
    np.testing.assert_equal(loaded.weights, agent.weights)
    assert loaded.settings == agent.settings
    assert loaded.trained_in == agent.trained_in
    assert loaded.cost == agent.cost


@pytest.fixture
def path(tmp_path, saved) -> Path:
    """A whole agent, to be damaged."""
    path = tmp_path / "agent.pt"
    path.write_bytes(saved)
    return path


def refused(path: Path) -> str:
    """The reason why an agent is refused, which takes little memory."""
    told = r"cannot use the agent '.*agent\.pt': "
    with little_memory(), pytest.raises(ValueError, match=told) as raised:
        SB3Policy.load(path)
    return str(raised.value)


def repacked(path: Path, parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path) as file:
        old = {info.filename: file.read(info) for info in file.infolist()}
    folder = next(iter(old)).split("/")[0]
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in (old | {f"{folder}/{n}": c for n, c in parts.items()}).items():
            file.writestr(name, content)


@pytest.mark.parametrize(
    "write",
    [
        lambda path, content: path.write_bytes(content),
        # It begins as a pickle and ends as a ZIP file.
        lambda path, content: path.write_bytes(content + path.read_bytes()),
        lambda path, content: repacked(path, {"data.pkl": content}),
    ],
    ids=["pickle", "part of a pickle", "archive"],
)
def test_agent__a_pickle_of_a_stranger_runs_nothing(path, write):
    write(path, pickle.dumps(Malicious(path.parent / "run"), protocol=2))
    refused(path)
    assert not (path.parent / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (b"l" * 50, "it is not a ZIP file"),
        (torch.zeros(3), "not the file of an agent"),
        ({"features": ["gain"]}, "another version: train the agent anew"),
        ({"settings": '{"layers": 3}'}, "layers"),
        ({"settings": '{"width": 32}'}, "size mismatch"),
        ({"settings": '{"width": 1000000}'}, "makes at least 4000000000000 bytes of weights"),
        ({"settings": "[" * 10**5}, "recursion"),
        ({"scenario": "mu = -1"}, "mu must be"),
        ({"scenario": "num_devices = 1000000000000"}, "num_devices must be at most"),
        ({"scenario": '[channel]\ntype = "trace"\npath = "/dev/zero"'}, "not a regular file"),
        ({"cost": {"minutes": "many"}}, "its cost must be numbers"),
        ({"weights": {"a": torch.zeros(10_000)}}, "Missing key"),
        (
            {"weights": {"a": torch.zeros(9999), "log_std": torch.zeros(1).expand(10**6, 10**6)}},
            "size mismatch",
        ),
        ({"features": torch.zeros(2)}, ""),
        (None, "its weight 'action_net.bias' is not finite"),
    ],
)
def test_agent__wrong_content_is_refused_before_it_fills_the_memory(path, changes, message):
    content = torch.load(path, weights_only=True)
    if changes is None:
        content["weights"]["action_net.bias"][0] = np.nan
    torch.save(content | changes if isinstance(changes, dict) else content, path)
    if isinstance(changes, bytes):
        path.write_bytes(changes)
    elif isinstance(changes, torch.Tensor):
        torch.save(changes, path)
    assert message in refused(path)

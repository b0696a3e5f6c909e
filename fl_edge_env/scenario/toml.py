"""Scenarios in TOML files, and channels described by text."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fl_edge_env.channels import (
    CellChannel,
    ChannelModel,
    ExponentialChannel,
    LinkChannel,
    MarkovChannel,
    TraceChannel,
    UplinkChannel,
)
from fl_edge_env.checks import did_you_mean
from fl_edge_env.files import as_value_error, read_text, user_path

_CHANNELS: dict[str, type[Any]] = {
    "exponential": ExponentialChannel,
    "markov": MarkovChannel,
    "trace": TraceChannel,
    "links": LinkChannel,
    "cell": CellChannel,
    "uplinks": UplinkChannel,
}


def dumps(values: Mapping[str, Any], folder: Path) -> str:
    """Write the values of `plain` as TOML for a file in a folder."""
    channel = values["channel"]
    if "path" in channel:
        path = Path(channel["path"])
        root = folder.resolve()
        channel["path"] = str(path.relative_to(root) if path.is_relative_to(root) else path)
    return tomli_w.dumps(values)


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without None, arrays and objects; `ValueError` for a user-defined channel."""
    values = {name: _plain(value) for name, value in fields.items() if value is not None}
    if not isinstance(values.get("channel", ""), str | dict):
        values["channel"] = _describe(values["channel"])
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value) if isinstance(value, Path) else value


def read(path: Path) -> dict[str, Any]:
    """Read the values in a file, without checks; paths are relative to its folder."""
    path = user_path(path)
    with as_value_error(f"cannot read the scenario {str(path)!r}: "):
        values = tomllib.loads(read_text(path))
    channel = values.get("channel")
    if isinstance(channel, dict) and isinstance(channel.get("path"), str):
        channel["path"] = str(path.parent / user_path(channel["path"]))
    elif isinstance(channel, str) and _file_of(channel):
        file = _file_of(channel)
        values["channel"] = channel.removesuffix(file) + str(path.parent / user_path(file))
    return values


def _describe(channel: ChannelModel) -> dict[str, Any]:
    """Return the type and the parameters of a channel, with an absolute path."""
    for name, kind in _CHANNELS.items():
        if type(channel) is kind:  # a subclass would be read back as its base class
            values = {each.name: getattr(channel, each.name) for each in fields(_CHANNELS[name])}
            if "path" in values:
                values["path"] = str(Path(values["path"]).resolve())
            return {"type": name} | {n: v for n, v in values.items() if v not in ((), None)}
    raise ValueError(f"only channels of type {', '.join(_CHANNELS)} can be saved, got {channel!r}")


def make_channel(description: Any) -> ChannelModel:
    """Make a channel from a text such as ``"markov:0.8"`` or the table of a file."""
    if isinstance(description, str):
        return _channel_of(description)
    if not isinstance(description, dict) or description.get("type") not in list(_CHANNELS):
        raise ValueError(f"channel must have a type of {', '.join(_CHANNELS)}, got {description!r}")
    parameters = {name: value for name, value in description.items() if name != "type"}
    channel: ChannelModel = _CHANNELS[description["type"]](**parameters)
    return channel


def _channel_of(text: str) -> ChannelModel:
    plain: dict[str, Callable[[], ChannelModel]] = {
        "clip": ExponentialChannel,
        "resample": lambda: ExponentialChannel(filter="resample"),
        "cell": CellChannel,
        "uplinks": UplinkChannel,
    }
    if text in plain:
        return plain[text]()
    name, _, parameter = text.partition(":")
    if name in ("cell", "markov"):
        try:
            persistence = float(parameter)
            if name == "cell":
                return CellChannel(persistence=persistence)
            return MarkovChannel.correlated(persistence)
        except ValueError as error:
            raise ValueError(f"channel {name}:P needs a probability P: {error}") from None
    file = _file_of(text)
    if file:
        return TraceChannel(text) if file == text else LinkChannel(file)
    raise ValueError(
        "channel must be clip, resample, markov:P, cell, cell:P, uplinks, links:FOLDER, or a "
        f".csv file, got {text!r}{did_you_mean(name, [*plain, 'markov', 'links'])}"
    )


def _file_of(text: str) -> str:
    """Return the file or folder named in a channel's text, empty if it names none."""
    is_file = text.startswith("links:") or text.lower().endswith(".csv")
    return text.removeprefix("links:") if is_file else ""

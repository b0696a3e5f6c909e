"""A federation of Flower whose server takes the decisions of a policy.

The clients, their training, the messages and the aggregation are real. The radio is emulated: an
environment on the server says what the channel is like and what a decision takes in time and
energy. A client is told its CPU frequency and transmission power, and follows them if it can.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train_fl.federation.client import device_reply, train_reply
    from train_fl.federation.strategy import MeasureGains, PolicyStrategy, evaluation

__all__ = ["MeasureGains", "PolicyStrategy", "device_reply", "evaluation", "train_reply"]

for _package in ("torch", "flwr"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(
            f"a federation needs the package {_package}: install the extra `federation`, "
            'for example by pip install -e ".[train,federation]"'
        )

# Imported when they are asked for: a client, which Flower starts for each message, needs no policy.
_MODULES = {
    "MeasureGains": "strategy",
    "PolicyStrategy": "strategy",
    "device_reply": "client",
    "evaluation": "strategy",
    "train_reply": "client",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

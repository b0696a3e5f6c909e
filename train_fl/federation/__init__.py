"""Flower federations under a scenario's clock: the radio is emulated, the rest is real."""

from __future__ import annotations

try:
    from train_fl.federation.client import device_reply, train_reply
    from train_fl.federation.clocked import Clocked
    from train_fl.federation.strategy import PolicyStrategy, evaluation
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"a federation needs the package {error.name}: install the extra `federation`, "
        'for example with pip install -e ".[train,federation]"'
    ) from error


__all__ = ["Clocked", "PolicyStrategy", "device_reply", "evaluation", "train_reply"]

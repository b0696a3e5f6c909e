"""A federation of Flower whose server takes the decisions of a policy.

The clients, their training, the messages and the aggregation are real. The radio is emulated: an
environment on the server says what the channel is like and what a decision takes in time and
energy. A client is told its CPU frequency and transmission power, and follows them if it can.
"""

from __future__ import annotations

try:
    from train_fl.federation.client import device_reply, train_reply
    from train_fl.federation.strategy import MeasureGains, PolicyStrategy, evaluation
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"a federation needs the package {error.name}: install the extra `federation`, "
        'for example by pip install -e ".[train,federation]"'
    ) from error

__all__ = ["MeasureGains", "PolicyStrategy", "device_reply", "evaluation", "train_reply"]

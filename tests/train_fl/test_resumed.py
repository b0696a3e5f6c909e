"""A clocked federation that resumes does what it had done without an interruption."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg

from policies import Opportunistic
from tests.train_fl.grid import (  # noqa: F401
    SCENARIO,
    TASK,
    LocalGrid,
    N,
    flat,
    identity,
    make_app,
)
from train_fl.federation import Clocked

APP = make_app()
HARSH = SCENARIO.replace(
    upload_failure=0.2, deadline_s=12.0, availability=0.9, channel="markov:0.8"
)
STOP = 4


@APP.evaluate()
def evaluate(message, context):
    seen = {"num-examples": 1, "root": context.node_config["partition-id"] ** 0.5}
    return Message(RecordDict({"metrics": MetricRecord(seen)}), reply_to=message)


class Backwards(LocalGrid):
    """Replies come in another order."""

    def send_and_receive(self, messages, **options):
        return super().send_and_receive(messages, **options)[::-1]


def run(kind, scenario, options, arrays=None, stop=None, grid=None, rounds=7, **named):
    """Run a federation; return its result and what it left when it was interrupted, if it was."""
    clocked = Clocked(kind(fraction_train=0.3, fraction_evaluate=0.5), scenario, seed=3, **options)
    left = {}

    def keep(number, model):
        assert len(clocked.state()["rounds"]) == number
        if number == stop:
            left["arrays"] = model
            left["state"] = json.loads(json.dumps(clocked.state()))
            left["moments"] = {name: getattr(clocked, name, None) for name in ("m_t", "v_t")}
            raise KeyboardInterrupt
        return MetricRecord({"first": float(flat(model)[0])})

    for name, value in named.pop("moments", {}).items():
        setattr(clocked, name, value)
    try:
        result = clocked.start(
            LocalGrid(app=APP, lost={2: range(N)}) if grid is None else grid,
            clocked.initial_arrays(TASK) if arrays is None else arrays,
            num_rounds=rounds,
            train_config=clocked.train_config,
            evaluate_fn=keep,
            **named,
        )
    except KeyboardInterrupt:
        return left
    return result, clocked


@pytest.mark.filterwarnings("ignore:no update from device", "ignore:. devices take part")
@pytest.mark.parametrize(
    ("kind", "scenario", "options"),
    [
        (FedAvg, HARSH, {}),
        (FedAdam, SCENARIO, {"resources": "dynamic-shared"}),
        (FedAvg, SCENARIO, {"policy": Opportunistic(SCENARIO)}),
    ],
    ids=["harsh", "adam", "policy"],
)
def test_resumed_run__equals_one_without_interruption(kind, scenario, options):
    whole, clocked = run(kind, scenario, options)
    left = run(kind, scenario, options, stop=STOP)
    grid = Backwards(range(N), APP)
    result, resumed = run(kind, scenario, options, grid=grid, **left)
    for number, metrics in whole.train_metrics_clientapp.items():
        new = dict(result.train_metrics_clientapp[number])
        expected = {k: v for k, v in metrics.items() if number > STOP or k in new}
        assert number > STOP or "train-loss" not in new
        assert new | {"train_s": 0} == expected | {"train_s": 0}
    later = range(STOP + 1, 8)
    for of in ("evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
        assert getattr(result, of) == {k: getattr(whole, of)[k] for k in later}
    np.testing.assert_array_equal(flat(result.arrays), flat(whole.arrays))
    assert min(number for number, *_ in grid.trained) > STOP
    assert resumed.result.equals(clocked.result)
    assert resumed.state() == clocked.state()


STATE = {
    "seed": 3,
    "rounds": [{"cohort": [2, 5], "missing": [], "elapsed-time": 3.5}],
}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (7, r"state must be what state\(\) of a run with this scenario returned, got 7"),
        ({"seed": 3}, "got {'seed': 3}"),
        (STATE | {"seed": 4}, "the seed of this run, 3, got 4"),
        (STATE | {"rounds": 7 * STATE["rounds"]}, "at least 8, got 7"),
        (STATE | {"rounds": [STATE["rounds"][0] | {"cohort": [N]}]}, "this scenario returned"),
        (STATE | {"rounds": [STATE["rounds"][0] | {"elapsed-time": None}]}, "scenario returned"),
        (STATE, "its round 1 is .* 3.5}, and here {'cohort': .2, 5.,"),
    ],
)
def test_start__refuses_a_wrong_state(state, message):
    with pytest.raises(ValueError, match=message):
        run(FedAvg, SCENARIO, {}, state=state)

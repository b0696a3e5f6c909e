"""Each option of training is checked in one place, whichever way it comes in."""

from __future__ import annotations

import pytest

from train_fl.options import RUN_OPTIONS, TrainingOptions


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"eval_every": 0}, "eval_every must be an integer of at least 1, got 0"),
        ({"threads": 0}, "threads must be an integer of at least 1, got 0"),
        ({"split_seed": -1}, "split_seed must be an integer of at least 0, got -1"),
        ({"partition": "even"}, "partition must be one of dirichlet, .*, writer, got 'even'"),
        ({"partition": "place-"}, "got 'place-': did you mean 'place'"),
        ({"concentration": 0.0}, "concentration must be positive and finite, got 0.0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive and finite, got 0.0"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
        ({"proximal": float("inf")}, "proximal must be at least zero and finite, got inf"),
        ({"on_non_finite": "stop"}, "on_non_finite must be one of raise, skip, got 'stop'"),
    ],
)
def test_options__wrong_input_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingOptions(**changes)


def test_for_run__changes_how_a_task_is_trained_and_nothing_of_the_task():
    options = TrainingOptions(momentum=0.5)
    assert options.for_run(eval_every=3) == TrainingOptions(momentum=0.5, eval_every=3)
    assert set(RUN_OPTIONS) <= vars(options).keys()
    with pytest.raises(ValueError, match="momentum belongs to the task: give it to make_task"):
        options.for_run(momentum=0.9)

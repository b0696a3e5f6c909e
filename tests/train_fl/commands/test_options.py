"""The options by which a command names its system, against the fields of a scenario."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fl_edge_env import Scenario
from train_fl.commands.options import ScenarioOptions

# Options under other names; weights that mu and nu scale; and what follows from data and policies.
NO_OPTION = {
    "num_rounds", "lambda_", "V", "model_tensors",
}  # fmt: skip
NUMBERS = {
    name: value
    for name, value in Scenario.digits().to_dict().items()
    if isinstance(value, float | int) or value is None
}


def test_options__are_there_for_each_number_of_a_system():
    names = {field.name for field in dataclasses.fields(ScenarioOptions)}
    assert NUMBERS.keys() - names == NO_OPTION


@pytest.mark.parametrize("name", sorted(NUMBERS.keys() - NO_OPTION))
def test_options__change_their_field_alone(name):
    low = name in ("num_devices", "cohort_size", "p_min", "f_min")
    value = {"upload_failure": 0.5, "availability": 0.5}.get(
        name, 3 if low and isinstance(NUMBERS[name], int) else 1.5 * (NUMBERS[name] or 1.0)
    )
    value = 1e6 if value == np.inf else value
    made = ScenarioOptions(**{name: value}).make_scenario()
    expected = Scenario.digits(**{name: value})
    assert made == expected
    np.testing.assert_array_equal(getattr(made, name), value)

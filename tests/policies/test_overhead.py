"""An overhead that all devices share, against a download that takes as long."""

from __future__ import annotations

import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import LROA, Opportunistic
from policies.benchmark.evaluate import evaluate

SECONDS = 4.0  # a power of two, so that the rate below gives it back to the last bit


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"objective": "outcome", "deadline_s": 12.0},
        {"csi": "delayed"},
    ],
    ids=["penalty", "outcome", "delayed"],
)
def test_overhead__is_a_download_that_takes_as_long(options):
    scenario = Scenario.digits(
        num_devices=6, cohort_size=2, num_rounds=8, energy_budget_j=1.0, **options
    )
    none, overhead, download = (
        evaluate([LROA(system), Opportunistic(system)], system, [0, 1])
        for system in (
            scenario,
            scenario.replace(overhead_s=SECONDS),
            scenario.replace(download_rate_bps=scenario.model_bits / SECONDS),
        )
    )
    pd.testing.assert_frame_equal(overhead, download, check_exact=True)
    assert overhead["outcome_gap"].notna().all()
    assert (overhead["total_time"] > none["total_time"] + SECONDS).all()

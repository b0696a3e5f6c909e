"""Predictions of rounds that were not seen, of logs whose laws are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from policies.measured.fit import fit
from policies.measured.prediction import coverage, median_error, predict
from tests.policies.measured.federations import draw_truth, round_robin, simulate


def test_predict__intervals_cover_and_totals_are_right_on_average():
    covered, errors = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        truth = draw_truth(rng)
        cohorts = [rng.choice(20, 5, replace=False) for _ in range(48)]
        prediction = predict(simulate(rng, truth, cohorts))
        assert len(prediction.rounds) == 12
        covered.append([coverage(prediction.participations), coverage(prediction.rounds)])
        errors.append(prediction.total_error)
        assert median_error(prediction.participations) < 0.2
    # Rounds of one log are alike, so that the logs tell how sure their mean is.
    error = np.std(covered, axis=0) / np.sqrt(len(covered))
    assert np.all(np.abs(np.mean(covered, axis=0) - 0.8) < 3 * error)
    assert np.all(error < 0.025)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(len(errors)) + 0.005
    assert np.max(np.abs(errors)) < 0.2


def test_predict__uses_no_time_of_the_rounds_it_predicts(rng):
    truth = draw_truth(rng)
    table = simulate(rng, truth, round_robin(truth, 20, 5))
    changed = table.copy()
    changed.loc[changed["round"] >= 15, ["train_s", "up_s", "down_s"]] *= 3.0
    one, other = (predict(each).participations for each in (table, changed))
    ends = ["predicted_s", "low_s", "high_s"]
    pd.testing.assert_frame_equal(one[ends], other[ends])
    assert other["measured_s"].to_numpy() == pytest.approx(3.0 * one["measured_s"].to_numpy())
    assert one["round"].unique().tolist() == [15, 16, 17, 18, 19]


def test_predict__is_wider_for_a_device_with_few_rows_and_widest_for_a_new_one(rng):
    truth = draw_truth(rng, devices=12, apart=0.6)._replace(
        uplink_bps=np.full(12, 1e8), deviation_bps=np.full(12, 2e7), download_bps=np.full(12, 1e9)
    )
    always = np.arange(2, 12)
    cohorts = [np.append(always, 0), *[always] * 28, np.arange(12)]
    table = simulate(rng, truth, cohorts)
    later = predict(table, share=1e-9).participations.set_index("device")
    width = np.log(later["high_s"] / later["low_s"])
    assert width[1] > 1.3 * width[0] > 1.3 * width[always].max()


def test_predict__wild_rows_give_numbers():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        table = simulate(rng, (truth := draw_truth(rng, devices=6)), round_robin(truth, 6, 2))
        table["up_s"] = np.exp(8 * rng.standard_normal(len(table)))
        table["start_s"] = 1e6 * table["round"]
        prediction = predict(table)
        for predicted in (prediction.participations, prediction.rounds):
            assert np.isfinite(predicted.to_numpy()).all()
            assert (predicted["low_s"] <= predicted["high_s"]).all()
        assert np.isfinite(prediction.predicted_total_s)


def test_predict__one_round_says_nothing(rng):
    truth = draw_truth(rng)
    table = simulate(rng, truth, round_robin(truth, 1, 5))
    assert predict(table) is None
    fit(table)

"""Accuracies of Flower's results over simulated time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pandas as pd
from flwr.serverapp.strategy import Result

from fl_edge_env.checks import is_real


def save_accuracy(
    results: Mapping[str, Result],
    file: str | Path,
    *,
    metric: str = "test-accuracy",
    target: float | None = None,
) -> None:
    """Draw accuracies over simulated time, and over rounds in a second panel.

    A run without a clock has no simulated time. It is drawn in the second panel only.

    Parameters
    ----------
    results : mapping
        What `start` of each strategy returned, by the run's name in the figure. At least one run
        must have a clock, `Clocked` or `PolicyStrategy`.
    file : str or Path
        The file to write. Its suffix determines the format, such as ``.png`` or ``.pdf``.
    metric : str
        The accuracy's name in the metrics of the server's evaluation or, if they lack it, of the
        clients' evaluation. Its values lie between 0 and 1.
    target : float, optional
        A target accuracy to mark. The first panel ends soon after all runs have reached it.
    """
    # Matplotlib loads slowly, and only figures need it.
    from policies.report.figures import (
        draw_accuracy_over_rounds,
        draw_accuracy_over_time,
        save_figure,
    )

    tables = [_rounds(name, result, metric) for name, result in results.items()]
    if all(table["elapsed_time"].isna().all() for table in tables):
        raise ValueError(
            f"results must have at least one run with a clock, got {list(results)}: run "
            "Clocked(strategy, scenario) instead of the strategy"
        )
    rounds = pd.concat(tables)
    draws = draw_accuracy_over_time, draw_accuracy_over_rounds
    panels = [partial(draw, rounds=rounds, target=target) for draw in draws]
    save_figure([panels], [Path(file)])


def _rounds(name: str, result: Result, metric: str) -> pd.DataFrame:
    """A row for each evaluated round of a run; times are NaN without a clock."""
    if not isinstance(result, Result):
        raise ValueError(f"results must hold what start returns, got {result!r} for {name!r}")
    sources = result.evaluate_metrics_serverapp, result.evaluate_metrics_clientapp
    found = [{k: m[metric] for k, m in one.items() if metric in m} for one in sources]
    values = found[0] or found[1]
    if not values:
        known = sorted({each for one in sources for metrics in one.values() for each in metrics})
        raise ValueError(
            f"metric must be one that evaluations of {name} report, got {metric!r}: they report "
            f"{', '.join(known) or 'nothing'}"
        )
    wrong = [value for value in values.values() if not (is_real(value) and 0 <= value <= 1)]
    if wrong:
        raise ValueError(f"{metric} must lie in [0, 1], got {wrong[0]!r} in {name}")
    took = result.train_metrics_clientapp
    times = pd.Series({k: m["elapsed-time"] for k, m in took.items() if "elapsed-time" in m})
    if len(times):
        times[0] = 0.0
        # A round without participants takes no time.
        times = times.sort_index().reindex([*values], method="ffill")
    table = pd.DataFrame({"test_accuracy": pd.Series(values), "elapsed_time": times})
    return table.rename_axis("round").reset_index().assign(policy=name, seed=0, status="ok")

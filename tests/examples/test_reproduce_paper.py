"""The paper's figures: what its boards say, and the script with boards in miniature."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import LROA, evaluate
from tests.scripts import example
from train_fl.commands.leaderboard_file import read_leaderboard

paper = example("reproduce_paper")


@pytest.mark.parametrize("figure", paper.FIGURES)
def test_boards__name_settings_by_their_values(figure):
    parts = {"cohort_size": "K = {}", "mu": "μ = {:g}", "nu": "ν = {:.3g}"}
    for one in read_leaderboard(paper.BOARDS / f"paper_{figure}.toml"):
        system = one.options.system
        values = [parts[name].format(value) for name, value in system.given_fields.items()]
        assert one.name == paper.superscripts(", ".join([system.scenario, *values]))


@pytest.fixture
def draw(tmp_path, capsys):
    """Draw a figure from a board on digits; returns the printed rows, and means by setting."""

    def run(figure: str, board: str) -> tuple[list[list[str]], pd.DataFrame]:
        path = tmp_path / "board.toml"
        path.write_text(f'scenario = "digits"\nrounds = 4\nseeds = 2\n{board}')
        paper.main(figure, path, tmp_path, workers=1)
        printed = re.findall("^  digits +(.*?) *$", capsys.readouterr().out, re.MULTILINE)
        assert (tmp_path / f"{figure}.png").stat().st_size > 0
        return [re.split("  +", row) for row in printed], pd.read_csv(tmp_path / f"{figure}.csv")

    return run


SWEEP = """
schedulers = ["lroa"]
settings = [{ name = "a", nu = 1e4, mu = 1 }, { name = "b", nu = 2e4, mu = 5 }]
"""


@pytest.mark.parametrize(
    ("figure", "first"),
    [
        ("lambda", ["μ = 1", "μ = 5"]),
        ("v", ["ν = 10⁴", "ν = 2·10⁴"]),
        ("k", ["LROA"]),
        ("bound", ["10⁴", "2·10⁴"]),
    ],
)
def test_sweeps__have_their_boards_points(figure, first, draw, monkeypatch, request):
    rows, means = draw(figure, SWEEP)
    assert [row[0] for row in rows] == first
    scenario = Scenario.digits(num_rounds=4, nu=2e4, mu=5)
    played = evaluate([LROA(scenario)], scenario, range(2), gaps=False, progress=False)
    assert means["total_time"][1] == pytest.approx(played["total_time"].mean())
    assert figure != "bound" or (means["above"] > 0).all()
    monkeypatch.setattr("policies.benchmark.run.play", None)  # runs are kept
    request.getfixturevalue("plain_pictures")
    assert draw(figure, SWEEP)[0] == rows


@pytest.mark.usefixtures("plain_pictures")
def test_baselines__can_be_trained(draw):
    rows, means = draw(
        "baselines",
        'schedulers = ["lroa", "uni-d", "uni-s", "divfl"]\ntrain = true\n[[settings]]\nname = "a"',
    )
    assert [tuple(row[:2]) for row in rows] == [*paper.PAPER["cifar10"], ("LROA", "DivFL")]
    time = means.set_index("policy")["total_time"]
    assert rows[0][2] == f"{100 * (1 - time['LROA'] / time['Uni-D']):.1f}"
    assert means["final_accuracy"].notna().all()


def test_fastest__is_good_enough_or_the_nearest():
    points = pd.DataFrame(
        {
            "policy": ["A", "A", "A", "B", "B"],
            "total_time": [3, 2, 1, 2, 1],
            "worst_energy_ratio": [0.9, 1.0, 1.2, 1.1, 1.2],
        }
    )
    chosen = paper.fastest(points.assign(scenario="it", K=2))
    assert chosen["total_time"].tolist() == [2, 2]
    assert chosen["mark"].tolist() == ["", "*"]


@pytest.mark.parametrize(("stated", "mu"), [("50", "0.71"), ("95", "–"), ("(50)", ""), ("", "")])
def test_matching_mu__is_where_the_saving_is_as_stated(stated, mu):
    saved = pd.Series([90.0, 70.0, 30.0], [0.25, 0.5, 1.0])
    assert paper.matching_mu(saved, stated) == mu

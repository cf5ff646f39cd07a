"""Figures of a study: lines at their numbers, equal FLOPs, and matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bert_jax.reporting.formats import SPACE
from bert_jax.studies.definition import Comparison, axis
from bert_jax.studies.report import figures
from bert_jax.studies.report.view import View
from tests import study_workdir
from tests.studies.views import LOSS, build_view
from tests.study_workdir import masking_rate

LABELS = ("5 %", "15 %", "40 %", "80 %")


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    """Four rates, two sizes, three seeds; a cell diverged."""

    def state(cell) -> str:
        where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
        return "diverged" if where == ("2 x 64", "80 %", 2) else "done"

    study = masking_rate(rates=(0.05, 0.15, 0.4, 0.8))
    return build_view(tmp_path_factory.mktemp("study"), study, state)


def read_metric(view: View, rate: str, name: str, key: str) -> list[float]:
    """Read a metric of the smaller size from the files of the cells."""
    found = []
    for cell in view.place.read_cells():
        result = view.place.read_result(cell, name)
        if (*cell.labels.values(),) == ("2 x 64", rate) and result:
            found.append(result.metrics[key])
    return found


def test_means_stand_at_their_rates(view):
    made = figures.draw_means(view, view.comparisons[0], LOSS)
    chart = made["masking.rate_validation_mlm_loss"]
    line = chart.series[0]
    assert line.name == "2 x 64"
    assert [x for x, _ in line.points] == [0.05, 0.15, 0.4, 0.8]
    for (x, y), (_, low, high), rate in zip(line.points, line.whiskers, LABELS, strict=True):
        values = read_metric(view, rate, "validation", "mlm_loss")
        assert y == pytest.approx(np.mean(values))
        assert (low + high) / 2 == pytest.approx(y)
        assert sorted(v for at, v in line.dots if at == x) == pytest.approx(sorted(values))
    assert chart.baselines == [("unigram", study_workdir.UNIGRAM)]
    said = f"Means of 3 seeds with 95{SPACE}% t intervals. Fewer: 2 x 64, 80 % (2 of 3)."
    assert chart.note == said


def test_losses_are_read_where_flops_are_equal(view):
    """At 5 % the runs are the cheapest; others are read before their end."""
    made = figures.draw_at_equal(view, view.axis("masking.rate"), LOSS)
    line = made["masking.rate_equal_flops"].series[0]
    points = dict(line.points)
    assert points[0.05] == pytest.approx(
        np.mean(read_metric(view, "5 %", "validation", "mlm_loss"))
    )
    (family, _) = view.families("masking.rate")
    common = family.runs["5 %"][0].spent("flops")
    expected = []
    for run in family.runs["40 %"]:
        steps, losses = zip(*run.history.evaluations[LOSS], strict=True)
        spent = np.log([run.spent("flops", step) for step in steps])
        expected.append(np.interp(math.log(common), spent, losses))
    assert points[0.4] == pytest.approx(np.mean(expected))


def test_cross_rate_marks_the_best_of_each_column(view):
    """A row that lacks a seed is shown and is best nowhere."""
    heat = figures.draw_cross_rates(view, view.axis("masking.rate"))["cross_rate_2x64"]
    rates = sorted(study_workdir.RATES)
    assert list(heat.columns) == [f"{100 * rate:g}{SPACE}%" for rate in rates]
    assert heat.rows == ["5 %", "15 %", "40 %", "80 % (2 of 3)"]
    grid = np.array(
        [
            [
                np.mean(read_metric(view, label, "cross_rate", f"{rate:g}/mlm_loss"))
                for rate in rates
            ]
            for label in LABELS
        ]
    )
    assert np.allclose(heat.values, grid)
    whole = grid[:-1]
    assert heat.marks == {(int(row), column) for column, row in enumerate(whole.argmin(axis=0))}
    shades = np.array(heat.shades)[:-1]
    assert np.all(shades.max(axis=0) == 1)
    assert np.array_equal(np.argsort(-shades, axis=0), np.argsort(whole, axis=0))


def test_crossed_axes_are_a_matrix_with_holes(tmp_path):
    splits = {"80/10/10": (0.8, 0.1, 0.1), "100/0/0": (1.0, 0.0, 0.0)}
    name = "masking.replace"
    axes = (axis("masking.rate", (0.15, 0.4)), axis(name, splits.values(), splits))
    compared = (Comparison(name, "80/10/10", ("pos/accuracy",)),)
    study = masking_rate(seeds=(0, 1), axes=axes, comparisons=compared)

    def state(cell) -> str:
        return "failed" if list(cell.labels.values()) == ["40 %", "100/0/0"] else "done"

    made = build_view(tmp_path, study, state)
    (heat,) = figures.draw_crossed(made).values()
    assert (heat.rows, heat.columns) == (("15 %", "40 %"), ("80/10/10", "100/0/0"))
    assert heat.x == "split ([MASK]/same/random, %)"
    assert math.isnan(heat.values[1][1])
    top = max(value for row in heat.values for value in row if math.isfinite(value))
    assert [heat.values[i][j] for i, j in heat.marks] == [top]
    assert made.families(name)[0].name == "masking rate 15 %"  # a number says of what it is

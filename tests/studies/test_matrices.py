"""Heat maps of a study: cross-rate evaluations and crossed axes, with their best cells."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from bert_jax.reporting.formats import SPACE
from bert_jax.studies import results
from bert_jax.studies.definition import Comparison, axis
from bert_jax.studies.report import answers, matrices
from bert_jax.studies.report.view import View
from tests import study_workdir
from tests.study_workdir import RATES, masking_rate


def make_view(tmp_path, study, state=lambda cell: "done") -> View:
    place = study_workdir.build(tmp_path, study, state, examples=10, lines=8)
    return View(place, place.read_study(), results.read_results(place))


def test_cross_rate_marks_the_best_of_each_column(tmp_path):
    """A row that lacks a seed is shown and is best nowhere."""

    def state(cell) -> str:
        return "failed" if (cell.labels["masking.rate"], cell.seed) == ("80 %", 2) else "done"

    view = make_view(tmp_path, masking_rate(rates=(0.05, 0.15, 0.4, 0.8)), state)
    heat = matrices.draw_cross_rate(view)["cross_rate_2x64"]
    rates = sorted(RATES)
    assert list(heat.columns) == [f"{100 * rate:g}{SPACE}%" for rate in rates]
    assert heat.rows == ["5 %", "15 %", "40 %", "80 % (2 of 3)"]
    grid = np.full((4, len(rates)), np.nan)
    for row, label in enumerate(("5 %", "15 %", "40 %", "80 %")):
        found = []
        for entry in view.place.cells():
            path = view.place.result(entry.id, "cross_rate")
            if (*entry.labels.values(),) == ("2 x 64", label) and path.exists():
                metrics = json.loads(path.read_text())["metrics"]
                found.append([metrics[f"{rate:g}/mlm_loss"] for rate in rates])
        grid[row] = np.mean(found, axis=0)
    assert np.allclose(heat.values, grid)
    whole = grid[:-1]
    assert heat.marks == {(int(row), column) for column, row in enumerate(whole.argmin(axis=0))}
    shades = np.array(heat.shades)[:-1]
    assert np.all(shades.max(axis=0) == 1)
    assert np.array_equal(np.argsort(-shades, axis=0), np.argsort(whole, axis=0))


def test_cross_rate_has_no_row_for_rates_left_out(tmp_path):
    study = masking_rate(
        rates=(0.15, 0.3, 0.4),
        seeds=(0, 1),
        keep=lambda at: at["size"].label == "2 x 64" or at["masking.rate"].value != 0.3,
    )
    made = matrices.draw_cross_rate(make_view(tmp_path, study))
    assert made["cross_rate_2x64"].rows == ["15 %", "30 %", "40 %"]
    assert made["cross_rate_2x128"].rows == ["15 %", "40 %"]


@pytest.mark.parametrize("split", ["masking.replace"])
def test_crossed_axes_are_a_heat_map_with_holes(tmp_path, split):
    splits = {"80/10/10": (0.8, 0.1, 0.1), "100/0/0": (1.0, 0.0, 0.0)}
    axes = (axis("masking.rate", (0.15, 0.4)), axis(split, splits.values(), splits))
    compared = (Comparison(split, "80/10/10", ("pos/accuracy",)),)
    study = masking_rate(seeds=(0, 1), axes=axes, comparisons=compared)

    def state(cell) -> str:
        return "failed" if list(cell.labels.values()) == ["40 %", "100/0/0"] else "done"

    view = make_view(tmp_path, study, state)
    (heat,) = matrices.draw_crossed(view).values()
    assert (heat.rows, heat.columns) == (("15 %", "40 %"), ("80/10/10", "100/0/0"))
    assert heat.x == "split ([MASK]/same/random, %)"
    assert math.isnan(heat.values[1][1])
    top = max(value for row in heat.values for value in row if math.isfinite(value))
    assert [heat.values[i][j] for i, j in heat.marks] == [top]
    gap = answers.compute_findings(view).gaps[0][0]
    assert gap.family == "masking rate 15 %"  # a number says of what it is

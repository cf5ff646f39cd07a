"""Matrices of a study: what is best and what is missing; test_document.py has all numbers."""

import math

import numpy as np

from bert_jax.studies.definition import Comparison, axis
from bert_jax.studies.report import figures
from tests.studies.views import build_view
from tests.study_workdir import SIZES, masking_rate


def test_cross_rate_marks_the_best_of_each_column(tmp_path):
    """A row that lacks a seed is shown and is best nowhere; darker cells are nearer to the best."""

    def state(cell) -> str:
        return "diverged" if (cell.labels["masking.rate"], cell.seed) == ("80 %", 2) else "done"

    study = masking_rate((0.05, 0.15, 0.4, 0.8), {"2 x 64": SIZES["2 x 64"]})
    view = build_view(tmp_path, study, state)
    (heat,) = figures.draw_cross_rates(view, view.axis("masking.rate")).values()
    assert heat.rows == ["5 %", "15 %", "40 %", "80 % (2 of 3)"]
    whole = np.array(heat.values)[:-1]
    assert heat.marks == {(int(row), column) for column, row in enumerate(whole.argmin(axis=0))}
    shades = np.array(heat.shades)[:-1]
    assert np.all(shades.max(axis=0) == 1)
    np.testing.assert_array_equal(np.argsort(-shades, axis=0), np.argsort(whole, axis=0))


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

"""The report of a study in any state: what its page says is frozen, with all its numbers."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax.studies import files
from bert_jax.studies.definition import Budget, Cell, Comparison, Study, axis, variants
from bert_jax.studies.report import compare, figures
from bert_jax.studies.report.blocks import Bullets, Code, render_html, render_markdown
from bert_jax.studies.report.view import View
from tests import pages, study_workdir
from tests.studies.views import LOSS, NULL, REVERSED, TRUE, build_view, compose, define_claims
from tests.study_workdir import ONE_SIZE, SIZES, finish, masking_rate

HOSTILE = "</script><script>alert(1)</script> *a* [b](c) | `d` _e_ \"'&amp;<img src=x onerror=f(2)>"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(compare, "DRAWS", 100)
    monkeypatch.setattr(files, "tell_time", lambda: "2026-11-22T09:00:00+00:00")


def leave_holes(cell: Cell) -> str:
    where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
    return {("2 x 128", "40 %", 1): "failed", ("2 x 64", "80 %", 2): "diverged"}.get(where, "done")


def begin(cell: Cell) -> str:
    """The smaller size has other seeds than the larger one."""
    return "done" if cell.labels["size"] == "2 x 128" or cell.seed in (1, 3) else "untouched"


def leave_few(cell: Cell) -> str:
    """At the lowest rate all runs failed; those of the lowest budget determine no parabola."""
    rate, budget = cell.values["masking.rate"], cell.values["budget"]
    only = {0.4: 0, 0.5: 0, 0.6: 1, 0.7: 2}.get(rate)  # seed
    lost = only is None or (budget == 1_500_000 and cell.seed != only)
    return "failed" if lost else "done"


def leave_one(cell: Cell) -> str:
    return "failed" if [*cell.labels.values()] == ["40 %", "100/0/0"] else "done"


def finish_none(cell: Cell) -> str:
    return {0.15: "untouched", 0.4: "failed", 0.8: "diverged"}[cell.config.masking.rate]


FALLING = {"masking.rate": 0.3, "masking.phases": ((1.0, 0.15, "linear"),)}
TWO_VIEWS = {"masking.rate": 0.15, "masking.prediction_rate": 0.3}
RATES = variants("rate", {"fixed": {"masking.rate": 0.15}, "falling": FALLING, "views": TWO_VIEWS})
LARGER = dataclasses.replace(TRUE, more_at=("size", "2 x 128", "2 x 64"))
CLAIMS = (TRUE, REVERSED, NULL, LARGER, dataclasses.replace(LARGER, metric="pos/accuracy"))
SUITE = {"validation": study_workdir.EVALUATIONS["validation"]}


def find_best(rates: tuple[float, ...], sizes: dict[str, Any] = SIZES) -> Study:
    """Define a study of three budgets, whose best rates are planted near 17 and 24 %."""
    budget = Budget("tokens", (1_500_000, 3_000_000, 6_000_000))
    compared = (Comparison("masking.rate", f"{100 * rates[0]:g} %", (LOSS,)),)
    return masking_rate(rates, sizes, budget=budget, comparisons=compared, evaluations=SUITE)


def vary_knob(knob: str) -> Study:
    """Define a study of a knob over all steps; only of a share a best value is fitted."""
    varied = axis(knob, (0.01, 0.02, 0.03, 0.05))
    compared = (Comparison(knob, "0.01", (LOSS,)),)
    study = masking_rate(axes=(varied,), comparisons=compared, evaluations=SUITE, budget=None)
    study.base.steps = 2_000
    return study


ALIKE = {name: SIZES["2 x 64"] | {"optim.b2": b2} for name, b2 in (("a", 0.98), ("b", 0.99))}
SPLITS = {"80/10/10": (0.8, 0.1, 0.1), "100/0/0": (1.0, 0.0, 0.0)}
CROSSED = (axis("masking.rate", (0.15, 0.4)), axis("masking.replace", SPLITS.values(), SPLITS))
BY_SPLIT = (Comparison("masking.replace", "80/10/10", ("pos/accuracy",)),)
STUDIES = {
    "holes": (masking_rate(rates=(0.05, 0.15, 0.4, 0.8)), leave_holes),
    "crossed": (masking_rate(seeds=(0, 1), axes=CROSSED, comparisons=BY_SPLIT), leave_one),
    "schedules": (masking_rate(axes=(RATES,), seeds=(0,), comparisons=()), finish),
    "no_results": (masking_rate(rates=(0.15, 0.4, 0.8), sizes=ONE_SIZE, seeds=(0,)), finish_none),
    "no_axes": (masking_rate(axes=(), comparisons=()), finish),
    "claims": (define_claims(claims=CLAIMS, evaluations=study_workdir.EVALUATIONS), finish),
    "claims_begun": (define_claims(claims=CLAIMS[:4], seeds=(0, 1, 3)), begin),
    "best": (find_best((0.1, 0.15, 0.2, 0.25, 0.3)), finish),
    "best_of_alike": (
        dataclasses.replace(find_best((0.1, 0.15, 0.2, 0.25), ALIKE), seeds=(0,)),
        finish,
    ),
    "best_share": (vary_knob("optim.warmup_fraction"), finish),
    "best_is_no_share": (vary_knob("optim.learning_rate"), finish),
    "best_below": (find_best((0.3, 0.4, 0.5, 0.6, 0.7), ONE_SIZE), leave_few),
}


def build(name: str, folder: Path) -> View:
    study, state = STUDIES[name]
    return build_view(folder / "w", study, state, examples=40)


@pytest.mark.fault(24)
@pytest.mark.parametrize("name", STUDIES)
def test_page_says_what_is_frozen(name, tmp_path, check_frozen):
    """Holes are shown everywhere, and never averaged away."""
    page = render_html(compose(build(name, tmp_path)))
    check_frozen(page, name)


@pytest.mark.fault(18)
def test_hostile_names_are_inert_in_both_renderings(tmp_path):
    points = {HOSTILE: {"masking.rate": 0.15}, "b": {"masking.rate": 0.2}}
    axes = (variants(f"objective{HOSTILE}", points),)
    compared = (Comparison(f"objective{HOSTILE}", HOSTILE, (LOSS,)),)
    study = Study(HOSTILE, study_workdir.base(), axes, (0, 1), SUITE, None, compared, notes=HOSTILE)
    view = build_view(tmp_path, study, lambda c: "failed" if c.seed else "done", name=HOSTILE)
    made = compose(view)
    page = render_html(made)
    assert "alert(1)" in "".join(pages.Reader(page).lines)
    code = "(`+).*?\\1"  # such as the command, is shown as it is
    for text, ours in ((page, 1), (re.sub(code, "", render_markdown(made)), 0)):
        assert text.count("<script") == ours
        assert "<img" not in text
        assert "<memory>" not in text  # of what a cell failed of
    assert render_markdown([Bullets([("run by ", Code("a `b`"))])]) == "- run by `` a `b` ``"


def test_cross_rate_marks_the_best_of_each_column(tmp_path):
    """A row that lacks a seed is shown and is best nowhere; darker cells are nearer to the best."""
    holes = build("holes", tmp_path)
    heat = figures.draw_cross_rates(holes, holes.axis("masking.rate"))["cross_rate_2x64"]
    assert heat.rows == ["5 %", "15 %", "40 %", "80 % (2 of 3)"]
    whole = np.array(heat.values)[:-1]
    assert heat.marks == {(int(row), column) for column, row in enumerate(whole.argmin(axis=0))}
    shades = np.array(heat.shades)[:-1]
    assert np.all(shades.max(axis=0) == 1)
    np.testing.assert_array_equal(np.argsort(-shades, axis=0), np.argsort(whole, axis=0))
    (crossed,) = figures.draw_crossed(build("crossed", tmp_path / "crossed")).values()
    assert crossed.marks == {(0, 1)}  # the highest accuracy

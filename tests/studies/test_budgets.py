"""Figures of a study: lines at their numbers, equal budgets, a colour for each line."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from bert_jax.reporting.figures import Chart
from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.studies import results, scaling
from bert_jax.studies.definition import Budget
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import answers, budgets, charts, collect, compare, document, wording
from bert_jax.studies.report.blocks import find_figures
from bert_jax.studies.report.budgets import KINDS, Panel
from bert_jax.studies.report.view import COLOURS, View
from tests import study_workdir
from tests.study_workdir import masking_rate

METRIC = "validation/mlm_loss"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(compare, "DRAWS", 100)


def read_view(place: StudyFolder) -> View:
    return View(place, place.read_study(), results.read_results(place))


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    """Four rates, two sizes, three seeds; a cell diverged."""
    study = masking_rate(rates=(0.05, 0.15, 0.4, 0.8))

    def state(cell) -> str:
        where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
        return "diverged" if where == ("2 x 64", "80 %", 2) else "done"

    folder = tmp_path_factory.mktemp("study")
    return read_view(study_workdir.build(folder, study, state, examples=10, lines=20))


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> View:
    """Two rates at two sizes and four budgets, which are eight lines."""
    tokens = tuple(steps * 32 * 64 for steps in (600, 1_000, 2_000, 10_000))
    study = masking_rate(rates=(0.15, 0.4), seeds=(0, 1), budget=Budget("tokens", tokens))
    folder = tmp_path_factory.mktemp("many")
    return read_view(study_workdir.build(folder, study, examples=10, lines=8))


def make_panel(view: View, kind: str) -> Panel:
    return Panel(view, view.axis("masking.rate"), METRIC, kind)


def read_losses(view: View, size: str, rate: str) -> list[float]:
    found = []
    for entry in view.place.cells():
        path = view.place.result(entry.id, "validation")
        if (entry.labels["size"], entry.labels["masking.rate"]) == (size, rate) and path.exists():
            found.append(json.loads(path.read_text())["metrics"]["mlm_loss"])
    return found


def test_draw_means_has_lines_at_their_rates(view):
    figures = charts.draw_means(view, view.comparisons[0], METRIC)
    chart = figures["masking.rate_validation_mlm_loss"]
    line = chart.series[0]
    assert line.name == "2 x 64"
    assert [x for x, _ in line.points] == [0.05, 0.15, 0.4, 0.8]
    for (x, y), (_, low, high), rate in zip(
        line.points, line.whiskers, ("5 %", "15 %", "40 %", "80 %"), strict=True
    ):
        values = read_losses(view, "2 x 64", rate)
        assert y == pytest.approx(np.mean(values))
        assert (low + high) / 2 == pytest.approx(y)
        assert sorted(v for at, v in line.dots if at == x) == pytest.approx(sorted(values))
    assert chart.baselines == [("unigram", study_workdir.UNIGRAM)]


def test_place_points_by_numbers_logarithms_or_rows():
    rates = collect.Axis("optim.learning_rate", ("1e-5", "1e-4", "1e-2"), (1e-5, 1e-4, 1e-2))
    assert charts.place_points(rates) == pytest.approx({"1e-5": -5, "1e-4": -4, "1e-2": -2})
    words = collect.Axis("objective", ("NSP", "none"), ("NSP", "none"))
    assert charts.place_points(words) == {"NSP": 0.0, "none": 1.0}
    assert not words.numeric
    assert charts.chart_over(words, "t", []).rows == ("NSP", "none")


def test_read_curve_is_linear_in_the_logarithm():
    points = [(100.0, 8.0), (200.0, 6.0), (400.0, 5.0)]
    assert budgets.read_curve(points, math.sqrt(100 * 200)) == pytest.approx(7.0)
    assert budgets.read_curve(points, math.sqrt(200 * 400)) == pytest.approx(5.5)
    assert budgets.read_curve(points, 400) == 5.0
    assert budgets.read_curve(points, 99) is None
    assert budgets.read_curve(points, 401) is None
    assert budgets.read_curve([], 1) is None


def test_read_curve_and_fit_read_equal_flops_alike():
    """Figures at equal budgets and best values at equal FLOPs are in one report."""
    losses = {2e12: 6.0, 8e12: 5.2, 1e14: 4.1}
    runs = [scaling.Run(1e5, cost, 0.3, 0, loss) for cost, loss in losses.items()]
    runs += [scaling.Run(1e5, cost, 0.6, 0, 7.0) for cost in losses]
    costs = [*losses, *(1.5 * cost for cost in losses)]
    read_by_fit = [run for run in scaling.at_equal(runs, costs)[0] if run.value == 0.3]
    assert len(read_by_fit) == 3
    for run in read_by_fit:
        found = budgets.read_curve(list(losses.items()), run.budget)
        assert found == pytest.approx(run.loss, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_common_budget_is_the_least_that_was_given(view, kind):
    tokens = 2_000 * 32 * 64
    least = {"steps": 2_000, "tokens": tokens, "predictions": 0.05 * tokens}.get(kind)
    panel = make_panel(view, kind)
    if least is not None:
        assert panel.common == pytest.approx(dict.fromkeys(("2 x 64", "2 x 128"), least))


def test_readings_are_where_all_runs_have_spent_as_much(view):
    """15 % has predicted as many after a third of its steps, 80 % before it was evaluated."""
    panel = make_panel(view, "predictions")
    (reading,) = panel.draw_readings().values()
    for line, family in zip(reading.series, view.families("masking.rate"), strict=True):
        points = dict(line.points)
        assert points.keys() == {0.05, 0.15, 0.4}
        histories = [one.history.evaluations for one in family.runs["15 %"]]
        runs = [dict(each[METRIC]) for each in histories]
        way = math.log(2_000 / 3 / 500) / math.log(750 / 500)
        expected = np.mean([one[500] + way * (one[750] - one[500]) for one in runs])
        assert points[0.15] == pytest.approx(expected)
    assert "schedule of all runs but 5 % had not ended there" in panel.explain()
    assert "before the first evaluation: 2 x 64: 80 %; 2 x 128: 80 %." in panel.explain()
    marks = [chart.mark for chart in panel.draw_curves().values()]
    assert marks == pytest.approx([0.05 * 2_000 * 32 * 64] * 2)


def test_curves_leave_out_cells_that_fell_behind(view):
    chart = make_panel(view, "steps").draw_curves()["masking.rate_curves_2x64"]
    line = chart.series[-1]
    assert line.name == "80 %"
    finals = read_losses(view, "2 x 64", "80 %")
    assert len(finals) == 2
    assert line.points[-1] == (2_000, pytest.approx(np.mean(finals)))
    assert "80 % (2 of 3)" in chart.note
    assert len(line.band) == len(line.points)


def test_explain_lists_amounts_by_their_size(many):
    said = {kind: make_panel(many, kind).explain().replace(SPACE, " ") for kind in KINDS}
    assert said["steps"].startswith("Read after 600, 1,000, 2,000 and 10,000 steps, the smallest")
    amounts = make_panel(many, "flops").common.values()
    least, most = (f"{end(amounts) / 1e12:.3g} T" for end in (min, max))
    assert said["flops"].startswith(f"Read after {least} to {most} FLOPs, the smallest")


def test_figures_have_a_colour_for_each_line(many):
    """Of means, of differences, and at equal budgets of every kind."""
    shown = find_figures(document.compose(many, answers.compute_findings(many)))
    parts = {name: figure for name, figure in shown.items() if isinstance(figure, Chart)}
    parts = {name: figure for name, figure in parts.items() if "_curves_" not in name}
    assert {f"masking.rate_equal_{kind}_2x64" for kind in KINDS} < parts.keys()
    for name, figure in parts.items():
        tones = [series.tone for series in figure.series]
        assert len(set(tones)) == len(tones) <= COLOURS, name
    for kind in KINDS:
        lines = [
            f"{size}, {series.name}"  # the size is in the title of the figure
            for size in ("2 x 64", "2 x 128")
            for series in parts[f"masking.rate_equal_{kind}_{size.replace(' ', '')}"].series
        ]
        assert lines == [family.name for family in many.families("masking.rate")]


def test_panels_divide_families_of_one_long_axis(tmp_path):
    sizes = {f"2 x {width}": {"model.hidden": width} for width in range(32, 256, 32)}
    study = masking_rate(rates=(0.15, 0.4), sizes=sizes, seeds=(0,))
    panels = read_view(study_workdir.build(tmp_path, study, examples=10, lines=8)).panels
    found = {part: len(families) for part, families in panels("masking.rate").items()}
    assert found == dict.fromkeys(sizes, 1)


def test_numbers_are_written_for_readers():
    assert wording.format_number(math.nan) == wording.format_interval(-math.inf, math.inf) == HOLE
    assert wording.format_number(-0.00001) == wording.format_interval(-0.00001, 0.1)[:5] == "0.000"
    assert wording.format_interval(0.00032, 0.1) == "+0.0003 to +0.100"  # zero is excluded
    assert wording.format_number(0.1234, True, True).replace(SPACE, " ") == "+12.34 %"
    assert wording.name_file("a b", "", "c/d %") == "ab_c_d"

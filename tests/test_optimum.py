"""The best value over budgets and sizes in a study's report: what it says of planted studies."""

from __future__ import annotations

import dataclasses
import re
import shutil

import pytest

from bert_jax.reporting.formats import SPACE
from bert_jax.studies.definition import Budget, Comparison, Suite
from bert_jax.studies.report import build, collect, findings, optimum, sections
from bert_jax.studies.report.aggregate import View
from bert_jax.studies.report.summary import literal
from tests import study_workdir
from tests.study_workdir import masking_rate

RATES = (0.1, 0.15, 0.2, 0.25, 0.3)
BUDGETS = Budget("tokens", (1_500_000, 3_000_000, 6_000_000))
LOSS = (Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),)


def view(tmp_path, **changes) -> View:
    """Return a study whose loss is a parabola in the logarithm of the rate, at any budget."""
    settings = {"budget": BUDGETS, "comparisons": LOSS, "rates": RATES, **changes}
    settings |= {"evaluations": {"validation": Suite("pretrain")}}
    place = study_workdir.build(tmp_path / "w", masking_rate(**settings), examples=10, lines=4)
    return View(place, place.read_study(), collect.results(place))


def best(view: View):
    return optimum.find(view, view.comparisons[0])[0]


def test_the_planted_best_rates_are_said_and_drawn(tmp_path):
    """17 % for the smaller model and 24 % for the larger, whatever the budget."""
    known = view(tmp_path)
    lines = best(known).sentences()
    found = {}
    for line, size in zip(lines, ("2 x 64", "2 x 128"), strict=False):
        assert line.startswith(f"{size}: the best masking rate is ")
        found[size] = [int(value) for value in re.findall(rf"(\d+){SPACE}% \(", line)]
        assert "after 1.5" in line
        assert "after 6" in line
    assert all(abs(value - 17) <= 2 for value in found["2 x 64"])
    assert all(abs(value - 24) <= 2 for value in found["2 x 128"])
    assert "falls or rises with each doubling of the tokens is open" in lines[2]
    assert "The best masking rate rises: with each doubling of the parameters" in lines[3]
    assert best(known).answer() == f"{lines[2]} {lines[3]}"
    assert re.match(r"Predicted by the course of the others, [5-6] of 6 best values lie", lines[4])
    for line, end in zip(lines[5:7], ("10", "30"), strict=True):
        assert line.startswith(f"Without the runs at {end} % the best masking rate is ")
        small, large = (int(value) for value in re.findall(rf"(\d+){SPACE}% \(", line))
        assert abs(small - 17) <= 3
        assert abs(large - 24) <= 3
        assert f"for 2 x 128 after 6{SPACE}M tokens; with each doubling of the tokens" in line
    ((name, chart),) = best(known).figures().items()
    assert name == "masking.rate_validation_mlm_loss_best"
    assert [series.name for series in chart.series] == ["2 x 64", "2 x 128"]
    for series in chart.series:
        assert len(series.points) == len(series.whiskers) == 3
        for (x, value), (at, low, high) in zip(series.points, series.whiskers, strict=True):
            assert x == at
            assert low < value < high


def test_more_lines_than_colours_are_a_figure_for_each_size(tmp_path):
    """In the order of the axes, in whatever order the cells of parts are listed."""
    known = view(tmp_path)
    known = dataclasses.replace(known, results=known.results[::-1])
    (comparison,) = known.comparisons
    gaps = findings.find(known).gaps[0]
    for figures, what in (
        (sections.headline(known, comparison), ""),
        (sections.gaps(known, comparison, gaps), "_difference"),
    ):
        stem = "masking.rate_validation_mlm_loss"
        assert list(figures) == [f"{stem}_{size}{what}" for size in ("2x64", "2x128")]
        for chart, size in zip(figures.values(), ("2 x 64", "2 x 128"), strict=True):
            assert size in chart.title
            assert len({series.tone for series in chart.series}) == 3
            assert [series.name for series in chart.series] == [
                f"{size}, budget {amount:,} tokens" for amount in BUDGETS.amounts
            ]


@pytest.mark.slow
def test_the_report_and_the_summary_have_it(tmp_path):
    known = view(tmp_path)
    build.write(known.place)
    said = best(known).sentences()
    assert said[0].split(":")[0] in known.place.report.read_text()
    assert "Best value" in known.place.report.read_text()
    assert (known.place.figures / "masking.rate_validation_mlm_loss_best.svg").is_file()
    whole = known.place.summary.read_text()
    assert literal(said[3]) in whole
    shutil.rmtree(known.place.workdir / "cells")
    build.write_summary(known.place)  # from results.csv, which knows sizes and budgets as well
    assert literal(said[3]) in known.place.summary.read_text()


def test_at_equal_flops_the_planted_best_rates_are_found_too(tmp_path):
    known = view(tmp_path)
    by_tokens, by_flops = optimum.find(known, known.comparisons[0])
    assert (by_tokens.kind, by_flops.kind) == ("tokens", "flops")
    assert by_flops.sentences()[0].startswith("At equal FLOPs, ")
    (name,) = by_flops.figures()
    assert name == "masking.rate_validation_mlm_loss_best_flops"
    of_size = {size: [o.value for o in line] for size, line in by_flops.lines.items()}
    assert set(of_size) == {"2 x 64", "2 x 128"}
    # Planted at 17 and 24 % whatever the budget: the same where a budget changes nothing.
    assert all(abs(value - 0.17) <= 0.02 for value in of_size["2 x 64"])
    assert all(abs(value - 0.24) <= 0.02 for value in of_size["2 x 128"])


def test_one_budget_has_best_rates_and_no_course_over_budgets(tmp_path):
    known = view(tmp_path, budget=Budget("tokens", 3_000_000))
    lines = best(known).sentences()
    assert "after 3" in lines[0]
    assert best(known).figures() == {}
    assert best(known).answer() == ""
    assert not any("tokens are" in line or "doubling of the tokens" in line for line in lines)


def test_a_vertex_beyond_the_values_tried_is_no_best_value(tmp_path):
    comparison = Comparison("masking.rate", "30 %", ("validation/mlm_loss",))
    known = view(tmp_path, rates=(0.3, 0.4, 0.5, 0.6, 0.7), comparisons=(comparison,))
    lines = best(known).sentences()
    assert f"below the 30{SPACE}% that was tried" in lines[0]
    (chart,) = best(known).figures().values()
    assert not any(series.points for series in chart.series)


@pytest.mark.parametrize(
    "changes",
    [
        {"rates": (0.15, 0.3, 0.4)},  # any three lie on a parabola
        {"comparisons": (Comparison("size", "2 x 64", ("validation/mlm_loss",)),)},
        {"comparisons": (Comparison("masking.rate", "15 %", ("validation/mlm_accuracy",)),)},
    ],
)
def test_a_study_that_cannot_say_it_says_nothing(tmp_path, changes):
    known = view(tmp_path, **changes)
    assert optimum.find(known, known.comparisons[0]) == []

"""The best value over budgets and sizes in a study's report: what it says of planted studies."""

from __future__ import annotations

import re

import pytest

from bert_jax.reporting.formats import SPACE
from bert_jax.studies.definition import Budget, Comparison, Suite
from bert_jax.studies.report import best_value
from bert_jax.studies.report.best_value import Best
from bert_jax.studies.report.blocks import Table, find_figures
from bert_jax.studies.report.view import View
from tests.studies.views import LOSS, build_view
from tests.study_workdir import masking_rate

RATES = (0.1, 0.15, 0.2, 0.25, 0.3)
BUDGETS = Budget("tokens", (1_500_000, 3_000_000, 6_000_000))
ENDS = (-1, "6"), (0, "1.5")  # places of the largest and smallest, in millions
COMPARED = (Comparison("masking.rate", "15 %", (LOSS,)),)
PLANTED = {"2 x 64": 17, "2 x 128": 24}  # per cent, whatever the budget: study_workdir.truth


def make_view(folder, **changes) -> View:
    """A study whose loss is a parabola in the logarithm of the rate, at any budget."""
    settings = {"budget": BUDGETS, "comparisons": COMPARED, "rates": RATES, **changes}
    settings |= {"evaluations": {"validation": Suite("pretrain")}}
    return build_view(folder / "w", masking_rate(**settings))


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    return make_view(tmp_path_factory.mktemp("view"))


def fit(view: View) -> list[Best]:
    return best_value.fit_best_values(view, view.comparisons[0])


def read_table(table: Table) -> dict[str, list[int]]:
    """Best values of each size, in per cent."""
    return {name: [int(re.match(r"\d+", cell)[0]) for cell in cells] for name, *cells in table.rows}


def test_report_has_the_planted_best_rates(view):
    """At equal FLOPs they are the same: a budget changes nothing in the planted study."""
    best, by_flops = fit(view)
    table, trend, detail = best.describe()
    found = read_table(table)
    for size, planted in PLANTED.items():
        assert all(abs(value - planted) <= 2 for value in found[size])
    assert [len(row) for row in found.values()] == [3, 3]
    after = [rf"{found['2 x 64'][i]} to {found['2 x 128'][i]} % after {m} M" for i, m in ENDS]
    told = best.answer().replace(SPACE, " ")
    assert told == f"The best masking rate is {after[0]} tokens and {after[1]} tokens."
    assert trend.head[3:] == ["without 10 %", "without 30 %"]
    without = read_table(detail.blocks[1])
    for size, planted in PLANTED.items():
        assert all(abs(value - planted) <= 3 for value in without[size])
    (chart,) = find_figures(by_flops.describe()).values()
    for series in chart.series:
        assert all(abs(100 * value - PLANTED[series.name]) <= 2 for _, value in series.points)


def test_vertex_beyond_all_values_is_no_best_value(tmp_path):
    comparison = Comparison("masking.rate", "30 %", (LOSS,))
    best = fit(make_view(tmp_path, rates=(0.3, 0.4, 0.5, 0.6, 0.7), comparisons=(comparison,)))[0]
    assert f"below the 30{SPACE}% that was tried" in " ".join(best.describe()[0].rows[0])
    (chart,) = best.draw().values()
    assert not any(series.points for series in chart.series)

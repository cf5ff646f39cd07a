"""The best value over budgets and sizes in a study's report: what it says of planted studies."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest
from scipy import stats

from bert_jax.reporting.formats import SPACE
from bert_jax.studies import results, scaling
from bert_jax.studies.definition import Budget, Comparison, Suite
from bert_jax.studies.report import answers, best_value, build, charts
from bert_jax.studies.report.best_value import Best
from bert_jax.studies.report.blocks import (
    escape_markdown,
    find_figures,
    render_html,
    render_markdown,
)
from bert_jax.studies.report.view import View
from bert_jax.studies.scaling import Run
from tests import study_workdir
from tests.study_workdir import SIZES, masking_rate

RATES = (0.1, 0.15, 0.2, 0.25, 0.3)
BUDGETS = Budget("tokens", (1_500_000, 3_000_000, 6_000_000))
ENDS = (-1, "6"), (0, "1.5")  # places of the largest and smallest, in millions
METRIC = "validation/mlm_loss"
LOSS = (Comparison("masking.rate", "15 %", (METRIC,)),)
PLANTED = {"2 x 64": 17, "2 x 128": 24}  # per cent, whatever the budget: study_workdir.truth


def make_view(tmp_path, **changes) -> View:
    """A study whose loss is a parabola in the logarithm of the rate, at any budget."""
    settings = {"budget": BUDGETS, "comparisons": LOSS, "rates": RATES, **changes}
    settings |= {"evaluations": {"validation": Suite("pretrain")}}
    place = study_workdir.build(tmp_path / "w", masking_rate(**settings), examples=10, lines=4)
    return View(place, place.read_study(), results.read_results(place))


def find(view: View) -> Best:
    return best_value.fit_best_values(view, view.comparisons[0])[0]


def tabulate(best: Best) -> dict[str, list[int]]:
    """Best values of each size, in per cent, as the first table of a report has them."""
    table = best.describe()[0]
    return {
        name: [int(re.match(r"(\d+)\W%", cell)[1]) for cell in cells] for name, *cells in table.rows
    }


def test_describe_finds_the_planted_best_rates(tmp_path):
    best = find(make_view(tmp_path))
    found = tabulate(best)
    for size, planted in PLANTED.items():
        assert len(found[size]) == 3
        assert all(abs(value - planted) <= 2 for value in found[size])
    after = [rf"{found['2 x 64'][i]} to {found['2 x 128'][i]} % after {m} M" for i, m in ENDS]
    told = best.answer().replace(SPACE, " ")
    assert told == f"The best masking rate is {after[0]} tokens and {after[1]} tokens."
    by_tokens, by_size, _ = best.trend()
    assert "does not change significantly with the tokens. Each doubling of the token" in by_tokens
    assert "The best masking rate rises with the parameters. Each doubling of the" in by_size
    page = render_html(best.describe()).replace(SPACE, " ")
    for end in ("10", "30"):
        line = re.search(rf"Without the runs at {end} %, the best masking rate is .*?</li>", page)[
            0
        ]
        small, large = (int(value) for value in re.findall(r"(\d+) % \(", line))
        assert abs(small - 17) <= 3
        assert abs(large - 24) <= 3
        assert "for 2 x 128 after 6 M tokens" in line
        assert ". Each doubling of the tokens multiplies the odds by" in line


def test_figures_have_best_rates_with_intervals(tmp_path):
    ((name, chart),) = find(make_view(tmp_path)).figures().items()
    assert name == "masking.rate_validation_mlm_loss_best"
    assert [series.name for series in chart.series] == ["2 x 64", "2 x 128"]
    for series in chart.series:
        assert len(series.points) == len(series.whiskers) == 3
        for (x, value), (at, low, high) in zip(series.points, series.whiskers, strict=True):
            assert x == at
            assert low < value < high


def list_runs(view: View, seed: int | None = None) -> list[Run]:
    """The runs of a view, or those of one seed."""
    return [
        Run(float(one.parameters), *place, one.entry.seed, one.metrics[METRIC])
        for one in view.results
        if seed in (None, one.entry.seed)
        for place in [(one.entry.values["budget"], one.entry.values["masking.rate"])]
    ]


def test_trend_has_intervals_over_seeds(tmp_path):
    """Each seed is fitted alone, and the exponents have a t interval."""
    view = make_view(tmp_path)
    line = find(view).trend()[2]
    said = []
    alone = [scaling.fit(list_runs(view, seed)) for seed in range(3)]
    for name, what in (("over_budget", "tokens"), ("over_size", "parameters")):
        each = np.array([getattr(fitted, name).estimate for fitted in alone])
        half = stats.t.ppf(0.975, 2) * each.std(ddof=1) / math.sqrt(3)
        factor, low, high = 2 ** (each.mean() + np.array([0, -half, half]))
        said.append(f"{factor:.2f} (95 % interval {low:.2f} to {high:.2f}) for the {what}")
    assert line.replace(SPACE, " ").endswith(f"over seeds are {said[0]} and {said[1]}.")


def test_describe_counts_best_values_outside_the_rest(tmp_path):
    """By parabolas through the means at the rates below 30 %: planted are 17, 24 and 24 %."""
    sizes = SIZES | {"2 x 192": {"model.hidden": 192, "model.heads": 3}}
    view = make_view(tmp_path, rates=(0.08, 0.1, 0.15, 0.2, 0.3), sizes=sizes)
    losses: dict = {}
    for run in list_runs(view):
        if run.value < 0.3:
            losses.setdefault((run.size, run.budget), {}).setdefault(run.value, []).append(run.loss)
    outside = 0
    for points in losses.values():
        logits = [math.log(value / (1 - value)) for value in points]
        curve, slope, _ = np.polyfit(logits, [np.mean(each) for each in points.values()], 2)
        outside += curve <= 0 or not min(logits) <= -slope / 2 / curve <= max(logits)
    assert (len(losses), outside) == (9, 6)
    page = render_html(find(view).describe())
    line = re.search("Without the runs at 3.*?</li>", page)[0]
    assert ". 6 of 9 best values lie outside the values that are left. Each doubling" in line


def test_figures_are_divided_if_lines_need_more_colours(tmp_path):
    """In the order of the axes, in whatever order the cells of parts are listed."""
    view = make_view(tmp_path)
    view = dataclasses.replace(view, results=view.results[::-1])
    (comparison,) = view.comparisons
    gaps = answers.compute_findings(view).gaps[0]
    for figures, what in (
        (charts.draw_means(view, comparison, METRIC), ""),
        (charts.draw_gaps(view, comparison, gaps), "_difference"),
    ):
        stem = "masking.rate_validation_mlm_loss"
        assert list(figures) == [f"{stem}_{size}{what}" for size in ("2x64", "2x128")]
        for chart, size in zip(figures.values(), ("2 x 64", "2 x 128"), strict=True):
            assert size in chart.title
            assert len({series.tone for series in chart.series}) == 3
            assert [series.name for series in chart.series] == [
                f"budget {amount:,} tokens" for amount in BUDGETS.amounts
            ]


@pytest.mark.slow
def test_report_and_summary_have_the_best_values(tmp_path):
    view = make_view(tmp_path)
    build.write(view.place)
    trend = find(view).trend()
    assert (view.place.figures / "masking.rate_validation_mlm_loss_best.svg").is_file()
    summary, page = view.place.summary.read_text(), view.place.report.read_text()
    for line in trend:
        assert escape_markdown(line) in summary
        assert line in page
    assert "![Best masking rate" in summary


def test_find_reads_the_best_rates_at_equal_flops(tmp_path):
    view = make_view(tmp_path)
    by_tokens, by_flops = best_value.fit_best_values(view, view.comparisons[0])
    assert (by_tokens.kind, by_flops.kind) == ("tokens", "flops")
    assert render_markdown(by_flops.describe()).startswith("At equal FLOPs, the best masking rate")
    (name,) = find_figures(by_flops.describe())
    assert name == "masking.rate_validation_mlm_loss_best_flops"
    of_size = {size: [o.value for o in line] for size, line in by_flops.lines.items()}
    # The same where a budget changes nothing.
    for size, planted in PLANTED.items():
        assert all(abs(100 * value - planted) <= 2 for value in of_size[size])


def test_one_budget_has_no_trend_over_budgets(tmp_path):
    best = find(make_view(tmp_path, budget=Budget("tokens", 3_000_000)))
    assert best.figures() == {}
    small, large = (tabulate(best)[size][0] for size in PLANTED)
    told = f"The best masking rate is {small} to {large} % after 3 M tokens."
    assert best.answer().replace(SPACE, " ") == told
    assert not any("doubling of the tokens" in line for line in best.trend())


def test_vertex_beyond_the_values_tried_is_no_best_value(tmp_path):
    comparison = Comparison("masking.rate", "30 %", (METRIC,))
    best = find(make_view(tmp_path, rates=(0.3, 0.4, 0.5, 0.6, 0.7), comparisons=(comparison,)))
    assert f"below the 30{SPACE}% that was tried" in " ".join(best.describe()[0].rows[0])
    (chart,) = best.figures().values()
    assert not any(series.points for series in chart.series)


@pytest.mark.parametrize(
    "changes",
    [
        {"rates": (0.15, 0.3, 0.4)},  # any three lie on a parabola
        {"comparisons": (Comparison("size", "2 x 64", (METRIC,)),)},
        {"comparisons": (Comparison("masking.rate", "15 %", ("validation/mlm_accuracy",)),)},
    ],
)
def test_find_has_nothing_to_say_of_other_studies(tmp_path, changes):
    view = make_view(tmp_path, **changes)
    assert best_value.fit_best_values(view, view.comparisons[0]) == []

"""The best value over budgets and sizes in a study's report: what it says of planted studies."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil

import numpy as np
import pytest
from scipy import stats

from bert_jax.reporting.formats import SPACE
from bert_jax.studies import results, scaling
from bert_jax.studies.definition import Budget, Comparison, Suite
from bert_jax.studies.report import build, findings, optimum, sections
from bert_jax.studies.report.aggregate import View
from bert_jax.studies.report.summary import literal
from bert_jax.studies.scaling import Run
from tests import study_workdir
from tests.study_workdir import SIZES, masking_rate

RATES = (0.1, 0.15, 0.2, 0.25, 0.3)
BUDGETS = Budget("tokens", (1_500_000, 3_000_000, 6_000_000))
ENDS = (-1, "6"), (0, "1.5")  # places of the largest and smallest, in millions
LOSS = (Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),)


def view(tmp_path, **changes) -> View:
    """Return a study whose loss is a parabola in the logarithm of the rate, at any budget."""
    settings = {"budget": BUDGETS, "comparisons": LOSS, "rates": RATES, **changes}
    settings |= {"evaluations": {"validation": Suite("pretrain")}}
    place = study_workdir.build(tmp_path / "w", masking_rate(**settings), examples=10, lines=4)
    return View(place, place.read_study(), results.read_results(place))


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
    assert "does not change significantly with the tokens. Each doubling of the tokens" in lines[2]
    assert "The best masking rate rises with the parameters. Each doubling of the" in lines[3]
    after = [rf"{found['2 x 64'][i]} to {found['2 x 128'][i]} % after {m} M" for i, m in ENDS]
    told = best(known).answer().replace(SPACE, " ")
    assert told == f"The best masking rate is {after[0]} tokens and {after[1]} tokens."
    assert re.search(r"by the trend of all other best values. [5-6] of 6 predictions", lines[5])
    for line, end in zip(lines[6:8], ("10", "30"), strict=True):
        assert line.startswith(f"Without the runs at {end} %, the best masking rate is ")
        small, large = (int(value) for value in re.findall(rf"(\d+){SPACE}% \(", line))
        assert abs(small - 17) <= 3
        assert abs(large - 24) <= 3
        assert f"for 2 x 128 after 6{SPACE}M tokens" in line
        assert ". Each doubling of the tokens multiplies the odds by" in line
    ((name, chart),) = best(known).figures().items()
    assert name == "masking.rate_validation_mlm_loss_best"
    assert [series.name for series in chart.series] == ["2 x 64", "2 x 128"]
    for series in chart.series:
        assert len(series.points) == len(series.whiskers) == 3
        for (x, value), (at, low, high) in zip(series.points, series.whiskers, strict=True):
            assert x == at
            assert low < value < high


def runs(view: View, seed: int | None = None) -> list[Run]:
    """Return the runs of a view, or those of one seed."""
    return [
        Run(float(one.parameters), *place, one.entry.seed, one.metrics[LOSS[0].metrics[0]])
        for one in view.results
        if seed in (None, one.entry.seed)
        for place in [(one.entry.values["budget"], one.entry.values["masking.rate"])]
    ]


def test_trend_is_said_with_seeds_as_the_unit(tmp_path):
    """Each seed is fitted alone, and the exponents have a t interval."""
    known = view(tmp_path)
    (line,) = (line for line in best(known).sentences() if "each seed is fitted separately" in line)
    said = []
    alone = [scaling.fit(runs(known, seed)) for seed in range(3)]
    for name, what in (("over_budget", "tokens"), ("over_size", "parameters")):
        each = np.array([getattr(fitted, name).estimate for fitted in alone])
        half = stats.t.ppf(0.975, 2) * each.std(ddof=1) / math.sqrt(3)
        factor, low, high = 2 ** (each.mean() + np.array([0, -half, half]))
        said.append(f"{factor:.2f} (95 % interval {low:.2f} to {high:.2f}) for the {what}")
    assert line.replace(SPACE, " ").endswith(f"over seeds are {said[0]} and {said[1]}.")


def test_best_values_outside_those_left_are_counted(tmp_path):
    """By parabolas through the means at the rates below 30 %: planted are 17, 24 and 24 %."""
    sizes = SIZES | {"2 x 192": {"model.hidden": 192, "model.heads": 3}}
    known = view(tmp_path, rates=(0.08, 0.1, 0.15, 0.2, 0.3), sizes=sizes)
    losses: dict = {}
    for run in runs(known):
        if run.value < 0.3:
            losses.setdefault((run.size, run.budget), {}).setdefault(run.value, []).append(run.loss)
    outside = 0
    for points in losses.values():
        logits = [math.log(value / (1 - value)) for value in points]
        curve, slope, _ = np.polyfit(logits, [np.mean(each) for each in points.values()], 2)
        outside += curve <= 0 or not min(logits) <= -slope / 2 / curve <= max(logits)
    assert (len(losses), outside) == (9, 6)
    (line,) = (line for line in best(known).sentences() if line.startswith("Without the runs at 3"))
    assert ". 6 of 9 best values lie outside the values that are left. Each doubling" in line


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
                f"budget {amount:,} tokens" for amount in BUDGETS.amounts
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
    build.write(known.place)  # from results.csv, which knows sizes and budgets as well
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
    small, large = (int(re.search(rf"(\d+){SPACE}% \(", line)[1]) for line in lines[:2])
    told = f"The best masking rate is {small} to {large} % after 3 M tokens."
    assert best(known).answer().replace(SPACE, " ") == told
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

"""The answer of a report and its warnings, held against intervals by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bert_jax.config.knobs import Config
from bert_jax.reporting.formats import SPACE
from bert_jax.studies.folder import Entry, State, StudyFolder
from bert_jax.studies.report import answers, baselines, charts, result_tables
from bert_jax.studies.report.blocks import Bold, Table, render_markdown
from bert_jax.studies.report.collect import Result
from bert_jax.studies.report.view import View
from tests.two_way import halves_by_hand

LOSS = "validation/mlm_loss"
Points = Mapping[str, Sequence[float | None]]  # values of the seeds; None where a cell failed
SEEDS = np.array([0.0, 0.1, 0.2])
RATES = {"15 %": 0.15, "40 %": 0.4, "80 %": 0.8}


def make_view(
    points: Points | Mapping[str, Points],
    metric: str = LOSS,
    baseline: str = "15 %",
    unigram: float = 9.0,
) -> View:
    """A study of masking rates, of one size or several."""
    sizes = points if isinstance(next(iter(points.values())), Mapping) else {"": points}
    axes = [_axis("size", {name: name for name in sizes})] * (len(sizes) > 1)
    labels = next(iter(sizes.values()))
    axes.append(_axis("masking.rate", {label: RATES.get(label, label) for label in labels}))
    evaluation = metric.partition("/")[0]
    known = {f"{evaluation}/unigram_loss": unigram} if metric.endswith("loss") else {}
    results = [
        _result(size, rate, seed, {} if value is None else {metric: value, **known})
        for size, of_size in sizes.items()
        for rate, values in of_size.items()
        for seed, value in enumerate(values)
    ]
    comparison = {"axis": "masking.rate", "baseline": baseline, "metrics": [metric]}
    study = {"axes": axes, "comparisons": [comparison], "seeds": [0, 1, 2]}
    study["evaluations"] = {evaluation: {"name": evaluation}}
    return View(StudyFolder(Path("/nowhere")), study, results)


def _axis(name: str, points: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "points": [{"label": k, "value": v} for k, v in points.items()]}


def _result(size: str, rate: str, seed: int, metrics: dict[str, float]) -> Result:
    labels = {"size": size, "masking.rate": rate} if size else {"masking.rate": rate}
    entry = Entry(f"{size}{rate}{seed}", Config(), labels, labels, seed)
    state = State("done" if metrics else "failed", "", 10, 10)
    return Result(entry, state, metrics, {})


def answer(view: View) -> str:
    found = answers.write_lead(view, answers.compute_findings(view), 0)
    return found.replace(SPACE, " ").replace("\N{MINUS SIGN}", "-")


def tabulate_best(view: View) -> Table:
    comparison = view.comparisons[0]
    gaps = answers.compute_findings(view).gaps[0]
    (table,) = result_tables.tabulate_best(view, comparison, comparison["metrics"], gaps)
    return table


def by_hand(points: Points, label: str) -> str:
    """Size and simultaneous interval of a rate's difference from 15 %."""
    labels = ["15 %", label, *(other for other in points if other not in ("15 %", label))]
    values = np.array([points[each] for each in labels])
    mean, half = abs((values[1] - values[0]).mean()), halves_by_hand(values, 0.05)[0]
    return f"{mean:.3f} nats ({mean - half:.3f} to {mean + half:.3f})"


BETTER: Points = {
    "15 %": list(5.0 + SEEDS),
    "40 %": [4.70, 4.79, 4.91],
    "80 %": [5.40, 5.52, 5.58],
}


@pytest.mark.parametrize("significant", [True, False])
def test_lead_names_the_best_point_and_its_interval(significant):
    points = BETTER if significant else BETTER | {"40 %": [5.02, 5.05, 5.16]}
    view = make_view(points)
    word = "significant" if significant else "not significant"
    assert answer(view) == (
        "The lowest validation MLM loss is that of masking rate 40 %, ahead of 15 % by "
        f"{by_hand(points, '40 %')}, which is {word}."
    )
    (row,) = tabulate_best(view).rows
    assert row[1] == "40 %"
    assert isinstance(row[3][0], Bold) == significant


def test_lead_of_a_baseline_that_is_best():
    points = BETTER | {"40 %": [5.2, 5.29, 5.41]}
    view = make_view(points)
    assert answer(view) == (
        "The lowest validation MLM loss is that of masking rate 15 %, the baseline, 5.100 ± 0.248 "
        f"nats; the nearest, 40 %, is behind by {by_hand(points, '40 %')}, which is significant."
    )
    assert tabulate_best(view).rows[0][3] == "is the baseline"


def test_lead_of_one_seed_has_no_interval():
    view = make_view({"15 %": [5.0], "40 %": [4.5]})
    assert answer(view) == (
        "The lowest validation MLM loss is that of masking rate 40 %, ahead of 15 % by 0.500 nats "
        "(no interval)."
    )
    (warning,) = answers.list_warnings(view)
    assert warning.startswith("One seed: there is no interval and no p")
    gaps = answers.compute_findings(view).gaps[0]
    (table,) = result_tables.tabulate_gaps(view, "masking.rate", gaps)
    assert table.head == ["masking.rate", "difference", "pairs"]


def test_lead_of_shares_is_in_percentage_points():
    """The paired t interval of scipy, as there is one difference."""
    points = {"15 %": [0.70, 0.71, 0.72], "40 %": [0.75, 0.76, 0.772]}
    ends = stats.ttest_rel(points["40 %"], points["15 %"]).confidence_interval(0.95)
    assert answer(make_view(points, metric="pos/accuracy")) == (
        "The highest POS accuracy is that of masking rate 40 %, ahead of 15 % by 5.07 percentage "
        f"points ({100 * ends.low:.2f} to {100 * ends.high:.2f}), which is significant."
    )


def test_lead_counts_the_differences_of_several_families():
    worse = {label: [6.0, 6.1, 6.2] for label in ("15 %", "40 %", "80 %")}
    view = make_view({"small": BETTER, "large": worse | {"40 %": [6.5, 6.6, 6.7]}})
    assert answer(view) == (
        "By validation MLM loss, 1 of 4 differences from 15 % is a significant gain and 2 are "
        "significant losses. The gain is 0.300 nats."
    )
    assert [row[:2] for row in tabulate_best(view).rows] == [
        ["Validation MLM loss, small", "40 %"],
        ["Validation MLM loss, large", "15 %"],
    ]
    few = {label: values[:1] for label, values in BETTER.items()}
    alone = answer(make_view({"small": few, "large": few}))
    assert alone.startswith("For large: The lowest validation MLM loss is that of masking rate 40")


def test_lead_has_sixty_words_at_most(monkeypatch):
    view = make_view({"small": BETTER, "large": BETTER})
    found = answers.compute_findings(view)
    assert len(answers.write_lead(view, found, 0).split()) <= 60

    class Long:
        def answer(self) -> str:
            return " ".join(["word"] * 40)

    assert answers.write_lead(view, found._replace(best={0: [Long()]}), 0) == Long().answer()


def test_lead_of_a_single_rate_compares_nothing():
    view = make_view({"small": BETTER, "large": {"15 %": [6.0, 6.1, 6.2]}})
    assert "40 %, ahead of 15 %" in answer(view)
    alone = answer(make_view({"15 %": [6.0, 6.1, 6.2]}))
    assert alone == "The validation MLM loss is 6.100 ± 0.248 nats."


def test_lead_quotes_labels_that_are_words():
    found = answer(make_view({"15 %": [5.0, 5.1], "drawn": [4.5, 4.6]}))
    assert "is that of “drawn”, ahead of “15 %” by 0.500 nats" in found


def test_lead_names_no_best_behind_the_unigram():
    view = make_view(BETTER, unigram=4.5)
    none = "No point is shown to be better than the unigram by validation MLM loss."
    assert answer(view) == none
    (warning,) = baselines.warn_of_behind(view, view.comparisons[0])
    than = "better than the unigram (4.500) by validation MLM loss"
    assert warning == f"Not shown to be {than}: every point."
    assert [row[1::2] for row in tabulate_best(view).rows] == [
        ["none; nearest 40 %", "no point is shown to be better than the unigram"]
    ]
    # A loss may be missing, because its evaluation failed or is still to come.
    results = [
        replace(result, metrics={"pos/accuracy": 0.5}) if result.entry.id == "40 %0" else result
        for result in view.results
    ]
    assert answer(View(view.place, view.study, results)) == none


@pytest.mark.parametrize(("unigram", "best"), [(9.0, "40 %, small"), (4.0, "")])
def test_best_cell_of_two_axes_beats_the_unigram(unigram, best):
    points = {"15 %": SEEDS + 5.0, "40 %": SEEDS + 4.5}
    view = make_view(
        {"small": points, "large": {k: v + 0.2 for k, v in points.items()}}, unigram=unigram
    )
    view.study["axes"].reverse()
    view.study["comparisons"].append({"axis": "size", "baseline": "small", "metrics": [LOSS]})
    named = answers.name_best_cell(view)
    assert (best in named) if best else not named
    grid = answers.tabulate_grid(view)
    assert grid.rows == [["15 %", "5.100", "5.300"], ["40 %", "4.600", "4.800"]]
    assert "40 %                4.600  4.800" in answers.write_answer(
        view, answers.compute_findings(view)
    )


def test_warning_names_points_by_their_intervals():
    """The interval of 15 %, 4.852 to 5.348, includes the unigram; its mean is lower."""
    view = make_view(BETTER, unigram=5.3)
    assert "masking rate 40 %, ahead" in answer(view)
    (warning,) = baselines.warn_of_behind(view, view.comparisons[0])
    assert warning.replace(SPACE, " ") == (
        "Not shown to be better than the unigram (5.300) by validation MLM loss: 15 %, 80 %."
    )
    (warning,) = baselines.warn_of_behind(make_view(BETTER, unigram=5.35), view.comparisons[0])
    assert warning.endswith(f"MLM loss: 80{SPACE}%.")


@pytest.mark.parametrize(("mean", "warned"), [(0.5057, True), (0.56, False), (0.44, True)])
def test_warning_of_chance_goes_by_the_interval(mean, warned):
    """Half of the interval is 4.64 %: with a mean of 50.57 % it includes chance."""
    deviation = 0.0464 / stats.t.ppf(0.975, 2) * math.sqrt(3)
    view = make_view({"15 %": [mean, mean - deviation, mean + deviation]}, metric="blimp/accuracy")
    (comparison,) = view.comparisons
    wanted = f"Not shown to be better than chance (50.0{SPACE}%) by BLiMP accuracy: every point."
    assert baselines.warn_of_behind(view, comparison) == [wanted] * warned
    assert answer(view).startswith("No point is shown to be better than chance") == warned
    assert f"{100 * mean:.2f} ± 4.64 %" in render_markdown([tabulate_best(view)])
    (chart,) = charts.draw_means(view, comparison, "blimp/accuracy").values()
    assert chart.baselines == [("chance", 0.5)]


def test_warning_holds_runs_against_their_own_baseline():
    view = make_view({"15 %": [5.0, 5.1, 5.2]}, unigram=6.0)
    lower = make_view({"40 %": [4.0, 4.1, 4.2]}, unigram=3.5)
    mixed = View(view.place, make_view(BETTER).study, [*view.results, *lower.results])
    (warning,) = baselines.warn_of_behind(mixed, mixed.comparisons[0])
    assert warning.endswith(f"(3.500 to 6) by validation MLM loss: 40{SPACE}%.")
    assert baselines.draw_levels(mixed, LOSS) == [("unigram", 3.5), ("", 6.0)]


@pytest.mark.parametrize(
    ("points", "baseline", "said"),
    [
        ({"15 %": [None, None], "40 %": [4.5, 4.6]}, "15 %", "40 %, 4.550 ± "),
        ({"15 %": [4.5, 4.6], "40 %": [None, None]}, "15 %", "15 %, the baseline, 4.550 ± "),
        (
            {"15 %": [4.5, 4.6, None, None], "40 %": [None, None, 4.7, 4.8]},
            "15 %",
            "15 %, the baseline, 4.550 ± ",
        ),
        (BETTER, "", "40 %, 4.800 ± "),
    ],
)
def test_lead_without_pairs_names_the_best_mean(points, baseline, said):
    found = answer(make_view(points, baseline=baseline))
    assert found.startswith(f"The lowest validation MLM loss is that of masking rate {said}")


def test_leader_of_a_point_that_lacks_a_seed_is_by_pairs():
    """The seed that 80 % lacks is the worst of all; its mean over the others is the lowest."""
    points = {"15 %": [5.0, 5.1, 9.0], "40 %": [4.9, 5.0, 8.9], "80 %": [4.95, 5.05, None]}
    view = make_view(points, unigram=20.0)
    (family,) = view.families("masking.rate")
    gaps = answers.compute_findings(view).gaps[0]
    assert answers.find_leader(family, LOSS, "15 %", gaps) == "40 %"


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_warn_tells_missing_cells_and_few_seeds(missing):
    points = BETTER | {"40 %": [None] * missing + [4.9] * (3 - missing)}
    found = answers.list_warnings(make_view(points))
    assert len(found) == bool(missing)
    if missing:
        assert f"{missing} of 9 cells lack results ({missing} failed)" in found[0]
    two = answers.list_warnings(make_view({"15 %": [5.0, 5.1], "40 %": [4.9, 4.8]}))
    assert two[0].startswith("2 seeds, fewer than 3")
    begun = make_view({"15 %": [5.0, None, None], "40 %": [4.9, None, None]})
    assert answers.list_warnings(begun)[1].startswith("One seed so far")

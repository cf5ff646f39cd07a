"""The sentence a report begins with and its warnings, held against intervals by hand."""

from __future__ import annotations

import math
import re
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
from bert_jax.studies.report import answers, compare, grid, sections
from bert_jax.studies.report.aggregate import View
from bert_jax.studies.report.collect import Result
from tests.test_study_compare import halves_by_hand

LOSS = "validation/mlm_loss"
Points = Mapping[str, Sequence[float | None]]  # values of the seeds; None where a cell failed
SEEDS = np.array([0.0, 0.1, 0.2])
RATES = {"15 %": 0.15, "40 %": 0.4, "80 %": 0.8}


def view(
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


def sentence(made: View) -> str:
    comparison = made.comparisons[0]
    found = answers.sentence(made, comparison, comparison["metrics"][0], gaps(made))
    return found.replace(SPACE, " ").replace("\N{MINUS SIGN}", "-")


def gaps(made: View) -> list[compare.Difference]:
    comparison = made.comparisons[0]
    families = made.families("masking.rate")
    base, metrics = comparison["baseline"], comparison["metrics"]
    return compare.differences(made.place, families, base, metrics, draws=10)


def by_hand(points: Points, label: str) -> str:
    """Write size and simultaneous interval of a rate's difference from 15 %."""
    labels = ["15 %", label, *(other for other in points if other not in ("15 %", label))]
    values = np.array([points[each] for each in labels])
    mean, half = abs((values[1] - values[0]).mean()), halves_by_hand(values, 0.05)[0]
    return f"{mean:.3f} nats ({mean - half:.3f} to {mean + half:.3f})"


BETTER: Points = {
    "15 %": list(5.0 + SEEDS),
    "40 %": [4.70, 4.79, 4.91],
    "80 %": [5.40, 5.52, 5.58],
}
NOISY: Points = {  # 80 % is lowest, and scatters too far to differ
    "15 %": [5.00, 5.01, 5.02],
    "40 %": [4.60, 4.61, 4.62],
    "80 %": [4.494, 4.852, 4.413],
}


def test_sentence_names_a_significant_point():
    found = sentence(view(BETTER))
    size = by_hand(BETTER, "40 %")
    assert found == f"Masking rate 40 % has a lower validation MLM loss than 15 %, by {size}."


def test_sentence_of_a_difference_that_may_be_none():
    points = BETTER | {"40 %": [5.02, 5.05, 5.16]}
    assert sentence(view(points)) == (
        "No masking rate has a significantly lower validation MLM loss than 15 %: the lowest, at "
        f"40 %, is ahead by {by_hand(points, '40 %')}."
    )


def test_sentence_looks_behind_the_lowest_mean():
    assert sentence(view(NOISY)) == (
        "Masking rate 40 % has a lower validation MLM loss than 15 %, by "
        f"{by_hand(NOISY, '40 %')}. The lowest, at 80 %, is not significantly different."
    )


@pytest.mark.parametrize(("away", "significant"), [(0.03, False), (0.2, True)])
def test_sentence_of_a_baseline_that_leads(away, significant):
    points = BETTER | {"40 %": [5.0 + away, 5.09 + away, 5.21 + away]}
    size = by_hand(points, "40 %")
    assert sentence(view(points)) == (
        "The baseline, masking rate 15 %, has the lowest validation MLM loss. The nearest, 40 %, "
        + (f"is significantly higher by {size}." if significant else "")
        + ("" if significant else f"is higher by {size}, which is not significant.")
    )


def test_one_seed_is_no_answer():
    made = view({"15 %": [5.0], "40 %": [4.5]})
    assert sentence(made) == (
        "Nothing is tested yet: masking rate 40 % has the lowest validation MLM loss, ahead of "
        "15 % by 0.500 nats (no interval)."
    )
    (warning,) = answers.warnings(made)
    assert warning.startswith("One seed: there is no interval and no p")
    table = sections.gap_table(made, "masking.rate", gaps(made))
    assert re.findall(r"<th[^>]*>(.*?)</th>", table) == ["masking.rate", "difference", "pairs"]


def test_shares_are_higher_by_percentage_points():
    """The paired t interval of scipy, as there is one difference."""
    points = {"15 %": [0.70, 0.71, 0.72], "40 %": [0.75, 0.76, 0.772]}
    ends = stats.ttest_rel(points["40 %"], points["15 %"]).confidence_interval(0.95)
    assert sentence(view(points, metric="pos/accuracy")) == (
        "Masking rate 40 % has a higher POS accuracy than 15 %, by 5.07 percentage points "
        f"({100 * ends.low:.2f} to {100 * ends.high:.2f})."
    )


def test_every_size_has_its_part_of_the_sentence():
    worse = {label: [6.0, 6.1, 6.2] for label in ("15 %", "40 %", "80 %")}
    found = sentence(view({"small": BETTER, "large": worse | {"40 %": [6.5, 6.6, 6.7]}}))
    assert found.startswith("For small, masking rate 40 % has a lower validation MLM loss than")
    assert ". For large, the baseline, masking rate 15 %, has the lowest" in found


@pytest.mark.parametrize("seeds", [1, 3])
def test_answer_has_sixty_words_at_most(seeds):
    """Two sizes whose clauses are too long: counted, or without intervals the first alone."""
    few = {label: values[:seeds] for label, values in NOISY.items()}
    made = view({"of two layers of 128": few, "of four layers of 256": few})
    comparison = made.comparisons[0]
    lead = answers.lead(made, comparison, gaps(made)).replace(SPACE, " ")
    start = "By validation MLM loss, 2 of 4 differences from 15 % are significant gains and none "
    assert lead.startswith(start if seeds > 1 else "For of two layers of 128, nothing is tested")
    assert len(lead.split()) <= 60
    best = " ".join(["word"] * 40)
    assert answers.lead(made, comparison, gaps(made), best) == best


def test_a_size_with_a_single_rate_has_nothing_to_compare():
    found = sentence(view({"small": BETTER, "large": {"15 %": [6.0, 6.1, 6.2]}}))
    assert found.startswith("Masking rate 40 % has a lower")
    assert "large" not in found
    alone = sentence(view({"15 %": [6.0, 6.1, 6.2]}))
    assert alone == "The validation MLM loss is 6.100 ± 0.248 nats."


def test_words_stand_in_quotation_marks():
    found = sentence(view({"15 %": [5.0, 5.1], "drawn": [4.5, 4.6]}))
    assert found.startswith("“drawn” has a lower validation MLM loss than “15 %”, by 0.500 nats")


def test_runs_that_are_all_worse_than_the_unigram_have_no_best():
    made = view(BETTER, unigram=4.5)
    assert sentence(made) == (
        "No point is shown to be better than the unigram (4.500) by validation MLM loss. The "
        "nearest, masking rate 40 %, is 0.300 nats from it."
    )
    comparison = made.comparisons[0]
    (warning,) = answers.behind_baseline(made, comparison)
    than = "better than the unigram (4.500) by validation MLM loss"
    assert warning == f"Not shown to be {than}: every point."
    table = sections.best(made, comparison, gaps(made))
    assert "none; nearest 40 %" in table
    assert "no point is shown to be better than the unigram" in table


@pytest.mark.parametrize(("unigram", "best"), [(9.0, "40 %, small"), (4.0, "")])
def test_two_axes_have_a_best_point_if_one_is_better_than_the_unigram(unigram, best):
    points = {"15 %": SEEDS + 5.0, "40 %": SEEDS + 4.5}
    made = view(
        {"small": points, "large": {k: v + 0.2 for k, v in points.items()}}, unigram=unigram
    )
    made.study["axes"].reverse()
    made.study["comparisons"].append(
        {"axis": "size", "baseline": "small", "metrics": [LOSS]},
    )
    assert (best in grid.best_cell(made)) if best else not grid.best_cell(made)


def test_a_run_with_another_evaluation_alone_has_no_part_in_the_sentence():
    """Its loss is missing, because that evaluation failed or is still to come."""
    made = view(BETTER, unigram=4.5)
    results = [
        replace(result, metrics={"pos/accuracy": 0.5}) if result.entry.id == "40 %0" else result
        for result in made.results
    ]
    found = sentence(View(made.place, made.study, results))
    assert found.endswith("masking rate 40 %, is 0.350 nats from it.")


def test_warning_names_points_by_their_intervals():
    """The interval of 15 %, 4.852 to 5.348, includes the unigram; its mean is lower."""
    made = view(BETTER, unigram=5.3)
    assert sentence(made).startswith("Masking rate 40 % has a lower")
    (warning,) = answers.behind_baseline(made, made.comparisons[0])
    assert warning.replace(SPACE, " ") == (
        "Not shown to be better than the unigram (5.300) by validation MLM loss: 15 %, 80 %."
    )
    (warning,) = answers.behind_baseline(view(BETTER, unigram=5.35), made.comparisons[0])
    assert warning.endswith(f"MLM loss: 80{SPACE}%.")


@pytest.mark.parametrize(("mean", "warned"), [(0.5057, True), (0.56, False), (0.44, True)])
def test_warning_of_chance_goes_by_the_interval(mean, warned):
    """Half of the interval is 4.64 %: with a mean of 50.57 % it includes chance."""
    deviation = 0.0464 / stats.t.ppf(0.975, 2) * math.sqrt(3)
    made = view({"15 %": [mean, mean - deviation, mean + deviation]}, metric="blimp/accuracy")
    found = answers.behind_baseline(made, made.comparisons[0])
    wanted = f"Not shown to be better than chance (50.0{SPACE}%) by BLiMP accuracy: every point."
    assert found == [wanted] * warned
    assert sentence(made).startswith("No point is shown to be better than chance") == warned
    table = sections.best(made, made.comparisons[0], gaps(made))
    assert f"{100 * mean:.2f} ± 4.64{SPACE}%" in table
    (chart,) = sections.headline(made, made.comparisons[0]).values()
    assert chart.baselines == [("chance", 0.5)]


def test_each_run_is_held_against_the_baseline_of_its_own_evaluation():
    made = view({"15 %": [5.0, 5.1, 5.2]}, unigram=6.0)
    lower = view({"40 %": [4.0, 4.1, 4.2]}, unigram=3.5)
    mixed = View(made.place, view(BETTER).study, [*made.results, *lower.results])
    (warning,) = answers.behind_baseline(mixed, mixed.comparisons[0])
    assert warning.endswith(f"(3.500 to 6) by validation MLM loss: 40{SPACE}%.")
    assert sections.baseline_lines(mixed, LOSS) == [("unigram", 3.5), ("", 6.0)]


def test_a_baseline_without_results_leaves_nothing_by_hand():
    made = view({"15 %": [None, None], "40 %": [4.5, 4.6]})
    assert sentence(made).startswith(
        "Nothing is tested, because the baseline, 15 %, has no results to pair with: masking rate "
        "40 % has the lowest validation MLM loss, 4.550 ± "
    )
    alone = view({"15 %": [4.5, 4.6], "40 %": [None, None]})
    assert sentence(alone).startswith(
        "Nothing is compared: only masking rate 15 % has a validation MLM loss, 4.550 ± "
    )
    apart = view({"15 %": [4.5, 4.6, None, None], "40 %": [None, None, 4.7, 4.8]})
    assert sentence(apart).startswith(
        "Nothing is tested, because no seed has both: masking rate 15 %"
    )
    unnamed = view(BETTER, baseline="")
    assert sentence(unnamed).startswith("Nothing is tested, because the study names no baseline: ")


def test_a_point_that_lacks_a_seed_is_ranked_by_its_pairs():
    """The seed that 80 % lacks is the worst of all; its mean over the others is the lowest."""
    points = {"15 %": [5.0, 5.1, 9.0], "40 %": [4.9, 5.0, 8.9], "80 %": [4.95, 5.05, None]}
    made = view(points, unigram=20.0)
    assert answers.leader(made.families("masking.rate")[0], LOSS, "15 %", gaps(made)) == "40 %"


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_missing_cells_and_few_seeds_are_told(missing):
    points = BETTER | {"40 %": [None] * missing + [4.9] * (3 - missing)}
    found = answers.warnings(view(points))
    assert len(found) == bool(missing)
    if missing:
        assert f"{missing} of 9 cells lack results ({missing} failed)" in found[0]
    two = answers.warnings(view({"15 %": [5.0, 5.1], "40 %": [4.9, 4.8]}))
    assert two[0].startswith("2 seeds, fewer than 3")
    begun = view({"15 %": [5.0, None, None], "40 %": [4.9, None, None]})
    assert answers.warnings(begun)[1].startswith("One seed so far")

"""The sentence a report begins with and its warnings, held against paired t tests by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from bert_jax.config.knobs import Config
from bert_jax.reporting.formats import SPACE
from bert_jax.studies.folder import Entry, State, StudyFolder
from bert_jax.studies.report import answers, compare, sections
from bert_jax.studies.report.aggregate import View, probability
from bert_jax.studies.report.collect import Result

LOSS = "validation/mlm_loss"
Points = Mapping[str, Sequence[float | None]]  # values of the seeds; None where a cell failed
SEEDS = np.array([0.0, 0.1, 0.2])
RATES = {"15 %": 0.15, "40 %": 0.4, "80 %": 0.8}


def view(
    points: Points | Mapping[str, Points],
    metric: str = LOSS,
    baseline: str = "15 %",
    others: Mapping[str, float] | None = None,
    unigram: float = 9.0,
) -> View:
    """A study of masking rates, of one size or several; `others` are metrics of every cell."""
    sizes = points if isinstance(next(iter(points.values())), Mapping) else {"": points}
    axes = [_axis("size", {name: name for name in sizes})] * (len(sizes) > 1)
    labels = next(iter(sizes.values()))
    axes.append(_axis("masking.rate", {label: RATES.get(label, label) for label in labels}))
    evaluation = metric.partition("/")[0]
    known = {f"{evaluation}/unigram_loss": unigram} if metric.endswith("loss") else {}
    results = [
        _result(
            size, rate, seed, {} if value is None else {metric: value, **known, **(others or {})}
        )
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
    state = State("done" if metrics else "failed", 1, "", 10, 10)
    return Result(entry, state, metrics, {})


def sentence(made: View) -> str:
    comparison = made.comparisons[0]
    metric = comparison["metrics"][0]
    found = answers.sentence(made, comparison, metric, gaps(made))
    return found.replace(SPACE, " ").replace("\N{MINUS SIGN}", "-")


def gaps(made: View) -> list[compare.Difference]:
    comparison = made.comparisons[0]
    families = made.families("masking.rate")
    base, metrics = comparison["baseline"], comparison["metrics"]
    return compare.differences(made.place, families, base, metrics, 10)


def by_hand(points: Points, label: str, tests: int) -> str:
    """The paired t interval and test of a rate and 15 %, as one of `tests` that Holm's step has."""
    differences = np.subtract(points["15 %"], points[label])
    size, error = abs(differences.mean()), differences.std(ddof=1) / math.sqrt(3)
    half = 4.302653 * error
    p = min(1.0, tests * 2 * special.stdtr(2, -size / error))
    ends = f"{size - half:.3f} to {size + half:.3f}"
    return f"{size:.3f} nats (95 % interval {ends}, Holm-corrected p = {probability(p)})"


BETTER: Points = {
    "15 %": list(5.0 + SEEDS),
    "40 %": [4.70, 4.79, 4.91],
    "80 %": [5.40, 5.52, 5.58],
}


def test_a_point_that_is_better_is_named_with_its_interval_and_p():
    found = sentence(view(BETTER))
    size = by_hand(BETTER, "40 %", 2)
    assert found == f"Masking rate 40 % has a lower validation MLM loss than 15 %, by {size}."


def test_a_difference_that_may_be_none_is_open():
    points = BETTER | {"40 %": [5.02, 5.05, 5.16]}
    size = by_hand(points, "40 %", 1)  # the largest p of two
    assert sentence(view(points)) == (
        "No masking rate is shown to have a lower validation MLM loss than 15 %: the lowest, at "
        f"40 %, is open, ahead by {size}."
    )


def test_the_lowest_mean_does_not_hide_a_point_that_differs():
    points = BETTER | {"80 %": [4.2, 5.0, 4.4]}
    found = sentence(view(points))
    assert found.startswith("Masking rate 40 % has a lower validation MLM loss than 15 %, by 0.300")
    size = by_hand(points, "80 %", 1)
    assert found.endswith(f"while the lowest, at 80 %, is open, by {size}.")


def test_a_baseline_that_leads_is_held_against_the_nearest():
    points = BETTER | {"40 %": [5.03, 5.12, 5.24]}
    found = sentence(view(points))
    assert found.startswith("Masking rate 15 %, the baseline, has the lowest validation MLM loss;")
    size = by_hand(points, "40 %", 1).partition(", Holm")[0]
    assert f"the nearest, 40 %, is higher by {size}, Holm-corrected p = " in found
    assert re.search(r"\) and (differs|is open)\.$", found)


def test_one_seed_is_no_answer():
    made = view({"15 %": [5.0], "40 %": [4.5]})
    assert sentence(made) == (
        "Nothing is tested yet: masking rate 40 % has the lowest validation MLM loss, ahead of "
        "15 % by 0.500 nats (one pair of runs: no interval, no p)."
    )
    (warning,) = answers.warnings(made)
    assert warning.startswith("One seed: there is no interval and no p")
    table = sections.gap_table(made, "masking.rate", gaps(made))
    assert re.findall(r"<th[^>]*>(.*?)</th>", table) == ["masking.rate", "difference", "pairs"]


def test_shares_are_higher_by_percentage_points():
    points = {"15 %": [0.70, 0.71, 0.72], "40 %": [0.75, 0.76, 0.772]}
    found = sentence(view(points, metric="pos/accuracy"))
    assert found.startswith("Masking rate 40 % has a higher POS accuracy than 15 %, by 5.07 perc")
    assert "percentage points (95 % interval 4.78 to 5.35, Holm-corrected p = 0.0002)" in found


def test_every_size_has_its_part_of_the_sentence():
    worse = {label: [6.0, 6.1, 6.2] for label in ("15 %", "40 %", "80 %")}
    found = sentence(view({"small": BETTER, "large": worse | {"40 %": [6.5, 6.6, 6.7]}}))
    assert found.startswith("For small, masking rate 40 % has a lower validation MLM loss than")
    assert "; for large, masking rate 15 %, the baseline, has the lowest" in found


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
        "No run is better than the unigram by validation MLM loss, so none is called best: the "
        "nearest, masking rate 40 %, is 0.300 nats worse than the unigram (4.500)."
    )
    comparison = made.comparisons[0]
    (warning,) = answers.behind_baseline(made, comparison)
    assert warning == "No better than the unigram (4.500) by validation MLM loss: every run."
    table = sections.best(made, comparison, gaps(made))
    assert "none; nearest 40 %" in table
    assert "no run is better than the unigram" in table


def test_a_run_with_another_evaluation_alone_has_no_part_in_the_sentence():
    """Its loss is missing, because that evaluation failed or is still to come."""
    made = view(BETTER, unigram=4.5)
    results = [
        replace(result, metrics={"pos/accuracy": 0.5}) if result.entry.id == "40 %0" else result
        for result in made.results
    ]
    found = sentence(View(made.place, made.study, results))
    assert "masking rate 40 %, is 0.350 nats worse than the unigram (4.500)." in found


def test_some_runs_worse_than_the_unigram_are_named():
    made = view(BETTER, unigram=5.3)
    assert sentence(made).startswith("Masking rate 40 % has a lower")
    (warning,) = answers.behind_baseline(made, made.comparisons[0])
    assert warning.replace(SPACE, " ") == (
        "No better than the unigram (5.300) by validation MLM loss: 80 %."
    )


def test_minimal_pairs_are_held_against_chance():
    points = {"15 %": [0.49, 0.5, 0.49], "40 %": [0.48, 0.49, 0.5]}
    made = view(points, metric="blimp/accuracy")
    assert sentence(made).startswith("No run is better than chance by BLiMP accuracy")
    figures = sections.headline(made, made.comparisons[0])
    (chart,) = figures.values()
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
        "Nothing is tested, as the baseline, 15 %, has no results to pair with: masking rate 40 % "
        "has the lowest validation MLM loss, 4.550 ± "
    )
    alone = view({"15 %": [4.5, 4.6], "40 %": [None, None]})
    assert sentence(alone).startswith(
        "Nothing is compared: masking rate 15 % alone has a validation MLM loss, 4.550 ± "
    )
    apart = view({"15 %": [4.5, 4.6, None, None], "40 %": [None, None, 4.7, 4.8]})
    assert sentence(apart).startswith("Nothing is tested, as no seed has both: masking rate 15 %")
    unnamed = view(BETTER, baseline="")
    assert sentence(unnamed).startswith("Nothing is tested, as the study names no baseline: ")


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

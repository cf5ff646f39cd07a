"""The answer of a report and its warnings, held against intervals by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from bert_jax.reporting.formats import SPACE
from bert_jax.studies.report import answers, baselines
from bert_jax.studies.report.blocks import Paragraph, Table
from bert_jax.studies.report.result_tables import Comparison
from bert_jax.studies.report.view import View
from tests.studies.views import LOSS, compose, make_view

SEEDS = np.array([0.0, 0.1, 0.2])
BETTER = {
    "15 %": list(5.0 + SEEDS),
    "40 %": [4.70, 4.79, 4.91],
    "80 %": [5.40, 5.52, 5.58],
}


def answer(view: View) -> str:
    leads = answers.list_leads(view, answers.compute_findings(view))
    return " ".join(leads).replace(SPACE, " ")


def tabulate_best(view: View) -> Table:
    gaps = answers.compute_findings(view).gaps[0]
    (table,) = Comparison(view, view.comparisons[0], gaps).tabulate_best()
    return table


def test_answer_names_no_best_behind_the_unigram():
    view = make_view({"": BETTER}, unigram=4.5)
    none = "No point is shown to be better than the unigram by validation MLM loss."
    assert answer(view).startswith(none)
    assert tabulate_best(view).rows[0][1] == "none; nearest 40 %"


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c", "d", "e", "f"], ["w " * 60]])
def test_answer_has_at_most_60_words(names):
    """Of a study with many comparisons, or with names of many words, findings are counted."""
    view = make_view({"": BETTER})
    (comparison,) = view.comparisons
    compared = [comparison | {"baseline": "15 %", "metrics": [f"{n}/mlm_loss"]} for n in names]
    metrics = {f"{name}/mlm_loss": LOSS for name in names}
    results = [
        dataclasses.replace(one, metrics={k: one.metrics[v] for k, v in metrics.items()})
        for one in view.results
    ]
    many = View(view.place, {**view.study, "comparisons": compared}, results)
    answered = compose(many)[1]
    assert answered.title == "Answer"
    prose = [block.text for block in answered.blocks if isinstance(block, Paragraph)]
    words = "".join("".join(text) + " " for text in prose).split()
    assert len(words) <= 60
    left_out = len(names) - answer(many).count("Of 2 differences")
    assert ("below." in words) == (left_out > 0) == (len(names) > 2 or len(names[0]) > 1)


def test_metric_without_direction_has_no_best_point():
    view = make_view({"": BETTER}, metric="mine/oddity")
    assert answer(view) == "Of 2 differences from 15 % by mine oddity: 2 significant."
    found = answers.compute_findings(view)
    assert not Comparison(view, view.comparisons[0], found.gaps[0]).tabulate_best()


def test_leader_of_points_that_lack_seeds_is_by_pairs():
    """The seed that 80 % lacks is the worst of all; its mean over the others is the lowest."""
    points = {"15 %": [5.0, 5.1, 9.0], "40 %": [4.9, 5.0, 8.9], "80 %": [4.95, 5.05, None]}
    assert tabulate_best(make_view({"": points}, unigram=20.0)).rows[0][1] == "40 %"


@pytest.mark.parametrize(
    ("unigram", "said"),
    [(4.5, "every point"), (5.3, "15 %, 80 %"), (5.35, "80 %"), (9.0, "")],
)
def test_warning_names_points_by_their_intervals(unigram, said):
    """The interval of 15 %, 4.852 to 5.348, includes the lower unigram."""
    view = make_view({"": BETTER}, unigram=unigram)
    warned = baselines.warn_of_behind(view, view.comparisons[0])
    assert [text.partition("MLM loss: ")[2].replace(SPACE, " ") for text in warned] == (
        [f"{said}."] if said else []
    )


@pytest.mark.parametrize(("mean", "warned"), [(0.5057, True), (0.56, False), (0.44, True)])
def test_warning_of_chance_goes_by_the_interval(mean, warned):
    """Half of the interval is 4.64 %: with a mean of 50.57 % it includes chance."""
    deviation = 0.0464 / stats.t.ppf(0.975, 2) * math.sqrt(3)
    points = {"15 %": [mean, mean - deviation, mean + deviation]}
    view = make_view({"": points}, metric="blimp/accuracy")
    (comparison,) = view.comparisons
    assert len(baselines.warn_of_behind(view, comparison)) == warned
    assert answer(view).startswith("No point is shown to be better than chance") == warned


def test_warning_compares_runs_with_their_own_baseline():
    lower = make_view({"": {"40 %": [4.0, 4.1, 4.2]}}, unigram=3.5)
    higher = make_view({"": {"15 %": [5.0, 5.1, 5.2]}}, unigram=6.0)
    study = make_view({"": BETTER}).study
    mixed = View(lower.place, study, [*higher.results, *lower.results])
    (warning,) = baselines.warn_of_behind(mixed, mixed.comparisons[0])
    assert warning.endswith("(3.500 to 6) by validation MLM loss: 40 %.")
    assert baselines.list_levels(mixed, LOSS) == [("unigram", 3.5), ("", 6.0)]


@pytest.mark.parametrize(
    ("points", "warnings"),
    [
        (BETTER, []),
        (BETTER | {"40 %": [None, 4.9, 4.9]}, ["1 of 9 cells lack results (1 failed)"]),
        ({"15 %": [5.0, 5.1], "40 %": [4.9, 4.8]}, ["2 seeds, fewer than 3"]),
        ({"15 %": [5.0], "40 %": [4.9]}, ["One seed: there is no interval"]),
        ({"15 %": [5.0, None], "40 %": [4.9, None]}, ["2 of 4 cells lack", "One seed so far"]),
    ],
)
def test_warnings_tell_missing_cells_and_few_seeds(points, warnings):
    found = answers.list_warnings(make_view({"": points}))
    assert len(found) == len(warnings)
    assert all(said in text for said, text in zip(warnings, found, strict=True))

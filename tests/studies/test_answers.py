"""The answer of a report and its warnings, frozen for studies of planted values."""

import math

import msgspec
import pytest
from scipy import stats

from bert_jax.studies.report import answers, baselines, result_tables
from bert_jax.studies.report.view import View
from tests.studies.views import LOSS, make_view

BETTER = {"15 %": [5.0, 5.1, 5.2], "40 %": [4.70, 4.79, 4.91], "80 %": [5.40, 5.52, 5.58]}
# The seed that 80 % lacks is the worst of all, so that its mean over the others is the lowest.
LACKING = {"15 %": [5.0, 5.1, 9.0], "40 %": [4.9, 5.0, 8.9], "80 %": [4.95, 5.05, None]}


def make_accuracy(mean: float, metric: str = "blimp/accuracy") -> View:
    """Make a study of one point, half of whose interval is 4.64 %."""
    deviation = 0.0464 / stats.t.ppf(0.975, 2) * math.sqrt(3)
    points = {"15 %": [mean, mean - deviation, mean + deviation]}
    return make_view(points, metric)


VIEWS = {
    "all points are better than the unigram": make_view(BETTER),
    "none is better": make_view(BETTER, unigram=4.5),
    "the interval of 15 %, 4.852 to 5.348, includes the unigram": make_view(BETTER, unigram=5.3),
    "80 % lacks a seed": make_view(LACKING, unigram=20.0),
    "no value of the metric is better": make_view(BETTER, metric="mine/oddity"),
    "the interval includes chance": make_accuracy(0.5057),
    "better than chance": make_accuracy(0.56),
    "worse than chance": make_accuracy(0.44),
    "worse than chance, corrected within words": make_accuracy(0.44, "blimp/accuracy_word_l2r"),
    "two seeds": make_view({"15 %": [5.0, 5.1], "40 %": [4.9, 4.8]}),
    "one seed so far": make_view({"15 %": [5.0, None], "40 %": [4.9, None]}),
}


def tell(view: View) -> list[str]:
    """List what a report says first: its leads, warnings, and best points."""
    found = answers.compute_findings(view)
    (comparison,) = view.comparisons
    tables = result_tables.ComparisonTables(view, comparison, found.gaps[0]).tabulate_best()
    best = [f"best: {row[1]}" for table in tables for row in table.rows]
    return answers.format_answer(view, found).splitlines() + best


def test_answers_say_what_is_frozen(check_frozen):
    lines = [line for name, view in VIEWS.items() for line in (f"# {name}", *tell(view))]
    check_frozen(lines, "answers")


@pytest.mark.parametrize(("name", "count"), [("a", 1), ("a", 6), ("w " * 60, 1)])
def test_answer_has_at_most_60_words(name, count):
    """Of a study with many comparisons, or with names of many words, findings are counted."""
    view = make_view(BETTER, f"{name}/mlm_loss")
    study = msgspec.structs.replace(view.study, comparisons=[*view.comparisons] * count)
    many = View(view.place, study, view.results)
    leads = answers.list_leads(many, answers.compute_findings(many))
    words = " ".join([*leads, answers.BRACKETS, answers.METHODS]).split()
    assert len(words) <= 60
    assert ("below." in words) == ((name, count) != ("a", 1))


def test_warning_compares_runs_with_their_own_baseline():
    lower = make_view({"40 %": [4.0, 4.1, 4.2]}, unigram=3.5)
    higher = make_view({"15 %": [5.0, 5.1, 5.2]}, unigram=6.0)
    study = make_view(BETTER).study
    mixed = View(lower.place, study, [*higher.results, *lower.results])
    (warning,) = baselines.warn_of_behind(mixed, mixed.comparisons[0])
    assert warning.endswith("(3.500 to 6) by validation MLM loss: 40 %.")
    assert baselines.list_levels(mixed, LOSS) == [("unigram", 3.5), ("", 6.0)]

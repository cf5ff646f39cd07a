"""The table of metrics: every number that is reported has a title, a direction and a meaning."""

from __future__ import annotations

import pytest

from bert_jax.config import knobs
from bert_jax.objectives import replaced
from bert_jax.reporting import metric_names, run_charts
from bert_jax.training import clock


def measures() -> set[str]:
    """The names of all metrics that the package writes."""
    names = {name for metrics in knobs.METRICS.values() for name in metrics}
    trained = set(knobs.OBJECTIVES) - {"hybrid"}  # whose parts are named after other objectives
    names |= {f"{name}_loss" for name in trained}
    names |= {f"{name}_accuracy" for name in trained - {"regress"}}
    names |= {*run_charts.LEDGER, *run_charts.OPTIMISER, *run_charts.SPEED}
    names |= {"loss", "skipped_in_row", "examples_per_row", "asked_decile_3", "asked_fraction"}
    return names | {
        *("predicted_fraction", "predict_quota_fraction", "shortfall_fraction"),
        *("distinct_fraction", "causal_fraction", "weight_fraction"),
        *(f"replaced_{measure}" for measure in replaced.MEASURES),
    }


def test_every_measure_has_a_plain_name_and_a_meaning():
    for name in sorted(measures()):
        meaning = metric_names.meaning(name)
        assert meaning.endswith("."), name
        assert len(meaning) < 250, name
        assert "_" not in metric_names.pretty(name)
    assert metric_names.meaning("train/mlm_loss") == metric_names.meaning("mlm_loss")
    assert metric_names.meaning("best_f1") == metric_names.meaning("f1")
    assert metric_names.meaning("mlm_loss") != metric_names.meaning("span_loss")
    assert metric_names.meaning("oddity") == ""
    known = {*run_charts.SPENT, *run_charts.HELD}
    assert known == {*clock.MEMORY, *(f"{name}_seconds" for name in clock.BUCKETS)}


def test_rows_are_whole():
    endings = [row.ending for row in metric_names.TABLE]
    assert len(set(endings)) == len(endings) > 50
    for row in metric_names.TABLE:
        assert row.better in ("lower", "higher")
        assert bool(row.baseline) == bool(row.baseline_words)
        assert not row.meaning or row.meaning.endswith(".")


@pytest.mark.parametrize(
    ("name", "title", "unit", "share", "lower"),
    [
        ("mlm_loss", "MLM loss", "nats", False, True),
        (
            "eval/validation/regress_loss",
            "Eval validation regress loss",
            "squared error",
            False,
            True,
        ),
        ("pos/accuracy", "POS accuracy", "", True, False),
        ("blimp/accuracy_word_l2r", "BLiMP accuracy word l2r", "", True, False),
        ("pseudo_perplexity", "Pseudo perplexity", "", False, True),
        ("nats_per_word_word_l2r", "Nats per word word l2r", "nats", False, True),
        ("tokens_per_second", "Tokens per second", "tokens/s", False, False),
        ("asked_decile_3", "Asked for, tenth 4 of the drawn rates", "", False, False),
        ("best_f1_threshold", "Best threshold for F1", "", False, False),
        ("oddity", "Oddity", "", False, False),
    ],
)
def test_a_metric_has_its_row(name, title, unit, share, lower):
    assert metric_names.pretty(name) == title
    assert metric_names.unit(name) == unit
    assert metric_names.is_share(name) == share
    assert metric_names.lower_is_better(name) == lower
    assert metric_names.axis_title(name) == (f"{title} ({unit})" if unit else title)


def test_baselines_and_counts_are_no_results():
    assert metric_names.is_result("mlm_loss")
    for name in ("unigram_loss", "majority_accuracy", "accuracy_low", "examples"):
        assert not metric_names.is_result(name)
    found = metric_names.baselines("causal_lm_loss")
    assert found == (["causal_lm_unigram_loss", "unigram_loss"], "the unigram")
    assert metric_names.baselines("span_loss") == ([], "")

"""Numbers as text, and the table of metrics: titles, units, directions, baselines, meanings."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.objectives import replaced
from bert_jax.reporting import formats, metric_names, run_charts


def list_measures() -> set[str]:
    """The names of all metrics that the package writes."""
    names = {name for metrics in knobs.METRICS.values() for name in metrics}
    trained = set(knobs.OBJECTIVES) - {"hybrid"}  # whose parts are named after other objectives
    names |= {f"{name}_loss" for name in trained}
    names |= {f"{name}_accuracy" for name in trained - {"regress"}}
    names |= {*run_charts.LEDGER, "learning_rate", "grad_norm", "tokens_per_second", "mfu"}
    names |= {"loss", "step_seconds", "data_wait", "skipped_in_row", "examples_per_row"}
    return names | {
        *("asked_decile_3", "asked_fraction", "model_flops_per_second"),
        *("predicted_fraction", "predict_quota_fraction", "shortfall_fraction"),
        *("distinct_fraction", "causal_fraction", "weight_fraction"),
        *(f"replaced_{measure}" for measure in replaced.MEASURES),
    }


def test_every_measure_has_a_name_and_a_meaning():
    for name in list_measures():
        assert metric_names.find_meaning(name).endswith("."), name
        assert "_" not in metric_names.find_title(name)


@pytest.mark.parametrize(
    ("name", "title", "unit", "share", "better"),
    [
        ("mlm_loss", "MLM loss", "nats", False, "lower"),
        ("eval/x/regress_loss", "Eval x regress loss", "squared error", False, "lower"),
        ("pos/accuracy", "POS accuracy", "", True, "higher"),
        ("blimp/accuracy_word_l2r", "BLiMP accuracy word l2r", "", True, "higher"),
        ("pseudo_perplexity", "Pseudo perplexity", "", False, "lower"),
        ("nats_per_word_word_l2r", "Nats per word word l2r", "nats", False, "lower"),
        ("tokens_per_second", "Tokens per second", "tokens/s", False, "higher"),
        ("step_seconds", "Seconds per update", "s", False, "lower"),
        ("data_wait", "Waiting for data", "", True, "lower"),
        ("shortfall_fraction", "Quota that no unit fills", "", True, "lower"),
        ("masked_fraction", "Selected, of eligible tokens", "", True, ""),
        ("unigram_loss", "Unigram loss", "nats", False, ""),
        ("babylm/macro_average", "BabyLM macro average", "", False, "higher"),
        ("log_likelihood", "Log likelihood", "", False, "higher"),
        ("blimp/field/binding", "BLiMP field binding", "", True, "higher"),
        ("asked_decile_3", "Asked for, tenth 4 of the drawn rates", "", False, ""),
        ("best_f1_threshold", "Best threshold for F1", "", False, ""),
        ("nats_per_character_error", "Nats per character error", "", False, ""),
        ("oddity", "Oddity", "", False, ""),
    ],
)
def test_metric_has_its_row(name, title, unit, share, better):
    assert metric_names.find_title(name) == title
    assert metric_names.find_unit(name) == unit
    assert metric_names.is_share(name) == share
    assert metric_names.find_metric(name).better == better
    directions = {"higher": 1, "lower": -1, "": 0}
    assert metric_names.find_direction(name) == directions[better]
    assert metric_names.format_axis_title(name) == (f"{title} ({unit})" if unit else title)


def test_metric_without_direction_ranks_nothing():
    assert metric_names.need_direction("mlm_loss") == -1
    with pytest.raises(ConfigError, match="neither a higher nor a lower blimp/oddity is better"):
        metric_names.need_direction("blimp/oddity")


def test_baselines_and_counts_are_no_results():
    assert metric_names.is_result("mlm_loss")
    for name in ("unigram_loss", "majority_accuracy", "accuracy_low", "examples"):
        assert not metric_names.is_result(name)
    found = metric_names.list_baselines("causal_lm_loss")
    assert found == (["causal_lm_unigram_loss", "unigram_loss"], "the unigram")
    assert metric_names.list_baselines("span_loss") == ([], "")


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [
        (0, False, "0"),
        (1234567, False, "1,234,567"),
        (4.354, False, "4.354"),
        (1e-4, False, "0.0001"),
        (12.3, False, "12.30"),
        (-0.5, False, "-0.500"),
        (0.123, True, "12.3 %"),
        (0.0004, True, "0.040 %"),
    ],
)
def test_numbers_are_written_as_people_do(value, percent, text):
    assert formats.number(value, percent).replace(formats.SPACE, " ") == text


@given(st.floats(-1e14, 1e14, allow_nan=False))
def test_exact_numbers_have_six_digits_and_commas(value):
    assert float(formats.exact(value).replace(",", "")) == pytest.approx(value, rel=1e-5)
    share = formats.exact(value, True).removesuffix(f"{formats.SPACE}%")
    assert float(share.replace(",", "")) == pytest.approx(100 * value, rel=1e-5)
    if abs(value) >= 1:  # no powers of ten
        rounded = formats.rounded(abs(value), 2)
        for text in (formats.number(abs(value)), formats.exact(abs(value)), rounded):
            assert re.fullmatch(r"\d{1,3}(,\d{3})*(\.\d+)?", text)
        assert float(rounded.replace(",", "")) == pytest.approx(abs(value), rel=0.05)

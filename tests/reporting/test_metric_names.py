"""Numbers as text, and the table of metrics: titles, units, directions, baselines, meanings."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.objectives import replaced
from bert_jax.reporting import formats, metric_names, run_charts
from tests.pages import check_lines


def list_measures() -> set[str]:
    """The names of all metrics that the package writes."""
    names = {name for metrics in knobs.METRICS.values() for name in metrics}
    trained = set(knobs.OBJECTIVES) - {"hybrid"}  # whose parts are named after other objectives
    names |= {f"{name}_loss" for name in trained}
    names |= {f"{name}_accuracy" for name in trained - {"regress"}}
    names |= {*run_charts.LEDGER, "learning_rate", "grad_norm", "tokens_per_second", "mfu"}
    names |= {"loss", "step_seconds", "data_wait", "examples_per_row"}
    return names | {
        *("skipped", "skipped_in_row"),
        *("asked_decile_3", "asked_fraction", "model_flops_per_second"),
        *("predicted_fraction", "predict_quota_fraction", "shortfall_fraction"),
        *("distinct_fraction", "causal_fraction", "weight_fraction"),
        *(f"replaced_{measure}" for measure in replaced.MEASURES),
    }


ODD = (  # names with parts before or after a metric's own, of suites, and one that no row has
    *("eval/x/regress_loss", "pos/accuracy", "blimp/accuracy_word_l2r", "blimp/field/binding"),
    *("babylm/macro_average", "nats_per_character_error", "best_f1_threshold", "oddity"),
    *("nats_per_character", "nats_per_token", "nats_per_word", "pll", "pseudo_perplexity"),
)


def test_metrics_are_named_as_is_frozen(pytestconfig):
    lines = []
    for name in (*sorted(list_measures()), *ODD):
        assert name in ODD or metric_names.find_meaning(name).endswith(".")
        share = "share" if metric_names.is_share(name) else ""
        better = {1: "higher", -1: "lower", 0: ""}[metric_names.find_direction(name)]
        lines.append(f"{name} | {metric_names.format_axis_title(name)} | {share} | {better}")
    check_lines(lines, Path(__file__).parent / "frozen" / "metrics.txt", pytestconfig)


def test_baselines_and_counts_are_no_results():
    assert metric_names.is_result("mlm_loss")
    for name in ("unigram_loss", "majority_accuracy", "accuracy_low", "examples"):
        assert not metric_names.is_result(name)
    found = metric_names.list_baselines("causal_lm_loss")
    assert found == (["causal_lm_unigram_loss", "unigram_loss"], "the unigram")
    assert metric_names.list_baselines("span_loss") == ([], "")


def test_numbers_are_written_as_people_do():
    written = {0: "0", 1234567: "1,234,567", 4.354: "4.354", 1e-4: "0.0001", 12.3: "12.30"}
    assert {value: formats.number(value) for value in written} == written
    shares = {0.123: "12.3 %", 0.0004: "0.040 %"}
    found = {value: formats.number(value, True).replace(formats.SPACE, " ") for value in shares}
    assert found == shares


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

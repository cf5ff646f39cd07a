"""Numbers as text, and the table of metrics: titles, units, directions, baselines, meanings."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.reporting import formats, metric_names
from tests.net import golden

# The net does not freeze these, as they are times, or rare.
UNFROZEN = ("data_wait", "mfu", "model_flops_per_second", "step_seconds", "tokens_per_second")
UNFROZEN += ("shortfall_fraction",)
ODD = (  # names with parts before or after a metric's own, of suites, and one that no row has
    *("eval/x/regress_loss", "pos/accuracy", "blimp/accuracy_word_l2r", "blimp/field/binding"),
    *("babylm/macro_average", "nats_per_character_error", "best_f1_threshold", "oddity"),
    *("nats_per_character", "nats_per_token", "nats_per_word", "pll", "pseudo_perplexity"),
)


def test_metrics_are_named_as_is_frozen(check_frozen):
    """All that runs write have a meaning, but for intervals and counts."""
    written = {name.rpartition("/")[2] for row in golden.read("training").values() for name in row}
    names = sorted(written.union(UNFROZEN, *knobs.METRICS.values()))
    lines = []
    for name in (*names, *ODD):
        known = metric_names.find_meaning(name).endswith(".")
        assert known or name.endswith(metric_names.COUNTS) or name in ODD
        share = "share" if metric_names.is_share(name) else ""
        better = {1: "higher", -1: "lower", 0: ""}[metric_names.find_direction(name)]
        kind = "result" if metric_names.is_result(name) else ""
        title = metric_names.format_axis_title(name)
        names, words = metric_names.list_baselines(name)
        baseline = " ".join([words, *names])
        lines.append(f"{name} | {title} | {share} | {better} | {kind} | {baseline}")
    check_frozen(lines, "metrics")


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

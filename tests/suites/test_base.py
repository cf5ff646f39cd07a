"""Standard errors by document, and the progress line."""

import math
import sys
from unittest import mock

import numpy as np
import pytest

from bert_jax.suites.base import Progress, compute_perplexity, compute_standard_error


def test_standard_error_is_clustered_by_document():
    """An example that occurs twice in its document tells nothing more."""
    sums, ones, documents = np.random.default_rng(0).normal(size=12), np.ones(12), np.arange(12)
    alone = compute_standard_error(sums, ones, documents)
    assert alone == pytest.approx(np.std(sums, ddof=1) / 12**0.5)
    twice = (np.repeat(values, 2) for values in (sums, ones, documents))
    assert compute_standard_error(*twice) == pytest.approx(alone)
    assert math.isnan(compute_standard_error(sums, ones, 0 * documents))


def test_perplexity_that_no_float_holds_is_nan():
    assert compute_perplexity(2.0) == math.exp(2.0)
    assert math.isnan(compute_perplexity(710.0))


def test_progress_says_how_long_it_will_take(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    progress = Progress("blimp: tokens")
    for seconds, done in ((10, 100), (60, 200), (70, 300), (600, 1000)):
        clock[0] = seconds
        progress(done, 1000)
    lines = ["blimp: tokens 200/1000, about 4 min left", "blimp: tokens 1000/1000"]
    assert capsys.readouterr().err.splitlines() == lines
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    Progress("pll: tokens")(1, 3)
    assert capsys.readouterr().err == "\rpll: tokens 1/3, about 0 s left\x1b[K"
    monkeypatch.setattr(sys.stderr, "write", mock.Mock(side_effect=BrokenPipeError))
    Progress("pll: tokens")(3, 3)

"""The rows of suites: a file each, options that become flags, what studies may ask."""

from __future__ import annotations

import importlib

import pytest

from bert_jax import suites
from bert_jax.data.tasks import TASKS
from bert_jax.errors import ConfigError


def test_row_has_a_file_and_metrics_for_studies():
    for name, row in suites.SUITES.items():
        assert callable(importlib.import_module(f"bert_jax.suites.{row.file or name}").score)
    named = {name for name, row in suites.SUITES.items() if not row.metrics}
    assert named == {"glue", *TASKS}  # a study asks for these by a fine-tuning


def test_build_gives_each_suite_what_it_reads():
    asked = {"source": "files:x", "limit": 3}
    built = suites.build_options(["pll", "sts"], **asked, within_word=True)
    assert built == [
        suites.Options("pll", **asked, within_word=True),
        suites.Options("sts", **asked),
    ]


CHANGES = {"source": "files:x", "changes": (("corpus.path", "x"),)}


@pytest.mark.fault(20, 21)
@pytest.mark.parametrize(
    ("suite", "asked", "said"),
    [
        ("cross_rate", {"limit": 3}, "--limit means nothing to cross_rate without a --source"),
        ("nsp", {"split": "train"}, "--split means nothing to nsp without a --source"),
        ("nelbo", CHANGES, "--config.KNOB means nothing to nelbo beside a --source"),
        ("nelbo", {"drws": 3}, "suite nelbo has no option 'drws'"),
    ],
)
def test_build_refuses_options_that_do_nothing(suite, asked, said):
    with pytest.raises(ConfigError) as refused:
        suites.build_options([suite], **asked)
    assert str(refused.value) == said

"""The rows of suites: a file each, options that become flags, what studies may ask."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from bert_jax import suites
from bert_jax.errors import ConfigError


def test_row_has_a_file_and_known_options():
    fields = {field.name for field in dataclasses.fields(suites.Options)} - {"suite"}
    read = set()
    for name, row in suites.SUITES.items():
        assert callable(importlib.import_module(f"bert_jax.suites.{row.file or name}").score)
        read |= row.list_options(True) | row.list_options(False)
    assert read == fields  # and each is read by a suite


def test_build_gives_each_suite_what_it_reads():
    pll, sts = suites.build_suites(["pll", "sts"], source="files:x", limit=3, within_word=True)
    assert (pll.suite, pll.limit, pll.within_word) == ("pll", 3, True)
    assert (sts.suite, sts.limit, sts.within_word) == ("sts", 3, False)


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
        suites.build_suites([suite], **asked)
    assert str(refused.value) == said

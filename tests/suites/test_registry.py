"""The rows of suites: a file each, options that become flags, what studies may ask."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from bert_jax import cli, evaluate, suites
from bert_jax.data.tasks import TASKS
from bert_jax.errors import ConfigError


@pytest.mark.parametrize("name", sorted(suites.SUITES))
def test_row_has_a_file_and_known_options(name):
    row = suites.SUITES[name]
    assert callable(importlib.import_module(f"bert_jax.suites.{row.file or name}").score)
    fields = {field.name for field in dataclasses.fields(suites.Options)}
    assert row.list_options(True) | row.list_options(False) <= fields - {"suite"}
    assert row.head in {"", "nsp", "mlm", TASKS[name].kind if name in TASKS else ""}


def test_every_option_is_a_flag_that_a_suite_reads():
    parser = cli.Parser(prog="bert-jax evaluate")
    evaluate.flags(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    fields = {field.name for field in dataclasses.fields(suites.Options)}
    assert {f"--{name.replace('_', '-')}" for name in fields - {"suite", "changes"}} <= flags
    read = set().union(*(row.list_options(True) for row in suites.SUITES.values()))
    assert fields - read == {"suite"}


def test_build_gives_each_suite_what_it_reads():
    pll, sts = suites.build(["pll", "sts"], source="files:x", limit=3, within_word=True)
    assert (pll.suite, pll.limit, pll.within_word) == ("pll", 3, True)
    assert (sts.suite, sts.limit, sts.within_word) == ("sts", 3, False)


@pytest.mark.fault(21)
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"limit": 3}, "--limit means nothing to cross_rate without a --source"),
        ({"words": 3}, "--words means nothing to cross_rate without a --source"),
        (
            {"source": "files:x", "changes": (("corpus.path", "x"),)},
            "--config.KNOB means nothing to cross_rate beside a --source",
        ),
        ({"source": "files:x", "draws": 3}, "--draws means nothing to cross_rate"),
    ],
)
def test_build_refuses_options_that_do_nothing(asked, said):
    with pytest.raises(ConfigError) as refused:
        suites.build(["cross_rate"], **asked)
    assert str(refused.value) == said


@pytest.mark.fault(20)
def test_build_suggests_the_option_that_is_meant():
    with pytest.raises(ConfigError) as refused:
        suites.build(["nelbo"], drws=3)
    assert str(refused.value) == "suite nelbo has no option 'drws'"
    assert refused.value.hint.startswith("did you mean 'draws'?")

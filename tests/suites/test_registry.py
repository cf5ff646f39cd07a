"""The rows of suites: a file each, options that become flags, what studies may ask."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from bert_jax import cli, evaluate, suites
from bert_jax.data.tasks import TASKS
from bert_jax.errors import ConfigError
from bert_jax.studies import definition
from bert_jax.studies.definition import Suite


@pytest.mark.parametrize("name", sorted(suites.SUITES.keys() - TASKS.keys()))
def test_row_has_a_file_that_scores(name):
    row = suites.SUITES[name]
    assert callable(importlib.import_module(f"bert_jax.suites.{row.file or name}").score)
    assert row.options(name) == suites.build([name])[0]


def test_rows_of_tasks_need_the_head_of_their_kind():
    assert {name: suites.SUITES[name].head for name in TASKS} == {
        name: task.kind for name, task in TASKS.items()
    }


def test_every_option_is_a_flag_of_evaluate():
    parser = cli.Parser(prog="bert-jax evaluate")
    evaluate.flags(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    fields = {f.name for row in suites.SUITES.values() for f in dataclasses.fields(row.options)}
    assert {f"--{name.replace('_', '-')}" for name in fields - {"suite", "changes"}} <= flags


def test_build_gives_each_suite_what_it_reads():
    pll, blimp = suites.build(["pll", "blimp"], source="files:x", limit=3, within_word=True)
    assert (pll.suite, blimp.suite) == ("pll", "blimp")
    assert (pll.limit, blimp.limit) == (3, 3)
    nsp, pll = suites.build(["nsp", "pll"], limit=2, within_word=True)
    assert pll.within_word
    assert not hasattr(nsp, "within_word")


@pytest.mark.parametrize("name", sorted(suites.SUITES))
def test_studies_ask_for_suites_with_metrics(name):
    """Heads over labels come to a cell by an evaluation that fine-tunes."""
    asked = Suite(name, (("batch_size", 8),))
    if name in TASKS or name == "glue":
        with pytest.raises(ConfigError, match=f"no suite '{name}' for a study"):
            definition._check_suite(asked)
    else:
        definition._check_suite(asked)

"""`bert-jax knobs`: all knobs as they are declared, found by section and name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_jax import cli, knobs
from bert_jax.config import table
from bert_jax.errors import ConfigError

PAGE = Path(__file__).resolve().parents[2] / "configs" / "KNOBS.md"
ROWS = {knob.path: knob for section in knobs.read_sections() for knob in section.knobs}


def test_page_is_current(capsys):
    assert cli.execute(["knobs", "--markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(), (
        "bert-jax knobs --markdown > configs/KNOBS.md"
    )


def test_every_knob_is_listed_with_its_default():
    declared = table.list_knobs()
    assert [*ROWS] == sorted(declared, key=[*ROWS].index)
    for path, knob in declared.items():  # written so that a command line reads the same value
        text = ROWS[path].default
        value = table.check_value(knob, table.read_text(path, text), path)
        assert value == knob.default


def test_rows_say_what_the_declarations_say():
    rate, unit = ROWS["masking.rate"], ROWS["masking.unit"]
    assert rate == (
        *("masking.rate", "0.15", "0 to 1", "masking.draw = fixed"),
        "share of eligible tokens selected",
    )
    assert (unit.default, unit.values, unit.condition) == ("token", "token, word, span, pmi", "")
    assert ROWS["masking.replace"].default == "0.8,0.1,0.1"
    assert ROWS["model.window"].values == "0 to 1,048,576"
    assert ROWS["optim.clip_norm"].values == "at least 0"
    assert ROWS["model.gated"].values == "true, false"
    assert ROWS["model.global_every"].condition == "model.window above 0"


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("loader", [path for path in ROWS if path.startswith("loader.")]),
        ("evals", [path for path in ROWS if path.startswith("evals.")]),
        ("masking.rate", ["masking.rate"]),
        ("evals.mine.rate", ["evals.*.rate"]),
        ("rate", ["masking.rate", "evals.*.rate"]),
        ("seed", ["seed", "evals.*.seed"]),
        ("", [*ROWS]),
    ],
)
def test_find_takes_sections_and_knobs(name, paths):
    assert [knob.path for section in knobs.find_knobs(name) for knob in section.knobs] == paths


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("maskin", "did you mean 'masking'? one of: corpus, task, "),
        ("masking.rat", "did you mean 'masking.rate'? one of: masking.rate, masking.prediction"),
        ("sequence_lenth", "did you mean 'sequence_length'? "),
        ("xyzzy", "one of: corpus, task, "),
    ],
)
def test_find_suggests_the_nearest_name(name, hint):
    with pytest.raises(ConfigError, match=f"no section or knob '{name}'") as caught:
        knobs.find_knobs(name)
    assert caught.value.hint.startswith(hint)

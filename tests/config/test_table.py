"""Knobs as they are declared: every path is found, every value checked, read and written."""

from __future__ import annotations

import math
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax import cli, config
from bert_jax.config import table
from bert_jax.config.table import Knob
from bert_jax.errors import ConfigError

KNOBS = table.list_knobs()
NUMBERS = [path for path, knob in KNOBS.items() if hasattr(knob.item, "__metadata__")]
CHOICES = [path for path, knob in KNOBS.items() if knob.choices]


def name(path: str) -> str:
    """Return a path with an entry that every config has."""
    entry = "mlm" if path.startswith("objectives") else "validation"
    return path.replace("*", entry)


def refuse(path: str, value: Any) -> ConfigError:
    """Return the refusal of a value."""
    tree = value
    for part in reversed(name(path).split(".")):
        tree = {part: tree}
    with pytest.raises(ConfigError) as caught:
        config.resolve(tree)
    return caught.value


def test_every_knob_has_a_sentence():
    for path, knob in KNOBS.items():
        assert 0 < len(knob.sentence.split()) <= 35, path
        assert "#" not in knob.sentence


@pytest.mark.fault(20)
@pytest.mark.parametrize("path", NUMBERS)
def test_check_value_names_the_range(path):
    knob = KNOBS[path]
    limits = knob.item.__metadata__[0]
    outside = [limits.ge - 1 - abs(limits.ge) / 100]
    outside += [] if limits.le is None else [limits.le + 1]
    outside = [int(value) for value in outside] if knob.type is int else outside
    for value in outside:
        error = refuse(path, (value,) * 3 if knob.is_tuple else value)
        assert f"{name(path)} = " in str(error)
        assert "out of range" in str(error) or "must be" in str(error)
        assert error.hint == f"{knob.values}: {knob.sentence}"


@pytest.mark.fault(20)
@pytest.mark.parametrize("path", CHOICES)
def test_check_value_suggests_the_nearest_choice(path):
    knob = KNOBS[path]
    misspelt = knob.choices[0] + "x"
    error = refuse(path, (misspelt,) if knob.is_tuple else misspelt)
    assert "is not a choice" in str(error)
    assert f"did you mean {knob.choices[0]!r}" in error.hint


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("masking.rate", "0.4", "config.masking.rate must be float, got '0.4'"),
        ("masking.rate", True, "must be float, got True"),
        ("optim.clip_norm", math.inf, "must be float, got inf"),
        ("steps", None, "must be int, got None"),
        ("masking.phases", ((0.5, 0.1),), "must be a tuple of tuple"),
        ("task.files", "a.tsv", "must be dict, got 'a.tsv'"),
    ],
)
def test_check_value_refuses_other_types(path, value, said):
    assert said in str(refuse(path, value))


# --- text -----------------------------------------------------------------------------------------

TEXTS = [
    ("masking.rate", "0.4", 0.4),
    ("masking.rate", "1", 1.0),
    ("masking.prediction_rate", "None", None),
    ("masking.replace", "(1,0,0)", (1.0, 0.0, 0.0)),
    ("masking.replace", "1,0,0", (1.0, 0.0, 0.0)),
    ("masking.phases", "((0.5,0.15,'step'),)", ((0.5, 0.15, "step"),)),
    ("masking.phases", "", ()),
    ("model.scan", "true", True),
    ("model.scan", "False", False),
    ("model.scan", "null", None),
    ("steps", "10_000_000", 10_000_000),
    ("tokenizer.path", "true", "true"),
    ("tokenizer.path", "None", "None"),
    ("checkpoints.at", "8", (8,)),
    ("checkpoints.at", "8,16", (8, 16)),
    ("task.columns", "a, b", ("a", "b")),
    ("task.columns", "", ()),
    ("task.files", "", {}),
    ("task.files.train", "a.tsv", "a.tsv"),
    ("evals.mine.rate", "0.4", 0.4),
]


@pytest.mark.parametrize(("path", "text", "value"), TEXTS)
def test_read_text_follows_the_type(path, text, value):
    found = table.read_text(path, text)
    assert found == value
    if path != "task.files.train":
        assert table.check_value(table.find_knob(path), found, path) == value


def test_write_flag_is_read_by_bash_as_the_value():
    values = [(name(path), knob.default) for path, knob in KNOBS.items()]
    values += [(path, value) for path, _, value in TEXTS]
    values += [("corpus.path", "it's $HOME; <a> & (b)/*.txt"), ("task.columns", ("a", "b c"))]
    words = " ".join(table.write_flag(path, value) for path, value in values)
    command = ["bash", "-c", f"printf '%s\\0' {words}"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    rest, read = cli.split_overrides(printed.split("\0")[:-1])
    assert rest == []
    assert [(path, table.read_text(path, text)) for path, text in read] == values


def draw_value(knob: Knob) -> st.SearchStrategy:
    """Draw values that a knob takes, but for dicts and phases."""
    if knob.choices:
        item: st.SearchStrategy = st.sampled_from(knob.choices)
    elif knob.type is bool:
        item = st.booleans()
    elif knob.type is str:
        item = st.text("abc/.*", min_size=1)
    else:
        limits = knob.item.__metadata__[0] if hasattr(knob.item, "__metadata__") else None
        draw = st.integers if knob.type is int else st.floats
        low, high = (limits.ge, limits.le) if limits else (-1e9, 1e9)
        item = draw(low, min(high or 1e9, 1e9))
    if knob.is_tuple:
        return st.tuples(item, item, item)
    return st.none() | item if knob.optional else item


@pytest.mark.parametrize("path", [p for p, k in KNOBS.items() if k.type not in (dict, tuple)])
@given(data=st.data())
def test_value_survives_command_line_and_check(path, data):
    knob = KNOBS[path]
    value = data.draw(draw_value(knob))
    text = table.write_flag(name(path), value).strip("'").partition("=")[2]
    read = table.read_text(name(path), text)
    assert table.check_value(knob, read, path) == value

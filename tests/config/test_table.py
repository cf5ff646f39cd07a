"""Knobs by path, value and text: what is declared is accepted, and all else is refused by name."""

from __future__ import annotations

import math
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax import cli, config
from bert_jax.config import table
from bert_jax.errors import ConfigError

KNOBS = table.list_knobs()
FINITE = 1e300


def write_path(path: str) -> str:
    """Return a knob's path with an entry that exists for *."""
    return path.replace("objectives.*", "objectives.mlm").replace("evals.*", "evals.validation")


def change(path: str, value: Any) -> dict[str, Any]:
    """Return the default config with one knob set."""
    tree = config.to_dict(table.Config())
    node: Any = tree
    *sections, name = write_path(path).split(".")
    for section in sections:
        node = node[section]
    node[name] = value
    return tree


def pick_values(knob: table.Knob) -> st.SearchStrategy:
    """Return values that a declaration allows."""
    low, high = knob.limits
    least = -FINITE if low is None else low
    most = FINITE if high is None else high
    one = {
        "bool": st.booleans(),
        "dict": st.just({"train": "a.tsv"}),
        "phases": st.just([[0.5, 0.15, "step"], [1.0, 0.3, "linear"]]),
        "floats": st.just([0.5, 0.25, 0.25]),
        "float": st.floats(least, most, allow_nan=False),
        "str": st.text(st.characters(codec="utf-8"), max_size=8),
    }
    number = st.integers(math.ceil(max(least, -(2**31))), math.floor(min(most, 2**31)))
    one |= {"int": number, "ints": st.lists(number, max_size=3)}
    one |= {"strs": st.lists(one["str"], max_size=3)}
    found = one[knob.form]
    if knob.choices:
        choice = st.sampled_from(knob.choices)
        found = st.lists(choice, unique=True) if knob.form == "strs" else choice
    return st.none() | found if knob.optional else found


# --- declarations ---------------------------------------------------------------------------------


def test_every_declaration_allows_its_default():
    assert len(KNOBS) > 150
    for path, knob in KNOBS.items():
        assert knob.sentence.strip(), path
        assert table.check_value(knob, knob.default, path) == knob.default
        assert knob.form in table.FORMS
        assert len(set(knob.choices)) == len(knob.choices)


def test_resets_name_knobs_of_the_section():
    for path, knob in KNOBS.items():
        for name in knob.traits.resets:
            assert f"{path.rpartition('.')[0]}.{name}".lstrip(".") in KNOBS, path


@given(st.data())
def test_check_takes_every_value_that_is_declared(data):
    path = data.draw(st.sampled_from([*KNOBS]))
    value = data.draw(pick_values(KNOBS[path]))
    found = table.check_value(KNOBS[path], value, path)
    assert found == (table._make_plain(value) if isinstance(value, list) else value)
    assert type(found) is not int or KNOBS[path].form == "int"
    try:
        settled = config.settle(change(path, value))[0]
    except ConfigError as error:
        if any(word in str(error) for word in ("must be", "out of range", "not a choice")):
            raise
        return  # a rule over several knobs
    assert config.recorded(config.to_dict(settled)) == settled


@pytest.mark.parametrize("path", [path for path, knob in KNOBS.items() if any(knob.limits)])
def test_check_refuses_numbers_out_of_range(path):
    knob = KNOBS[path]
    low, high = knob.limits
    beyond = [] if low is None else [low - max(1, abs(low))]
    beyond += [] if high is None else [high + 1]
    for number in beyond:
        value = {"floats": (number,) * 3, "ints": (number,)}.get(knob.form, number)
        with pytest.raises(ConfigError, match="out of range") as caught:
            config.resolve(change(path, value))
        assert f"config.{write_path(path)} = " in str(caught.value)
        assert knob.sentence in caught.value.hint


@pytest.mark.parametrize("path", [path for path, knob in KNOBS.items() if knob.choices])
def test_check_refuses_words_that_are_no_choice(path):
    knob = KNOBS[path]
    value = (knob.choices[0] + "x",) if knob.form == "strs" else knob.choices[0] + "x"
    with pytest.raises(ConfigError, match="is not a choice") as caught:
        config.resolve(change(path, value))
    assert f"did you mean {knob.choices[0]!r}" in caught.value.hint
    assert all(choice in caught.value.hint for choice in knob.choices)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("masking.rate", "0.4", "config.masking.rate must be float, got '0.4'"),
        ("masking.rate", True, "must be float, got True"),
        ("masking.rate", math.nan, "must be float, got nan"),
        ("optim.clip_norm", math.inf, "must be float, got inf"),
        ("steps", 1.5, "must be int, got 1.5"),
        ("steps", None, "must be int, got None"),
        ("model.scan", 1, "must be bool, got 1"),
        ("tokenizer.path", 3, "must be str, got 3"),
        ("checkpoints.at", 8, "must be tuple[int, ...], got 8"),
        ("masking.replace", (1, 0), "must be tuple[float, float, float], got (1, 0)"),
        ("masking.phases", ((0.5, 0.1),), "must be tuple[tuple[float, float, str], ...]"),
        ("task.files", "a.tsv", "must be dict[str, str], got 'a.tsv'"),
    ],
)
def test_check_refuses_other_types(path, value, said):
    with pytest.raises(ConfigError) as caught:
        config.resolve(change(path, value))
    assert said in str(caught.value)
    assert caught.value.hint.startswith("write ")


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "said", "hint"),
    [
        ("maskin.rate", "config has no knob 'maskin'", "did you mean 'masking'?"),
        ("masking.rat", "config.masking has no knob 'rat'", "did you mean 'rate'?"),
        ("evals.mine.rat", "config.evals.mine has no knob 'rat'", "did you mean 'rate'?"),
        ("seed.x", "config.seed has no knob 'x': it is a value", ""),
        ("masking", "config.masking is a section, not a value", "set one of: rate, "),
        ("evals.mine", "config.evals.mine is a section, not a value", "set one of: every, "),
    ],
)
def test_find_names_the_nearest_knob(path, said, hint):
    with pytest.raises(ConfigError) as caught:
        table.find_knob(path)
    assert str(caught.value) == said
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("path", KNOBS)
def test_find_returns_every_knob(path):
    assert table.find_knob(write_path(path)) == KNOBS[path]


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
    ("evals.mine.rate", "0.4", 0.4),
    ("task.columns", "('a,b','c')", ("a,b", "c")),
    ("task.files.train", "a.tsv", "a.tsv"),
]


@pytest.mark.parametrize(("path", "text", "value"), TEXTS)
def test_read_text_follows_the_type(path, text, value):
    found = table.read_text(path, text)
    assert found == value
    if path != "task.files.train":
        assert table.check_value(table.find_knob(path), found, path) == value


def test_read_text_refuses_sections_of_entries():
    with pytest.raises(ConfigError, match=r"config\.evals is a section") as caught:
        table.read_text("evals", "{}")
    assert caught.value.hint == "set evals.NAME.KNOB, or evals in the file"


def test_write_flag_is_read_by_bash_as_the_value():
    values = [(write_path(path), knob.default) for path, knob in KNOBS.items()]
    values += [(path, value) for path, _, value in TEXTS[:-2]]
    values += [("corpus.path", "it's $HOME; <a> & (b)/*.txt"), ("task.columns", ("a", "b c"))]
    words = " ".join(table.write_flag(path, value) for path, value in values)
    command = ["bash", "-c", f"printf '%s\\0' {words}"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    rest, read = cli.split_overrides(printed.split("\0")[:-1])
    assert rest == []
    assert [(path, table.read_text(path, text)) for path, text in read] == values


@pytest.mark.parametrize(
    ("words", "rest", "knobs"),
    [
        (["--config.model.scan", "x"], ["x"], [("model.scan", "true")]),
        (["--config.model.scan", "--x"], ["--x"], [("model.scan", "true")]),
        (["--config.model.scan", "None"], [], [("model.scan", "None")]),
        (["--config.model.gated", "False", "x"], ["x"], [("model.gated", "False")]),
        (["--noconfig.model.scan"], [], [("model.scan", "false")]),
        (["--config.steps", "3"], [], [("steps", "3")]),
        (["--noconfig.steps"], ["--noconfig.steps"], []),
        (["--noconfig.model.scan=1"], ["--noconfig.model.scan=1"], []),
        (["--noconfig.x"], ["--noconfig.x"], []),
    ],
)
def test_command_line_switches_true_and_false(words, rest, knobs):
    assert cli.split_overrides(words) == (rest, knobs)

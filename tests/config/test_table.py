"""Knobs as they are declared: every path is found, every value checked, read and written."""

import json
import subprocess

import numpy as np
import pytest

from bert_jax import cli
from bert_jax.config import table

TEXTS = [
    ("masking.rate", "0.4", 0.4),
    ("masking.rate", "1", 1.0),
    ("masking.prediction_rate", "None", None),
    ("masking.replace", "(1,0,0)", (1.0, 0.0, 0.0)),
    ("masking.replace", "1,0,0", (1.0, 0.0, 0.0)),
    ("masking.phases", "((0.5,0.15,'step'),)", ((0.5, 0.15, "step"),)),
    ("masking.phases", "", ()),
    ("model.scan", "true", True),
    ("model.scan", "null", None),
    ("steps", "10_000_000", 10_000_000),
    ("tokenizer.path", "true", "true"),
    ("tokenizer.path", "None", "None"),
    ("checkpoints.at", "8", (8,)),
    ("checkpoints.at", "8,16", (8, 16)),
    ("checkpoints.at", "[8,16]", (8, 16)),
    ("task.columns", "a, b", ("a", "b")),
    ("task.columns", "(a (b),c)", ("a (b)", "c")),
    ("task.columns", "", ()),
    ("objectives.classify.labels", ":),:(", (":)", ":(")),
    ("objectives.classify.labels", "[no, [UNK]]", ("no", "[UNK]")),
    ("objectives.classify.labels", "[A],[B]", ("[A]", "[B]")),
    ("task.files", "", {}),
    ("task.files.train", "a.tsv", "a.tsv"),
    ("evals.mine.rate", "0.4", 0.4),
]


@pytest.mark.parametrize(("path", "text", "value"), TEXTS)
def test_read_text_follows_the_type(path, text, value):
    """It survives JSON, too."""
    found = table.read_text(path, text)
    assert found == value
    if path != "task.files.train":
        stored = json.loads(json.dumps(found))
        assert table.check_value(table.find_knob(path), stored, path) == value


def test_check_value_takes_numbers_of_numpy():
    values = [("steps", np.int64(3)), ("masking.rate", np.float32(0.5)), ("model.scan", np.True_)]
    values += [("masking.replace", np.array([1.0, 0.0, 0.0]))]
    found = [table.check_value(table.find_knob(path), value, path) for path, value in values]
    assert json.dumps(found) == "[3, 0.5, true, [1.0, 0.0, 0.0]]"


def test_write_flag_is_read_by_bash_as_the_value():
    values = [(path, value) for path, _, value in TEXTS]
    for path, knob in table.list_knobs().items():
        entry = "mlm" if path.startswith("objectives") else "validation"
        values.append((path.replace("*", entry), knob.default))
    values += [("corpus.path", "it's $HOME; <a> & (b)/*.txt"), ("task.columns", ("a", "b c"))]
    words = " ".join(table.write_flag(path, value) for path, value in values)
    command = ["bash", "-c", f"printf '%s\\0' {words}"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    rest, read = cli.split_overrides(printed.split("\0")[:-1])
    assert rest == []
    assert [(path, table.read_text(path, text)) for path, text in read] == values

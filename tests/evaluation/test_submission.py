"""Files for the servers of GLUE and SQuAD: names, headers, order and spelling are frozen."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data import tasks
from bert_jax.data.answers import Candidate, Span
from bert_jax.data.examples import Example
from bert_jax.errors import ConfigError
from bert_jax.evaluation import submission

NUMBERS = [-0.3, 5.01, 2.34567]
ANSWERS = [("Zürich", 4.0, 1.0), ("", 1.0, 3.0), ("x", 2.0, 2.0), ("", -9e5, 9e5), ("y", 9e5, -9e5)]


def span(text: str, score: float, none: float) -> Span:
    return Span(text, 0, len(text), score, none, (Candidate(text, 0, len(text), score, 1.0),))


def examples(*ids: object) -> list[Example]:
    return [Example(f"test.tsv:{i + 2}", str(name), "a") for i, name in enumerate(ids)]


def list_submissions(folder: Path) -> Iterator[str]:
    """Yield the lines of all files: a row of each class, the last row and the last class first."""
    for name, row in tasks.TASKS.items():
        for split in row.submission.files if row.submission else ():
            labels = row.labels[::-1]
            made = {"regress": NUMBERS, "span": [span(*one) for one in ANSWERS]}
            predictions = made.get(row.kind, list(np.eye(len(labels))))
            rows = examples(*range(len(predictions)))[::-1]
            place = folder / "new" / name
            given = (name, split, rows, predictions, labels, place)
            for path in submission.write_submission(*given):
                yield f"# {name}, {split}: {path.name} ({', '.join(row.labels)})"
                yield from path.read_text(encoding="utf-8").replace("\t", " | ").splitlines()


def test_submissions_are_frozen(tmp_path, check_frozen):
    """Rows of GLUE go by their number, and the model may have the classes in another order."""
    lines = list(list_submissions(tmp_path))
    check_frozen(lines, "submissions")


@pytest.mark.parametrize(
    ("name", "split", "labels", "said"),
    [
        ("wnut17", "test", (), "no server takes"),
        ("mnli", "test", tasks.TASKS["mnli"].labels, "no server takes"),
        ("rte", "test", ("LABEL_0", "LABEL_1"), "and rte has entailment"),
    ],
)
def test_submission_refuses_what_no_server_takes(name, split, labels, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        submission.check_submission(name, split, labels, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_submission_with_a_wrong_id_writes_nothing(tmp_path):
    out = tmp_path / "out"
    labels = ("negative", "positive")
    with pytest.raises(ConfigError, match=r"test.tsv:2: 'x1'"):
        submission.write_submission("sst2", "test", examples("x1"), [np.ones(2)], labels, out)
    assert not out.exists()

"""Files for the servers of GLUE and SQuAD: names, headers, order and spelling, written out."""

import json

import numpy as np
import pytest

from bert_jax.data import tasks
from bert_jax.data.answers import Candidate, Span
from bert_jax.data.examples import Example
from bert_jax.errors import ConfigError
from bert_jax.evaluation import submission

ENTAILMENT = {"entailment": "entailment", "not_entailment": "not_entailment"}
NLI = {name: name for name in ("entailment", "neutral", "contradiction")}
SERVER = {  # task, split: file, and what the server calls each class
    ("cola", "test"): ("CoLA.tsv", {"unacceptable": "0", "acceptable": "1"}),
    ("sst2", "test"): ("SST-2.tsv", {"negative": "0", "positive": "1"}),
    ("mrpc", "test"): ("MRPC.tsv", {"not_equivalent": "0", "equivalent": "1"}),
    ("qqp", "test"): ("QQP.tsv", {"not_duplicate": "0", "duplicate": "1"}),
    ("mnli", "test_matched"): ("MNLI-m.tsv", NLI),
    ("mnli", "test_mismatched"): ("MNLI-mm.tsv", NLI),
    ("qnli", "test"): ("QNLI.tsv", ENTAILMENT),
    ("rte", "test"): ("RTE.tsv", ENTAILMENT),
    ("wnli", "test"): ("WNLI.tsv", {"not_entailment": "0", "entailment": "1"}),
    ("ax", "test"): ("AX.tsv", NLI),
}


def examples(*ids: object) -> list[Example]:
    return [Example(f"test.tsv:{i + 2}", str(name), "a") for i, name in enumerate(ids)]


@pytest.mark.parametrize(("name", "split"), SERVER)
def test_submission_spells_classes_as_the_server(name, split, tmp_path):
    """Rows go by their number, and the model may have the classes in another order."""
    file, spelling = SERVER[name, split]
    labels = sorted(spelling, reverse=len(name) % 2 == 0)
    chosen = np.random.default_rng(len(name)).integers(0, len(labels), 30)
    made = [np.eye(len(labels))[i] for i in chosen[::-1]]
    folder = tmp_path / "new" / "folder"
    (path,) = submission.write_submission(
        name, split, examples(*range(29, -1, -1)), made, labels, folder
    )
    assert path == folder / file
    header, *rows = path.read_text().split("\n")
    assert header == "index\tprediction"
    assert rows == [*(f"{n}\t{spelling[labels[i]]}" for n, i in enumerate(chosen)), ""]


def test_submission_clips_numbers_to_the_scale(tmp_path):
    made = [-0.3, 5.01, 2.34567, 0.0]
    (path,) = submission.write_submission("stsb", "test", examples(0, 1, 2, 3), made, (), tmp_path)
    assert path.name == "STS-B.tsv"
    assert path.read_text() == "index\tprediction\n0\t0.000\n1\t5.000\n2\t2.346\n3\t0.000\n"


def span(text: str, score: float, none: float) -> Span:
    return Span(text, 0, len(text), score, none, (Candidate(text, 0, len(text), score, 1.0),))


def test_submission_of_answers_goes_by_id(tmp_path):
    made = [span("Zürich", 4.0, 1.0), span("", 1.0, 3.0), span("x", 2.0, 2.0)]
    made += [span("", -9e5, 9e5), span("y", 9e5, -9e5)]
    ids = ["56be", "q-2", "3", "4", "5"]
    (path,) = submission.write_submission("squad", "test", examples(*ids), made, (), tmp_path)
    assert path.name == "predictions.json"
    answers = {"56be": "Zürich", "q-2": "", "3": "x", "4": "", "5": "y"}
    assert json.loads(path.read_text(encoding="utf-8")) == answers
    assert not (tmp_path / "na_prob.json").exists()
    texts, doubts = submission.write_submission(
        "squad2", "validation", examples(*ids), made, (), tmp_path
    )
    assert json.loads(texts.read_text(encoding="utf-8")) == answers
    assert doubts.name == "na_prob.json"
    expected = [1 / (1 + np.exp(3)), 1 / (1 + np.exp(-2)), 0.5, 1.0, 0.0]
    assert list(json.loads(doubts.read_text()).values()) == pytest.approx(expected)


def test_submission_knows_every_server():
    known = {name for name, _ in SERVER} | {"stsb", "squad", "squad2"}
    assert known == {name for name, row in tasks.TASKS.items() if row.submission is not None}


@pytest.mark.parametrize(
    ("name", "split", "labels", "said"),
    [
        ("wnut17", "test", (), "no server takes"),
        ("mnli", "test", tuple(NLI), "no server takes"),
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

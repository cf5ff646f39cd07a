"""Suites, `predict`, arrays and exports of the frozen models give the frozen answers."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_jax
from tests.marks import mark_slow
from tests.net import answer_rows, golden
from tests.net.answer_rows import FROZEN_MODELS, QUESTIONS, TEXTS
from tests.net.commands import make_environment, run_commands
from tests.net.rows import TOLERANCE
from tests.reference import softmax

FROZEN = golden.read("answers")
# Starts of questions: every task of `predict`, some of each suite but pretrain, babylm and task.
QUICK = (
    "bert: evaluate --suite=cross_rate --source",
    "roberta: evaluate --suite=nelbo",
    "causal: evaluate --suite=nelbo",
    "bert: evaluate --suite=pll --source",
    "modernbert: evaluate --suite=pll --source=files:lines.txt --within-word",
    "causal: evaluate --suite=blimp",
    "bert: evaluate --suite=sts",
    "bert: evaluate --suite=nsp --source",
    "bert: evaluate --suite=probe --task=sst2",
    "classify: evaluate --suite=glue",
    "span: evaluate --suite=squad",
    "bert: predict fill-mask --long=windows",
    "roberta: predict fill-mask",
    "bert: predict nsp",
    "regress: predict classify",
    "choice: predict classify",
    "tag: predict tag",
    "span: predict answer --top-k",
    "modernbert: predict embed",
    "bert: predict embed --pooling",
    "causal: predict generate --max-tokens=8 --temperature=1",
    "bert: predict generate",
)
ASKED = [name for name in QUESTIONS if name.startswith(QUICK)]
EXCHANGED = answer_rows.PARTS[2][1]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    answer_rows.write_questions(folder)
    return folder


@pytest.fixture
def folder(place: Path) -> Iterator[Path]:
    """Enter the folder in which every question is asked."""
    with contextlib.chdir(place):
        yield place


def differences(part: str, name: str, found: Any) -> list[str]:
    return golden.find_differences(FROZEN[part][name], found, TOLERANCE)


def test_every_answer_is_frozen():
    assert {part: [*rows] for part, rows, _ in answer_rows.PARTS} == {
        part: [*answers] for part, answers in FROZEN.items()
    }


def test_every_quick_question_is_a_question():
    assert [start for start in QUICK if not any(name.startswith(start) for name in QUESTIONS)] == []


@pytest.mark.parametrize("name", mark_slow(QUESTIONS, ASKED))
def test_answer_is_the_frozen_one(folder, name):
    assert differences("questions", name, answer_rows.ask(name)) == []


@pytest.mark.slow
def test_answers_are_frozen_with_the_flags_of_users(folder):
    """The other answers here are compiled with the flags of the tests."""
    commands = [answer_rows.make_command(name) for name in ASKED]
    results = run_commands(folder, commands, make_environment(users_flags=True))
    for name, words, result in zip(ASKED, commands, results, strict=True):
        assert result.code == 0, result.stderr
        answer = answer_rows.read_answer(words, result.stdout)
        assert differences("questions", name, answer) == [], name


@pytest.mark.parametrize("name", mark_slow(FROZEN_MODELS, ("bert", "modernbert")))
def test_arrays_are_the_frozen_ones(folder, name):
    assert differences("arrays", name, answer_rows.find_arrays(name)) == []


@pytest.mark.parametrize("name", mark_slow(EXCHANGED, ("roberta",)))
def test_exported_model_has_the_same_arrays(folder, name, tmp_path):
    """Imported and exported again it has the same bytes, too; what cannot be exported says why."""
    found = answer_rows.exchange(answer_rows.find_model(name), tmp_path)
    if arrays := found.pop("arrays", {}):
        expected = FROZEN["arrays"].get(name) or answer_rows.find_arrays(name)
        assert golden.find_differences(expected, arrays, TOLERANCE) == []
    assert differences("exchange", name, found) == []


def test_python_gives_what_the_commands_print(folder):
    files = [folder / f"{name}.txt" for name in ("masks", "pairs", "starts", "words")]
    masks, pairs, starts, words = (file.read_text().splitlines() for file in files)
    bert, tagger = bert_jax.load("models/bert"), bert_jax.load("models/tag")
    found = {
        "bert: predict fill-mask --top-k=3 masks.txt": bert.fill_mask(masks, top_k=3),
        "bert: predict nsp pairs.txt": bert.nsp([line.split("\t") for line in pairs]),
        "tag: predict tag words.txt": tagger.tag([words[0], {"words": words[1].split()}]),
        "bert: evaluate --suite=blimp --source=files:pairs": {
            "blimp": bert_jax.score(bert, "blimp", source="files:pairs")
        },
    }
    for name, answer in found.items():
        assert differences("questions", name, answer_rows.as_json(answer)) == [], name
    frozen = FROZEN["questions"]["bert: predict embed --pooling=cls --normalize starts.txt"]
    vectors = bert.embed(starts, pooling="cls", normalize=True)
    expected = [row["embedding"] for row in frozen]
    np.testing.assert_allclose(vectors, expected, rtol=TOLERANCE, atol=golden.ZERO * TOLERANCE)


def test_probabilities_are_those_of_the_logits(folder):
    """What `predict` says follows from the arrays that a model gives."""
    bert = bert_jax.load("models/bert")
    (logits,) = bert.logits(TEXTS[:1])
    (answer,) = bert.fill_mask(TEXTS[:1], top_k=1)
    place = TEXTS[0].split().index("[MASK]") + 1
    probabilities = softmax(logits[place])
    assert answer["masks"][0][0]["probability"] == pytest.approx(probabilities.max(), rel=1e-5)

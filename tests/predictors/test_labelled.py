"""Tasks of fine-tuned heads against transformers' answers, evaluations and their definition."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import shutil
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import sharding
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.evaluation import task_evaluator
from bert_jax.interop import runs
from bert_jax.predictors import TASKS
from bert_jax.predictors import stream as predictions
from bert_jax.predictors.labelled import find_entities
from bert_jax.predictors.options import Options
from tests import variants

GOLDEN = variants.GOLDEN / "huggingface"
ANSWERS = json.loads((variants.GOLDEN / "pipelines.json").read_text())
WORDS = "the a cat dog sat ran mat big red walked jumping zzz The".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A golden model by name, with the vocabulary that pipelines.json was made with."""
    root = tmp_path_factory.mktemp("models")

    @functools.cache
    def opened(name: str) -> runs.TrainedModel:
        folder = root / name
        shutil.copytree(GOLDEN / name, folder)
        shutil.copy(GOLDEN / "pretraining" / "vocab.txt", folder)
        return runs.open_run(str(folder))

    return opened


ASKED: dict[
    tuple, tuple[runs.TrainedModel, predictions.Stream]
] = {}  # compiled once; the run keeps its id


def ask(run: runs.TrainedModel, task: str, rows: list[Any], **options: Any) -> list[dict[str, Any]]:
    key = (id(run), task, Options(**options))
    if key not in ASKED:
        ASKED[key] = run, predictions.Stream(predictions.Model(run, key[2]), task)
    asking = ASKED[key][1]
    asking.tally = predictions.Tally()
    return list(asking.answer([row if isinstance(row, str) else json.dumps(row) for row in rows]))


def given_keys(rows: list[dict], *names: str) -> list[dict]:
    return [{key: row[key] for key in names if key in row} for row in rows]


# --- as transformers answers ----------------------------------------------------------------------


def test_classify_equals_the_pipeline(models):
    rows = given_keys(ANSWERS["classify"], "text", "text_pair")
    for row, found, golden in zip(
        rows,
        ask(models("sequence_classification"), "classify", rows),
        ANSWERS["classify"],
        strict=True,
    ):
        assert list(found) == [*row, "label", "probabilities"]
        assert list(found["probabilities"]) == ["negative", "neutral", "positive"]
        assert found["probabilities"] == pytest.approx(golden["scores"], abs=1e-5)
        assert found["label"] == max(golden["scores"], key=golden["scores"].get)
        assert sum(found["probabilities"].values()) == pytest.approx(1)


def test_classify_choice_is_a_softmax_over_options(models):
    rows = given_keys(ANSWERS["choice"], "text", "options")
    for found, golden in zip(
        ask(models("multiple_choice"), "classify", rows), ANSWERS["choice"], strict=True
    ):
        assert list(found["probabilities"]) == golden["options"]
        assert list(found["probabilities"].values()) == pytest.approx(
            golden["probabilities"], abs=1e-5
        )
        assert found["label"] == golden["options"][int(np.argmax(golden["probabilities"]))]


def test_tag_finds_the_entities_of_the_pipeline(models):
    """Its words are parted at blanks, the pipeline's also at punctuation; in these texts that is
    the same.
    """
    rows = given_keys(ANSWERS["tag"], "text")
    assert any(golden["entities"] for golden in ANSWERS["tag"])
    for row, found, golden in zip(
        rows,
        ask(models("token_classification"), "tag", rows, entities=True),
        ANSWERS["tag"],
        strict=True,
    ):
        assert found["words"] == row["text"].split()
        assert given_keys(found["entities"], "label", "start", "end") == golden["entities"]
        assert all(
            one["text"] == row["text"][one["start"] : one["end"]] for one in found["entities"]
        )


def test_answer_finds_the_best_span_of_all(models):
    rows = given_keys(ANSWERS["answer"], "question", "context")
    for row, found, golden in zip(
        rows,
        ask(models("question_answering"), "answer", rows, top_k=3),
        ANSWERS["answer"],
        strict=True,
    ):
        best = golden["best"]
        assert (found["answer"], found["start"], found["end"]) == tuple(
            best[0][k] for k in ("answer", "start", "end")
        )
        assert found["answer"] == row["context"][found["start"] : found["end"]]
        texts = list(dict.fromkeys(one["answer"] for one in best))
        assert [one["answer"] for one in found["n_best"]][: len(texts)] == texts[:3]
        first, second = found["n_best"][:2]
        scores = [
            next(one["score"] for one in best if one["answer"] == x["answer"])
            for x in (first, second)
        ]
        assert np.log(first["score"] / second["score"]) == pytest.approx(
            scores[0] - scores[1], abs=1e-4
        )


@pytest.mark.parametrize("share", [0, 7, 20])
def test_answer_is_none_above_the_threshold(models, share):
    doubts = [golden["no_answer"] - golden["best"][0]["score"] for golden in ANSWERS["answer"]]
    ranked = [-1e9, *sorted(doubts), 1e9]
    threshold = (ranked[20 - share] + ranked[21 - share]) / 2  # so many doubts are greater
    rows = given_keys(ANSWERS["answer"], "question", "context")
    found = ask(models("question_answering"), "answer", rows, no_answer_threshold=threshold)
    assert [one["answer"] == "" for one in found] == [doubt > threshold for doubt in doubts]
    assert sum(one["answer"] == "" for one in found) == share
    assert all((one["start"], one["end"]) == (0, 0) for one in found if not one["answer"])
    assert all(0 <= one["score"] <= 1 for one in found)


# --- as an evaluation has it ----------------------------------------------------------------------


FLOATS = {"probabilities", "value", "score"}
LABELS = {  # any: an evaluation needs some
    "sequence_classification": ("classify", 0),
    "regression": ("classify", 0.0),
    "multiple_choice": ("classify", 0),
    "token_classification": ("tag", (0,) * 30),
    "question_answering": ("answer", ()),
}


@pytest.mark.parametrize("name", LABELS)
def test_labelled_answers_as_an_evaluation(models, name):
    """On eight devices there and one here; long texts too, of which tag and answer look at several
    windows.
    """
    run, draw, (task, label) = models(name), random.Random(name), LABELS[name]
    long = [" ".join(draw.choices(WORDS, k=30)) for _ in range(9)]
    rows = {
        "multiple_choice": [
            {"text": text[:40], "options": [f"{text} b", "c", "d"][: 2 + i % 2]}
            for i, text in enumerate(long)
        ],
        "question_answering": [{"question": "the cat", "context": text} for text in long],
    }.get(name, [{"text": text} for text in long])
    mesh = sharding.make_mesh(knobs.Parallel())
    predictor = TASKS[task].make(predictions.Model(run, Options()))
    read = [predictor.read(i, json.dumps(row)) for i, row in enumerate(rows)]
    examples = [dataclasses.replace(predictor.example_of(row), label=label) for row in read]
    scored = task_evaluator.TaskEvaluator(run.config, run.tokenizer, examples, 8, mesh)
    _, made = scored.evaluate(jax.device_put(run.params, sharding.replicated(mesh)))
    for row, prediction, found in zip(read, made, ask(run, task, rows), strict=True):
        wanted = predictor.result(row, prediction)
        assert found.keys() == wanted.keys()
        assert all(found[key] == wanted[key] for key in found.keys() - FLOATS)
        for key in FLOATS & found.keys():
            assert found[key] == pytest.approx(wanted[key], abs=1e-5)


# --- by definition --------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    words=st.lists(
        st.text(st.sampled_from("aé日🙂 #\x00\u200b."), min_size=0, max_size=5), max_size=40
    )
)
def test_tag_labels_every_word(models, words):
    (found,) = ask(
        models("token_classification"), "tag", [{"words": words}], entities=True, batch_size=1
    )
    assert found["words"] == words
    assert len(found["labels"]) == len(words)
    assert None not in found["labels"]
    text = " ".join(words)
    assert all(text[one["start"] : one["end"]] == one["text"] for one in found["entities"])


@settings(max_examples=25)
@given(
    context=st.text(st.sampled_from("aéÉ日🙂 tTheca\u0301İ\n."), max_size=90),
    question=st.text("a the", max_size=90),
)
def test_answer_is_part_of_its_context(models, context, question):
    row = {"question": question, "context": context}
    (found,) = ask(models("question_answering"), "answer", [row], top_k=4, batch_size=1)
    for one in (found, *found["n_best"]):
        assert one["answer"] == context[one["start"] : one["end"]]
        assert 0 <= one["start"] <= one["end"] <= len(context)
    assert found["answer"] or not models("question_answering").tokenizer.encode_batch([context])[0]
    assert found["n_best"][0] == {key: found[key] for key in ("answer", "start", "end", "score")}


def test_find_entities_reads_marks():
    words, labels = ["New", "York", "and", "Paris", "x"], ["B-LOC", "I-LOC", None, "I-LOC", "B-PER"]
    text = "New  York\tand Paris x"
    assert [tuple(one.values()) for one in find_entities(text, words, labels)] == [
        *[("New  York", "LOC", 0, 9), ("Paris", "LOC", 14, 19), ("x", "PER", 20, 21)]
    ]
    assert find_entities("", [], []) == []


def test_tag_refuses_entities_without_marks(models):
    run = models("token_classification")
    nouns = dataclasses.replace(
        run.config.objectives["tag"], labels=("NOUN", "VERB", "X", "PUNCT", "ADJ")
    )
    config = dataclasses.replace(run.config, objectives={"tag": nouns})
    run = dataclasses.replace(run, config=config)
    with pytest.raises(ConfigError, match="NOUN, VERB, X, PUNCT, ADJ mark no entities"):
        ask(run, "tag", [], entities=True)
    (found,) = ask(run, "tag", ["the cat"])
    assert set(found["labels"]) <= set(nouns.labels)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        *[("pretraining", "fill-mask"), ("pretraining", "nsp"), ("causal_lm", "generate")],
        *[
            ("sequence_classification", "classify"),
            ("token_classification", "tag"),
            ("question_answering", "answer"),
        ],
    ],
)
def test_blank_line_yields_a_row(models, name, task):
    found = ask(models(name), task, ["", " \t", ""])
    assert len(found) == 3
    assert found[0].keys() == found[1].keys()
    assert found[0] == found[2]
    if task == "answer":
        assert found[0] == {"question": "", "answer": "", "start": 0, "end": 0, "score": 1.0}

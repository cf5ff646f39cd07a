"""Tasks of fine-tuned heads against transformers' answers, evaluations and their definition."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.config import knobs
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import task_evaluator
from bert_jax.predictors import TASKS, stream
from bert_jax.predictors.labelled import find_entities
from bert_jax.predictors.options import Options
from tests import variants
from tests.predictors.drawing import open_golden

ANSWERS = json.loads((variants.GOLDEN / "pipelines.json").read_text())
WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "mat",
    "big",
    "red",
    "walked",
    "jumping",
    "zzz",
    "The",
]


@functools.cache
def make_stream(name: str, task: str, options: Options) -> stream.Stream:
    return stream.Stream(stream.AskedModel(open_golden(name), options), task)


def ask(name: str, task: str, rows: list[Any], **options: Any) -> list[dict[str, Any]]:
    """What a task answers of lines or objects; each model is compiled once."""
    asking = make_stream(name, task, Options(**options))
    asking.tally = stream.Tally()
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return list(asking.answer([line.encode() for line in lines]))


def take_keys(rows: list[dict], *names: str) -> list[dict]:
    return [{key: row[key] for key in names if key in row} for row in rows]


# --- as transformers answers ----------------------------------------------------------------------


def test_classify_equals_the_pipeline():
    rows = take_keys(ANSWERS["classify"], "text", "text_pair")
    found = ask("sequence_classification", "classify", rows)
    for row, one, golden in zip(rows, found, ANSWERS["classify"], strict=True):
        assert list(one) == [*row, "label", "probabilities"]
        assert one["probabilities"] == pytest.approx(golden["scores"], abs=1e-5)
        assert one["label"] == max(golden["scores"], key=golden["scores"].get)


def test_classify_choice_is_a_softmax_over_options():
    rows = take_keys(ANSWERS["choice"], "text", "options")
    found = ask("multiple_choice", "classify", rows)
    for one, golden in zip(found, ANSWERS["choice"], strict=True):
        shares = dict(zip(golden["options"], golden["probabilities"], strict=True))
        assert one["probabilities"] == pytest.approx(shares, abs=1e-5)
        assert one["label"] == max(shares, key=shares.__getitem__)


def test_tag_finds_the_entities_of_the_pipeline():
    """Its words are parted at blanks, the pipeline's also at punctuation; in these texts that is
    the same.
    """
    rows = take_keys(ANSWERS["tag"], "text")
    found = ask("token_classification", "tag", rows, entities=True)
    assert any(golden["entities"] for golden in ANSWERS["tag"])
    for row, one, golden in zip(rows, found, ANSWERS["tag"], strict=True):
        assert one["words"] == row["text"].split()
        assert take_keys(one["entities"], "label", "start", "end") == golden["entities"]


def test_answer_finds_the_best_span_of_all():
    rows = take_keys(ANSWERS["answer"], "question", "context")
    found = ask("question_answering", "answer", rows, top_k=3)
    for one, golden in zip(found, ANSWERS["answer"], strict=True):
        (best,) = take_keys(golden["best"][:1], "answer", "start", "end")
        assert {key: one[key] for key in best} == best
        scores = {span["answer"]: span["score"] for span in reversed(golden["best"])}
        texts = list(dict.fromkeys(span["answer"] for span in golden["best"]))
        assert [span["answer"] for span in one["n_best"]][: len(texts)] == texts[:3]
        first, second = one["n_best"][:2]
        odds = scores[first["answer"]] - scores[second["answer"]]
        assert np.log(first["score"] / second["score"]) == pytest.approx(odds, abs=1e-4)


# --- as an evaluation has it ----------------------------------------------------------------------


FLOATS = {"probabilities", "value", "score"}
LABELS = {  # any: an evaluation needs some
    "sequence_classification": ("classify", 0),
    "multiple_choice": ("classify", 0),
    "token_classification": ("tag", (0,) * 30),
    "question_answering": ("answer", ()),
}


def make_rows(name: str) -> list[dict[str, Any]]:
    """Lines with long texts, of which tag and answer look at several windows."""
    draw = random.Random(name)
    texts = [" ".join(draw.choices(WORDS, k=30)) for _ in range(9)]
    if name == "question_answering":
        return [{"question": "the cat", "context": text} for text in texts]
    if name == "multiple_choice":
        options = [[f"{text} b", "c", "d"][: 2 + i % 2] for i, text in enumerate(texts)]
        return [{"text": t[:40], "options": o} for t, o in zip(texts, options, strict=True)]
    return [{"text": text} for text in texts]


@pytest.mark.parametrize("name", LABELS)
def test_labelled_answers_as_an_evaluation(name):
    """On eight devices there and one here."""
    run, rows, (task, label) = open_golden(name), make_rows(name), LABELS[name]
    mesh = sharding.make_mesh(knobs.Parallel())
    predictor: Any = TASKS[task].make(stream.AskedModel(run, Options()))
    read = [predictor.read(i, json.dumps(row)) for i, row in enumerate(rows)]
    examples = [dataclasses.replace(predictor.make_example(row), label=label) for row in read]
    scored = task_evaluator.TaskEvaluator(run.config, run.tokenizer, examples, 8, mesh)
    _, made = scored.evaluate(jax.device_put(run.params, sharding.replicated(mesh)))
    for row, prediction, found in zip(read, made, ask(name, task, rows), strict=True):
        wanted = predictor.make_result(row, prediction)
        assert found.keys() == wanted.keys()
        assert all(found[key] == wanted[key] for key in found.keys() - FLOATS)
        for key in FLOATS & found.keys():
            assert found[key] == pytest.approx(wanted[key], abs=1e-5)


# --- by definition --------------------------------------------------------------------------------


def test_find_entities_reads_marks():
    words, labels = ["New", "York", "and", "Paris", "x"], ["B-LOC", "I-LOC", None, "I-LOC", "B-PER"]
    text = "New  York\tand Paris x"
    assert [tuple(one.values()) for one in find_entities(text, words, labels)] == [
        ("New  York", "LOC", 0, 9),
        ("Paris", "LOC", 14, 19),
        ("x", "PER", 20, 21),
    ]
    assert find_entities("", [], []) == []


def test_tag_refuses_entities_without_marks():
    run = open_golden("token_classification")
    nouns = dataclasses.replace(run.config.objectives["tag"], labels=("NOUN", "VERB"))
    model = stream.AskedModel(
        run.replace_sections(objectives={"tag": nouns}), Options(entities=True)
    )
    with pytest.raises(ConfigError, match="NOUN, VERB mark no entities"):
        TASKS["tag"].make(model)


@pytest.mark.parametrize("options", [["a"], ["a", "b", "a"]])
def test_classify_needs_options_that_differ(options):
    with pytest.raises(DataError, match="line 1: options = "):
        ask("multiple_choice", "classify", [{"text": "the", "options": options}])


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("causal_lm", "generate"),
        ("sequence_classification", "classify"),
        ("token_classification", "tag"),
        ("question_answering", "answer"),
    ],
)
def test_blank_line_yields_a_row(name, task):
    """The transcript of `predict` has `fill-mask` and `nsp`."""
    found = ask(name, task, ["", " \t", ""])
    assert len(found) == 3
    assert found[0].keys() == found[1].keys()
    assert found[0] == found[2]
    if task == "answer":
        assert found[0] == {"question": "", "answer": "", "start": 0, "end": 0, "score": 1.0}

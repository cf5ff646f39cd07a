"""A task's score takes every example once, whatever the batch, the devices and the order.

`tests/predictors/test_labelled.py` compares the predictions of all kinds with those of `predict`.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.data.examples import Answer, Example
from bert_jax.errors import DataError
from bert_jax.evaluation.metrics import find_wilson_interval
from bert_jax.evaluation.task_evaluator import TaskEvaluator
from bert_jax.interop import runs
from tests import variants

GOLDEN = variants.GOLDEN / "huggingface"
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "mat", "big", "red", "walked", "jumping"]


def make_mesh(devices: int) -> jax.sharding.Mesh:
    axes = (jax.sharding.AxisType.Auto,) * 3
    chosen = jax.devices()[:devices]
    return jax.make_mesh((1, devices, 1), sharding.AXES, axis_types=axes, devices=chosen)


def open_golden(name: str) -> runs.TrainedModel:
    vocabulary = str(GOLDEN / "pretraining" / "vocab.txt")
    return runs.open_run(str(GOLDEN / name), tokenizer=vocabulary)


@pytest.fixture(scope="module")
def run() -> runs.TrainedModel:
    """A model that reads contexts in windows of 20 tokens."""
    run = open_golden("question_answering")
    task = dataclasses.replace(run.config.task, stride=6, no_answer=True)
    return run.replace_sections(task=task, sequence_length=20)


def make_examples(count: int) -> list[Example]:
    """Questions about contexts of very different lengths; one in four has no answer."""
    random = np.random.default_rng(1)
    found = []
    for number in range(count):
        context = " ".join(random.choice(WORDS, 1 + 2 * number))
        right = (Answer(context[:7], 0),) if number % 4 else ()
        name = str(number)
        found.append(Example(f"f:{name}", name, "where is it", pair=context, label=right))
    return found


def test_task_evaluator_is_exact_in_any_batch(run):
    examples = make_examples(21)
    expected: dict[str, float] = {}
    texts: dict[str, str] = {}
    random = np.random.default_rng(0)
    for size, devices in ((3, 1), (16, 8)):
        order = [examples[i] for i in random.permutation(len(examples))]
        mesh = make_mesh(devices)
        params = jax.device_put(run.params, sharding.replicated(mesh))
        scorer = TaskEvaluator(run.config, run.tokenizer, order, size, mesh)
        metrics, predictions = scorer.evaluate(params)
        named = {one.id: span.text for one, span in zip(order, predictions, strict=True)}
        expected, texts = expected or metrics, texts or named
        assert metrics == pytest.approx(expected, rel=1e-5)
        assert named == texts
    assert expected["examples"] == 21
    assert len(set(texts.values())) > 5  # they do depend on the context


def test_task_evaluator_needs_examples_not_labels(run):
    mesh = make_mesh(1)
    with pytest.raises(DataError, match="no examples to score"):
        TaskEvaluator(run.config, run.tokenizer, [], 4, mesh)
    blank = [dataclasses.replace(one, label=None) for one in make_examples(3)]
    metrics, predictions = TaskEvaluator(run.config, run.tokenizer, blank, 4, mesh).evaluate(
        run.params
    )
    assert metrics == {"examples": 3}
    assert len(predictions) == 3


def test_task_evaluator_states_interval_and_majority():
    choice = open_golden("multiple_choice")
    labels = (0, 0, 1, 0)
    options = ("the cat", "a dog")
    rows = [
        Example("f", str(i), "the", options=options, label=label) for i, label in enumerate(labels)
    ]
    found, predictions = TaskEvaluator(
        choice.config, choice.tokenizer, rows, 4, make_mesh(1)
    ).evaluate(choice.params)
    right = sum(one.argmax() == label for one, label in zip(predictions, labels, strict=True))
    assert found["accuracy"] == right / 4
    assert found["majority_accuracy"] == 0.75
    assert (found["accuracy_low"], found["accuracy_high"]) == find_wilson_interval(right, 4)

"""A task's score takes every example once, whatever the batch, the devices and the order.

The net has the scores of each kind of task.
"""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax import errors, sharding
from bert_jax.data.examples import Answer, Example
from bert_jax.evaluation.task_evaluator import TaskEvaluator
from bert_jax.interop import runs
from tests.predictors.drawing import open_golden
from tests.updates import make_mesh

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "mat", "big", "red", "walked", "jumping"]


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


def evaluate(run: runs.TrainedModel, examples: list[Example], size: int, devices: int) -> tuple:
    mesh = make_mesh(devices)
    params = jax.device_put(run.params, sharding.replicated(mesh))
    return TaskEvaluator(run.config, run.tokenizer, examples, size, mesh).evaluate(params)


def test_task_evaluator_is_exact_in_any_batch(run):
    examples = make_examples(21)
    metrics, spans = evaluate(run, examples, 3, 1)
    again, turned = evaluate(run, examples[::-1], 16, 8)
    assert again == pytest.approx(metrics, rel=1e-5)
    texts = [span.text for span in spans]
    assert [span.text for span in turned[::-1]] == texts
    assert metrics["examples"] == 21
    assert len(set(texts)) > 5  # they do depend on the context


def test_task_evaluator_needs_examples_not_labels(run):
    with pytest.raises(errors.DataError, match="no examples to score"):
        evaluate(run, [], 4, 1)
    blank = [dataclasses.replace(one, label=None) for one in make_examples(3)]
    metrics, predictions = evaluate(run, blank, 4, 1)
    assert metrics == {"examples": 3}
    assert len(predictions) == 3

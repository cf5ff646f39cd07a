"""A task's score takes every example once: the same at any batch size and device count, for every
kind of task.
"""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.data import tokenizer as tokenizers
from bert_jax.evaluation import task_evaluator
from bert_jax.training import data
from tests import tasks, toy

CONTEXT = "the fan is loud and the screen is broken and the invoice is wrong since monday"


def write(kind: str, folder) -> tuple[str, dict]:
    """A file of 21 examples of very different lengths, and the knobs that read it."""
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(CONTEXT.split(), 1 + i * 2)) for i in range(21)]
    if kind == "regress":
        rows = [{"text": text, "label": len(text) / 10} for text in texts]
    elif kind == "choice":
        rows = [
            {"text": t, "a": "the fan", "b": t[:9] or "x", "c": "loud", "label": i % 3}
            for i, t in enumerate(texts)
        ]
    elif kind == "tag":
        lines = [
            "".join(f"{w}\t{'B-it' if w == 'fan' else 'O'}\n" for w in ("fan " + text).split())
            for text in texts
        ]
        (folder / "rows.conll").write_text("\n".join(lines))
        return f"files:{folder}/rows.conll", {"task__stride": 8}
    else:
        places = [(CONTEXT.index(word), word) for word in ("fan", "screen is", "invoice", "monday")]
        answers = [
            [{"answer_start": at, "text": word}] if i % 4 else []
            for i, (at, word) in enumerate(places * 6)
        ]
        asked = [
            {"id": str(i), "question": f"what is {i}", "answers": one, "is_impossible": not one}
            for i, one in enumerate(answers)
        ]
        paragraphs = [{"context": f"{CONTEXT} {i}", "qas": asked[i::2]} for i in range(2)]
        (folder / "rows.json").write_text(
            json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]})
        )
        knobs = {"task__text": "question", "task__text_pair": "context", "task__label": "answers"}
        return f"files:{folder}/rows.json", {
            **knobs,
            "task__no_answer": True,
            "task__stride": 6,
            "sequence_length": 20,
        }
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"files:{folder}/rows.jsonl", {
        "task__options": "('a','b','c')"
    } if kind == "choice" else {}


def judged(kind: str, folder, rows: int, devices: int) -> dict[str, float]:
    source, knobs = write(kind, folder)
    config = data.with_labels(tasks.config(kind, source, folder, **knobs))
    tokenizer = tokenizers.load(tasks.vocabulary(folder))
    params = toy.init(config, vocab=tokenizer.size)
    axes = (jax.sharding.AxisType.Auto,) * 3
    mesh = jax.make_mesh(
        (1, devices, 1), sharding.AXES, axis_types=axes, devices=jax.devices()[:devices]
    )
    held_out = data.held_out(config, "train")
    found = task_evaluator.TaskEvaluator(config, tokenizer, held_out, rows, mesh)(
        jax.device_put(params, sharding.replicated(mesh))
    )
    assert found["examples"] == len(held_out)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["span", "tag", "regress", "choice"])
def test_task_evaluator_is_exact_in_any_batch(kind, tmp_path):
    expected = judged(kind, tmp_path, 5, 1)
    for rows in (1, 7, 32):  # on 8 devices, where at most a part of a batch is real
        assert judged(kind, tmp_path, rows, 8) == pytest.approx(expected, rel=1e-4, abs=1e-6), rows


def test_task_evaluator_answers_in_order(tmp_path, one_device):
    source, knobs = write("regress", tmp_path)
    config = tasks.config("regress", source, tmp_path, **knobs | {"sequence_length": 48})
    tokenizer, examples = (
        tokenizers.load(tasks.vocabulary(tmp_path)),
        data.held_out(config, "train"),
    )
    params, mesh = toy.init(config, vocab=tokenizer.size), sharding.make_mesh(config.parallel)
    alone = task_evaluator.TaskEvaluator(config, tokenizer, examples, 1, mesh).evaluate(params)[1]
    expected = {one.id: value for one, value in zip(examples, alone, strict=True)}
    assert np.std(list(expected.values())) > 1e-3
    random = np.random.default_rng(0)
    for size in random.integers(2, 12, 2).tolist():
        order = [examples[i] for i in random.permutation(len(examples))]
        found = task_evaluator.TaskEvaluator(config, tokenizer, order, size, mesh).evaluate(params)[
            1
        ]
        np.testing.assert_allclose(found, [expected[one.id] for one in order], rtol=1e-5, atol=1e-6)

"""The losses over labels, against the same sums written out in plain float64 numpy."""

import numpy as np
import pytest

from bert_jax import objectives
from tests.reference import log_softmax

RNG = np.random.default_rng(0)


def nll(logits: np.ndarray, target: int) -> float:
    """Return -log softmax of one row."""
    return -float(log_softmax(np.asarray(logits, np.float64))[target])


def compute(name: str, outputs: np.ndarray, batch: dict) -> dict[str, float]:
    """Return the metrics of an objective, whose count is that of its loss."""
    objective = objectives.TABLE[name]
    metrics = {key: (float(a), float(b)) for key, (a, b) in objective.loss(outputs, batch).items()}
    assert metrics[f"{name}_loss"][1] == float(objective.count(batch)[name])
    return {key: total / max(count, 1) for key, (total, count) in metrics.items()}


def test_classify_is_the_mean_over_labelled_rows():
    outputs = RNG.normal(size=(4, 1, 3)).astype(np.float32)
    labels = np.array([[2], [-1], [0], [1]], np.int32)
    known = [0, 2, 3]
    found = compute("classify", outputs, {"labels": labels})
    losses = [nll(outputs[i, 0], labels[i, 0]) for i in known]
    hits = [outputs[i, 0].argmax() == labels[i, 0] for i in known]
    assert found["classify_loss"] == pytest.approx(np.mean(losses), rel=1e-6)
    assert found["classify_accuracy"] == np.mean(hits)


def test_regress_is_the_mean_square_of_known_rows():
    outputs = RNG.normal(size=(3, 1, 1)).astype(np.float32)
    values = np.array([[4.5], [np.nan], [0.0]], np.float32)
    expected = np.mean([(outputs[0, 0, 0] - 4.5) ** 2, outputs[2, 0, 0] ** 2])
    found = compute("regress", outputs, {"values": values})
    assert found["regress_loss"] == pytest.approx(expected, rel=1e-6)


def test_tag_is_the_mean_over_tagged_tokens():
    outputs = RNG.normal(size=(2, 5, 4)).astype(np.float32)
    tags = np.array([[-1, 1, -1, 3, -1], [-1, 0, -1, -1, -1]], np.int32)
    expected = np.mean([nll(outputs[p], tags[p]) for p in [(0, 1), (0, 3), (1, 1)]])
    assert compute("tag", outputs, {"tags": tags})["tag_loss"] == pytest.approx(expected, rel=1e-6)


def test_span_is_the_mean_of_start_and_end():
    """Whatever the logits of padding are, nothing changes."""
    outputs = RNG.normal(size=(3, 6, 2)).astype(np.float32)
    segments = np.array([[1] * 6, [1] * 4 + [0] * 2, [0] * 6], np.int32)
    batch = {"spans": np.array([[2, 5], [0, 0], [-1, -1]], np.int32), "segment_ids": segments}
    losses = [nll(outputs[0, :, i], batch["spans"][0, i]) for i in (0, 1)]
    losses += [nll(outputs[1, :4, i], 0) for i in (0, 1)]
    expected = pytest.approx(np.mean(losses), rel=1e-6)
    assert compute("span", outputs, batch)["span_loss"] == expected
    outputs[1, 4:] = outputs[2] = 100.0
    assert compute("span", outputs, batch)["span_loss"] == expected


def test_choice_compares_the_options_a_question_has():
    outputs = RNG.normal(size=(3, 4, 1)).astype(np.float32)
    segments = np.array([[1, 2, 3, 4, 0], [1, 1, 2, 2, 0], [0] * 5], np.int32)
    labels = np.array([[3], [0], [-1]], np.int32)
    expected = np.mean([nll(outputs[0, :, 0], 3), nll(outputs[1, :2, 0], 0)])
    found = compute("choice", outputs, {"labels": labels, "segment_ids": segments})
    assert found["choice_loss"] == pytest.approx(expected, rel=1e-6)

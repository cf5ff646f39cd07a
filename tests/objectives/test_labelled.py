"""The losses over labels, against the same sums written out in plain float64 numpy."""

from __future__ import annotations

import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.config import knobs

RNG = np.random.default_rng(0)


def nll(logits: np.ndarray, target: int) -> float:
    """-log softmax of one row, the plain way."""
    logits = np.asarray(logits, np.float64)
    return float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[target])


def found(name: str, outputs: np.ndarray, batch: dict) -> dict[str, float]:
    objective = objectives.TABLE[name]
    metrics = {key: (float(a), float(b)) for key, (a, b) in objective.loss(outputs, batch).items()}
    assert metrics[f"{name}_loss"][1] == float(objective.count(batch)[name])
    return {key: total / max(count, 1) for key, (total, count) in metrics.items()}


def test_classify_is_the_mean_over_labelled_rows():
    outputs = RNG.normal(size=(4, 1, 3)).astype(np.float32)
    labels = np.array([[2], [-1], [0], [1]], np.int32)
    known = [0, 2, 3]
    got = found("classify", outputs, {"labels": labels})
    assert got["classify_loss"] == pytest.approx(
        np.mean([nll(outputs[i, 0], labels[i, 0]) for i in known]), rel=1e-6
    )
    assert got["classify_accuracy"] == np.mean(
        [outputs[i, 0].argmax() == labels[i, 0] for i in known]
    )


def test_regress_is_the_mean_square_of_known_rows():
    outputs = RNG.normal(size=(3, 1, 1)).astype(np.float32)
    values = np.array([[4.5], [np.nan], [0.0]], np.float32)
    expected = np.mean([(outputs[0, 0, 0] - 4.5) ** 2, outputs[2, 0, 0] ** 2])
    assert found("regress", outputs, {"values": values})["regress_loss"] == pytest.approx(
        expected, rel=1e-6
    )


def test_tag_is_the_mean_over_tagged_tokens():
    outputs = RNG.normal(size=(2, 5, 4)).astype(np.float32)
    tags = np.array([[-1, 1, -1, 3, -1], [-1, 0, -1, -1, -1]], np.int32)
    places = [(0, 1), (0, 3), (1, 1)]
    expected = np.mean([nll(outputs[p], tags[p]) for p in places])
    assert found("tag", outputs, {"tags": tags})["tag_loss"] == pytest.approx(expected, rel=1e-6)


def test_span_is_the_mean_of_start_and_end():
    outputs = RNG.normal(size=(3, 6, 2)).astype(np.float32)
    segments = np.array([[1] * 6, [1] * 4 + [0] * 2, [0] * 6], np.int32)
    spans = np.array([[2, 5], [0, 0], [-1, -1]], np.int32)
    each = []
    for row, length in ((0, 6), (1, 4)):
        each.append(np.mean([nll(outputs[row, :length, i], spans[row, i]) for i in (0, 1)]))
    batch = {"spans": spans, "segment_ids": segments}
    assert found("span", outputs, batch)["span_loss"] == pytest.approx(np.mean(each), rel=1e-6)
    outputs[1, 4:], outputs[2] = 100.0, 100.0  # whatever padding says, nothing changes
    assert found("span", outputs, batch)["span_loss"] == pytest.approx(np.mean(each), rel=1e-6)


def test_choice_compares_the_options_a_question_has():
    outputs = RNG.normal(size=(3, 4, 1)).astype(np.float32)
    segments = np.array([[1, 2, 3, 4, 0], [1, 1, 2, 2, 0], [0] * 5], np.int32)
    labels = np.array([[3], [0], [-1]], np.int32)
    expected = np.mean([nll(outputs[0, :, 0], 3), nll(outputs[1, :2, 0], 0)])
    got = found("choice", outputs, {"labels": labels, "segment_ids": segments})
    assert got["choice_loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["classify", "regress", "tag", "span", "choice"])
def test_batch_without_labels_counts_nothing(name):
    shape = {
        "classify": (2, 1, 3),
        "regress": (2, 1, 1),
        "tag": (2, 4, 3),
        "span": (2, 4, 2),
        "choice": (2, 3, 1),
    }
    batch = {
        "labels": np.full((2, 1), -1, np.int32),
        "values": np.full((2, 1), np.nan, np.float32),
        "tags": np.full((2, 4), -1, np.int32),
        "spans": np.full((2, 2), -1, np.int32),
        "segment_ids": np.zeros((2, 4), np.int32),
    }
    total, count = objectives.TABLE[name].loss(np.ones(shape[name], np.float32), batch)[
        f"{name}_loss"
    ]
    assert (float(total), float(count)) == (0.0, 0.0)


def test_objectives_have_their_two_rows():
    assert objectives.TABLE.keys() == knobs.OBJECTIVES.keys()

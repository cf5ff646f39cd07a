"""Linear probes: how well a linear model predicts labels from the frozen vectors of each layer."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.data import answers, examples, features
from bert_jax.data.examples import Example
from bert_jax.data.features import Features
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import scores
from bert_jax.interop import runs
from bert_jax.models.pooler import POOLINGS
from bert_jax.suites import Detailed, Frozen, Result, labelled
from bert_jax.suites.base import Progress
from bert_jax.suites.forward import embed
from bert_jax.system import log

KINDS = ("classify", "regress", "tag")
ITERATIONS = 1000  # of logistic regression, at most


@dataclasses.dataclass(frozen=True)
class Split:
    """A split's labelled items, which are texts or words, with their vectors."""

    examples: list[Example]
    features: Features
    rows: np.ndarray  # [N], the row of each item
    columns: np.ndarray  # [N], tag: the token of each item in its row
    targets: np.ndarray  # [N]
    vectors: dict[str, np.ndarray]  # by pooling: float32 [layers + 1, N, D]


def score(run: runs.TrainedModel, options: Frozen) -> Detailed:
    """Return the metrics of each layer by pooling, and of the majority class (regress: the mean).

    A word's vector is that of its first piece. Vectors are standardised; all else is scikit-learn's
    default.
    """
    config = labelled.find_frozen_task(run, options)
    kind = labelled.kind_of(config)
    if kind not in KINDS:
        raise ConfigError(
            f"suite probe has no linear probe of {kind}", f"one of: {', '.join(KINDS)}"
        )
    labels = config.objectives[kind].labels
    if kind != "regress" and not labels:
        labels = examples.find_labels(config.task, kind, log.line)
        objective = dataclasses.replace(config.objectives[kind], labels=labels)
        config = dataclasses.replace(config, objectives={kind: objective})
    if options.limit:
        config = dataclasses.replace(
            config, task=dataclasses.replace(config.task, rows=options.limit)
        )
    names = dict.fromkeys(
        ("train", labelled.main_split(config, options))
    )  # --split=train is one split
    parts = {name: _examples(options, config, name) for name in names}  # all, before any is encoded
    splits = [_split(run, options, config, name, part) for name, part in parts.items()]
    train, held_out = splits[0], splits[-1]
    count = len(held_out.targets)
    if kind == "regress":
        baseline = np.full((count, 1), train.targets.mean())
    else:
        shares = np.bincount(train.targets, minlength=len(labels)) / len(train.targets)
        baseline = np.tile(shares, (count, 1))
    result: Result = {
        "train": len(train.targets),
        "scored": count,
        "majority": _scores(config, held_out, baseline),
    }
    progress, done = Progress("probe: linear models"), 0
    pools = list(train.vectors)
    layers = len(train.vectors[pools[0]])
    for layer in range(layers):
        metrics = result["embeddings" if layer == 0 else f"layer_{layer}"] = {}
        for pool in pools:
            vectors = [split.vectors[pool][layer] for split in (train, held_out)]
            metrics[pool] = _scores(
                config, held_out, _fit(kind, vectors[0], train.targets, vectors[1], len(labels))
            )
            done += 1
            progress(done, layers * len(pools))
    return result, {}


def _examples(options: Frozen, config: knobs.Config, split: str) -> list[Example]:
    """Load the labelled examples of a split, up to the limit."""
    known = [example for example in labelled.load(config, split) if example.label is not None]
    if not known:
        raise DataError(
            f"{config.task.source}: split {split} has no labels", "name another with --split"
        )
    return known[: options.limit or None]


def _split(
    run: runs.TrainedModel,
    options: Frozen,
    config: knobs.Config,
    split: str,
    known: list[Example],
) -> Split:
    """Encode the examples of a split, and compute the vectors of their labelled items."""
    kind, length = labelled.kind_of(config), config.sequence_length
    encoded = features.encode_examples(known, kind, run.tokenizer, config.task, length, train=False)
    if encoded.cut:
        log.line(f"{split}: {encoded.cut:,} of {len(known):,} texts are cut to {length} tokens")
    if kind == "tag":
        assert encoded.words is not None
        at = np.flatnonzero(encoded.words >= 0)
        rows = np.searchsorted(encoded.offsets, at, side="right") - 1
        columns = at - encoded.offsets[rows]
        places = zip(encoded.example[rows], encoded.words[at], strict=True)
        targets = np.array([known[example].label[word] for example, word in places])
    else:
        rows, columns = np.arange(len(known)), np.zeros(len(known), np.int64)
        targets = np.array([example.label for example in known])
    words = None
    if kind == "tag":
        ends = np.searchsorted(rows, np.arange(1, len(encoded.example)))
        words = np.split(columns, ends)  # of each row
    vectors = _embed_items(run, options, encoded, words, split)
    return Split(known, encoded, rows, columns, targets, vectors)


def _embed_items(
    run: runs.TrainedModel,
    options: Frozen,
    encoded: Features,
    words: Sequence[np.ndarray] | None,
    split: str,
) -> dict[str, np.ndarray]:
    """Compute the vectors of every layer for each text, or for each word of the texts."""

    def make(chosen: np.ndarray, length: int, size: int) -> Batch:
        return features.gather_rows(encoded, chosen, length, size, run.tokenizer.special)

    return embed(
        run,
        encoded.lengths,
        make,
        POOLINGS if words is None else ("word",),
        options.batch_size,
        Progress(f"probe: tokens of {split}"),
        every_layer=True,
        words=words,
    )


def _fit(
    kind: str, vectors: np.ndarray, targets: np.ndarray, held_out: np.ndarray, labels: int
) -> np.ndarray:
    """Fit a linear model; predict held-out probabilities [N, labels], or numbers [N, 1]."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "regress":
        ridge = make_pipeline(StandardScaler(), Ridge()).fit(vectors, targets)
        return ridge.predict(held_out)[:, None]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ITERATIONS))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(vectors, targets)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        log.line(f"probe: a linear model had not converged after {ITERATIONS} iterations")
    probabilities = np.zeros((len(held_out), labels))
    probabilities[:, model.classes_] = model.predict_proba(held_out)
    return probabilities


def _scores(config: knobs.Config, split: Split, predicted: np.ndarray) -> dict[str, float]:
    """Score what a probe predicts for each item as if it were the output of a head."""
    kind = labelled.kind_of(config)
    labels = config.objectives[kind].labels
    outputs: list[Any] = list(predicted)
    if kind == "classify":
        outputs = list(np.log(np.maximum(predicted, 1e-30)))
    if kind == "tag":
        outputs = [np.zeros((length, len(labels))) for length in split.features.lengths]
        places = zip(split.rows.tolist(), split.columns.tolist(), strict=True)
        for (row, column), value in zip(places, predicted, strict=True):
            outputs[row][column] = value
    predictions = answers.decode_outputs(kind, split.features, split.examples, outputs, config.task)
    return scores.score(kind, split.examples, predictions, labels, config.task)

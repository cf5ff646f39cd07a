"""Suite `probe`: how well linear models predict labels from the frozen vectors of each layer."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.data import answers, examples, features
from bert_jax.data.examples import Example
from bert_jax.data.features import Features
from bert_jax.errors import DataError, need
from bert_jax.evaluation import scores
from bert_jax.interop import runs
from bert_jax.suites import Detailed, Options, Result, labelled
from bert_jax.suites.base import Progress
from bert_jax.suites.forward import embed_texts
from bert_jax.system import log

KINDS = ("classify", "regress", "tag")
ITERATIONS = 1000  # of logistic regression, at most


class Split(NamedTuple):
    """The labelled items (texts or words) of a split, with their vectors."""

    examples: Sequence[Example]
    features: Features
    words: Sequence[np.ndarray] | None  # tag: of each row the columns of its words
    targets: np.ndarray  # [N]
    vectors: dict[str, np.ndarray]  # by pooling: float32 [layers + 1, N, D]


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Return the metrics of a linear probe for each layer and pooling, and of a baseline.

    The result is {"majority": metrics, "layer_1": {pooling: metrics}, …}. The baseline, "majority",
    predicts the frequency of each class in training, or the mean for a regression. A word's vector
    is the vector of its first piece. Vectors are standardised; all other settings are
    scikit-learn's defaults.
    """
    config = labelled.find_frozen_task(run, options)
    kind = labelled.find_kind(config)
    need(kind in KINDS, f"suite probe has no linear probe of {kind}", f"one of: {', '.join(KINDS)}")
    config = _fill_in_task(config, options)
    names = dict.fromkeys(("train", labelled.choose_split(config, options)))
    known = {}  # all are read before any is encoded; with --split=train there is one split
    for name in names:
        known[name] = labelled.load_examples(config, name, options.limit, known=True)
        if not known[name]:
            problem = f"{config.task.source}: split {name} has no labels"
            raise DataError(problem, "name another with --split")
    splits = [_embed_split(run, options, config, name, known[name]) for name in names]
    train, held_out = splits[0], splits[-1]
    if kind == "regress":
        baseline = np.array([train.targets.mean()])
    else:
        labels = config.objectives[kind].labels
        baseline = np.bincount(train.targets, minlength=len(labels)) / len(train.targets)
    count = len(held_out.targets)
    result: Result = {
        "train": len(train.targets),
        "scored": count,
        "majority": _score_items(config, held_out, np.tile(baseline, (count, 1))),
    }
    progress, done = Progress("probe: linear models"), 0
    layers = len(next(iter(train.vectors.values())))
    for layer in range(layers):
        metrics = result["embeddings" if layer == 0 else f"layer_{layer}"] = {}
        for pooling in train.vectors:
            predicted = _fit_probe(
                kind,
                train.vectors[pooling][layer],
                train.targets,
                held_out.vectors[pooling][layer],
                len(baseline),
            )
            metrics[pooling] = _score_items(config, held_out, predicted)
            done += 1
            progress(done, layers * len(train.vectors))
    return result, {}


def _fill_in_task(config: knobs.Config, options: Options) -> knobs.Config:
    """Fill the names of the classes and the limit of rows into the config of a task."""
    kind = labelled.find_kind(config)
    objective = config.objectives[kind]
    if kind != "regress" and not objective.labels:
        labels = examples.find_labels(config.task, kind, log.log_line)
        objective = dataclasses.replace(objective, labels=labels)
    task = dataclasses.replace(config.task, rows=options.limit or config.task.rows)
    return dataclasses.replace(config, objectives={kind: objective}, task=task)


def _embed_split(
    run: runs.TrainedModel,
    options: Options,
    config: knobs.Config,
    split: str,
    known: Sequence[Example],
) -> Split:
    """Encode the examples of a split, and compute the vectors of their labelled items."""
    kind = labelled.find_kind(config)
    most = config.sequence_length
    encoded = features.encode_examples(known, kind, run.tokenizer, config.task, most, train=False)
    if encoded.cut:
        count = f"{encoded.cut:,} of {len(known):,} texts of {split}"
        log.log_line(f"{count} are cut to {most} tokens")

    def make(rows: np.ndarray, length: int, size: int) -> Batch:
        return features.gather_rows(encoded, rows, length, size, run.tokenizer.special)

    words = None
    targets = np.array([example.label for example in known])
    if kind == "tag":
        words, targets = _find_words(encoded, known)
    vectors = embed_texts(
        run,
        encoded.lengths,
        make,
        options.batch_size,
        Progress(f"probe: tokens of {split}"),
        every_layer=True,
        words=words,
    )
    return Split(known, encoded, words, targets, vectors)


def _find_words(encoded: Features, known: Sequence[Example]) -> tuple[list[np.ndarray], np.ndarray]:
    """Find the words that a row has room for, and return their columns and labels.

    The columns are those of the first pieces of a row's words, an array for each row. The labels of
    the words of all rows are one array [N].
    """
    assert encoded.words is not None
    at = np.flatnonzero(encoded.words >= 0)  # [N], first pieces among all tokens
    rows = np.searchsorted(encoded.offsets, at, side="right") - 1
    words = np.split(
        at - encoded.offsets[rows], np.searchsorted(rows, np.arange(1, len(encoded.example)))
    )
    places = zip(encoded.example[rows], encoded.words[at], strict=True)
    return words, np.array([known[example].label[word] for example, word in places])


def _fit_probe(
    kind: str, vectors: np.ndarray, targets: np.ndarray, held_out: np.ndarray, labels: int
) -> np.ndarray:
    """Fit a linear model; predict probabilities [N, labels] or numbers [N, 1] of held-out items."""
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
        log.log_line(f"probe: a linear model had not converged after {ITERATIONS} iterations")
    probabilities = np.zeros((len(held_out), labels))
    probabilities[:, model.classes_] = model.predict_proba(held_out)
    return probabilities


def _score_items(config: knobs.Config, split: Split, predicted: np.ndarray) -> dict[str, float]:
    """Score a probe's predictions for the items of a split as if they were outputs of a head."""
    kind = labelled.find_kind(config)
    outputs: list[Any] = list(predicted)
    if kind == "classify":
        outputs = list(np.log(np.maximum(predicted, 1e-30)))
    if split.words is not None:
        outputs = [np.zeros((length, predicted.shape[1])) for length in split.features.lengths]
        parts = np.split(predicted, np.cumsum([len(columns) for columns in split.words])[:-1])
        for output, columns, part in zip(outputs, split.words, parts, strict=True):
            output[columns] = part
    predictions = answers.decode_outputs(kind, split.features, split.examples, outputs, config.task)
    labels = config.objectives[kind].labels
    return scores.score(kind, split.examples, predictions, labels, config.task)

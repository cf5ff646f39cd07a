"""Linear probes: what a linear model can read off the frozen vectors of each layer."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.data.labelled import answers, examples, features
from bert_jax.data.labelled.examples import Example
from bert_jax.data.labelled.features import Features
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import scores
from bert_jax.interop import runs
from bert_jax.models.bert import Bert
from bert_jax.models.pooling import POOLINGS, pooled
from bert_jax.suites import labelled
from bert_jax.suites.base import Progress, Result, SuiteOptions, on_devices
from bert_jax.suites.rows import run_rows

KINDS = ("classify", "regress", "tag")
ITERATIONS = 1000  # of logistic regression, at most


@dataclasses.dataclass(frozen=True)
class Split:
    """Labelled items, which are texts or words, with their vectors."""

    examples: list[Example]
    features: Features
    rows: np.ndarray  # [N], the row of each item
    columns: np.ndarray  # [N], tag: the token of each item in its row
    targets: np.ndarray  # [N]
    vectors: dict[str, np.ndarray]  # by pooling: float32 [layers + 1, N, D]


def probe(run: runs.Run, ask: SuiteOptions) -> Result:
    """Metrics of each layer by pooling, beside those of always saying what is commonest (regress: the mean).

    A word is the vector of its first piece. Vectors are standardised; the rest is scikit-learn's own.
    """
    config = labelled.task_of(run, ask, "probe")
    kind = labelled.kind_of(config)
    if kind not in KINDS:
        raise ConfigError(
            f"suite probe has no linear probe of {kind}", f"one of: {', '.join(KINDS)}"
        )
    labels = config.objectives[kind].labels
    if kind != "regress" and not labels:
        labels = examples.found_labels(config.task, kind, labelled.log)
        objective = dataclasses.replace(config.objectives[kind], labels=labels)
        config = dataclasses.replace(config, objectives={kind: objective})
    if ask.limit:
        config = dataclasses.replace(config, task=dataclasses.replace(config.task, rows=ask.limit))
    parts = {
        split: _examples(ask, config, split)
        for split in ("train", labelled.main_split(config, ask))
    }
    both = [_split(run, ask, config, split, found) for split, found in parts.items()]
    train, held_out = both[0], both[-1]
    count = len(held_out.targets)
    if kind == "regress":
        usual = np.full((count, 1), train.targets.mean())
    else:
        usual = np.tile(
            np.bincount(train.targets, minlength=len(labels)) / len(train.targets), (count, 1)
        )
    found: Result = {
        "train": len(train.targets),
        "scored": count,
        "majority": _scores(config, held_out, usual),
    }
    progress, done = Progress("probe: linear models"), 0
    pools = list(train.vectors)
    for layer in range(len(train.vectors[pools[0]])):
        mine = found["embeddings" if layer == 0 else f"layer_{layer}"] = {}
        for pool in pools:
            made = _fit(
                kind,
                train.vectors[pool][layer],
                train.targets,
                held_out.vectors[pool][layer],
                len(labels),
            )
            mine[pool] = _scores(config, held_out, made)
            done += 1
            progress(done, len(train.vectors[pools[0]]) * len(pools))
    return found


def _examples(ask: SuiteOptions, config: knobs.Config, split: str) -> list[Example]:
    """What has a label, and of that as much as was asked for."""
    found = [one for one in labelled.load(config, split) if one.label is not None]
    if not found:
        raise DataError(
            f"{config.task.source}: split {split} has no labels", "name another with --split"
        )
    return found[: ask.limit or None]


def _split(
    run: runs.Run, ask: SuiteOptions, config: knobs.Config, split: str, found: list[Example]
) -> Split:
    """Labelled items and their vectors."""
    kind = labelled.kind_of(config)
    made = features.encode(
        found, kind, run.tokenizer, config.task, config.sequence_length, train=False
    )
    if made.cut:
        labelled.log(
            f"{split}: {made.cut:,} of {len(found):,} texts are cut to {config.sequence_length} tokens"
        )
    rows, columns = np.arange(len(found)), np.zeros(len(found), np.int64)
    targets = np.array([one.label for one in found]) if kind != "tag" else np.zeros(0)
    if kind == "tag":
        assert made.words is not None
        at = np.flatnonzero(made.words >= 0)
        rows = np.searchsorted(made.offsets, at, side="right") - 1
        columns = at - made.offsets[rows]
        targets = np.array(
            [found[e].label[w] for e, w in zip(made.example[rows], made.words[at], strict=True)]
        )
    vectors = _vectors(run, ask, made, rows, columns, kind, split)
    return Split(found, made, rows, columns, targets, vectors)


def _vectors(
    run: runs.Run,
    ask: SuiteOptions,
    made: Features,
    rows: np.ndarray,
    columns: np.ndarray,
    kind: str,
    split: str,
) -> dict[str, np.ndarray]:
    """Vectors of every layer for each item."""
    encoder = Bert(run.config.model, run.tokenizer.size, pool=False, capture=True)
    params, mesh = on_devices(run.params["encoder"])

    def step(params: Any, batch: Batch) -> dict[str, jax.Array]:
        layers = encoder.apply({"params": params}, batch).layers  # type: ignore[union-attr]  # [layers + 1, B, L, D]
        if kind == "tag":
            return {"word": jnp.moveaxis(layers, 0, 2).astype(jnp.float32)}  # [B, L, layers + 1, D]
        return {
            p: jnp.stack([pooled(x, batch["segment_ids"], p) for x in layers], 1) for p in POOLINGS
        }

    def make(some: np.ndarray, length: int, size: int) -> Batch:
        return features.batch(made, some, length, size, run.tokenizer.special)

    model = run.config.model
    assert model.layers is not None
    assert model.hidden is not None
    shape = (model.layers + 1, len(rows), model.hidden)
    found = {
        pool: np.zeros(shape, np.float32) for pool in (("word",) if kind == "tag" else POOLINGS)
    }
    first = np.searchsorted(
        rows, np.arange(len(made.example) + 1)
    )  # items of a row lie side by side
    for some, outputs in run_rows(
        *(step, params, made.lengths, make, mesh),
        batch_size=ask.batch_size,
        progress=Progress(f"probe: tokens of {split}"),
    ):
        for pool, values in outputs.items():
            for row, value in zip(some.tolist(), values, strict=True):
                mine = slice(first[row], first[row + 1])
                picked = (
                    value[columns[mine]] if kind == "tag" else value[None]
                )  # [items, layers + 1, D]
                found[pool][:, mine] = np.moveaxis(picked, 1, 0)
    return found


def _fit(
    kind: str, vectors: np.ndarray, targets: np.ndarray, asked: np.ndarray, labels: int
) -> np.ndarray:
    """Probabilities [N, labels], or numbers [N, 1]."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "regress":
        return (
            make_pipeline(StandardScaler(), Ridge()).fit(vectors, targets).predict(asked)[:, None]
        )
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ITERATIONS))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(vectors, targets)
    if any(issubclass(one.category, ConvergenceWarning) for one in said):
        labelled.log(f"probe: a linear model had not converged after {ITERATIONS} iterations")
    found = np.zeros((len(asked), labels))
    found[:, model.classes_] = model.predict_proba(asked)
    return found


def _scores(config: knobs.Config, split: Split, made: np.ndarray) -> dict[str, float]:
    """Metrics of the task, from what was made for each item: the probes answer as a head would."""
    kind = labelled.kind_of(config)
    labels = config.objectives[kind].labels
    outputs: list[Any] = list(made)
    if kind == "classify":
        outputs = list(np.log(np.maximum(made, 1e-30)))
    if kind == "tag":
        outputs = [np.zeros((length, len(labels))) for length in split.features.lengths]
        for row, column, value in zip(
            split.rows.tolist(), split.columns.tolist(), made, strict=True
        ):
            outputs[row][column] = value
    predictions = answers.decode(kind, split.features, split.examples, outputs, config.task)
    return scores.score(kind, split.examples, predictions, labels, config.task)

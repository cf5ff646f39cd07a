"""What a run learns from: a corpus of text, or the labelled data of a task. The loop sees no difference."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Callable
from typing import Any

from jax.sharding import Mesh

from bert_jax import evaluate, judge, knobs, prepare, runs
from bert_jax.config import resolve, to_dict
from bert_jax.data import examples, features, labelled, pipeline
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.tokenizer import Tokenizer


def _log(text: str) -> None:
    print(text, file=sys.stderr)


@dataclasses.dataclass(frozen=True)
class Material:
    """Batches to train on and evaluations to come with them."""

    config: knobs.Config  # with what follows from the data: labels, steps
    tokenizer: Tokenizer
    fingerprint: str  # of the data
    source: pipeline.Source | labelled.Source
    evaluator: Callable[[knobs.Eval, Mesh], Callable[[Any], dict[str, float]]]


def gather(config: knobs.Config) -> Material:
    """Reads all that a run needs besides parameters."""
    return _of_task(config) if config.task.source else _of_text(config)


def _of_text(config: knobs.Config) -> Material:
    prepared = prepare.prepare(config, log=_log)
    return Material(
        config,
        prepared.tokenizer,
        prepared.fingerprint,
        pipeline.Source(prepared, "train", config),
        lambda settings, mesh: evaluate.Evaluator(config, prepared, settings, mesh),
    )


def _of_task(config: knobs.Config) -> Material:
    kind = next(iter(config.objectives))
    tokenizer = vocabulary(config)
    config = labels_of(config)
    labels = config.objectives[kind].labels
    found = examples.load(config.task, kind, labels, "train", _log)
    encoded = features.encode(found, kind, tokenizer, config.task, config.sequence_length, train=True)
    if encoded.cut:
        _log(f"{encoded.cut:,} of {len(found):,} training texts are cut to {config.sequence_length} tokens")
    config = _in_epochs(config, len(encoded.example))
    source = labelled.Source(encoded, tokenizer.special, config)

    def evaluator(settings: knobs.Eval, mesh: Mesh) -> judge.Judge:
        return judge.Judge(config, tokenizer, held_out(config, settings.split), settings.batch_size, mesh)

    name = hashlib.sha256(json.dumps([config.task.source, source.fingerprint]).encode()).hexdigest()
    return Material(config, tokenizer, name, source, evaluator)


def held_out(config: knobs.Config, split: str) -> list[examples.Example]:
    """The examples of a split of a config's task."""
    kind = next(iter(config.objectives))
    return examples.load(config.task, kind, config.objectives[kind].labels, split, _log)


def vocabulary(config: knobs.Config) -> Tokenizer:
    """The one named, else that of the model a task starts from."""
    if config.tokenizer.path:
        return prepare.given_tokenizer(config.tokenizer)
    return tokenizers.load(runs.open_run(config.init_from).tokenizer_path)


def labels_of(config: knobs.Config) -> knobs.Config:
    """The config with the names of the classes, which are those of the training data unless it says them."""
    kind = next(iter(config.objectives))
    if kind not in ("classify", "tag") or config.objectives[kind].labels:
        return config
    labels = examples.found_labels(config.task, kind, _log)
    return dataclasses.replace(config, objectives={kind: dataclasses.replace(config.objectives[kind], labels=labels)})


def _in_epochs(config: knobs.Config, rows: int) -> knobs.Config:
    """The config with steps in place of epochs of `rows` rows."""

    def steps(epochs: float | None, given: int) -> int:
        return given if epochs is None else max(1, math.ceil(rows * epochs / config.batch_size - 1e-9))

    evals = {n: dataclasses.replace(e, every=steps(e.epochs, e.every)) for n, e in config.evals.items()}
    saves = config.checkpoints
    changed = dataclasses.replace(
        config,
        steps=steps(config.epochs, config.steps),
        evals=evals,
        checkpoints=dataclasses.replace(saves, every=steps(saves.epochs, saves.every)),
    )
    return resolve(to_dict(changed))  # warm-up follows the steps, and all rules hold still

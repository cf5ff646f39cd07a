"""What a run learns from: a corpus of text, or the labelled data of a task. The loop sees no difference."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.config import derive, knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.batches import pipeline
from bert_jax.data.labelled import batches, examples, features
from bert_jax.data.text import prepare
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import corpus, samples, scores, task_evaluator
from bert_jax.interop import runs


def _log(text: str) -> None:
    print(text, file=sys.stderr)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What only the data can say of a config."""

    labels: tuple[str, ...] | None = None  # names of the classes
    rows: int | None = None  # of an epoch


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Batches to train on and evaluations to come with them."""

    config: knobs.Config  # with what follows from the data: labels, steps
    facts: Facts
    tokenizer: Tokenizer
    fingerprint: str  # of the data
    source: pipeline.Source | batches.Source
    evaluator: Callable[[str, Mesh], Callable[[Any], dict[str, float]]]  # by its name
    sampler: Callable[[Mesh], samples.Samples | None]

    def distinct(self) -> float:
        """Return the number of examples that have masks of their own."""
        copies = range(self.config.masking.dupe_factor)
        return sum(self.source.count(copy) for copy in copies) if copies else math.inf

    def batches(self, start: int, mesh: Mesh) -> contextlib.AbstractContextManager[Iterator[Batch]]:
        """Prefetch this process's rows of every batch from update `start` on."""
        rows = sharding.local_rows(self.config.batch_size, mesh)
        stream = pipeline.prefetch(self.source, start, self.config.steps, self.config.loader, rows)
        return contextlib.closing(stream)


def finalize(config: knobs.Config, facts: Facts) -> knobs.Config:
    """Settle what follows from the data: the names of classes, steps in place of epochs."""
    if facts.labels is not None:
        ((kind, objective),) = config.objectives.items()
        labelled = dataclasses.replace(objective, labels=facts.labels)
        config = dataclasses.replace(config, objectives={kind: labelled})
    return config if facts.rows is None else _in_epochs(config, facts.rows)


def gather(config: knobs.Config) -> TrainingData:
    """Reads all that a run needs besides parameters."""
    return _of_task(config) if config.task.source else _of_text(config)


def _of_text(config: knobs.Config) -> TrainingData:
    prepared = prepare.prepare(config, log=_log)
    source = pipeline.Source(prepared, "train", config)
    if source.packer:
        each, real, before = source.packer.efficiency()
        _log(
            f"packing: {each:.2f} examples a row; {real:.1%} of the tokens are real, {before:.1%} with one a row"
        )
    return TrainingData(
        config,
        Facts(),
        prepared.tokenizer,
        prepared.fingerprint,
        source,
        lambda name, mesh: corpus.Evaluator(config, prepared, config.evals[name], mesh),
        lambda mesh: samples.of(config, prepared, mesh),
    )


def _of_task(config: knobs.Config) -> TrainingData:
    kind = next(iter(config.objectives))
    tokenizer = vocabulary(config)
    config = labels_of(config)
    labels = config.objectives[kind].labels
    _check_best(config, kind)
    odd = [label for label in labels if not scores.ENTITY.fullmatch(label) and label != "O"]
    if kind == "tag" and 0 < len(odd) < len(labels) // 2:
        _log(
            f"warning: {', '.join(odd)} is not written as B-NAME or I-NAME: entities are not scored"
        )
    found = examples.load(config.task, kind, labels, "train", _log)
    encoded = features.encode(
        found, kind, tokenizer, config.task, config.sequence_length, train=True
    )
    if encoded.cut:
        _log(
            f"{encoded.cut:,} of {len(found):,} training texts are cut to {config.sequence_length} tokens"
        )
    facts = Facts(labels if kind in ("classify", "tag") else None, len(encoded.example))
    config = finalize(config, facts)
    source = batches.Source(encoded, tokenizer.special, config)

    data = {name: held_out(config, one.split) for name, one in config.evals.items()}
    if config.checkpoints.best and all(one.label is None for one in data["validation"]):
        split = config.evals["validation"].split
        raise DataError(
            f"{config.task.source}: split {split} has no labels to choose the best step by",
            "--config.evals.validation.split=SPLIT, or --config.checkpoints.best= for none",
        )

    def evaluator(name: str, mesh: Mesh) -> task_evaluator.TaskEvaluator:
        rows = config.evals[name].batch_size
        return task_evaluator.TaskEvaluator(config, tokenizer, data[name], rows, mesh)

    mark = examples.fingerprint({"train": found, "validation": data.get("validation", [])})
    return TrainingData(config, facts, tokenizer, mark, source, evaluator, lambda mesh: None)


def _check_best(config: knobs.Config, kind: str) -> None:
    """The metric that chooses a step, and those asked for, are among what an evaluation of these classes reports."""
    there = ("loss", *scores.reported(kind, config.objectives[kind].labels, config.task))
    asked = {"checkpoints.best": config.checkpoints.best or "loss"}
    asked |= {f"task.metrics[{i}]": name for i, name in enumerate(config.task.metrics)}
    for knob, name in asked.items():
        if name not in there:
            said = f"{knob} = {name!r} is not reported for the classes of this task"
            raise ConfigError(said, f"one of: {', '.join(there)}")


def held_out(config: knobs.Config, split: str) -> list[examples.Example]:
    """The examples of a split of a config's task."""
    kind = next(iter(config.objectives))
    return examples.load(config.task, kind, config.objectives[kind].labels, split, _log)


def vocabulary(config: knobs.Config) -> Tokenizer:
    """The one named, else that of the model a task starts from."""
    if config.tokenizer.path:
        return prepare.given_tokenizer(config.tokenizer)
    return tokenizers.load(runs.described(config.init_from)[1])


def labels_of(config: knobs.Config) -> knobs.Config:
    """The config with the names of the classes, which are those of the training data unless it says them."""
    kind = next(iter(config.objectives))
    if kind not in ("classify", "tag") or config.objectives[kind].labels:
        return config
    labels = examples.found_labels(config.task, kind, _log)
    return dataclasses.replace(
        config, objectives={kind: dataclasses.replace(config.objectives[kind], labels=labels)}
    )


def _in_epochs(config: knobs.Config, rows: int) -> knobs.Config:
    """The config with steps in place of epochs of `rows` rows."""

    def steps(epochs: float | None, given: int) -> int:
        return (
            given if epochs is None else max(1, math.ceil(rows * epochs / config.batch_size - 1e-9))
        )

    evals = {
        n: dataclasses.replace(e, every=steps(e.epochs, e.every)) for n, e in config.evals.items()
    }
    saves = config.checkpoints
    changed = dataclasses.replace(
        config,
        steps=steps(config.epochs, config.steps),
        evals=evals,
        checkpoints=dataclasses.replace(saves, every=steps(saves.epochs, saves.every)),
    )
    return derive(changed)  # warm-up follows the steps, and all rules hold still

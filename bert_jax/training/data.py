"""The data of a run: batches to train on, and evaluations.

The data is a corpus of text or a labelled task. The training loop sees no difference.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.config import derive, knobs
from bert_jax.data import audit, examples, features, pipeline, prepare, task_stream
from bert_jax.data import corpus as corpora
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import DataError, need
from bert_jax.evaluation import corpus, inference, mistakes, samples, scores, task_evaluator
from bert_jax.interop import runs
from bert_jax.objectives import diffusion, hybrid
from bert_jax.reporting.metric_names import need_direction
from bert_jax.system import log

# Metrics of parameters, and rows of samples.jsonl; progress is called after each batch.
Evaluate = Callable[[Any, inference.Progress], tuple[dict[str, float], list[dict[str, Any]]]]


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts about the data that fill in a config."""

    labels: tuple[str, ...] | None = None  # names of the classes
    rows: int | None = None  # rows of an epoch, those of all views; of text, where it has epochs
    save_steps: tuple[int, ...] = ()  # to be saved, because checkpoints.at_words is reached


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The batches that runs train on, and the evaluators of these runs."""

    config: knobs.Config  # with the facts filled in
    facts: Facts
    tokenizer: Tokenizer
    fingerprint: str  # of the corpus or the examples
    source: pipeline.TextStream | task_stream.TaskStream
    evaluator: Callable[[str, Mesh], Evaluate]  # of an evaluation's name

    def count_distinct(self) -> float:
        """Count the examples with different masks: copies times views times examples of an epoch.

        The number is infinite if every epoch draws new masks, and for a labelled task, which has
        none.
        """
        copies = self.config.masking.dupe_factor
        if not copies or not isinstance(self.source, pipeline.TextStream):
            return math.inf
        return copies * self.source.views * self.source.examples_per_epoch

    def batches(self, start: int, mesh: Mesh) -> contextlib.AbstractContextManager[Iterator[Batch]]:
        """Prefetch the batches from index `start` to the last: the rows of this process's devices.

        Batch i, counted from 0, leads from step i to step i + 1.
        """
        rows = sharding.local_rows(self.config.batch_size, mesh)
        make = functools.partial(self.source.batch, rows=rows)
        return contextlib.closing(pipeline.prefetch(make, start, self.config.steps))


def load_training_data(config: knobs.Config) -> TrainingData:
    """Load the batches and evaluators of a config; prepare its corpus first if needed."""
    return _gather_task(config) if config.task.source else _gather_text(config)


def fill_in_facts(config: knobs.Config, facts: Facts) -> knobs.Config:
    """Return the config with facts about the data filled in: names of classes, and steps.

    Steps replace knobs that count epochs or words.
    """
    if facts.labels is not None:
        ((kind, objective),) = config.objectives.items()
        labelled = dataclasses.replace(objective, labels=facts.labels)
        config = dataclasses.replace(config, objectives={kind: labelled})
    if facts.save_steps:
        saves = config.checkpoints
        saves = dataclasses.replace(saves, at=tuple(sorted({*saves.at, *facts.save_steps})))
        config = dataclasses.replace(config, checkpoints=saves)
    return config if facts.rows is None else _convert_epochs(config, facts.rows)


def _convert_epochs(config: knobs.Config, rows: int) -> knobs.Config:
    """Convert the knobs of a config that count epochs of `rows` rows to knobs that count steps."""

    def steps(epochs: float | None, default: int) -> int:
        if epochs is None:
            return default
        updates = rows * epochs / config.batch_size
        whole = math.ceil(updates - 1e-9) if config.task.source else math.floor(updates + 1e-9)
        return max(1, whole)  # all rows of a task, and no text more often than asked

    evals = {
        name: dataclasses.replace(settings, every=steps(settings.epochs, settings.every))
        for name, settings in config.evals.items()
    }
    saves = config.checkpoints
    changed = dataclasses.replace(
        config,
        steps=steps(config.epochs, config.steps),
        evals=evals,
        checkpoints=dataclasses.replace(saves, every=steps(saves.epochs, saves.every)),
    )
    return derive(changed)  # the warm-up follows from the steps; everything is validated again


# --- text -----------------------------------------------------------------------------------------


def _gather_text(config: knobs.Config) -> TrainingData:
    prepared = prepare.prepare_corpus(config, log=log.log_line)
    if jax.process_index() == 0:
        audit.warn_of_problems(prepared.folder, config.pairs)
    source = pipeline.TextStream(prepared, "train", config)
    if config.packing > 1:
        examples_per_row, real, real_unpacked = source.measure_packing()
        log.log_line(
            f"packing: {examples_per_row:.2f} examples a row; "
            f"{real:.1%} of the tokens are real, {real_unpacked:.1%} with each in a row of its own"
        )

    def evaluator(name: str, mesh: Mesh) -> Evaluate:
        settings = config.evals[name]
        masked = corpus.Evaluator(config.as_read, prepared, settings, mesh)
        causal = sample = None
        if "hybrid" in config.objectives:
            causal = corpus.Evaluator(hybrid.make_causal_config(config), prepared, settings, mesh)
        if name == "validation":
            sample = samples.build_samples(config.as_read, prepared, mesh)

        def evaluate(params: Any, progress: inference.Progress) -> Any:
            params = diffusion.forbid_mask_token(config, params, prepared.tokenizer.special.mask)
            metrics = masked(params, progress)
            if causal:
                metrics = corpus.join_metrics(metrics, causal(hybrid.rename_head(params), progress))
            return metrics, sample(params) if sample else []

        return evaluate

    facts = Facts(rows=None if config.epochs is None else source.rows_per_epoch * source.views)
    save_steps = steps_of_words(fill_in_facts(config, facts), prepared, source)
    facts = dataclasses.replace(facts, save_steps=save_steps)
    config = fill_in_facts(config, facts)
    fingerprint = prepared.fingerprint
    return TrainingData(config, facts, prepared.tokenizer, fingerprint, source, evaluator)


def steps_of_words(
    config: knobs.Config, prepared: corpora.Prepared, source: pipeline.TextStream
) -> tuple[int, ...]:
    """Return the first steps at which the numbers of words in `checkpoints.at_words` are read.

    There is a step for each number. An epoch reads all words of the training text in random order,
    so a share of its rows is taken to hold the same share of its words. At the end of an epoch the
    number is exact. `Tokenizer.words` says what a word is.
    """
    tokenizer = prepared.tokenizer
    steps: list[int] = []
    if not config.checkpoints.at_words:
        return ()
    documents = len(prepared.splits["train"].document_ends)
    total = tokenizer.words(prepared.unigrams, documents)
    need(
        tokenizer.has_words and total > 0,
        "checkpoints.at_words: the text of this vocabulary has no words",
        "--config.checkpoints.at says steps",
    )
    end = config.steps * config.batch_size // source.views  # of the rows that the run reads
    for words in config.checkpoints.at_words:
        row = -(-words * source.rows_per_epoch // total)
        need(
            row <= end,
            f"checkpoints.at_words has {words:,}, and at its last step, {config.steps:,}, the run "
            f"has not read so many: the text has {total:,}",
            "leave it out, or raise steps",
        )
        steps.append(-(-row * source.views // config.batch_size))
    return tuple(steps)


# --- labelled tasks -------------------------------------------------------------------------------


def _gather_task(config: knobs.Config) -> TrainingData:
    kind = next(iter(config.objectives))
    tokenizer = load_vocabulary(config)
    config = fill_in_labels(config)
    labels = config.objectives[kind].labels
    _check_metrics(config, kind)
    odd = [label for label in labels if not scores.ENTITY.fullmatch(label) and label != "O"]
    if kind == "tag" and 0 < len(odd) < len(labels) // 2:
        names = ", ".join(odd)
        log.log_line(
            f"warning: {names} is not written as B-NAME or I-NAME: entities are not scored"
        )
    length = config.sequence_length
    train = examples.load_examples(config.task, kind, labels, "train", log.log_line)
    encoded = features.encode_examples(train, kind, tokenizer, config.task, length, train=True)
    if encoded.cut:
        log.log_line(f"{encoded.cut:,} of {len(train):,} training texts are cut to {length} tokens")
    facts = Facts(labels if kind in ("classify", "tag") else None, len(encoded.example))
    config = fill_in_facts(config, facts)
    source = task_stream.TaskStream(encoded, tokenizer.special, config)

    held = {name: load_held_out(config, settings.split) for name, settings in config.evals.items()}
    if config.checkpoints.best and all(example.label is None for example in held["validation"]):
        split = config.evals["validation"].split
        raise DataError(
            f"{config.task.source}: split {split} has no labels to choose the best step by",
            "--config.evals.validation.split=SPLIT, or --config.checkpoints.best= for none",
        )

    def evaluator(name: str, mesh: Mesh) -> Evaluate:
        rows = inference.find_batch_size(config, config.evals[name])
        scorer = task_evaluator.TaskEvaluator(config, tokenizer, held[name], rows, mesh)
        most = config.logging.samples if name == "validation" else 0

        def evaluate(params: Any, progress: inference.Progress) -> Any:
            metrics, predictions = scorer.evaluate(params, progress)
            return metrics, mistakes.list_mistakes(kind, held[name], predictions, labels, most)

        return evaluate

    fingerprint = examples.hash_examples(train, held.get("validation", []))
    return TrainingData(config, facts, tokenizer, fingerprint, source, evaluator)


def _check_metrics(config: knobs.Config, kind: str) -> None:
    """Refuse a metric in `checkpoints.best` or `task.metrics` that no evaluation reports."""
    reported = ("loss", *scores.list_reported(kind, config.objectives[kind].labels, config.task))
    requested = {"checkpoints.best": config.checkpoints.best or "loss"}
    requested |= {f"task.metrics[{i}]": name for i, name in enumerate(config.task.metrics)}
    for knob, name in requested.items():
        need(
            name in reported,
            f"{knob} = {name!r} is not reported for the classes of this task",
            f"one of: {', '.join(reported)}",
        )
    need_direction(requested["checkpoints.best"])


def load_held_out(config: knobs.Config, split: str) -> list[examples.Example]:
    """Load the examples of one split of the task, for an evaluation."""
    kind = next(iter(config.objectives))
    labels = config.objectives[kind].labels
    return examples.load_examples(config.task, kind, labels, split, log.log_line)


def load_vocabulary(config: knobs.Config) -> Tokenizer:
    """Load the tokenizer of a task: `tokenizer.path`, else the tokenizer of `init_from`."""
    if config.tokenizer.path:
        return corpora.load_vocabulary(config.tokenizer)
    return tokenizers.load_tokenizer(runs.read_description(config.init_from)[1])


def fill_in_labels(config: knobs.Config) -> knobs.Config:
    """Return the config with the names of the classes, read from the training data if missing."""
    kind = next(iter(config.objectives))
    if kind not in ("classify", "tag") or config.objectives[kind].labels:
        return config
    objective = dataclasses.replace(
        config.objectives[kind], labels=examples.find_labels(config.task, kind, log.log_line)
    )
    return dataclasses.replace(config, objectives={kind: objective})

"""Next sentence prediction: on the pairs of a corpus, or on those of a file."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data import features
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation.metrics import wilson
from bert_jax.interop import runs
from bert_jax.suites import Detailed, NextSentence, Result, corpus, labelled
from bert_jax.suites.base import Progress
from bert_jax.suites.forward import Forward
from bert_jax.system import log

LABELS = ("is_next", "not_next")  # in the order of the head
PAIRS = {  # how a file of pairs is read, unless --config.task.KNOB changes it
    "objectives": {"classify": {"weight": None, "labels": LABELS}},
    "task.text_pair": "text_pair",
    "checkpoints.best": "accuracy",
}


def score(run: runs.TrainedModel, options: NextSentence) -> Detailed:
    """Return loss, accuracy with its interval, and the accuracy of the commoner answer."""
    score_pairs = _score_file if options.source else _score_corpus
    return score_pairs(run, options), {}


def _score_corpus(run: runs.TrainedModel, options: NextSentence) -> Result:
    config = corpus.choose_config(run, options)
    if "nsp" not in config.objectives:
        raise ConfigError(
            f"a corpus with pairs = {config.pairs!r} has no next sentences", "--config.pairs=nsp"
        )
    config = dataclasses.replace(config, objectives={"nsp": config.objectives["nsp"]})
    scorer, params = corpus.make_evaluator(run, options, config)
    return scorer(params, Progress("nsp"))


def _score_file(run: runs.TrainedModel, options: NextSentence) -> Result:
    """Score a file with the columns text, text_pair and label, which is is_next or not_next."""
    config = labelled.find_task(run, options, PAIRS, config=options.config)
    split = labelled.main_split(config, options)
    task = labelled.whole(config.task, split)
    pairs = labelled.load(dataclasses.replace(config, task=task), split)
    pairs = [pair for pair in pairs if pair.label is not None][: options.limit or None]
    classes = config.objectives[labelled.kind_of(config)].labels
    if not pairs or labelled.kind_of(config) != "classify" or len(classes) != 2:
        raise DataError(
            f"{config.task.source} holds no pairs labelled {' or '.join(LABELS)}",
            "see --config.task.values",
        )
    encoded = features.encode_examples(
        pairs, "classify", run.tokenizer, config.task, config.sequence_length, train=False
    )
    if encoded.cut:
        log.line(
            f"{encoded.cut:,} of {len(pairs):,} pairs are cut to {config.sequence_length} tokens"
        )

    def score_answers(logits: jax.Array, batch: Batch) -> jax.Array:
        return jax.nn.log_softmax(logits[:, 0])  # [B, 2]

    def make(rows: np.ndarray, length: int, size: int) -> Batch:
        return features.gather_rows(encoded, rows, length, size, run.tokenizer.special)

    forward = Forward.of_head(run, "nsp", score_answers)
    progress = Progress("nsp: tokens")
    scores = np.zeros((len(pairs), 2))
    for rows, values in forward(encoded.lengths, make, options.batch_size, progress):
        scores[rows] = values
    truth = np.array([pair.label for pair in pairs])
    hits = int((scores.argmax(-1) == truth).sum())
    share = float(np.mean(truth == 0))
    low, high = wilson(hits, len(pairs))
    return {
        "examples": len(pairs),
        "nsp_loss": float(-scores[np.arange(len(pairs)), truth].mean()),
        "nsp_accuracy": hits / len(pairs),
        "nsp_accuracy_low": low,
        "nsp_accuracy_high": high,
        "majority_accuracy": max(share, 1 - share),
    }

"""Suite `sts`: correlation of the cosine of two texts' vectors with human ratings.

Nothing is trained.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_jax.batch import Batch
from bert_jax.data import encoding
from bert_jax.errors import need
from bert_jax.evaluation import scores
from bert_jax.interop import runs
from bert_jax.models.pooler import POOLINGS
from bert_jax.suites import Detailed, Options, Result, labelled
from bert_jax.suites.base import Progress
from bert_jax.suites.forward import embed_texts
from bert_jax.system import log


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Correlate the cosine of two texts' vectors with their rating, as {pooling: metrics}.

    The metrics are Spearman's and Pearson's correlation. The poolings are `mean`, `cls`, and also
    `own` if the model names a pooling.
    """
    config = labelled.find_frozen_task(run, options, "stsb")
    need(
        labelled.find_kind(config) == "regress",
        "suite sts needs a number for each pair",
        "--config=configs/finetune.py:stsb",
    )
    split = labelled.choose_split(config, options)
    pairs = labelled.load_examples(labelled.take_whole_file(config, split), split, options.limit)
    need(
        all(pair.pair is not None for pair in pairs),
        "suite sts compares two texts",
        "name the second: --config.task.text_pair=COLUMN",
    )
    texts = [text for pair in pairs for text in (pair.text, pair.pair or "")]
    vectors = _embed_texts(run, options, texts)
    task = dataclasses.replace(config.task, metrics=())
    result: Result = {"pairs": len(pairs)}
    poolings = {pooling: pooling for pooling in POOLINGS}
    if "pooling" in run.sentence:
        poolings["own"] = run.sentence["pooling"]
    for name, pooling in poolings.items():
        a, b = np.moveaxis(vectors[pooling].reshape(len(pairs), 2, -1), 1, 0)  # [N, D] each
        norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        cosines = (a * b).sum(-1) / np.maximum(norms, 1e-12)
        # Pairs of equal texts are a tie, which rounding in the model must not break.
        metrics = scores.score("regress", pairs, cosines.round(6).tolist(), (), task)
        result[name] = {metric: metrics[metric] for metric in ("spearman", "pearson")}
    return result, {}


def _embed_texts(
    run: runs.TrainedModel, options: Options, texts: Sequence[str]
) -> dict[str, np.ndarray]:
    """Compute {pooling: vectors of texts, float64 [N, D]}; cut the end of long texts."""
    room = run.longest - 2
    encoded = run.tokenizer.encode_batch(texts)
    if cut := sum(len(ids) > room for ids in encoded):
        log.log_line(f"{cut:,} of {len(texts):,} texts are cut to {run.longest} tokens")
    rows = [ids[:room] for ids in encoded]

    def make(chosen: np.ndarray, length: int, size: int) -> Batch:
        parts = [[rows[row]] for row in chosen]
        return encoding.pad_rows(run.tokenizer.special, parts, length, size=size)

    lengths = np.array([len(ids) + 2 for ids in rows], np.int64)
    found = embed_texts(run, lengths, make, options.batch_size, Progress("sts: tokens"))
    return {pooling: vectors[0].astype(np.float64) for pooling, vectors in found.items()}

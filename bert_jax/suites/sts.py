"""Semantic similarity without training: cosines of two texts' vectors against human ratings."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data import encoding
from bert_jax.errors import ConfigError
from bert_jax.evaluation import scores
from bert_jax.interop import runs
from bert_jax.models.encoder import Encoder
from bert_jax.models.pooler import POOLINGS, pool_examples
from bert_jax.suites import labelled
from bert_jax.suites.base import Progress, Result, SuiteOptions
from bert_jax.suites.rows import run_rows
from bert_jax.system import log


def sts(run: runs.TrainedModel, options: SuiteOptions) -> Result:
    """Return Spearman's and Pearson's correlation by pooling.

    The poolings are `mean`, `cls`, and `own` where the model states one.
    """
    config = labelled.task_of(run, options, "sts", "stsb")
    if labelled.kind_of(config) != "regress":
        raise ConfigError(
            "suite sts needs a number for each pair", "--config=configs/finetune.py:stsb"
        )
    split = labelled.main_split(config, options)
    config = dataclasses.replace(config, task=labelled.whole(config.task, split))
    pairs = labelled.load(config, split)[: options.limit or None]
    if any(pair.pair is None for pair in pairs):
        raise ConfigError(
            "suite sts compares two texts", "name the second: --config.task.text_pair=COLUMN"
        )
    vectors = embed(run, options, [text for pair in pairs for text in (pair.text, pair.pair or "")])
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
    return result


def embed(run: runs.TrainedModel, options: SuiteOptions, texts: list[str]) -> dict[str, np.ndarray]:
    """Embed texts under every pooling: float64 [N, D] each; the ends of long texts are cut."""
    room = run.longest - 2
    encoded = run.tokenizer.encode_batch(texts)
    if cut := sum(len(ids) > room for ids in encoded):
        log.line(f"{cut:,} of {len(texts):,} texts are cut to {run.longest} tokens")
    rows = [ids[:room] for ids in encoded]
    encoder = Encoder(run.config.model, run.tokenizer.size, pool=False)

    def step(params: Any, batch: Batch) -> dict[str, jax.Array]:
        encoded: Any = encoder.apply({"params": params}, batch)
        hidden = encoded.hidden.astype(jnp.float32)
        return {pooling: pool_examples(hidden, batch, pooling)[:, 0] for pooling in POOLINGS}

    def make(chosen: np.ndarray, length: int, size: int) -> Batch:
        parts = [[rows[row]] for row in chosen]
        return encoding.pad_rows(run.tokenizer.special, parts, length, size=size)

    lengths = np.array([len(ids) + 2 for ids in rows], np.int64)
    vectors = {pooling: np.zeros((len(rows), run.config.model.hidden or 0)) for pooling in POOLINGS}
    for chosen, outputs in run_rows(
        step, run.params["encoder"], lengths, make, options.batch_size, Progress("sts: tokens")
    ):
        for pooling, values in outputs.items():
            vectors[pooling][chosen] = values
    return vectors

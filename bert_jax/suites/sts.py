"""Semantic similarity without training: the cosine of two texts' vectors against what people say of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data import encoding
from bert_jax.errors import ConfigError
from bert_jax.evaluation import scores
from bert_jax.interop import runs
from bert_jax.models.bert import Bert
from bert_jax.models.pooling import POOLINGS, pooled
from bert_jax.suites import labelled
from bert_jax.suites.base import Progress, Result, SuiteOptions, on_devices
from bert_jax.suites.rows import run_rows


def sts(run: runs.Run, ask: SuiteOptions) -> Result:
    """Spearman's and Pearson's correlation by pooling: `mean`, `cls`, and `own` where the model states one."""
    config = labelled.task_of(run, ask, "sts", "stsb")
    if labelled.kind_of(config) != "regress":
        raise ConfigError(
            "suite sts needs a number for each pair", "--config=configs/finetune.py:stsb"
        )
    split = labelled.main_split(config, ask)
    config = dataclasses.replace(config, task=labelled.whole(config.task, split))
    pairs = labelled.load(config, split)[: ask.limit or None]
    if any(one.pair is None for one in pairs):
        raise ConfigError(
            "suite sts compares two texts", "name the second: --config.task.text_pair=COLUMN"
        )
    vectors = embed(run, ask, [text for one in pairs for text in (one.text, one.pair or "")])
    found: Result = {"pairs": len(pairs)}
    own = {"own": run.sentence["pooling"]} if "pooling" in run.sentence else {}
    for name, pooling in {**{how: how for how in POOLINGS}, **own}.items():
        a, b = np.moveaxis(vectors[pooling].reshape(len(pairs), 2, -1), 1, 0)  # [N, D] each
        cosines = (a * b).sum(-1) / np.maximum(
            np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1), 1e-12
        )
        cosines = cosines.round(
            6
        )  # like texts are a tie, which rounding in the model must not break
        scored = scores.score(
            "regress", pairs, cosines.tolist(), (), dataclasses.replace(config.task, metrics=())
        )
        found[name] = {metric: scored[metric] for metric in ("spearman", "pearson")}
    return found


def embed(run: runs.Run, ask: SuiteOptions, texts: list[str]) -> dict[str, np.ndarray]:
    """Vectors of texts under every pooling: float64 [N, D] each; a text's end is cut off where the model is shorter."""
    room = run.longest - 2
    encoded = run.tokenizer.encode_batch(texts)
    if cut := sum(len(ids) > room for ids in encoded):
        labelled.log(f"{cut:,} of {len(texts):,} texts are cut to {run.longest} tokens")
    ids = [one[:room] for one in encoded]
    encoder = Bert(run.config.model, run.tokenizer.size, pool=False)
    params, mesh = on_devices(run.params["encoder"])

    def step(params: Any, batch: Batch) -> dict[str, jax.Array]:
        hidden = encoder.apply({"params": params}, batch).hidden  # type: ignore[union-attr]  # an Encoded
        return {how: pooled(hidden, batch["segment_ids"], how) for how in POOLINGS}

    def make(rows: np.ndarray, length: int, size: int) -> Batch:
        return encoding.rows(run.tokenizer.special, [[ids[i]] for i in rows], length, size=size)

    lengths = np.array([len(one) + 2 for one in ids], np.int64)
    found = {how: np.zeros((len(ids), run.config.model.hidden or 0)) for how in POOLINGS}
    for rows, vectors in run_rows(
        step,
        params,
        lengths,
        make,
        mesh,
        batch_size=ask.batch_size,
        progress=Progress("sts: tokens"),
    ):
        for how, values in vectors.items():
            found[how][rows] = values
    return found

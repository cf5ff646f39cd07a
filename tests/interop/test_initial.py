"""Parameters a run starts from that no end-to-end test looks at."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.interop import initial, runs
from bert_jax.objectives import network
from tests import toy
from tests.families import EXPRESSED


def test_head_over_labels_begins_as_a_like_mlm_head(monkeypatch, tmp_path):
    """As in transformers, where ModernBERT's classes call both `head`."""
    pieces = [*tokenizers.SPECIALS, *map(str, range(toy.VOCAB - 5))]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    tokenizer = tokenizers.load_tokenizer(tmp_path / "vocab.txt")

    def params(config):
        tree = jax.eval_shape(lambda: network.init_params(config, toy.VOCAB, np.uint32(0)))
        count = itertools.count()
        return jax.tree.map(lambda x: jnp.full(x.shape, float(next(count))), tree)

    before = toy.config(**EXPRESSED["modernbert"], model__pooler="transform")
    run = runs.TrainedModel(tmp_path, before, tokenizer, tmp_path, params(before), 1, {})
    monkeypatch.setattr(runs, "open_run", lambda *_: run)
    config = dataclasses.replace(
        before,
        objectives={"classify": knobs.Objective(1.0, ("a", "b"))},
        init_from="run",
        init_fresh="^classify/",
    )
    fresh = params(config)
    found = initial.start_from(config, fresh, tokenizer)["classify"]
    for part in ("dense", "norm"):
        jax.tree.map(np.testing.assert_array_equal, found[part], run.params["mlm"][part])
    np.testing.assert_array_equal(found["logits"]["kernel"], fresh["classify"]["logits"]["kernel"])

"""Parameters a run starts from that no end-to-end test looks at."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.interop import initial, runs
from bert_jax.objectives import network
from tests import toy
from tests.families import EXPRESSED


def make_params(config: knobs.Config) -> Any:
    """Parameters of a model, each a constant that no other has."""
    tree = jax.eval_shape(lambda: network.init_params(config, toy.VOCAB, np.uint32(0)))
    count = itertools.count()
    return jax.tree.map(lambda x: jnp.full(x.shape, float(next(count))), tree)


@pytest.fixture
def run(monkeypatch, tmp_path) -> runs.TrainedModel:
    """A trained ModernBERT, which every path opens."""
    pieces = [*tokenizers.SPECIALS, *map(str, range(toy.VOCAB - 5))]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    tokenizer = tokenizers.load_tokenizer(tmp_path / "vocab.txt")
    config = toy.config(**EXPRESSED["modernbert"], model__pooler="transform")
    opened = runs.TrainedModel(tmp_path, config, tokenizer, tmp_path, make_params(config), 1, {})
    monkeypatch.setattr(runs, "open_run", lambda *_: opened)
    return opened


def test_head_over_labels_begins_as_a_like_mlm_head(run):
    """As in transformers, where ModernBERT's classes call both `head`."""
    config = dataclasses.replace(
        run.config,
        objectives={"classify": knobs.Objective(1.0, ("a", "b"))},
        init_from="run",
        init_fresh="^classify/",
    )
    fresh = make_params(config)
    found = initial.start_from(config, fresh, toy.draw_from(fresh), run.tokenizer)["classify"]
    for part in ("dense", "norm"):
        jax.tree.map(np.testing.assert_array_equal, found[part], run.params["mlm"][part])
    np.testing.assert_array_equal(found["logits"]["kernel"], fresh["classify"]["logits"]["kernel"])


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({}, ""),
        ({"window": 6}, "window=3"),
        ({"window": 6, "global_every": 1}, "global_every=2, window=3"),
        ({"norm_epsilon": 0.5, "dropout": 0.5}, "norm_epsilon=1e-12"),  # dropout is of training
    ],
)
def test_knobs_that_no_shape_shows_are_warned_of(run, capsys, changes, warned):
    model = dataclasses.replace(run.config.model, **changes)
    config = dataclasses.replace(run.config, model=model, init_from="run")
    fresh = make_params(config)
    initial.start_from(config, fresh, toy.draw_from(fresh), run.tokenizer)
    said = capsys.readouterr().err
    assert said == (f"warning: run was trained with {warned}\n" if warned else "")

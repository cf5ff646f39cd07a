"""Parameters a run starts from that no end-to-end test looks at."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.interop import initial, runs
from bert_jax.objectives import diffusion
from tests import tiny
from tests.families import EXPRESSED
from tests.suites.masked import make_model


@pytest.fixture
def run(monkeypatch) -> runs.TrainedModel:
    """A trained ModernBERT, which every path opens."""
    shape = {"model__layers": 2, "model__pooler": "transform"}
    fresh = make_model(**EXPRESSED["modernbert"] | shape)
    opened = dataclasses.replace(fresh, params=jax.tree.map(lambda x: x + 0.5, fresh.params))
    monkeypatch.setattr(runs, "open_run", lambda *_: opened)
    return opened


def draw_fresh(config: knobs.Config, run: runs.TrainedModel) -> Any:
    return jax.tree.map(jnp.asarray, tiny.init(config, seed=1, vocab=run.tokenizer.size))


def test_head_over_labels_begins_as_a_like_mlm_head(run):
    """As in transformers, where ModernBERT's classes call both `head`."""
    config = dataclasses.replace(
        run.config,
        objectives={"classify": knobs.Objective(1.0, ("a", "b"))},
        init_from="run",
        init_fresh="^classify/",
    )
    fresh = draw_fresh(config, run)
    found = initial.start_from(config, fresh, tiny.draw_from(fresh), run.tokenizer)["classify"]
    for part in ("dense", "norm"):
        jax.tree.map(np.testing.assert_array_equal, found[part], run.params["mlm"][part])
    np.testing.assert_array_equal(found["logits"]["kernel"], fresh["classify"]["logits"]["kernel"])


def test_start_lets_diffusion_predict_mask_again(run, monkeypatch):
    """The bias of [MASK], -1e9 in a model that is opened, would spoil an update of LAMB."""
    trained = dataclasses.replace(run.config, objectives={"diffusion": knobs.Objective(1.0)})
    mask = run.tokenizer.special.mask
    params = diffusion.forbid_mask_token(trained, run.params, mask)
    assert params["mlm"]["bias"][mask] < -1e8
    monkeypatch.setattr(runs, "open_run", lambda *_: dataclasses.replace(run, params=params))
    fresh = draw_fresh(run.config, run)
    config = dataclasses.replace(run.config, init_from="run")
    found = initial.start_from(config, fresh, tiny.draw_from(fresh), run.tokenizer)
    expected = np.asarray(run.params["mlm"]["bias"]).copy()
    expected[mask] = 0
    np.testing.assert_array_equal(found["mlm"]["bias"], expected)


@pytest.mark.parametrize(
    ("changes", "shift", "warned"),
    [
        ({}, False, ""),
        ({"window": 6}, False, "window=3\n"),
        ({"window": 6, "global_every": 1}, False, "global_every=2, window=3\n"),
        # Dropout is of training.
        ({"norm_epsilon": 0.5, "dropout": 0.5}, False, "norm_epsilon=1e-12\n"),
        ({}, True, "objectives.hybrid.shift=False: its MLM head predicts tokens of other places"),
    ],
)
def test_knobs_that_no_shape_shows_are_warned_of(run, capsys, changes, shift, warned):
    model = dataclasses.replace(run.config.model, **changes)
    objectives = {"mlm": knobs.Objective(1.0, shift=shift)}
    config = dataclasses.replace(run.config, model=model, objectives=objectives, init_from="run")
    fresh = draw_fresh(config, run)
    initial.start_from(config, fresh, tiny.draw_from(fresh), run.tokenizer)
    said = capsys.readouterr().err
    assert said.startswith(f"warning: run was trained with {warned}" if warned else "")
    assert bool(said) == bool(warned)

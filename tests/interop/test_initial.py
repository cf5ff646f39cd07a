"""Parameters a run starts from that no end-to-end test looks at."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import models

from bert_jax.config import knobs
from bert_jax.data.engines import SPECIALS, build_byte_level, build_wordpiece
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import ConfigError
from bert_jax.interop import initial, runs
from bert_jax.objectives import diffusion, network
from bert_jax.system import trees
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


def start(config: knobs.Config, tokenizer: Tokenizer) -> tuple[Any, Any]:
    """Return fresh parameters, for which nothing is compiled, and those that a run starts with."""
    config = dataclasses.replace(config, init_from="run")
    shapes = jax.eval_shape(lambda: network.init_params(config, tokenizer.size, np.uint32(0)))
    random = np.random.default_rng(1)
    fresh = jax.tree.map(lambda p: jnp.asarray(random.normal(size=p.shape), p.dtype), shapes)
    return fresh, initial.start_from(config, fresh, tiny.draw_from(fresh), tokenizer)


BOTH = {"mlm": knobs.Objective(1.0), "sop": knobs.Objective(1.0)}


@pytest.mark.parametrize(
    ("changes", "drawn"),
    [
        ({"objectives": BOTH, "init_fresh": "^(sop|encoder/pooler)/"}, "^(sop|encoder/pooler)/"),
        ({"init_fresh_layers": 1}, "^encoder/(layer_1|final_norm)/"),
    ],
)
def test_start_draws_only_what_is_named_fresh(run, changes, drawn):
    trees_of = start(dataclasses.replace(run.config, **changes), run.tokenizer)
    fresh, found, old = map(trees.flatten_tree, (*trees_of, run.params))
    for name, value in found.items():
        expected = fresh if re.search(drawn, name) else old
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_hint_names_all_that_would_start_fresh(run, monkeypatch):
    """So that following it once is enough, also after another value of init_fresh."""
    heads = BOTH | {"nsp": knobs.Objective(1.0)}
    config = dataclasses.replace(run.config, objectives=heads, init_fresh="^sop/")
    with pytest.raises(ConfigError, match="run lacks nsp/") as lacking:
        start(config, run.tokenizer)
    assert "init_fresh='^(nsp|sop)/'" in lacking.value.hint
    head = {**run.params["mlm"], "bias": np.zeros(1, np.float32)}
    other = dataclasses.replace(run, params={**run.params, "mlm": head})
    monkeypatch.setattr(runs, "open_run", lambda *_: other)
    with pytest.raises(ConfigError, match="another shape for mlm/bias") as differing:
        start(run.config, run.tokenizer)
    assert "init_fresh='^(mlm)/'" in differing.value.hint


def check_rows(run: runs.TrainedModel, tokenizer: Tokenizer, sources: dict[str, str]) -> None:
    """Check that each piece begins with the row of a piece of the run, or else with a fresh row."""
    config = dataclasses.replace(run.config, init_vocab="remap")
    trees_of = start(config, tokenizer)
    fresh, found, old = (tree["encoder"]["embeddings"]["token"] for tree in (*trees_of, run.params))
    for row, piece in enumerate(tokenizer.vocab):
        known = piece in sources
        expected = old[run.tokenizer.vocab.index(sources[piece])] if known else fresh[row]
        np.testing.assert_array_equal(found[row], expected, err_msg=piece)


def test_start_keeps_the_rows_of_shared_pieces(run):
    vocab = run.tokenizer.vocab
    other = [*vocab[:5], "zebra", *vocab[:4:-1]]  # one more, the rest backwards
    check_rows(run, Tokenizer(build_wordpiece(other)), {piece: piece for piece in vocab})


def test_start_matches_pieces_of_another_kind(run):
    """A piece continues a word in both vocabularies, or in none, unless it is punctuation."""
    sources = {name: name for name in SPECIALS}
    sources |= {"Ġthe": "the", "a": "##a", "Ġa": "a", ".": ".", "Ġ.": "."}
    ids = {piece: i for i, piece in enumerate([*sources, "the", "Ġzebra"])}
    check_rows(run, Tokenizer(build_byte_level(models.BPE(ids, []))), sources)


def test_part_of_a_character_matches_no_piece():
    """The byte that is spelt like the sign of copyright is not that sign."""
    ids = {piece: i for i, piece in enumerate([*SPECIALS, "©", "Â©"])}
    pieces = initial._read_pieces(Tokenizer(build_byte_level(models.BPE(ids, []))))
    assert [text for _, text in pieces[-2:]] == ["\ufffd©", "©"]


def test_head_over_labels_begins_as_a_like_mlm_head(run):
    """As in transformers, where ModernBERT's classes call both `head`."""
    config = dataclasses.replace(
        run.config,
        objectives={"classify": knobs.Objective(1.0, ("a", "b"))},
        init_fresh="^classify/",
    )
    fresh, found = (tree["classify"] for tree in start(config, run.tokenizer))
    for part in ("dense", "norm"):
        jax.tree.map(np.testing.assert_array_equal, found[part], run.params["mlm"][part])
    np.testing.assert_array_equal(found["logits"]["kernel"], fresh["logits"]["kernel"])


def test_start_lets_diffusion_predict_mask_again(run, monkeypatch):
    """The bias of [MASK], -1e9 in a model that is opened, would spoil an update of LAMB."""
    trained = dataclasses.replace(run.config, objectives={"diffusion": knobs.Objective(1.0)})
    mask = run.tokenizer.special.mask
    params = diffusion.forbid_mask_token(trained, run.params, mask)
    assert params["mlm"]["bias"][mask] < -1e8
    monkeypatch.setattr(runs, "open_run", lambda *_: dataclasses.replace(run, params=params))
    _, found = start(run.config, run.tokenizer)
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
    start(dataclasses.replace(run.config, model=model, objectives=objectives), run.tokenizer)
    said = capsys.readouterr().err
    assert said.startswith(f"warning: run was trained with {warned}" if warned else "")
    assert bool(said) == bool(warned)

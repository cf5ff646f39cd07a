"""Masked and causal examples in one batch: each is what it is in a batch of its own kind.

What they see of a row, and their losses, are held by tests/models/test_gpt_bert.py too.
"""

import functools
import itertools

import jax
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.config import change_knobs, knobs
from bert_jax.errors import DivergedError
from bert_jax.masking import corrupt, draws
from bert_jax.objectives import hybrid, network
from bert_jax.training.ledger import Ledger
from bert_jax.training.step import compute_inputs
from tests import tiny

LENGTH = 24
ALONE = {"pairs": "none", "model__layers": 1}


def make_config(share: float = 0.5, **overrides: object) -> knobs.Config:
    own = {"objectives__hybrid__weight": 1.0, "objectives__hybrid__share": share}
    return tiny.config(**ALONE | own | overrides)


def configure(**options: bool) -> hybrid.Hybrid:
    return objectives.TABLE["hybrid"].configure(knobs.Objective(**options))


@functools.partial(jax.jit, static_argnames="apply")
def mask(b, step_inputs, apply=objectives.TABLE["hybrid"].corrupt):
    rules = {"settings": knobs.Masking(), "special": tiny.SPECIAL, "vocab_size": tiny.VOCAB}
    return apply(b, step_inputs, slots=LENGTH, **rules)


def make_inputs(share: float):
    return tiny.make_step_inputs(knobs.Masking(), LENGTH, 0)._replace(share=np.float32(share))


# --- only one kind is the objective of that kind --------------------------------------------------


def test_hybrid_of_one_kind_is_that_objective():
    """Masked examples alone are `mlm`, and causal ones alone `causal_lm`."""
    b = tiny.batch(16, LENGTH, seed=3, examples=3)
    logits = np.random.default_rng(0).normal(size=(16, LENGTH, tiny.VOCAB)).astype(np.float32)
    ours, ledger = mask(b, make_inputs(0.0))
    theirs, their_ledger = mask(b, make_inputs(0.0), apply=corrupt.corrupt_batch)
    for key in theirs:
        np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
    for key in their_ledger:
        np.testing.assert_array_equal(ledger[key], their_ledger[key], err_msg=key)
    assert not np.asarray(ours["causal"]).any()
    slots = np.take_along_axis(logits, np.asarray(ours["predict_positions"])[..., None], 1)
    found = configure().loss(logits, ours)
    wanted = objectives.TABLE["mlm"].loss(slots, theirs)
    for name, (total, count) in wanted.items():
        assert float(found[name][0]) == pytest.approx(float(total), rel=1e-6)
        assert float(found[name][1]) == float(count)
    assert float(found["causal_lm_loss"][1]) == 0

    ours, ledger = mask(b, make_inputs(1.0))
    np.testing.assert_array_equal(ours["inputs"], b["tokens"])
    assert float(ledger["masked_fraction"][0]) == 0
    assert [float(x) for x in ledger["causal_fraction"]] == [16 * 3, 16 * 3]
    for end in (False, True):
        found = configure(end=end).loss(logits, ours)
        options = knobs.Objective(end=end)
        wanted = objectives.TABLE["causal_lm"].configure(options).loss(logits, b)
        for name, sums in wanted.items():
            np.testing.assert_array_equal(found[name], sums)
        assert float(found["mlm_loss"][1]) == 0


# --- both kinds in one batch ----------------------------------------------------------------------


def test_hybrid_weighs_parts_by_their_share():
    settings = make_config(0.25, objectives__hybrid__weight=2.0)
    assert compute_inputs(settings, 0).weights == {"mlm": 1.5, "causal_lm": 0.5}


def test_shifted_mask_is_read_from_before_it():
    """By every reader of the model through the network."""
    masked, _ = mask(tiny.batch(8, LENGTH, seed=4, examples=2), make_inputs(0.5))
    settings = make_config(objectives__hybrid__shift=True)
    params = tiny.init(settings)
    nets = (network.build_network(c, tiny.VOCAB) for c in (settings, settings.as_read))
    outputs = [tiny.run_network(net, params, masked) for net in nets]
    everywhere, found = (np.asarray(logits) for one in outputs for logits in one.values())
    columns = np.asarray(masked["predict_positions"])[..., None] - 1
    np.testing.assert_allclose(found, np.take_along_axis(everywhere, columns, 1), atol=1e-5)


def test_hybrid_as_read_is_evaluated_at_other_rates():
    """Whichever loss its training kept the best step by."""
    best = {"checkpoints__best": "causal_lm_loss", "checkpoints__patience": 3}
    changed = change_knobs(make_config(**best).as_read, [("evals.validation.rate", "0.4")])
    assert changed.evals["validation"].rate == 0.4


# --- which examples are causal --------------------------------------------------------------------


def test_draw_causal_spreads_its_share_evenly():
    """Whatever the rates that its examples draw, and nested over shares.

    That it is the same in any batch is frozen by tests/net/test_batches.py.
    """
    places = np.arange(20_000, dtype=np.int32)[:, None]
    b = {"places": places, "copies": np.zeros_like(places)}
    shares = (0.0, 0.1, 0.125, 0.5, 1.0)
    several = [np.asarray(hybrid.draw_causal(b, np.uint32(7), np.float32(s)))[:, 0] for s in shares]
    rates = np.asarray(draws.draw_u(b, np.uint32(7)))[:, 0] / 2**32
    for share, causal in zip(shares, several, strict=True):
        for start in (0, 377, 9_999, 19_000):
            assert abs(causal[start : start + 1000].sum() - 1000 * share) <= 3
        by_rate, _ = np.histogram(rates[causal], np.linspace(0, 1, 11))
        assert np.abs(by_rate - 2000 * share).max() <= 20
    assert all((low <= high).all() for low, high in itertools.pairwise(several))
    other = np.asarray(hybrid.draw_causal(b, np.uint32(8), np.float32(0.5)))[:, 0]
    assert (other != several[3]).any()


def test_ledger_knows_the_causal_share():
    ledgers = [Ledger(knobs.Masking(), share=share) for share in (0.5, 0.3)]
    for step in range(4):
        b = tiny.batch(256, LENGTH, seed=step)
        b["places"] += 256 * step
        found = jax.tree.map(float, mask(b, make_inputs(0.5))[1])
        ledgers[0].add(found, 0.15, 256, step)
        with pytest.raises(DivergedError, match="causal examples sum to"):
            ledgers[1].add(found, 0.15, 256, step)
    assert ledgers[0].totals["read"] == 1024
    assert abs(ledgers[0].totals["causal"] - 512) <= 3

"""Corruption against a plain loop over the examples, nested masks, and views that are disjoint."""

import math
from itertools import chain

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config.knobs import Masking
from bert_jax.errors import DivergedError
from bert_jax.masking import draws, quotas, units
from bert_jax.training.ledger import Ledger
from tests import tiny
from tests.masking import by_hand

MASK_ONLY = (1.0, 0.0, 0.0)
COMPILED = [  # settings that are not traced, two of each with all others
    {"overflow": "fair", "rounding": "unbiased", "count": "eligible", "random_from": "all"},
    {"overflow": "fair", "rounding": "nearest", "count": "all", "random_from": "regular"},
    {"overflow": "skip", "rounding": "unbiased", "count": "all", "random_from": "all"},
    {"overflow": "skip", "rounding": "nearest", "count": "eligible", "random_from": "regular"},
]
SETTINGS = st.builds(
    lambda compiled, **more: Masking(unit="word", max_unit=6, **compiled, **more),
    st.sampled_from(COMPILED),
    rate=st.sampled_from([0.02, 0.15, 0.3, 0.5, 0.8, 1.0]),
    replace=st.sampled_from([(0.8, 0.1, 0.1), MASK_ONLY, (0.0, 0.5, 0.5)]),
    prediction_rate=st.sampled_from([None, 0.02]),
)


def corrupt_by_hand(b, settings: Masking, seed: int):
    """Return inputs, corrupted and predicted tokens [B, L], example by example in plain Python."""
    scores, boundary, replace_word, token_word = map(
        np.asarray, draws.draw_token_bits(b, np.uint32(seed))
    )
    words = tiny.rounding_draws(b, seed)
    first, second = [], []
    for row, slot, found_units in by_hand.list_units(b, scores):
        available = len([*chain(*found_units)])
        length = available
        if settings.count == "all":
            length = int((b["segment_ids"][row] == slot + 1).sum())
        taken = found_units
        for rate, found in ((settings.rate, first), (settings.prediction_rate, second)):
            if rate is None:
                rate = settings.rate
            quota = min(available, tiny.quota(length, rate, settings.rounding, words[row, slot]))
            if settings.overflow == "skip":
                taken = by_hand.take_as_the_original(taken, quota)
            else:
                fair = by_hand.take_fairly(found_units, quota, boundary[row])
                taken = [unit for unit in fair if unit in taken]
            found.append((row, taken))
    hit, predicted = by_hand.mark(b, first), by_hand.mark(b, second)
    ids = np.arange(tiny.VOCAB)
    if settings.random_from == "regular":
        ids = ids[len(tiny.SPECIAL) :]
    inputs = b["tokens"].copy()
    for row, column in np.argwhere(hit):
        share = (replace_word[row, column] >> 8) / 2**24
        if share < np.float32(settings.replace[0]):
            inputs[row, column] = tiny.SPECIAL.mask
        elif share < np.float32(settings.replace[0]) + np.float32(settings.replace[1]):
            inputs[row, column] = ids[token_word[row, column] % len(ids)]
    return inputs, hit, predicted


@given(by_hand.BATCHES, SETTINGS, st.integers(0, 2**31))
def test_corrupt_batch_is_the_plain_loop(b, settings, seed):
    out, ledger = tiny.mask(b, settings, seed)
    inputs, hit, predicted = corrupt_by_hand(b, settings, seed)
    np.testing.assert_array_equal(out["inputs"], inputs)
    np.testing.assert_array_equal(tiny.chosen(out), predicted)
    used = out["predict_weights"] > 0
    np.testing.assert_array_equal(out["predict_targets"][used], b["tokens"][predicted])
    eligible = b["unit_ids"] >= 0
    assert ledger["masked_fraction"] == (hit.sum(), eligible.sum())
    assert ledger["predicted_fraction"] == (predicted.sum(), hit.sum())
    kept = ledger["kept_fraction"][0]
    replaced = ledger["mask_token_fraction"][0] + ledger["random_fraction"][0]
    assert kept + replaced == hit.sum()
    if settings.overflow == "skip":
        missing = ledger["quota_fraction"][0] - hit.sum()
        assert 0 <= missing <= ledger["shortfall_fraction"][0]


@given(
    by_hand.BATCHES,
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=5),
    st.sampled_from([0.0, -0.7]),
    st.integers(0, 2**31),
)
def test_corrupt_batch_nests_masks_over_rates(b, grid, power, seed):
    """Of whole units, with weights too; a token that two rates select is replaced alike."""
    if power:
        weights = units.frequency_weights(np.arange(tiny.VOCAB), power)
        b = b | {"unit_scales": units.unit_scales(b["tokens"], b["unit_ids"], weights)}
    before, inputs = np.zeros(b["tokens"].shape, bool), b["tokens"]
    for rate in sorted([*grid, min(1.0, grid[0] + 1e-4)]):
        out, _ = tiny.mask(b, Masking(rate=rate, unit="word"), seed)
        hit = tiny.chosen(out)
        assert (hit | ~before).all()
        first = np.maximum(b["unit_ids"], 0)  # of the unit of each token
        whole = np.take_along_axis(hit, first, axis=1)
        np.testing.assert_array_equal(hit, whole & (b["unit_ids"] >= 0))
        np.testing.assert_array_equal(out["inputs"][before], inputs[before])
        before, inputs = hit, out["inputs"]


@given(
    by_hand.BATCHES,
    st.sampled_from([((0.15, 0.4), "unbiased"), ((0.2, 0.25), "nearest")]),
    st.integers(0, 2**31),
)
def test_corrupt_batch_makes_views_disjoint(b, rule, seed):
    """View j has what (j + 1) times the quota selects of a batch without views, and j does not."""
    pair, rounding = rule
    settings = Masking(rate=pair[0], prediction_rate=pair[1], replace=MASK_ONLY, rounding=rounding)
    count = math.ceil(pair[1] / pair[0])
    out, ledger = tiny.mask(by_hand.repeat_views(b, count), settings, seed)
    hits = tiny.chosen(out).reshape(3, count, -1)
    np.testing.assert_array_equal(out["inputs"].reshape(hits.shape) == tiny.SPECIAL.mask, hits)
    assert hits.sum(1).max() <= 1
    once, most = (quotas.mean_quotas(rate, 32, rounding) for rate in pair)
    plain = Masking(rounding=rounding)
    below = np.zeros(b["tokens"].shape, bool)
    for view in range(count):
        table = quotas.split_means(np.minimum((view + 1) * once, most))
        step_inputs = tiny.make_step_inputs(plain, 32, seed)._replace(
            quotas=table, predict_quotas=table
        )
        up_to = tiny.chosen(jax.device_get(tiny._apply(b, step_inputs, plain, 32)[0]))
        np.testing.assert_array_equal(hits[:, view], up_to & ~below)
        below = up_to
    assert ledger["distinct_fraction"] == (hits.sum(), hits.sum())
    assert ledger["masked_fraction"][0] == ledger["predicted_fraction"][0] == hits.sum()


def test_ledger_stops_views_that_repeat():
    settings = Masking(rate=0.2, prediction_rate=0.4)
    b = by_hand.repeat_views(tiny.batch(16, 24), 2)
    b["views"][:4] = 0
    with pytest.raises(DivergedError, match=r"tokens selected in all views sum to"):
        Ledger(settings).add(tiny.mask(b, settings)[1], 0.2, 32, 1)

"""Masking of tokens, a pure function of (seed, copy, example id, position).

Every unit (a token, word or span, see `data/units.py`) has one random score. Units are sorted by
score, and the first ones, up to the quota of their example (`config/quotas.py`), are selected
(`selection.py`): so the set selected at 15 % lies inside the set selected at 40 %, and a mask is
the same whatever the batch, device, host or run its example is in.

Where more is predicted than corrupted, an example is read in several views (`laws.views`), and each
corrupts another slice of that order: view j what lies between j and j + 1 times the quota of the
rate, as far as the quota of the prediction rate reaches. To the nearest, a quota that was rounded
down leaves all views together up to half a token a view below the prediction rate. Unbiased, the
views of an example share one draw, so each has its mean and all together have theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch, Metrics, Special, StepInputs
from bert_jax.config import knobs, laws
from bert_jax.config.laws import DECILES, Drawn
from bert_jax.config.quotas import Quotas
from bert_jax.objectives.selection import (
    OVERFLOW,
    Choice,
    Units,
    between,
    in_score_order,
    tokens_of,
)

NO_EXAMPLE = 0xFFFFFFFF  # beyond the numbers of examples: what is drawn for a whole copy
NO_TOKEN = 0xFFFFFFFF  # beyond the positions of tokens: what is drawn for a whole example
GOLDEN = 0x9E3779B9  # of 2**32, the golden ratio: its multiples are spread evenly in every window


def random_ids(settings: knobs.Masking, special: Special, vocab_size: int) -> np.ndarray:
    """Return the ids a random replacement is drawn from, never the table's padding."""
    ids = np.arange(vocab_size, dtype=np.int32)
    if settings.random_from == "all":
        return ids
    return np.setdiff1d(ids, np.asarray(special, np.int32))


def apply(
    batch: Batch,
    traced: StepInputs,
    *,
    settings: knobs.Masking,
    special: Special,
    replacements: np.ndarray,
    slots: int,
    draws: bool = False,
) -> tuple[Batch, Metrics]:
    """Corrupt a batch.

    Args:
      batch: the host keys of `bert_jax.batch`.
      traced: quotas or the law of drawn rates, replacement shares and the seed.
      settings: the tokens counted as length, the rounding of quotas, the rule for units that do
        not fit, and the rates where a batch has views.
      special: ids of the special tokens, of which [MASK] is used.
      replacements: ids a random token is drawn from.
      slots: prediction slots a row, K.
      draws: whether to add the numbers by which a generator draws tokens: those of replacements.

    Returns:
      The batch with `inputs` and `predict_*` added, and the ledger as (sum, count) pairs.
    """
    tokens, unit_ids = batch["tokens"], batch["unit_ids"]  # [B, L]
    scores, boundary, replace_draw, token_draw = _draws(batch, traced.seed)  # uint32 [B, L] each
    units = in_score_order(batch, scores, boundary)

    eligible = unit_ids >= 0  # [B, L]
    counted = eligible if settings.count == "eligible" else batch["segment_ids"] > 0
    totals = _per_example(counted, batch)  # [B, S]
    available = _per_example(eligible, batch)  # [B, S], an upper bound of the quota

    draw = _rounding_draw(batch, traced.seed) if settings.rounding == "unbiased" else None
    u = None if traced.drawn is None else uniform(batch, traced.seed)
    asked = _asked(batch, traced, totals, draw, u)
    chosen, restored, more = _choose(batch, units, settings, asked, available)
    selected, predicted = (tokens_of(units, one.taken, unit_ids) for one in (chosen, restored))

    inputs, as_mask, as_random = _replaced(
        tokens, selected, (replace_draw, token_draw), traced.replace, special.mask, replacements
    )
    slotted = _in_slots(tokens, predicted, slots, token_draw if draws else None)
    masked = {**batch, "inputs": inputs, **slotted}
    n_selected = _count(selected)
    ledger = {
        "masked_fraction": (n_selected, _count(eligible)),
        **_shares_replaced(selected, as_mask, as_random),
        "asked_fraction": (_count(asked.here), _count(totals)),
        "predicted_fraction": (_count(slotted["predict_weights"] > 0), n_selected),
        **_shares_of_quotas(chosen, _count(available), settings.overflow, ""),
        **_shares_of_quotas(restored, n_selected, settings.overflow, "predict_"),
        **more,
    }
    if asked.mean is not None:
        ledger["expected_fraction"] = (_count(asked.mean), _count(totals))
    if traced.drawn is not None and u is not None:
        own = _per_example(selected, batch)
        ledger |= _by_decile(traced.drawn, u, asked.here, totals, own, available)
        masked |= _bound_weights(traced.drawn, masked, asked.here, available)
    if totals.shape[1] > 1:
        ledger["examples_per_row"] = (_count(totals > 0), _count(jnp.any(totals > 0, axis=1)))
    return masked, ledger


class Asked(NamedTuple):
    """What is asked of each example, in tokens."""

    earlier: jax.Array  # int32 [B, S], the quota of the views before this one
    selected: jax.Array  # int32 [B, S], the quota of these views and this one
    predicted: jax.Array  # int32 [B, S], how many of the selected tokens are predicted
    mean: jax.Array | None  # float32 [B, S], of selected - earlier over all draws of a rounding

    @property
    def here(self) -> jax.Array:
        """The tokens that this view is to select."""
        return self.selected - self.earlier


def _asked(
    batch: Batch,
    traced: StepInputs,
    totals: jax.Array,
    draw: jax.Array | None,
    u: jax.Array | None,
) -> Asked:
    """Return the quotas of examples of `totals` tokens [B, S].

    Args:
      batch: of which only the numbers of the views are read.
      traced: tables of quotas, or the law of drawn rates.
      totals: numbers of tokens that the rate multiplies.
      draw: what rounds the quotas; None rounds to the nearest.
      u: what draws the rates; None where they are not drawn.
    """
    if u is not None:
        drawn = _drawn_quotas(traced.drawn, u, totals, draw)
        return Asked(jnp.zeros_like(drawn), drawn, drawn, None)
    predicted = _look_up(traced.predict_quotas, (totals,))
    if "views" in batch:  # quotas are [V + 1, L + 1]
        first = _look_up(traced.quotas, (batch["views"], totals))
        last = _look_up(traced.quotas, (batch["views"] + 1, totals))
    else:
        first = Quotas(jnp.zeros_like(totals), jnp.zeros_like(totals, jnp.uint32))
        last = _look_up(traced.quotas, (totals,))
    if draw is None:
        return Asked(first.whole, last.whole, predicted.whole, None)
    earlier, selected, among = (of.whole + (draw < of.chance) for of in (first, last, predicted))
    return Asked(earlier, selected, among, _mean(last) - _mean(first))


def _look_up(table: Quotas, at: tuple[jax.Array, ...]) -> Quotas:
    """Return the quotas of examples [B, S] that stand at these places of a table."""
    whole, chance = (jnp.asarray(part)[at] for part in table)
    return Quotas(whole, chance)


def _mean(quotas: Quotas) -> jax.Array:
    """Return the means of quotas over all draws, float32."""
    return jnp.float32(quotas.whole) + jnp.float32(quotas.chance) * 2.0**-32


def _rounding_draw(batch: Batch, seed: jax.Array) -> jax.Array:
    """Return the word [B, S] by which quotas of an example are rounded, the same at every rate."""

    def of_example(key: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(key, impl="threefry2x32")
        return jax.random.bits(jax.random.fold_in(key, NO_TOKEN))

    return jax.vmap(jax.vmap(of_example))(_example_keys(batch, seed))


def _choose(
    batch: Batch, units: Units, settings: knobs.Masking, asked: Asked, available: jax.Array
) -> tuple[Choice, Choice, Metrics]:
    """Return the selection, the prediction, and more of the ledger."""
    if "views" in batch:
        chosen, distinct = _slice(batch, units, settings, asked, available)
        restored = chosen
        more: Metrics = {"distinct_fraction": (distinct, _tokens(units, chosen.taken))}
    else:
        rule = OVERFLOW[settings.overflow]
        chosen = rule(units, jnp.minimum(asked.selected, available), units.size > 0)
        restored = rule(units, jnp.minimum(asked.predicted, available), chosen.taken)
        more = {}
    if "unit_scales" in batch:
        more["weight_fraction"] = _share_of_weights(batch["unit_scales"], units, chosen.taken)
    return chosen, restored, more


def _slice(
    batch: Batch, units: Units, settings: knobs.Masking, asked: Asked, available: jax.Array
) -> tuple[Choice, jax.Array]:
    """Return the slice of each view, and how many tokens all views select together.

    That is counted apart from the slices, so that the ledger can tell whether those are disjoint.
    """
    low, high = jnp.minimum(asked.earlier, available), jnp.minimum(asked.selected, available)
    last = batch["views"][:, :1] == laws.views(settings) - 1  # [B, 1]
    together = between(units, jnp.zeros_like(high), high).taken & last
    return between(units, low, high), _tokens(units, together)


def _tokens(units: Units, taken: jax.Array) -> jax.Array:
    """Count the tokens of the units that are taken."""
    return _count(jnp.where(taken, units.size, 0))


def uniform(
    batch: Batch, seed: jax.Array, spread: int = GOLDEN, which: int = NO_EXAMPLE
) -> jax.Array:
    """Return the number u that an example draws its rate by, times 2**32 [B, S].

    Another draw than that of rates has another `spread` and another `which`.
    """
    shifts = jax.vmap(jax.vmap(lambda copy: shift(seed, copy, which)))(batch["copies"])
    return batch["places"].astype(jnp.uint32) * jnp.uint32(spread) + shifts


def shift(seed: jax.Array, copy: jax.Array, which: int = NO_EXAMPLE) -> jax.Array:
    """Return where the numbers u of a copy begin, times 2**32."""
    root = jax.random.key(seed, impl="threefry2x32")
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(root, copy), which))


def _drawn_quotas(
    drawn: Drawn, u: jax.Array, totals: jax.Array, draw: jax.Array | None = None
) -> jax.Array:
    """Return the quotas of examples of `totals` tokens [B, S], at least 1 of a token or more.

    They are rounded by a draw, or to the nearest without one.
    """
    cells = jnp.asarray(drawn.rates)[(u >> 20).astype(jnp.int32)]
    within = (u & 0xFFFFF).astype(jnp.float32) * 2.0**-20
    exact, rest = laws.products(totals.astype(jnp.float32), cells, within)
    if draw is None:
        quotas = (exact + rest).round()
    else:
        # Whole numbers are taken off first: the fraction keeps its bits, whatever the length.
        whole = jnp.floor(exact)
        rest = (exact - whole) + rest
        more = jnp.floor(rest)
        fraction = jnp.minimum(rest - more, 1 - 2.0**-24)  # 1 would be beyond 32 bits
        up = draw < (fraction * 2.0**32).astype(jnp.uint32)  # 4.35 is 5 by a chance of 0.35
        quotas = whole + more + up
    return jnp.where(totals > 0, quotas.clip(1), 0).astype(jnp.int32)


def _by_decile(
    drawn: Drawn,
    u: jax.Array,
    asked: jax.Array,
    totals: jax.Array,
    selected: jax.Array,
    eligible: jax.Array,
) -> Metrics:
    """Return for each tenth of u what is selected of it, and what is asked beside its mean."""
    decile = (u // jnp.uint32(-(-(2**32) // DECILES))).astype(jnp.int32)
    expected = drawn.expected[decile, totals]
    ledger: Metrics = {}
    for number in range(DECILES):
        own = decile == number
        sums = [_count(jnp.where(own, x, 0)) for x in (selected, eligible, asked, expected)]
        ledger[f"masked_decile_{number}"] = (sums[0], sums[1])
        ledger[f"asked_decile_{number}"] = (sums[2], sums[3])
    return ledger


def _bound_weights(drawn: Drawn, masked: Batch, asked: jax.Array, available: jax.Array) -> Batch:
    """Return what each slot weighs in the bound, where the law of the rate has weights."""
    if drawn.weights is None:
        return {}
    weights = drawn.weights[available, jnp.minimum(asked, available)]  # [B, S]
    return {"bound_weights": _by_slot(weights, masked)}


def _shares_of_quotas(choice: Choice, count: jax.Array, overflow: str, prefix: str) -> Metrics:
    """Return the quota of a selection, and by how many tokens the selection may miss it."""
    shares = {f"{prefix}quota_fraction": (_count(choice.quota), count)}
    if overflow == "skip":
        shares[f"{prefix}shortfall_fraction"] = (_count(choice.shortfall), count)
    return shares


def _shares_replaced(selected: jax.Array, as_mask: jax.Array, as_random: jax.Array) -> Metrics:
    """Return of the selected tokens [B, L] what the ledger says of their replacement."""
    n_selected, n_mask, n_random = map(_count, (selected, as_mask, as_random))
    return {
        "mask_token_fraction": (n_mask, n_selected),
        "random_fraction": (n_random, n_selected),
        "kept_fraction": (n_selected - n_mask - n_random, n_selected),
    }


def _share_of_weights(
    scales: jax.Array, units: Units, taken: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the weights of the tokens of selected units, and of all."""
    scales = jnp.take_along_axis(scales, units.column, -1)  # [B, L], in score order
    weights = jnp.where(scales > 0, units.size / jnp.where(scales > 0, scales, 1.0), 0.0)
    return _count(jnp.where(taken, weights, 0.0)), _count(weights)


def _replaced(
    tokens: jax.Array,
    selected: jax.Array,
    draws: tuple[jax.Array, jax.Array],
    shares: jax.Array,
    mask_id: int,
    replacements: np.ndarray,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return what the model reads [B, L], and where that is [MASK] and where a random token."""
    replace_draw, token_draw = draws
    share = (replace_draw >> 8).astype(jnp.float32) * 2.0**-24  # [B, L], uniform, same at all rates
    as_mask = selected & (share < shares[0])
    as_random = selected & ~as_mask & (share < shares[0] + shares[1])
    drawn = jnp.asarray(replacements)[(token_draw % len(replacements)).astype(jnp.int32)]
    return jnp.where(as_mask, mask_id, jnp.where(as_random, drawn, tokens)), as_mask, as_random


def _in_slots(
    tokens: jax.Array, predicted: jax.Array, slots: int, draws: jax.Array | None
) -> Batch:
    """Return the predicted tokens of each row, and their draws, in its K slots, by position."""
    length = tokens.shape[-1]
    columns = jnp.arange(length, dtype=jnp.int32)[None, :]
    order = jnp.sort(jnp.where(predicted, columns, length), axis=-1)[:, :slots]  # [B, K]
    used = order < length
    order = jnp.minimum(order, length - 1)
    drawn = {} if draws is None else {"predict_draws": jnp.take_along_axis(draws, order, -1)}
    return {
        "predict_positions": order,
        "predict_targets": jnp.take_along_axis(tokens, order, -1),
        "predict_weights": used.astype(jnp.float32),
        **drawn,
    }


def _by_slot(values: jax.Array, masked: Batch) -> jax.Array:
    """Spread [B, S] over the prediction slots of each example: [B, K]."""
    example = jnp.take_along_axis(masked["segment_ids"], masked["predict_positions"], -1)
    return jnp.take_along_axis(values, jnp.maximum(example - 1, 0), -1)


def _count(values: jax.Array) -> jax.Array:
    return jnp.sum(values, dtype=jnp.float32)


def _per_example(values: jax.Array, batch: Batch) -> jax.Array:
    """Sum [B, L] over the tokens of each example: [B, S]."""
    examples = jnp.arange(1, batch["example_ids"].shape[-1] + 1, dtype=jnp.int32)
    member = batch["segment_ids"][:, None, :] == examples[None, :, None]  # [B, S, L]
    return jnp.sum(values.astype(jnp.int32)[:, None, :] * member, -1)


def _draws(batch: Batch, seed: jax.Array) -> tuple[jax.Array, ...]:
    """Return four independent words [B, L] for each token, from counters alone.

    The generator is always threefry, whose draws vmap does not change.
    """

    def of_token(key: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.bits(
            jax.random.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), position), (4,)
        )

    keys = _example_keys(batch, seed)  # [B, S, 2]
    slot = jnp.maximum(batch["segment_ids"] - 1, 0)[..., None]  # [B, L, 1]
    words = jax.vmap(jax.vmap(of_token))(
        jnp.take_along_axis(keys, slot, 1), batch["positions"]
    )  # [B, L, 4]
    return words[..., 0], words[..., 1], words[..., 2], words[..., 3]


def _example_keys(batch: Batch, seed: jax.Array) -> jax.Array:
    """Return the key of each example, as data [B, S, 2]: a function of seed, copy and example."""
    root = jax.random.key(seed, impl="threefry2x32")

    def of_example(copy: jax.Array, example: jax.Array) -> jax.Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(root, copy), example))

    return jax.vmap(jax.vmap(of_example))(batch["copies"], batch["example_ids"])

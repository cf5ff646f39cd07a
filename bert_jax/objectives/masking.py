"""Masking of tokens, a pure function of (seed, copy, example id, position).

Every unit (a token, word or span, see `data/units.py`) has one random score. Units are sorted by
score, and the first ones, up to the quota of their example (`config/quotas.py`), are selected: so
the set selected at 15 % lies inside the set selected at 40 %, and a mask is the same whatever the
batch, device, host or run its example is in. OVERFLOW has the rules for a unit larger than what is
left of the quota.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch, Metrics, Special, StepInputs
from bert_jax.config import knobs, laws
from bert_jax.config.laws import DECILES, Drawn

NO_EXAMPLE = 0xFFFFFFFF  # beyond the numbers of examples: what is drawn for a whole copy


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
) -> tuple[Batch, Metrics]:
    """Corrupt a batch.

    Args:
      batch: the host keys of `bert_jax.batch`.
      traced: quotas or the law of drawn rates, replacement shares and the seed.
      settings: the tokens counted as length, and the rule for units that do not fit.
      special: ids of the special tokens, of which [MASK] is used.
      replacements: ids a random token is drawn from.
      slots: prediction slots a row, K.

    Returns:
      The batch with `inputs` and `predict_*` added, and the ledger as (sum, count) pairs.
    """
    tokens, unit_ids = batch["tokens"], batch["unit_ids"]  # [B, L]
    scores, boundary, replace_draw, token_draw = _draws(batch, traced.seed)  # uint32 [B, L] each
    units = _in_score_order(batch, scores, boundary)

    eligible = unit_ids >= 0  # [B, L]
    counted = eligible if settings.count == "eligible" else batch["segment_ids"] > 0
    totals = _per_example(counted, batch)  # [B, S]
    available = _per_example(eligible, batch)  # [B, S], an upper bound of the quota

    asked, asked_predicted, u = _asked(batch, traced, totals)
    rule = OVERFLOW[settings.overflow]
    chosen = rule(units, jnp.minimum(asked, available), units.size > 0)
    restored = rule(units, jnp.minimum(asked_predicted, available), chosen.taken)
    selected, predicted = (
        _tokens_of(units, choice.taken, unit_ids) for choice in (chosen, restored)
    )

    inputs, as_mask, as_random = _replaced(
        tokens, selected, (replace_draw, token_draw), traced.replace, special.mask, replacements
    )
    slotted = _in_slots(tokens, predicted, slots)
    masked = {**batch, "inputs": inputs, **slotted}
    n_selected = _count(selected)
    ledger = {
        "masked_fraction": (n_selected, _count(eligible)),
        **_shares_replaced(selected, as_mask, as_random),
        "asked_fraction": (_count(asked), _count(totals)),
        "predicted_fraction": (_count(slotted["predict_weights"] > 0), n_selected),
        **_shares_of_quotas(chosen, _count(available), settings.overflow, ""),
        **_shares_of_quotas(restored, n_selected, settings.overflow, "predict_"),
    }
    if traced.drawn is not None and u is not None:
        own = _per_example(selected, batch)
        ledger |= _by_decile(traced.drawn, u, asked, totals, own, available)
        if traced.drawn.weights is not None:
            weights = traced.drawn.weights[available, jnp.minimum(asked, available)]  # [B, S]
            masked["bound_weights"] = _by_slot(weights, masked)
    if totals.shape[1] > 1:
        ledger["examples_per_row"] = (_count(totals > 0), _count(jnp.any(totals > 0, axis=1)))
    return masked, ledger


def _asked(
    batch: Batch, traced: StepInputs, totals: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Return the quotas of selection and prediction [B, S], and u where the rate is drawn by it."""
    if traced.drawn is None:
        return traced.quotas[totals], traced.predict_quotas[totals], None
    u = _uniform(batch, traced.seed)
    quotas = _drawn_quotas(traced.drawn, u, totals)
    return quotas, quotas, u


def _uniform(batch: Batch, seed: jax.Array) -> jax.Array:
    """Return the number u that an example draws its rate by, times 2**32 [B, S].

    Multiples of the golden ratio are spread evenly in every window of the stream.
    """
    shifts = jax.vmap(jax.vmap(lambda copy: shift(seed, copy)))(batch["copies"])
    return batch["places"].astype(jnp.uint32) * jnp.uint32(0x9E3779B9) + shifts


def shift(seed: jax.Array, copy: jax.Array) -> jax.Array:
    """Return where the numbers u of a copy begin, times 2**32."""
    root = jax.random.key(seed, impl="threefry2x32")
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(root, copy), NO_EXAMPLE))


def _drawn_quotas(drawn: Drawn, u: jax.Array, totals: jax.Array) -> jax.Array:
    """Return the quotas of examples of `totals` tokens [B, S], at least 1 of a token or more."""
    cells = jnp.asarray(drawn.rates)[(u >> 20).astype(jnp.int32)]
    within = (u & 0xFFFFF).astype(jnp.float32) * 2.0**-20
    quotas = laws.quota(totals.astype(jnp.float32), cells, within)
    return jnp.where(totals > 0, quotas, 0).astype(jnp.int32)


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


def _in_slots(tokens: jax.Array, predicted: jax.Array, slots: int) -> Batch:
    """Return the predicted tokens of each row in its K prediction slots, by position."""
    length = tokens.shape[-1]
    columns = jnp.arange(length, dtype=jnp.int32)[None, :]
    order = jnp.sort(jnp.where(predicted, columns, length), axis=-1)[:, :slots]  # [B, K]
    used = order < length
    order = jnp.minimum(order, length - 1)
    return {
        "predict_positions": order,
        "predict_targets": jnp.take_along_axis(tokens, order, -1),
        "predict_weights": used.astype(jnp.float32),
    }


def _by_slot(values: jax.Array, masked: Batch) -> jax.Array:
    """Spread [B, S] over the prediction slots of each example: [B, K]."""
    example = jnp.take_along_axis(masked["segment_ids"], masked["predict_positions"], -1)
    return jnp.take_along_axis(values, jnp.maximum(example - 1, 0), -1)


def _count(values: jax.Array) -> jax.Array:
    return jnp.sum(values, dtype=jnp.float32)


def _draws(batch: Batch, seed: jax.Array) -> tuple[jax.Array, ...]:
    """Return four independent words [B, L] for each token, from counters alone.

    The generator is always threefry, whose draws vmap does not change.
    """
    root = jax.random.key(seed, impl="threefry2x32")

    def of_example(copy: jax.Array, example: jax.Array) -> jax.Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(root, copy), example))

    def of_token(key: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.bits(
            jax.random.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), position), (4,)
        )

    keys = jax.vmap(jax.vmap(of_example))(batch["copies"], batch["example_ids"])  # [B, S, 2]
    slot = jnp.maximum(batch["segment_ids"] - 1, 0)[..., None]  # [B, L, 1]
    words = jax.vmap(jax.vmap(of_token))(
        jnp.take_along_axis(keys, slot, 1), batch["positions"]
    )  # [B, L, 4]
    return words[..., 0], words[..., 1], words[..., 2], words[..., 3]


# --- units in score order, and which of them fit --------------------------------------------------


class Units(NamedTuple):
    """Masking units of each row, sorted by example and then by score; unused places have size 0."""

    column: jax.Array  # [B, L], where the unit begins
    size: jax.Array  # [B, L], number of its tokens
    boundary: jax.Array  # [B, L], its uniform draw, of 16 bits
    first: jax.Array  # [B, L], whether it is the first of its example
    member: jax.Array  # [B, S, L], whether it belongs to the example


class Choice(NamedTuple):
    """Result of a rule of OVERFLOW."""

    taken: jax.Array  # [B, L], in score order
    quota: jax.Array  # [B, S]
    shortfall: jax.Array  # [B, S], tokens by which the selection may miss its quota


def _in_score_order(batch: Batch, scores: jax.Array, boundary: jax.Array) -> Units:
    unit_ids, segments = batch["unit_ids"], batch["segment_ids"]  # [B, L]
    rows = jnp.arange(unit_ids.shape[0], dtype=jnp.int32)[:, None]
    size = (
        jnp.zeros_like(unit_ids)
        .at[rows, jnp.maximum(unit_ids, 0)]
        .add((unit_ids >= 0).astype(jnp.int32))
    )
    last = jnp.iinfo(jnp.int32).max
    columns = jnp.broadcast_to(
        jnp.arange(unit_ids.shape[1], dtype=jnp.int32)[None, :], unit_ids.shape
    )
    example, _, column = jax.lax.sort(
        (jnp.where(size > 0, segments, last), scores, columns), num_keys=2, is_stable=True
    )
    examples = jnp.arange(1, batch["example_ids"].shape[-1] + 1, dtype=jnp.int32)
    return Units(
        column,
        jnp.take_along_axis(size, column, -1),
        (jnp.take_along_axis(boundary, column, -1) >> 16).astype(jnp.int32),
        jnp.diff(example, axis=-1, prepend=0) != 0,
        example[:, None, :] == examples[None, :, None],
    )


def _fair(units: Units, quota: jax.Array, among: jax.Array) -> Choice:
    """Take a unit that crosses the quota's edge if its own draw, the same at every rate, allows it.

    With cum tokens in earlier units and the unit's uniform draw u, the condition is cum + u * size
    < quota, in integers: exact for tokens, unbiased for larger units, and nested over rates, so
    that predictions, where they are fewer than corruptions, lie among them. Both sides are below
    2**32 in rows of up to 65,535 tokens: unsigned, they are exact.
    """
    room = _by_unit(quota, units) - _tokens_before(units.size, units)
    drawn, size, left = (
        x.astype(jnp.uint32) for x in (units.boundary, units.size, jnp.maximum(room, 0))
    )
    taken = among & (drawn * size < left << 16)
    return Choice(taken, quota, jnp.zeros_like(quota))


def _skip(units: Units, quota: jax.Array, among: jax.Array) -> Choice:
    """Pass over a unit larger than what is left of the quota, and try the next ones.

    The original does this with words, in a loop over the row. Here all units are tried at once and
    those that can never fit are struck out, until the rest fits: before the first unit that
    overflows all is right, and no later unit finds more room than that one did. The room at that
    point falls with every round, so there are at most as many rounds as the largest unit present
    has tokens, whatever max_unit allows: two where all units are tokens.
    """
    quota = jnp.minimum(quota, _sum_by_example(jnp.where(among, units.size, 0), units))

    def strike(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        taken, _ = state
        room = _by_unit(quota, units) - _tokens_before(jnp.where(taken, units.size, 0), units)
        over = taken & (units.size > room)
        # [B, S], the room at the first unit of the example that overflows
        left = jnp.max(jnp.where(units.member & over[:, None, :], room[:, None, :], 0), -1)
        over &= units.size > _by_unit(left, units)
        return taken & ~over, jnp.any(over)

    taken, _ = jax.lax.while_loop(lambda state: state[1], strike, (among, jnp.any(among)))
    # No unit left out would fit, so the selection misses its quota by less than the smallest of
    # them.
    none = jnp.iinfo(jnp.int32).max
    out = units.member & (among & ~taken)[:, None, :]
    smallest = jnp.min(jnp.where(out, units.size[:, None, :], none), -1)  # [B, S]
    return Choice(taken, quota, jnp.where(smallest == none, 0, smallest - 1))


OVERFLOW = {"fair": _fair, "skip": _skip}


def _tokens_before(size: jax.Array, units: Units) -> jax.Array:
    """Return the number of tokens in earlier units of the same example."""
    before = jnp.cumsum(size, -1) - size
    return before - jax.lax.cummax(jnp.where(units.first, before, 0), axis=1)


def _tokens_of(units: Units, taken: jax.Array, unit_ids: jax.Array) -> jax.Array:
    """Spread a selection of units, in score order, over the tokens of the row."""
    rows = jnp.arange(unit_ids.shape[0], dtype=jnp.int32)[:, None]
    begins = jnp.zeros_like(taken).at[rows, units.column].set(taken)
    return jnp.take_along_axis(begins, jnp.maximum(unit_ids, 0), -1) & (unit_ids >= 0)


def _by_unit(values: jax.Array, units: Units) -> jax.Array:
    """Spread [B, S] over the units of each example: [B, L]."""
    return jnp.sum(jnp.where(units.member, values[..., None], 0), 1)


def _sum_by_example(values: jax.Array, units: Units) -> jax.Array:
    """Sum [B, L] over the units of each example: [B, S]."""
    return jnp.sum(jnp.where(units.member, values[:, None, :], 0), -1)


def _per_example(values: jax.Array, batch: Batch) -> jax.Array:
    """Sum [B, L] over the tokens of each example: [B, S]."""
    examples = jnp.arange(1, batch["example_ids"].shape[-1] + 1, dtype=jnp.int32)
    member = batch["segment_ids"][:, None, :] == examples[None, :, None]  # [B, S, L]
    return jnp.sum(values.astype(jnp.int32)[:, None, :] * member, -1)

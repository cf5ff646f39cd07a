"""Which tokens are selected and what replaces them: pure functions of (seed, copy, example id, position).

Every unit (a token, word or span, see `data/units.py`) has one random score. Units stand in score order, and the
first ones, up to the quota of their example (`quotas.py`), are selected: so the set selected at 15 % lies inside the
set selected at 40 %, and a mask is the same whatever the batch, device, host or arm its example is in. What becomes of
a unit larger than what is left of the quota is a rule of its own: see OVERFLOW.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch, Metrics, Special, StepInputs
from bert_jax.config import knobs


def random_ids(settings: knobs.Masking, special: Special, vocab_size: int) -> np.ndarray:
    """The tokens a random replacement is drawn from; padding of the table is never among them."""
    ids = np.arange(vocab_size, dtype=np.int32)
    return (
        ids if settings.random_from == "all" else np.setdiff1d(ids, np.asarray(special, np.int32))
    )


def apply(
    batch: Batch,
    traced: StepInputs,
    *,
    settings: knobs.Masking,
    special: Special,
    replacements: np.ndarray,
    slots: int,
) -> tuple[Batch, Metrics]:
    """Corrupts a batch.

    Args:
      batch: the host keys of `types`.
      traced: quotas, replacement shares and the seed.
      settings: what is counted as length, and the rule for units that do not fit.
      special: ids, of which [MASK] is used.
      replacements: ids a random token is drawn from.
      slots: K.

    Returns:
      The batch with `inputs` and `predict_*` added, and the ledger as (sum, count) pairs.
    """
    tokens, unit_ids = batch["tokens"], batch["unit_ids"]  # [B, L]
    length = tokens.shape[-1]
    scores, boundary, replace_draw, token_draw = _draws(batch, traced.seed)  # uint32 [B, L] each
    units = _in_score_order(batch, scores, boundary)

    eligible = unit_ids >= 0  # [B, L]
    counted = eligible if settings.count == "eligible" else batch["segment_ids"] > 0
    totals = _per_example(counted, batch)  # [B, S]
    available = _per_example(
        eligible, batch
    )  # [B, S], less than asked for only where too few are eligible

    rule = OVERFLOW[settings.overflow]
    chosen = rule(units, jnp.minimum(traced.quotas[totals], available), units.size > 0)
    restored = rule(units, jnp.minimum(traced.predict_quotas[totals], available), chosen.taken)
    selected, predicted = (
        _tokens_of(units, choice.taken, unit_ids) for choice in (chosen, restored)
    )

    share = (replace_draw >> 8).astype(
        jnp.float32
    ) * 2.0**-24  # [B, L], uniform, the same at every rate
    as_mask = selected & (share < traced.replace[0])
    as_random = selected & ~as_mask & (share < traced.replace[0] + traced.replace[1])
    drawn = jnp.asarray(replacements)[(token_draw % len(replacements)).astype(jnp.int32)]
    inputs = jnp.where(as_mask, special.mask, jnp.where(as_random, drawn, tokens))

    columns = jnp.arange(length, dtype=jnp.int32)[None, :]
    order = jnp.sort(jnp.where(predicted, columns, length), axis=-1)[:, :slots]  # [B, K]
    used = order < length
    order = jnp.minimum(order, length - 1)
    masked = {
        **batch,
        "inputs": inputs,
        "predict_positions": order,
        "predict_targets": jnp.take_along_axis(tokens, order, -1),
        "predict_weights": used.astype(jnp.float32),
    }
    n_selected, n_mask, n_random = (
        jnp.sum(x, dtype=jnp.float32) for x in (selected, as_mask, as_random)
    )
    ledger = {
        "masked_fraction": (n_selected, jnp.sum(eligible, dtype=jnp.float32)),
        "mask_token_fraction": (n_mask, n_selected),
        "random_fraction": (n_random, n_selected),
        "kept_fraction": (n_selected - n_mask - n_random, n_selected),
        "quota_fraction": (
            jnp.sum(chosen.quota, dtype=jnp.float32),
            jnp.sum(available, dtype=jnp.float32),
        ),
        "asked_fraction": (
            jnp.sum(traced.quotas[totals], dtype=jnp.float32),
            jnp.sum(totals, dtype=jnp.float32),
        ),
        "predicted_fraction": (jnp.sum(used, dtype=jnp.float32), n_selected),
        "predict_quota_fraction": (jnp.sum(restored.quota, dtype=jnp.float32), n_selected),
    }
    if settings.overflow == "skip":  # what the quotas may lack
        ledger |= {
            "shortfall_fraction": (
                jnp.sum(chosen.shortfall, dtype=jnp.float32),
                jnp.sum(available, dtype=jnp.float32),
            ),
            "predict_shortfall_fraction": (
                jnp.sum(restored.shortfall, dtype=jnp.float32),
                n_selected,
            ),
        }
    if totals.shape[1] > 1:
        rows = jnp.sum(jnp.any(totals > 0, axis=1), dtype=jnp.float32)
        ledger["examples_per_row"] = (jnp.sum(totals > 0, dtype=jnp.float32), rows)
    return masked, ledger


def _draws(batch: Batch, seed: jax.Array) -> tuple[jax.Array, ...]:
    """Four independent words for each token, from counters alone; always threefry, so that vmap changes nothing."""
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


# --- units in score order, and which of them fit --------------------------------------------------------------------


class Units(NamedTuple):
    """The units of each row in score order, example after example; places left over have size 0."""

    column: jax.Array  # [B, L], where the unit begins
    size: jax.Array  # [B, L], its tokens
    boundary: jax.Array  # [B, L], its uniform draw, of 16 bits
    first: jax.Array  # [B, L], whether it is the first of its example
    mine: jax.Array  # [B, S, L], whether it belongs to the example


class Choice(NamedTuple):
    """What a rule makes of units and quotas."""

    taken: jax.Array  # [B, L], in score order
    quota: jax.Array  # [B, S]
    shortfall: jax.Array  # [B, S], tokens the quota may lack


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
    """A unit across the edge is taken if a draw of its own, the same at every rate, lies within.

    With cum tokens before it and its u, that is cum + u * size < quota in integers: exact for tokens, unbiased for
    larger units, and nested over rates, so that fewer predictions than corruptions lie among them without more ado.
    Both sides are below 2**32 in rows of up to 65,535 tokens: unsigned, they are exact.
    """
    room = _by_unit(quota, units) - _tokens_before(units.size, units)
    drawn, size, left = (
        x.astype(jnp.uint32) for x in (units.boundary, units.size, jnp.maximum(room, 0))
    )
    taken = among & (drawn * size < left << 16)
    return Choice(taken, quota, jnp.zeros_like(quota))


def _skip(units: Units, quota: jax.Array, among: jax.Array) -> Choice:
    """A unit larger than what is left is passed over, and the next ones are tried, as the original does with words.

    Told unit by unit that is a loop over the row. Here all units are tried at once and those that can never fit are
    struck out, until the rest fits: the first unit that overflows does so with nothing wrong before it, and whatever
    comes later finds no more room than it did. The room at that point falls with every round, so the rounds are
    at most the tokens of the largest unit there is, whatever max_unit allows: two where all units are tokens.
    """
    quota = jnp.minimum(quota, _sum_by_example(jnp.where(among, units.size, 0), units))

    def strike(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        taken, _ = state
        room = _by_unit(quota, units) - _tokens_before(jnp.where(taken, units.size, 0), units)
        over = taken & (units.size > room)
        left = jnp.max(
            jnp.where(units.mine & over[:, None, :], room[:, None, :], 0), -1
        )  # [B, S], where it begins
        over &= units.size > _by_unit(left, units)
        return taken & ~over, jnp.any(over)

    taken, _ = jax.lax.while_loop(lambda state: state[1], strike, (among, jnp.any(among)))
    # Nothing that was left out would fit: what the quota lacks is less than the smallest of it.
    none = jnp.iinfo(jnp.int32).max
    out = units.mine & (among & ~taken)[:, None, :]
    smallest = jnp.min(jnp.where(out, units.size[:, None, :], none), -1)  # [B, S]
    return Choice(taken, quota, jnp.where(smallest == none, 0, smallest - 1))


OVERFLOW = {"fair": _fair, "skip": _skip}


def _tokens_before(size: jax.Array, units: Units) -> jax.Array:
    """Tokens of earlier units of the same example."""
    before = jnp.cumsum(size, -1) - size
    return before - jax.lax.cummax(jnp.where(units.first, before, 0), axis=1)


def _tokens_of(units: Units, taken: jax.Array, unit_ids: jax.Array) -> jax.Array:
    """From units in score order to the tokens of the row."""
    rows = jnp.arange(unit_ids.shape[0], dtype=jnp.int32)[:, None]
    begins = jnp.zeros_like(taken).at[rows, units.column].set(taken)
    return jnp.take_along_axis(begins, jnp.maximum(unit_ids, 0), -1) & (unit_ids >= 0)


def _by_unit(values: jax.Array, units: Units) -> jax.Array:
    """Spreads [B, S] over the units of each example: [B, L]."""
    return jnp.sum(jnp.where(units.mine, values[..., None], 0), 1)


def _sum_by_example(values: jax.Array, units: Units) -> jax.Array:
    """Sums [B, L] over the units of each example: [B, S]."""
    return jnp.sum(jnp.where(units.mine, values[:, None, :], 0), -1)


def _per_example(values: jax.Array, batch: Batch) -> jax.Array:
    """Sums [B, L] over the tokens of each example: [B, S]."""
    examples = jnp.arange(1, batch["example_ids"].shape[-1] + 1, dtype=jnp.int32)
    mine = batch["segment_ids"][:, None, :] == examples[None, :, None]  # [B, S, L]
    return jnp.sum(values.astype(jnp.int32)[:, None, :] * mine, -1)

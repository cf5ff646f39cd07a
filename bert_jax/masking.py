"""Which tokens are selected and what replaces them: pure functions of (seed, copy, example id, position).

Every unit (a token, word or span, see `data/units.py`) has one random score. Units stand in score order, and the
first ones, up to the quota of their example, are selected: so the set selected at 15 % lies inside the set selected
at 40 %, and a mask is the same whatever the batch, device, host or arm its example is in.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import knobs
from bert_jax.types import Batch, Metrics, Special, Traced


def quota_table(rate: float, length: int) -> np.ndarray:
    """Selected tokens for 0 to `length` countable ones: Python's rounding of the float64 product, at least one."""
    counts = np.arange(length + 1)
    quotas = np.maximum(np.round(counts * rate), 1) * (counts > 0) if rate > 0 else np.zeros(length + 1)
    return quotas.astype(np.int32)  # [L + 1]


def rate_at(settings: knobs.Masking, step: int, steps: int) -> float:
    """The corruption rate of an update, from `rate` at the first to `final_rate` at the last."""
    if settings.schedule == "constant" or settings.final_rate is None:
        return settings.rate
    share = min(step / max(steps - 1, 1), 1.0)
    return settings.rate + share * (settings.final_rate - settings.rate)


def slots(settings: knobs.Masking, length: int) -> int:
    """Prediction slots a row of one example needs at most, over the whole schedule; derived, never a cap."""
    rates = [settings.rate, settings.rate if settings.final_rate is None else settings.final_rate]
    top = max(rates) if settings.prediction_rate is None else settings.prediction_rate
    # The last unit may reach past the quota by all but one of its tokens.
    overhang = 0 if settings.unit == "token" else settings.max_unit - 1
    return max(1, min(length, int(quota_table(top, length)[-1]) + overhang))


def random_ids(settings: knobs.Masking, special: Special, vocab_size: int) -> np.ndarray:
    """The tokens a random replacement is drawn from; padding of the table is never among them."""
    ids = np.arange(vocab_size, dtype=np.int32)
    return ids if settings.random_from == "all" else np.setdiff1d(ids, np.asarray(special, np.int32))


def apply(
    batch: Batch, traced: Traced, *, settings: knobs.Masking, special: Special, replacements: np.ndarray, slots: int
) -> tuple[Batch, Metrics]:
    """Corrupts a batch.

    Args:
      batch: the host keys of `types`.
      traced: quotas, replacement shares and the seed.
      settings: what is counted as length.
      special: ids, of which [MASK] is used.
      replacements: ids a random token is drawn from.
      slots: K.

    Returns:
      The batch with `inputs` and `predict_*` added, and the ledger as (sum, count) pairs.
    """
    tokens, unit_ids = batch["tokens"], batch["unit_ids"]  # [B, L]
    length = tokens.shape[-1]
    scores, boundary, replace_draw, token_draw = _draws(batch, traced.seed)  # uint32 [B, L] each
    rank_from, size = _positions_in_score_order(batch, scores)  # [B, L]: tokens in earlier units, tokens in the unit

    eligible = unit_ids >= 0  # [B, L]
    counted = eligible if settings.count == "eligible" else batch["segment_ids"] > 0
    totals = _per_example(counted, batch)  # [B, S]
    available = _per_example(eligible, batch)  # [B, S]

    def choose(table: jax.Array) -> tuple[jax.Array, jax.Array]:
        quota = jnp.minimum(table[totals], available)  # [B, S], less than asked for only where too few are eligible
        room = _by_token(quota, batch) - rank_from  # [B, L], at the unit's first token
        # cum + u * size < quota in integers, with u of 16 bits: exact for tokens, unbiased for larger units
        unit = (boundary >> 16).astype(jnp.int32) * size < jnp.maximum(room, 0) << 16
        return jnp.take_along_axis(unit, jnp.maximum(unit_ids, 0), -1) & eligible, quota

    selected, quota = choose(traced.quotas)
    predicted, predict_quota = choose(traced.predict_quotas)

    share = (replace_draw >> 8).astype(jnp.float32) * 2.0**-24  # [B, L], uniform, the same at every rate
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
    n_selected, n_mask, n_random = (jnp.sum(x, dtype=jnp.float32) for x in (selected, as_mask, as_random))
    ledger = {
        "masked_fraction": (n_selected, jnp.sum(eligible, dtype=jnp.float32)),
        "mask_token_fraction": (n_mask, n_selected),
        "random_fraction": (n_random, n_selected),
        "kept_fraction": (n_selected - n_mask - n_random, n_selected),
        "quota_fraction": (jnp.sum(quota, dtype=jnp.float32), jnp.sum(available, dtype=jnp.float32)),
        "asked_fraction": (jnp.sum(traced.quotas[totals], dtype=jnp.float32), jnp.sum(totals, dtype=jnp.float32)),
        "predicted_fraction": (jnp.sum(used, dtype=jnp.float32), n_selected),
        "predict_quota_fraction": (jnp.sum(predict_quota, dtype=jnp.float32), n_selected),
    }
    return masked, ledger


def _draws(batch: Batch, seed: jax.Array) -> tuple[jax.Array, ...]:
    """Four independent words for each token, from counters alone; always threefry, so that vmap changes nothing."""
    root = jax.random.key(seed, impl="threefry2x32")

    def of_example(copy: jax.Array, example: jax.Array) -> jax.Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(root, copy), example))

    def of_token(key: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.bits(jax.random.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), position), (4,))

    keys = jax.vmap(jax.vmap(of_example))(batch["copies"], batch["example_ids"])  # [B, S, 2]
    slot = jnp.maximum(batch["segment_ids"] - 1, 0)[..., None]  # [B, L, 1]
    words = jax.vmap(jax.vmap(of_token))(jnp.take_along_axis(keys, slot, 1), batch["positions"])  # [B, L, 4]
    return words[..., 0], words[..., 1], words[..., 2], words[..., 3]


def _positions_in_score_order(batch: Batch, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For the unit that begins at each token: eligible tokens of its example in lower-scored units, and its size."""
    unit_ids, segments = batch["unit_ids"], batch["segment_ids"]  # [B, L]
    rows = jnp.arange(unit_ids.shape[0], dtype=jnp.int32)[:, None]
    eligible = (unit_ids >= 0).astype(jnp.int32)
    size = jnp.zeros_like(unit_ids).at[rows, jnp.maximum(unit_ids, 0)].add(eligible)  # [B, L], 0 where none begins
    last = jnp.iinfo(jnp.int32).max
    columns = jnp.broadcast_to(jnp.arange(unit_ids.shape[1], dtype=jnp.int32)[None, :], unit_ids.shape)
    group, _, slot = jax.lax.sort((jnp.where(size > 0, segments, last), scores, columns), num_keys=2, is_stable=True)
    sorted_size = jnp.take_along_axis(size, slot, -1)
    before = jnp.cumsum(sorted_size, -1) - sorted_size  # tokens of earlier units in the row
    counts = _per_example(eligible, batch)  # [B, S]
    starts = jnp.cumsum(counts, -1) - counts  # [B, S], tokens of earlier examples in the row
    index = jnp.clip(group - 1, 0, counts.shape[-1] - 1)
    before = before - jnp.take_along_axis(starts, index, -1)
    return jnp.zeros_like(before).at[rows, slot].set(before), size


def _per_example(values: jax.Array, batch: Batch) -> jax.Array:
    """Sums [B, L] over the tokens of each example: [B, S]."""
    examples = jnp.arange(1, batch["example_ids"].shape[-1] + 1, dtype=jnp.int32)
    mine = batch["segment_ids"][:, None, :] == examples[None, :, None]  # [B, S, L]
    return jnp.sum(values.astype(jnp.int32)[:, None, :] * mine, -1)


def _by_token(values: jax.Array, batch: Batch) -> jax.Array:
    """Spreads [B, S] over the tokens of each example: [B, L]."""
    return jnp.take_along_axis(values, jnp.maximum(batch["segment_ids"] - 1, 0), -1)

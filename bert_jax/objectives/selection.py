"""Units in score order, and which of them are selected.

Units stand in the order of their random scores, and the first ones that fit the quota of their
example are selected. Where units have weights w, they stand in the order of -log(1 - s) / w, of
their score s as a share: the earliest of exponential times whose rates are the weights. So at any
quota a unit with twice the weight of another one comes before it in two of three draws.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch

CELLS = 4096  # of the table that -log(1 - s) is read from
_STEPS = 8192  # in a cell


class Units(NamedTuple):
    """Masking units of each row, sorted by example and then by score; unused places have size 0."""

    column: jax.Array  # [B, L], where the unit begins
    size: jax.Array  # [B, L], number of its tokens
    boundary: jax.Array  # [B, L], its uniform draw, of 16 bits
    first: jax.Array  # [B, L], whether it is the first of its example
    member: jax.Array  # [B, S, L], whether it belongs to the example


class Choice(NamedTuple):
    """Result of a rule of OVERFLOW, or of `between`."""

    taken: jax.Array  # [B, L], in score order
    quota: jax.Array  # [B, S]
    shortfall: jax.Array  # [B, S], tokens by which the selection may miss its quota


def in_score_order(batch: Batch, scores: jax.Array, boundary: jax.Array) -> Units:
    """Sort the units of each example by their scores [B, L], or by times if they have weights.

    Units of the same time are sorted by score, so that equal weights leave the order as it is.
    """
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
    keys = [jnp.where(size > 0, segments, last), scores]
    if "unit_scales" in batch:
        keys.insert(1, _times(scores) * batch["unit_scales"])
    example, *_, column = jax.lax.sort((*keys, columns), num_keys=len(keys), is_stable=True)
    examples = jnp.arange(1, batch["example_ids"].shape[-1] + 1, dtype=jnp.int32)
    return Units(
        column,
        jnp.take_along_axis(size, column, -1),
        (jnp.take_along_axis(boundary, column, -1) >> 16).astype(jnp.int32),
        jnp.diff(example, axis=-1, prepend=0) != 0,
        example[:, None, :] == examples[None, :, None],
    )


def _times(scores: jax.Array) -> jax.Array:
    """Return -log(1 - s) of scores s * 2**32, straight within a cell of the table.

    No product or sum but the last one is rounded, so the times are the same on every device.
    """
    start, rise = jnp.asarray(_table()).T
    cell, step = (scores >> 20).astype(jnp.int32), (scores >> 8) & (CELLS - 1)
    return start[cell] + rise[cell] * (2 * step + 1).astype(jnp.float32)


def _table() -> np.ndarray:
    """Return where each cell begins and its rise in a step, float32 [CELLS, 2]; it never falls.

    The last cell, which has no end, rises to the mean of what it stands for.
    """
    edges = -np.log1p(-np.arange(CELLS) / CELLS)
    edges = np.append(edges, edges[-1] + 2).astype(np.float32)
    rise = np.diff(edges) / np.float32(_STEPS)
    # Eleven bits, so that the product with a number of steps is exact in float32.
    rise = (rise.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return np.stack([edges[:-1], rise], axis=-1)


def between(units: Units, low: jax.Array, high: jax.Array) -> Choice:
    """Take what the quotas `high` select and the quotas `low` do not, both [B, S], by `_fair`."""
    every = units.size > 0
    taken = _fair(units, high, every).taken & ~_fair(units, low, every).taken
    return Choice(taken, high - low, jnp.zeros_like(high))


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


def tokens_of(units: Units, taken: jax.Array, unit_ids: jax.Array) -> jax.Array:
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

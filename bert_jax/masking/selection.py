"""Sort units by their scores, and select the first ones.

The units of an example are sorted by random scores, and the first units that fit the quota of the
example are selected. So the set selected at 15 % lies inside the set selected at 40 %. Units of
sizes 2 1 3 have 0 2 3 tokens before them: at a quota of 3 the first two are selected.

If units have weights w, they are sorted by -log(1 - s) / w, where s is the score from 0 to 1. This
quotient is an exponential time with the rate w. So a unit with twice the weight of another unit
comes before it in two of three draws, at any quota.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch

CELLS = 4096  # of the table that -log(1 - s) is read from
_STEPS = 8192  # in a cell


class Units(NamedTuple):
    """Masking units of each row, sorted by example and then by score.

    A row has L places for units; places without a unit have size 0.
    """

    column: jax.Array  # [B, L], where the unit begins
    size: jax.Array  # [B, L], number of its tokens
    boundary: jax.Array  # [B, L], its uniform draw, of 16 bits
    first: jax.Array  # [B, L], whether it is the first of its example
    member: jax.Array  # [B, S, L], whether it belongs to the example


class Selection(NamedTuple):
    """The units that a rule has selected, and the quota of each example."""

    taken: jax.Array  # bool [B, L], in score order
    quota: jax.Array  # [B, S]
    shortfall: jax.Array  # [B, S], tokens by which the selection may miss its quota


def sort_units(batch: Batch, scores: jax.Array, boundary: jax.Array) -> Units:
    """Sort the units of each example by their scores [B, L], or by exponential times if weighted.

    `boundary` [B, L] has random bits of each token, which decide on the unit that crosses the
    quota. Units with equal times are sorted by score, so that equal weights leave the order as it
    is.
    """
    unit_ids, segments = batch["unit_ids"], batch["segment_ids"]  # [B, L]
    columns = jnp.arange(unit_ids.shape[1], dtype=jnp.int32)[None, :]
    rows = jnp.arange(unit_ids.shape[0], dtype=jnp.int32)[:, None]
    # [B, L]: each token adds 1 at the first column of its unit. Ids of -1 1 1 3 give 0 2 0 1.
    counted = (unit_ids >= 0).astype(jnp.int32)
    size = jnp.zeros_like(unit_ids).at[rows, jnp.maximum(unit_ids, 0)].add(counted)
    # Columns where no unit begins come last; the others by example, (time,) score and column.
    last = jnp.iinfo(jnp.int32).max
    keys = [jnp.where(size > 0, segments, last), scores]
    if "unit_scales" in batch:
        keys.insert(1, _draw_times(scores) * batch["unit_scales"])
    whole = jnp.broadcast_to(columns, unit_ids.shape)
    example, *_, column = jax.lax.sort((*keys, whole), num_keys=len(keys), is_stable=True)
    examples = jnp.arange(1, batch["example_ids"].shape[-1] + 1, dtype=jnp.int32)
    return Units(
        column,
        jnp.take_along_axis(size, column, -1),
        (jnp.take_along_axis(boundary, column, -1) >> 16).astype(jnp.int32),
        jnp.diff(example, axis=-1, prepend=0) != 0,
        example[:, None, :] == examples[None, :, None],
    )


# --- rules of selection ---------------------------------------------------------------------------


def select_fairly(units: Units, quota: jax.Array, among: jax.Array) -> Selection:
    """Select the first of the units `among` [B, L] of each example, up to its quota [B, S].

    A unit that crosses the quota is selected by chance, with its own random number u, which is the
    same at any rate. The unit is selected if cum + u * size < quota, where cum counts the tokens in
    earlier units. This rule is exact for units of one token, unbiased for larger units, and nested
    over rates. At a quota of 4, a unit of 3 tokens after 3 other tokens is selected if u < 1/3: 1
    token on average. The comparison is exact in unsigned integers for rows of up to 65,535 tokens.
    """
    room = jnp.maximum(_spread_over_units(quota, units) - _count_before(units.size, units), 0)
    reach = units.boundary.astype(jnp.uint32) * units.size.astype(jnp.uint32)
    taken = among & (reach < room.astype(jnp.uint32) << 16)  # [B, L]
    return Selection(taken, quota, jnp.zeros_like(quota))


def select_slice(units: Units, low: jax.Array, high: jax.Array) -> Selection:
    """Select the units that are selected up to the quota `high` [B, S], but not up to `low`."""
    every = units.size > 0
    below = select_fairly(units, low, every).taken
    up_to = select_fairly(units, high, every).taken
    return Selection(up_to & ~below, high - low, jnp.zeros_like(high))


def select_skipping(units: Units, quota: jax.Array, among: jax.Array) -> Selection:
    """Select units in order, but skip a unit that is larger than the rest of the quota.

    The original does this with words, in a loop over the row: at a quota of 3, units of sizes 2 3 1
    give the first and the third. Here all units are selected at first, and units that can never fit
    are removed, until the remaining ones fit. All units before the first overflow are decided
    correctly, and no later unit finds more room. The room falls with every round. So there is at
    most one more round than the largest unit present has tokens: two if all units are tokens.
    """
    quota = jnp.minimum(quota, _reduce(jnp.sum, jnp.where(among, units.size, 0), units, 0))

    def strike(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        taken, _ = state
        before = _count_before(jnp.where(taken, units.size, 0), units)
        room = _spread_over_units(quota, units) - before
        over = taken & (units.size > room)
        # [B, S], the room at the first unit of the example that overflows: the most of all rooms.
        left = _reduce(jnp.max, jnp.where(over, room, 0), units, 0)
        over &= units.size > _spread_over_units(left, units)
        return taken & ~over, jnp.any(over)

    taken, _ = jax.lax.while_loop(lambda state: state[1], strike, (among, jnp.any(among)))
    # No unit left out would fit: the selection misses its quota by less than the smallest of them.
    none = jnp.iinfo(jnp.int32).max
    smallest = _reduce(jnp.min, jnp.where(among & ~taken, units.size, none), units, none)
    return Selection(taken, quota, jnp.where(smallest == none, 0, smallest - 1))


RULES = {"fair": select_fairly, "skip": select_skipping}  # the values of masking.overflow


# --- from examples to units to tokens -------------------------------------------------------------


def spread_over_tokens(units: Units, taken: jax.Array, unit_ids: jax.Array) -> jax.Array:
    """Mark the tokens of the selected units, bool [B, L] by column."""
    rows = jnp.arange(unit_ids.shape[0], dtype=jnp.int32)[:, None]
    begins = jnp.zeros_like(taken).at[rows, units.column].set(taken)
    return jnp.take_along_axis(begins, jnp.maximum(unit_ids, 0), -1) & (unit_ids >= 0)


def _count_before(size: jax.Array, units: Units) -> jax.Array:
    """Count the tokens in earlier units of the same example, for each unit [B, L]."""
    # Sizes 2 1 | 3 2 of two examples: 0 2 3 6 in the row, less 0 0 3 3 where the examples begin.
    before = jnp.cumsum(size, -1) - size
    return before - jax.lax.cummax(jnp.where(units.first, before, 0), axis=1)


def _spread_over_units(values: jax.Array, units: Units) -> jax.Array:
    """Return for each unit [B, L] the value of its example, from `values` [B, S]."""
    return jnp.sum(jnp.where(units.member, values[..., None], 0), 1)


def _reduce(reduce: Any, values: jax.Array, units: Units, empty: int) -> jax.Array:
    """Reduce values of units [B, L] to one value for each example [B, S], such as their sum.

    A unit of another example counts as `empty`.
    """
    return reduce(jnp.where(units.member, values[:, None, :], empty), -1)


# --- times of weighted units ----------------------------------------------------------------------


def _draw_times(scores: jax.Array) -> jax.Array:
    """Return -log(1 - s) for scores s * 2**32, from a table that is linear within each cell.

    Only the last sum is rounded, so the times are the same on every device.
    """
    start, rise = jnp.asarray(_make_table()).T
    cell = (scores >> 20).astype(jnp.int32)
    step = (scores >> 8) & (CELLS - 1)
    return start[cell] + rise[cell] * (2 * step + 1).astype(jnp.float32)


def _make_table() -> np.ndarray:
    """Return the table from which `_draw_times` reads -log(1 - s), float32 [CELLS, 2].

    Each cell is an equal part of the scores from 0 to 1. The row of a cell has the value where the
    cell begins, and the rise from one of its steps to the next. The values never fall from cell to
    cell. In the last cell -log(1 - s) has no upper end. The rise of this cell is such that the cell
    has the mean of -log(1 - s) over its scores.
    """
    edges = -np.log1p(-np.arange(CELLS) / CELLS)
    edges = np.append(edges, edges[-1] + 2).astype(np.float32)
    rise = np.diff(edges) / np.float32(_STEPS)
    # Eleven bits, so that the product with a number of steps is exact in float32.
    rise = (rise.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return np.stack([edges[:-1], rise], axis=-1)

"""Corruption of a batch on the device: a pure function of (seed, copy, example, position).

Every unit has one random score. The units with the lowest scores are selected, up to the quota of
their example. A selected token becomes [MASK], a random token, or stays, and the model predicts it.

If the prediction rate is above the masking rate, an example is read in several views. Each view
selects other units: the next ones in the order of the scores (`quotas.selection_quotas`). The views
of an example share the random number that rounds their quotas. So the mean rate is exact in each
view, and in all views together.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch, Metrics, Special, StepInputs
from bert_jax.config import knobs
from bert_jax.masking import draws, rates, selection
from bert_jax.masking.drawn_quotas import DECILES, RateTables, multiply_rates
from bert_jax.masking.quotas import Quotas
from bert_jax.masking.selection import Selection, Units


def corrupt_batch(
    batch: Batch,
    step_inputs: StepInputs,
    *,
    settings: knobs.Masking,
    special: Special,
    vocab_size: int,
    slots: int,
    token_draws: bool = False,
) -> tuple[Batch, Metrics]:
    """Corrupt the tokens of a batch.

    Args:
      batch: the host keys of `bert_jax.batch`.
      step_inputs: the quotas or the tables of drawn rates, the replacement shares, and the seed.
      settings: the rules of masking. The rates in it are read only if a batch has views.
      special: ids of the special tokens, of which [MASK] is used.
      vocab_size: number of tokens, without the padding of the table.
      slots: prediction slots a row, K.
      token_draws: whether to add the random bits by which a generator draws tokens.

    Returns:
      The batch with `inputs` and `predict_*` added, and the ledger: {metric: (sum, count)}.
    """
    tokens, unit_ids = batch["tokens"], batch["unit_ids"]  # [B, L]
    bits = draws.draw_token_bits(batch, step_inputs.seed)
    scores, boundary, replace_word, token_word = bits  # [B, L]

    # How many tokens: the quota of each example, from the number of its tokens.
    eligible = unit_ids >= 0  # [B, L]
    counted = eligible if settings.count == "eligible" else batch["segment_ids"] > 0
    lengths = sum_by_example(counted, batch)  # [B, S], the tokens that the rate multiplies
    available = sum_by_example(eligible, batch)  # [B, S], an upper bound of the quota
    asked = _ask_quotas(batch, step_inputs, settings, lengths)

    # Which tokens: the first units in the order of their scores.
    units = selection.sort_units(batch, scores, boundary)
    selected, predicted = _select_units(batch, units, settings, asked, available)
    hit = selection.spread_over_tokens(units, selected.taken, unit_ids)  # [B, L]
    wanted = selection.spread_over_tokens(units, predicted.taken, unit_ids)  # [B, L]

    # What stands in their place.
    candidates = replacement_ids(settings, special, vocab_size)
    random = jnp.asarray(candidates)[(token_word % len(candidates)).astype(jnp.int32)]  # [B, L]
    as_mask, as_random = _split_replacements(hit, replace_word, step_inputs.replace)
    inputs = jnp.where(as_mask, special.mask, jnp.where(as_random, random, tokens))
    masked = {**batch, "inputs": inputs, **_fill_slots(tokens, wanted, slots)}
    if token_draws:
        columns = masked["predict_positions"]
        masked["predict_draws"] = jnp.take_along_axis(token_word, columns, -1)
    if step_inputs.drawn is not None and step_inputs.drawn.weights is not None:
        weights = step_inputs.drawn.weights[available, jnp.minimum(asked.here, available)]  # [B, S]
        masked["bound_weights"] = _spread_over_slots(weights, masked)

    n_selected = _count(hit)
    n_mask = _count(as_mask)
    n_random = _count(as_random)
    ledger = {
        "masked_fraction": (n_selected, _count(eligible)),
        "mask_token_fraction": (n_mask, n_selected),
        "random_fraction": (n_random, n_selected),
        "kept_fraction": (n_selected - n_mask - n_random, n_selected),
        "asked_fraction": (_count(asked.here), _count(lengths)),
        "predicted_fraction": (_count(masked["predict_weights"] > 0), n_selected),
        "quota_fraction": (_count(selected.quota), _count(available)),
        "predict_quota_fraction": (_count(predicted.quota), n_selected),
    }
    if settings.overflow == "skip":
        ledger["shortfall_fraction"] = (_count(selected.shortfall), _count(available))
        ledger["predict_shortfall_fraction"] = (_count(predicted.shortfall), n_selected)
    if "views" in batch:
        distinct = _count_all_views(batch, units, settings, asked, available)
        ledger["distinct_fraction"] = (distinct, _count_tokens(units, selected.taken))
    if "unit_scales" in batch:
        ledger["weight_fraction"] = _sum_weights(batch["unit_scales"], units, selected.taken)
    if asked.mean is not None:
        ledger["expected_fraction"] = (_count(asked.mean), _count(lengths))
    if step_inputs.drawn is not None:
        own = sum_by_example(hit, batch)
        ledger |= _count_by_decile(step_inputs.drawn, asked, lengths, own, available)
    if lengths.shape[1] > 1:
        ledger["examples_per_row"] = (_count(lengths > 0), _count(jnp.any(lengths > 0, axis=1)))
    return masked, ledger


# --- how many tokens ------------------------------------------------------------------------------


class Asked(NamedTuple):
    """The quotas of each example in this view, in tokens."""

    earlier: jax.Array  # int32 [B, S], the quota of the views before this one
    selected: jax.Array  # int32 [B, S], the quota of these views and this one
    predicted: jax.Array  # int32 [B, S], how many of the selected tokens are predicted
    mean: jax.Array | None = None  # float32 [B, S], of `here` over all draws of a rounding
    u: jax.Array | None = None  # uint32 [B, S], by which a rate is drawn, times 2**32

    @property
    def here(self) -> jax.Array:
        """The number of tokens to select in this view: its quota less the earlier views' quota."""
        return self.selected - self.earlier


def _ask_quotas(
    batch: Batch, step_inputs: StepInputs, settings: knobs.Masking, lengths: jax.Array
) -> Asked:
    """Compute the quotas of examples of `lengths` tokens [B, S], rounded as the settings say."""
    word = None
    if settings.rounding == "unbiased":
        word = draws.draw_roundings(batch, step_inputs.seed)
    if step_inputs.drawn is not None:
        u = draws.draw_u(batch, step_inputs.seed)
        quota = draw_quotas(step_inputs.drawn, u, lengths, word)
        return Asked(jnp.zeros_like(quota), quota, quota, u=u)
    predicted = _look_up(step_inputs.predict_quotas, lengths)
    if "views" in batch:  # quotas are [V + 1, L + 1]
        first = _look_up(step_inputs.quotas, batch["views"], lengths)
        last = _look_up(step_inputs.quotas, batch["views"] + 1, lengths)
    else:
        first = Quotas(jnp.zeros_like(lengths), jnp.zeros_like(lengths, jnp.uint32))
        last = _look_up(step_inputs.quotas, lengths)
    if word is None:
        return Asked(first.whole, last.whole, predicted.whole)
    # The quota 4.35 is 5 if the word lies in the first 35 % of its range, and 4 otherwise.
    quotas = (first, last, predicted)
    earlier, selected, among = (one.whole + (word < one.chance) for one in quotas)
    start, end = (jnp.float32(q.whole) + jnp.float32(q.chance) * 2.0**-32 for q in (first, last))
    return Asked(earlier, selected, among, mean=end - start)


def _look_up(table: Quotas, *at: jax.Array) -> Quotas:
    """Look up the quotas of examples [B, S] in a table, at indices such as their lengths."""
    return Quotas(jnp.asarray(table.whole)[at], jnp.asarray(table.chance)[at])


def draw_quotas(
    drawn: RateTables, u: jax.Array, lengths: jax.Array, word: jax.Array | None = None
) -> jax.Array:
    """Compute the quotas of drawn rates, int32 [B, S], at least 1 for an example with a token.

    Args:
      drawn: the tables of the rate's distribution.
      u: the uniform number by which each example draws its rate, times 2**32, uint32 [B, S].
      lengths: the number of tokens that the rate multiplies [B, S].
      word: random bits that round the products, uint32 [B, S]. If None, they are rounded to the
        nearest.
    """
    # [B, S, 3]: of the draws u, uint32 [B, S], 12 bits name the cell and 20 the place in it.
    cells = jnp.asarray(drawn.rates)[(u >> 20).astype(jnp.int32)]
    within = (u & 0xFFFFF).astype(jnp.float32) * 2.0**-20
    exact, rest = multiply_rates(lengths.astype(jnp.float32), cells, within)  # [B, S]
    if word is None:
        quotas = (exact + rest).round()
    else:
        # Whole numbers are taken off first: the fraction keeps its bits, whatever the length.
        whole = jnp.floor(exact)
        rest = (exact - whole) + rest
        more = jnp.floor(rest)
        fraction = jnp.minimum(rest - more, 1 - 2.0**-24)  # 1 would be beyond 32 bits
        up = word < (fraction * 2.0**32).astype(jnp.uint32)  # 4.35 is 5 by a chance of 0.35
        quotas = whole + more + up
    return jnp.where(lengths > 0, quotas.clip(1), 0).astype(jnp.int32)


# --- which tokens ---------------------------------------------------------------------------------


def _select_units(
    batch: Batch, units: Units, settings: knobs.Masking, asked: Asked, available: jax.Array
) -> tuple[Selection, Selection]:
    """Select the units to corrupt, and among these the units to predict; return both."""
    high = jnp.minimum(asked.selected, available)  # [B, S]
    if "views" in batch:
        low = jnp.minimum(asked.earlier, available)
        corrupted = selection.select_slice(units, low, high)
        return corrupted, corrupted
    select = selection.RULES[settings.overflow]
    corrupted = select(units, high, units.size > 0)
    return corrupted, select(units, jnp.minimum(asked.predicted, available), corrupted.taken)


# --- what stands in their place -------------------------------------------------------------------


def replacement_ids(settings: knobs.Masking, special: Special, vocab_size: int) -> np.ndarray:
    """Return the token ids from which random replacements are drawn."""
    ids = np.arange(vocab_size, dtype=np.int32)
    if settings.random_from == "all":
        return ids
    return np.setdiff1d(ids, np.asarray(special, np.int32))


def _split_replacements(
    hit: jax.Array, word: jax.Array, shares: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Tell which selected tokens [B, L] become [MASK], and which become random tokens.

    `word` has 32 random bits for each token. With the shares 0.8, 0.1 and 0.1, a token becomes
    random if its bits, read as a number from 0 to 1, are between 0.8 and 0.9.
    """
    share = (word >> 8).astype(jnp.float32) * 2.0**-24  # [B, L], uniform, same at all rates
    as_mask = hit & (share < shares[0])
    return as_mask, hit & ~as_mask & (share < shares[0] + shares[1])


def _fill_slots(tokens: jax.Array, predicted: jax.Array, slots: int) -> Batch:
    """Put the predicted tokens [B, L] of each row into its K slots, in the columns' order.

    The result has the keys `predict_positions`, `predict_targets` and `predict_weights`.
    """
    length = tokens.shape[-1]
    columns = jnp.arange(length, dtype=jnp.int32)[None, :]
    # Columns that are not predicted become L and are sorted behind: of 6, 2 and 5 are 2 5 6 6 6 6.
    order = jnp.sort(jnp.where(predicted, columns, length), axis=-1)[:, :slots]  # [B, K]
    used = order < length
    order = jnp.minimum(order, length - 1)
    return {
        "predict_positions": order,
        "predict_targets": jnp.take_along_axis(tokens, order, -1),
        "predict_weights": used.astype(jnp.float32),
    }


def _spread_over_slots(values: jax.Array, masked: Batch) -> jax.Array:
    """Return for each prediction slot [B, K] the value of its example, from `values` [B, S]."""
    example = jnp.take_along_axis(masked["segment_ids"], masked["predict_positions"], -1)
    return jnp.take_along_axis(values, jnp.maximum(example - 1, 0), -1)


# --- the ledger -----------------------------------------------------------------------------------


def sum_by_example(values: jax.Array, batch: Batch) -> jax.Array:
    """Sum values of tokens [B, L] over each example: [B, S]."""
    examples = jnp.arange(1, batch["example_ids"].shape[-1] + 1, dtype=jnp.int32)
    member = batch["segment_ids"][:, None, :] == examples[None, :, None]  # [B, S, L]
    return jnp.sum(values.astype(jnp.int32)[:, None, :] * member, -1)


def _count(values: jax.Array) -> jax.Array:
    """Sum an array in float32."""
    return jnp.sum(values, dtype=jnp.float32)


def _count_tokens(units: Units, taken: jax.Array) -> jax.Array:
    """Count the tokens of the units that are selected (`taken`)."""
    return _count(jnp.where(taken, units.size, 0))


def _count_all_views(
    batch: Batch, units: Units, settings: knobs.Masking, asked: Asked, available: jax.Array
) -> jax.Array:
    """Count the tokens that all views of an example select together; count them in the last view.

    The count does not use the selection of each view, so that the ledger can check that no two
    views select the same token.
    """
    high = jnp.minimum(asked.selected, available)
    together = selection.select_slice(units, jnp.zeros_like(high), high).taken
    last = batch["views"][:, :1] == rates.count_views(settings) - 1  # [B, 1]
    return _count_tokens(units, together & last)


def _count_by_decile(
    drawn: RateTables, asked: Asked, lengths: jax.Array, selected: jax.Array, available: jax.Array
) -> Metrics:
    """Count tokens for each tenth of u, the uniform number by which an example's rate is drawn.

    `masked_decile_N` is the pair (selected tokens, available tokens), summed over the examples of
    tenth N. `asked_decile_N` is the pair (quotas, quotas that the distribution gives on average).
    """
    assert asked.u is not None
    decile = (asked.u // jnp.uint32(-(-(2**32) // DECILES))).astype(jnp.int32)  # [B, S]
    expected = drawn.expected[decile, lengths]
    ledger: Metrics = {}
    for number in range(DECILES):
        own = decile == number
        counts = (selected, available, asked.here, expected)
        sums = [_count(jnp.where(own, values, 0)) for values in counts]
        ledger[f"masked_decile_{number}"] = (sums[0], sums[1])
        ledger[f"asked_decile_{number}"] = (sums[2], sums[3])
    return ledger


def _sum_weights(scales: jax.Array, units: Units, taken: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sum the weights of the tokens in selected units, and of the tokens in all units."""
    scales = jnp.take_along_axis(scales, units.column, -1)  # [B, L], in score order
    weights = jnp.where(scales > 0, units.size / jnp.where(scales > 0, scales, 1.0), 0.0)
    return _count(jnp.where(taken, weights, 0.0)), _count(weights)

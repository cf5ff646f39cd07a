"""Quotas of rates that are drawn for each example: their tables, moments and probabilities.

An example has a uniform number u, and a quantile function of `rates` turns u into its rate. The
table of that function and the rounding determine three things. They are the table that the program
reads, the counts that the ledger expects, and the weights of the bound on the likelihood
(`objectives/diffusion.py`).
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import knobs
from bert_jax.masking import rates

DECILES = 10
_PER_DECILE = 2048  # draws by which a decile's counts are computed


# --- what the program reads -----------------------------------------------------------------------


class RateTables(NamedTuple):
    """The tables of a distribution of rates.

    The tables are traced, so that runs with different distributions share a program.
    """

    rates: Any  # float32 [CELLS, 3], the rate where a cell begins, in two parts; its rise
    expected: Any  # float32 [DECILES, L + 1], mean quota of an example, by its length
    # Weights of the bound, float32 [L + 1, L + 1] by length and quota, for objective diffusion.
    weights: Any = None


@functools.lru_cache(64)  # the same arrays at every update: they cross to the device once
def make_rate_tables(settings: knobs.Masking, length: int, gamma: float = 0.0) -> RateTables:
    """Make the tables of the rate's distribution for examples of up to `length` tokens.

    With a `gamma` above 0 they include the weights of objective `diffusion`.
    """
    expected = quota_moments(settings, length)[0].astype(np.float32)
    weights = bound_weights(settings, length, gamma).astype(np.float32) if gamma else None
    return RateTables(_split_table(settings), expected, weights)


def _split_table(settings: knobs.Masking) -> np.ndarray:
    """Return the table of rates that the program reads, float32 [CELLS, 3].

    A cell has three numbers: two whose sum is the rate where the cell starts, and the rise of the
    rate to the cell's end.
    """
    start, end = rates.law_table(settings).T
    # Eight bits, so that the product with a length below 65,536 is exact in float32.
    high = (start.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    return np.stack([high, start - high, end - start], axis=-1).astype(np.float32)


def multiply_rates(tokens: Any, cells: Any, within: Any) -> tuple[Any, Any]:
    """Return two float32 numbers whose sum is tokens times rate; the first is exact.

    `cells` are rows of `RateTables.rates`, and `within` is the place of an example in its cell,
    from 0 to 1. Both numpy and jax arrays are accepted, so that the ledger and the program round in
    the same way.
    """
    high, low, rise = (cells[..., part] for part in range(3))
    return tokens * high, tokens * low + tokens * (within * rise)


# --- moments and probabilities --------------------------------------------------------------------


@functools.lru_cache(64)
def quota_moments(settings: knobs.Masking, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the variance of quotas for each tenth of u, [DECILES, length + 1] each.

    The second axis is the number of tokens of the example.
    """
    count = DECILES * _PER_DECILE
    # Evenly spread draws [count]: the cell of each, and its place in the cell.
    cell = (np.arange(count) + 0.5) / count * rates.CELLS
    cells = _split_table(settings)[cell.astype(np.int64)]
    within = (cell % 1).astype(np.float32)
    mean, variance = np.zeros((2, DECILES, length + 1))
    for n in map(np.float32, range(1, length + 1)):
        exact, rest = multiply_rates(n, cells, within)  # [count]
        quotas = exact + rest
        if settings.rounding == "nearest":
            quotas = quotas.round()
        quotas = quotas.clip(1).reshape(DECILES, _PER_DECILE).astype(np.float64)
        up = quotas % 1  # the chance that a draw rounds up, whose variance is up * (1 - up)
        mean[:, int(n)] = quotas.mean(axis=1)
        variance[:, int(n)] = quotas.var(axis=1) + (up * (1 - up)).mean(axis=1)
    return mean, variance


def quota_probabilities(settings: knobs.Masking, length: int) -> np.ndarray:
    """Return P(k | n), the probability of a quota k of n tokens, [length + 1, length + 1] (n, k).

    A quota is n times the rate, rounded by `masking.rounding`, and at least 1. The rate is read
    from the table that the program reads. With rounding `nearest` the probability is exact, unless
    a product lies exactly between two whole numbers.
    """
    result = np.zeros((length + 1, length + 1))
    for n in range(1, length + 1):
        result[n, 1 : n + 1] = _find_chances(settings, n)
    return result


def _find_chances(settings: knobs.Masking, n: int) -> np.ndarray:
    """Return the probabilities of the quotas from 1 to n of an example of n tokens [n]."""
    table = rates.law_table(settings)
    if table[0, 0] > table[-1, 1]:
        table = table[::-1, ::-1]
    # [2 * CELLS]: the ends of the cells in rising order, and the share of examples below each end.
    ends = table.ravel()
    shares = np.repeat(np.arange(rates.CELLS + 1) / rates.CELLS, 2)[1:-1]
    if settings.rounding == "unbiased":
        return _find_chances_of_draws(ends, shares, n)
    # The quota is at most k if the rate is below (k + 1/2) / n.
    below = np.interp((np.arange(1, n) + 0.5) / n, ends, shares, left=0.0, right=1.0)
    return np.diff(below, prepend=0.0, append=1.0)


def _find_chances_of_draws(ends: np.ndarray, shares: np.ndarray, n: int) -> np.ndarray:
    """Return the probabilities of the quotas from 1 to n if random bits round n times the rate.

    Between two neighbouring rates of `ends`, the product n times the rate is evenly distributed.
    Each stretch between them is cut at the whole numbers, so a piece lies between some k and k + 1.
    A piece from 4.2 to 4.5 has the middle 4.35: 35 % of its examples have the quota 5, and 65 %
    have the quota 4.
    """
    cuts = np.arange(n + 1) / n
    below = np.interp(cuts, ends, shares, left=0.0, right=1.0)
    edges = np.concatenate([ends, cuts])
    order = np.argsort(edges, kind="stable")
    edges = n * edges[order]
    # If many examples have the very same rate, a cut there lies behind all of them.
    weights = np.diff(np.maximum.accumulate(np.concatenate([shares, below])[order]))
    middles = np.maximum((edges[1:] + edges[:-1]) / 2, 1.0)
    quotas = middles.astype(np.int64)
    up = middles - quotas
    found = np.bincount(quotas, weights * (1 - up), n + 2)
    found += np.bincount(quotas + 1, weights * up, n + 2)
    return found[1 : n + 1]


def bound_weights(settings: knobs.Masking, length: int, gamma: float = 1.0) -> np.ndarray:
    """Return the table (1 / (k P(k | n))) ** gamma by n and k; quotas k that never occur have 0.

    With a gamma below 1 the weights are scaled, so that their mean over predictions is 1.
    """
    # [L + 1, L + 1], k P(k | n): how many predictions come with k masked tokens of n.
    predictions = quota_probabilities(settings, length) * np.arange(length + 1)
    weights = np.where(predictions > 0, predictions, np.inf) ** -gamma
    if gamma < 1:
        means = (predictions * weights).sum(1) / np.maximum(predictions.sum(1), 1e-300)
        weights /= np.maximum(means, 1e-300)[:, None]
    return weights


def covers_quotas(settings: knobs.Masking, length: int) -> bool:
    """Tell whether every quota from 1 to `length` can occur in an example of `length` tokens.

    If so, every quota can occur in shorter examples too.
    """
    return settings.draw != "fixed" and bool((_find_chances(settings, length) > 0).all())

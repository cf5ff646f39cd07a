"""Laws of the masking rate: phases over the steps of a run, and rates drawn for each example.

A drawn rate is a quantile function of u, which is uniform from 0 to 1: the function of its name
below. The program reads it from a table of CELLS pieces, so the law is what the table says, in
ledgers, costs and bounds alike. Computed with numpy alone: planning many runs needs no jax.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import knobs

CELLS = 4096
DECILES = 10
_PER_DECILE = 2048  # draws by which a decile's counts are computed


class Drawn(NamedTuple):
    """A law as the program takes it: traced, so that runs of different laws share a program."""

    rates: np.ndarray  # float32 [CELLS, 3], the rate where a cell begins, in two parts; its rise
    expected: np.ndarray  # float32 [DECILES, L + 1], mean quota of an example, by its length
    # Of the bound on the likelihood: float32 [L + 1, L + 1] by length and quota, where it is used.
    weights: np.ndarray | None = None


# --- drawn rates: a function for each value of masking.draw ---------------------------------------


def uniform(settings: knobs.Masking, u: np.ndarray) -> np.ndarray:
    """Return rates from draw_low to draw_high."""
    return settings.draw_low + u * (settings.draw_high - settings.draw_low)


def cosine_low(settings: knobs.Masking, u: np.ndarray) -> np.ndarray:
    """Return rates of 1 - cos(pi u / 2), which are 0.36 on average."""
    return 2 * np.sin(np.pi * u / 4) ** 2


def cosine_high(settings: knobs.Masking, u: np.ndarray) -> np.ndarray:
    """Return rates of cos(pi u / 2), which are 0.64 on average."""
    return np.cos(np.pi * u / 2)


def beta(settings: knobs.Masking, u: np.ndarray) -> np.ndarray:
    """Return rates of the beta distribution."""
    from scipy import special  # 0.1 s, which other laws do not pay

    return special.betaincinv(settings.draw_alpha, settings.draw_beta, u)


def bimodal(settings: knobs.Masking, u: np.ndarray) -> np.ndarray:
    """Return draw_high for a share of the examples, in whole cells, and draw_low for the others."""
    low = 1 - np.round(settings.draw_share * CELLS) / CELLS
    return np.where(u < low, settings.draw_low, settings.draw_high)


@functools.lru_cache(64)  # of every update of a run
def ends(settings: knobs.Masking) -> np.ndarray:
    """Return the rates at both ends of each cell, [CELLS, 2] in float64."""
    quantile = globals()[settings.draw]
    edges = np.arange(CELLS + 1) / CELLS
    inside = np.stack([np.nextafter(edges[:-1], 1), np.nextafter(edges[1:], 0)], axis=-1)
    inside = np.clip(inside, 2.0**-64, None)  # nearer to 0 beta's quantiles are not computed
    return np.clip(quantile(settings, inside), 0.0, 1.0)


def rates(settings: knobs.Masking, u: np.ndarray) -> np.ndarray:
    """Return the rates of the table at u below 1."""
    cell = np.asarray(u) * CELLS
    start, end = np.moveaxis(ends(settings)[cell.astype(np.int64)], -1, 0)
    return start + (cell - np.floor(cell)) * (end - start)


@functools.lru_cache(8)  # of every update of a run
def drawn(settings: knobs.Masking, length: int, gamma: float = 0.0) -> Drawn:
    """Return the table of a law, and what its deciles select of up to `length` tokens.

    With a `gamma` above 0 it has the weights of objective `diffusion` too.
    """
    expected = moments(settings, length)[0].astype(np.float32)
    weights = bound_weights(settings, length, gamma).astype(np.float32) if gamma else None
    return Drawn(_table(settings), expected, weights)


def _table(settings: knobs.Masking) -> np.ndarray:
    start, end = np.moveaxis(ends(settings), -1, 0)
    # Eight bits, so that the product with a length below 65,536 is exact in float32.
    high = (start.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    return np.stack([high, start - high, end - start], axis=-1).astype(np.float32)


def products(tokens: Any, cells: Any, within: Any) -> tuple[Any, Any]:
    """Return tokens times rate in two parts, float32, of which the first has no rounding error.

    Arrays are those of numpy or of jax: what is expected is rounded as what is selected.

    Args:
      tokens: numbers of tokens.
      cells: rows of `Drawn.rates`, with a last axis of 3.
      within: which share of its cell an example lies in.
    """
    high, low, rise = (cells[..., part] for part in range(3))
    return tokens * high, tokens * low + tokens * (within * rise)


@functools.lru_cache(64)
def moments(settings: knobs.Masking, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of the quotas of each decile of u, [DECILES, length + 1] each."""
    count = DECILES * _PER_DECILE
    cell = (np.arange(count) + 0.5) / count * CELLS
    cells, within = _table(settings)[cell.astype(np.int64)], (cell % 1).astype(np.float32)
    mean, variance = np.zeros((2, DECILES, length + 1))
    for n in map(np.float32, range(1, length + 1)):
        exact, rest = products(n, cells, within)
        quotas = exact + rest
        if settings.rounding == "nearest":
            quotas = quotas.round()
        quotas = quotas.clip(1).reshape(DECILES, _PER_DECILE).astype(np.float64)
        up = quotas % 1  # the chance that a draw rounds up, whose variance is up * (1 - up)
        mean[:, int(n)] = quotas.mean(axis=1)
        variance[:, int(n)] = quotas.var(axis=1) + (up * (1 - up)).mean(axis=1)
    return mean, variance


def probabilities(settings: knobs.Masking, length: int) -> np.ndarray:
    """Return P(k | n), the probability of a quota k of n tokens, [length + 1, length + 1].

    A quota is the product of n and the rate, rounded by `masking.rounding`, and at least 1. The
    rate is that of the table, so by nearest the probability is exact but for products that are
    exactly between two numbers.
    """
    result = np.zeros((length + 1, length + 1))
    for n in range(1, length + 1):
        result[n, 1 : n + 1] = _chances(settings, n)
    return result


def _chances(settings: knobs.Masking, n: int) -> np.ndarray:
    """Return the probabilities of the quotas 1 to n of n tokens."""
    table = ends(settings)
    if table[0, 0] > table[-1, 1]:
        table = table[::-1, ::-1]
    rates, shares = table.ravel(), np.repeat(np.arange(CELLS + 1) / CELLS, 2)[1:-1]
    if settings.rounding == "unbiased":
        return _chances_of_draws(rates, shares, n)
    below = np.interp((np.arange(1, n) + 0.5) / n, rates, shares, left=0.0, right=1.0)
    return np.diff(below, prepend=0.0, append=1.0)


def _chances_of_draws(rates: np.ndarray, shares: np.ndarray, n: int) -> np.ndarray:
    """Return the probabilities of the quotas 1 to n where a draw rounds the product of n and rate.

    Between two neighbouring `rates` the product is evenly spread. Cut at the whole numbers, each
    piece lies between some k and k + 1. By the fraction of its middle it gives k + 1, else k.

    Args:
      rates: ends of the cells, in rising order.
      shares: the share of examples below each rate.
      n: number of tokens.
    """
    cuts = np.arange(n + 1) / n
    below = np.interp(cuts, rates, shares, left=0.0, right=1.0)
    edges = np.concatenate([rates, cuts])
    order = np.argsort(edges, kind="stable")
    edges = n * edges[order]
    # Where many examples have the very same rate, a cut there lies behind all of them.
    weights = np.diff(np.maximum.accumulate(np.concatenate([shares, below])[order]))
    middles = np.maximum((edges[1:] + edges[:-1]) / 2, 1.0)
    quotas = middles.astype(np.int64)
    up = middles - quotas
    found = np.bincount(quotas, weights * (1 - up), n + 2)
    found += np.bincount(quotas + 1, weights * up, n + 2)
    return found[1 : n + 1]


def bound_weights(settings: knobs.Masking, length: int, gamma: float = 1.0) -> np.ndarray:
    """Return (1 / (k P(k | n))) ** gamma by n and k; below 1, scaled to a mean of 1 by prediction.

    Quotas that do not occur have the weight 0.
    """
    chances, quotas = probabilities(settings, length), np.arange(length + 1)
    products = chances * quotas
    weights = np.where(products > 0, products, np.inf) ** -gamma
    if gamma < 1:
        means = (products * weights).sum(1) / np.maximum(products.sum(1), 1e-300)
        weights /= np.maximum(means, 1e-300)[:, None]
    return weights


def covers(settings: knobs.Masking, length: int) -> bool:
    """Tell whether every quota from 1 to `length` occurs; then all of fewer tokens occur too."""
    return settings.draw != "fixed" and bool((_chances(settings, length) > 0).all())


def views(settings: knobs.Masking) -> int:
    """Return in how many views a run reads an example: more where it predicts above its rate."""
    most = settings.prediction_rate
    if settings.draw != "fixed" or phases(settings) or most is None or most <= settings.rate:
        return 1
    return math.ceil(most / settings.rate - 1e-9)  # 0.6 / 0.2 is not quite 3


# --- phases over the steps ------------------------------------------------------------------------


def phases(settings: knobs.Masking) -> tuple[tuple[float, float, str], ...]:
    """Return the phases of a schedule: until which share of the steps, to which rate, and how."""
    if settings.schedule == "linear" and settings.final_rate is not None:
        return ((1.0, settings.final_rate, "linear"),)
    return settings.phases


def rate_at(settings: knobs.Masking, step: int, steps: int) -> float:
    """Return the rate of the update with 0-based index `step`; on average, if it is drawn."""
    if settings.draw != "fixed":
        return float(ends(settings).mean())
    share = min(step / max(steps - 1, 1), 1.0)
    begin, rate = 0.0, settings.rate
    for until, to, how in phases(settings):
        if share < until or (share == until and how != "step"):
            return rate + _way(how, (share - begin) / (until - begin)) * (to - rate)
        begin, rate = until, to
    return rate


def mean_rate(settings: knobs.Masking, share: float = 1.0) -> float:
    """Return the mean rate over the first `share` of training."""
    if settings.draw != "fixed" or share <= 0:
        return rate_at(settings, 0, 2)
    begin, rate, total = 0.0, settings.rate, 0.0
    for until, to, how in (*phases(settings), (math.inf, settings.rate, "step")):
        part = min(share, until) - begin
        done = part / (until - begin)
        total += part * rate
        if done and how == "linear":
            total += part * (to - rate) * done / 2
        elif done and how == "cosine":
            total += part * (to - rate) * (1 - math.sin(math.pi * done) / (math.pi * done)) / 2
        if share <= until:
            break
        begin, rate = until, to
    return total / share


def extremes(settings: knobs.Masking) -> tuple[float, float]:
    """Return the lowest and the highest rate that an example may have."""
    if settings.draw != "fixed":
        table = ends(settings)
        return float(table.min()), float(table.max())
    every = [settings.rate, *(rate for _, rate, _ in phases(settings))]
    return min(every), max(every)


def fault_of_phases(settings: knobs.Masking) -> str:
    """Name what is wrong with masking.phases; return "" if nothing is."""
    bounds = [0.0, *(until for until, _, _ in settings.phases)]
    for (until, rate, how), (before, after) in zip(
        settings.phases, itertools.pairwise(bounds), strict=True
    ):
        if not before < after <= 1:
            return f"a phase until {until:g} begins at {before:g}"
        if not 0 < rate <= 1:
            return f"a phase to the rate {rate:g}"
        if how not in ("step", "linear", "cosine"):
            return f"a phase by {how!r}, which is none of step, linear, cosine"
        if how == "step" and until == 1:
            return "a step at the end of training"
    return ""


def _way(how: str, share: float) -> float:
    """Return which share of the way from one rate to the next a share of a phase has made."""
    return {"step": 0.0, "linear": share, "cosine": (1 - math.cos(math.pi * share)) / 2}[how]

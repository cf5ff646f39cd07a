"""Masking rates: a number, phases over the steps of a run, or a draw for each example.

A drawn rate is a quantile function (a row of LAWS) of u, a uniform number from 0 to 1. The program
reads this function from a table of CELLS straight pieces. Ledgers, costs and bounds use the same
table, so they know the exact distribution. All of this is numpy: planning many runs needs no jax.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.config import knobs

CELLS = 4096


# --- rates that are drawn for each example --------------------------------------------------------


def draw_beta(settings: knobs.Masking, u: np.ndarray) -> np.ndarray:
    """Return the rates of the beta distribution at the quantiles u."""
    from scipy import special  # 0.1 s, which other laws do not pay

    return special.betaincinv(settings.draw_alpha, settings.draw_beta, u)


LAWS: dict[str, Callable[[knobs.Masking, np.ndarray], np.ndarray]] = {  # values of masking.draw
    "uniform": lambda knob, u: knob.draw_low + u * (knob.draw_high - knob.draw_low),
    "cosine_low": lambda knob, u: 2 * np.sin(np.pi * u / 4) ** 2,  # 1 - cos(pi u / 2): mean 0.36
    "cosine_high": lambda knob, u: np.cos(np.pi * u / 2),  # mean 0.64
    "beta": draw_beta,
}


@functools.lru_cache(64)
def law_table(settings: knobs.Masking) -> np.ndarray:
    """Return the rates at the two ends of each cell of a quantile function, float64 [CELLS, 2].

    With 4 cells, the uniform distribution has the rows (0, 1/4), (1/4, 1/2), (1/2, 3/4), (3/4, 1).
    """
    edges = np.arange(CELLS + 1) / CELLS
    inside = np.stack([np.nextafter(edges[:-1], 1), np.nextafter(edges[1:], 0)], axis=-1)
    inside = np.clip(inside, 2.0**-64, None)  # nearer to 0 beta's quantiles are not computed
    return np.clip(LAWS[settings.draw](settings, inside), 0.0, 1.0)


# --- rates that change with the step --------------------------------------------------------------


class Course(NamedTuple):
    """The shape of a rate's change during a phase, as a function of the share of the phase done."""

    at: Callable[[float], float]  # from 0 (the rate before) to 1 (the rate of the phase)
    mean: Callable[[float], float]  # of `at`, from 0 to this share


COURSES: dict[str, Course] = {  # the last words of masking.phases
    "step": Course(lambda x: 0.0, lambda x: 0.0),
    "linear": Course(lambda x: x, lambda x: x / 2),
    "cosine": Course(
        lambda x: (1 - math.cos(math.pi * x)) / 2,
        lambda x: (1 - math.sin(math.pi * x) / (math.pi * x)) / 2,
    ),
}


class Phase(NamedTuple):
    """A part of training between two shares of the steps, and the rates at its two ends."""

    begin: float
    end: float
    rate: float
    to: float
    how: str


def list_phases(settings: knobs.Masking) -> Iterator[Phase]:
    """Yield the phases of `masking.phases`, then a phase without end at the last rate.

    A rate of 0.4 with phases ((0.5, 0.1, "linear"),) falls from 0.4 to 0.1 over the first half.
    """
    begin, rate = 0.0, settings.rate
    for end, to, how in settings.phases:
        yield Phase(begin, end, rate, to, how)
        begin, rate = end, to
    yield Phase(begin, math.inf, rate, rate, "step")


def rate_at(settings: knobs.Masking, index: int, steps: int) -> float:
    """Return the rate of the update with a 0-based index; if rates are drawn, their mean."""
    if settings.draw != "fixed":
        return float(law_table(settings).mean())
    share = min(index / max(steps - 1, 1), 1.0)
    for phase in list_phases(settings):
        if share < phase.end or (share == phase.end and phase.how != "step"):
            break
    done = (share - phase.begin) / (phase.end - phase.begin)
    return phase.rate + COURSES[phase.how].at(done) * (phase.to - phase.rate)


def mean_rate(settings: knobs.Masking, share: float = 1.0) -> float:
    """Return the rate averaged over the first `share` of training."""
    if settings.draw != "fixed" or share <= 0:
        return rate_at(settings, 0, 2)
    total = 0.0
    for phase in list_phases(settings):
        part = min(share, phase.end) - phase.begin
        if part <= 0:
            break
        done = part / (phase.end - phase.begin)
        total += part * (phase.rate + (phase.to - phase.rate) * COURSES[phase.how].mean(done))
    return total / share


def rate_range(settings: knobs.Masking) -> tuple[float, float]:
    """Return the lowest and the highest rate that an example may have during training."""
    if settings.draw != "fixed":
        table = law_table(settings)
        return float(table.min()), float(table.max())
    every = [phase.rate for phase in list_phases(settings)]
    return min(every), max(every)


def count_views(settings: knobs.Masking) -> int:
    """Count the views in which a run reads an example.

    There are several if the run predicts more tokens of an example than its masking rate selects.
    """
    most = settings.prediction_rate
    if settings.draw != "fixed" or settings.phases or most is None or most <= settings.rate:
        return 1
    return math.ceil(most / settings.rate - 1e-9)  # 0.6 / 0.2 is not quite 3

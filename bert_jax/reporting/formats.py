"""Numbers as text: rounded for reading, exact for hovering, and as labels of ticks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

SPACE = "\N{NO-BREAK SPACE}"
HOLE = "\N{EN DASH}"  # in place of a missing number
SIZES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: float, percent: bool = False) -> str:
    """Format a number for people: 1,234,567; 12.3; 0.0123; 1.2e-05; 45.6 %."""
    if percent:
        return f"{100 * value:.{1 if abs(value) >= 0.001 or value == 0 else 3}f}{SPACE}%"
    size = abs(value)
    if size >= 1000 or (float(value).is_integer() and size < 1e15):
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 10 else f"{value:.3f}" if size >= 0.1 else f"{value:.3g}"


def rounded(value: float, digits: int = 3) -> str:
    """Format a number with at most so many digits; a large one ends in zeros, not in a power."""
    return f"{float(f'{value:.{digits}g}'):,.15g}"


def exact(value: float, percent: bool = False) -> str:
    """Format a number with six digits, or all digits of a whole or large number."""
    if percent:
        return f"{100 * value:.6g}{SPACE}%"
    if (float(value).is_integer() or abs(value) >= 1e5) and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.6g}"


def tick(value: float, percent: bool, ticks: Sequence[float]) -> str:
    """Format the label of a tick, with as many decimals as its neighbours need."""
    if percent:
        value, ticks = 100 * value, [100 * t for t in ticks]
    gap = min((b - a for a, b in itertools.pairwise(ticks)), default=abs(value) or 1.0)
    most = max(map(abs, ticks))
    if 1e4 <= most < 1e21:
        size, mark = next(pair for pair in SIZES if most >= pair[0])
        digits = max(3, math.ceil(math.log10(most / gap)) + 2)  # 10.05k beside 10.1k
        return f"{value / size:.{digits}g}{mark}" if value else "0"
    if most >= 1e21 or 0 < most < 1e-2:
        return f"{value:.3g}".replace("e-0", "e-") if value else "0"
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9))
    if abs(round(gap, decimals) - gap) > 1e-9 * gap:
        decimals += 1  # steps of 2.5
    return f"{value:,.{decimals}f}{f'{SPACE}%' if percent else ''}"

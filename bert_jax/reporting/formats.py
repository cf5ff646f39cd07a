"""Format numbers as text, rounded or exact, and text as Markdown."""

import re
from html import escape

from bert_jax.config import knobs
from bert_jax.masking import rates

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
    """Format a number with at most `digits` digits; large numbers end in zeros, not in a power."""
    return f"{float(f'{value:.{digits}g}'):,.15g}"


def exact(value: float, percent: bool = False) -> str:
    """Format a number with six digits; a whole or large number has all digits before the point."""
    if percent:
        return f"{100 * value:,.6g}{SPACE}%"
    if (float(value).is_integer() or abs(value) >= 1e5) and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.6g}"


def format_rate(masking: knobs.Masking) -> str:
    """Format a masking rate: a number, phases, a drawn range, or the rate of each of some views."""
    shares = [masking.rate, *(to for _, to, _ in masking.phases)]
    rate = " to ".join(number(value, True) for value in shares)
    if masking.draw != "fixed":
        low, high = (number(value, True) for value in rates.rate_range(masking))
        rate = f"{masking.draw}, {low} to {high}"
    wanted = masking.prediction_rate
    views = rates.count_views(masking)
    if wanted is None or views == 1:
        return rate
    return f"{rate} in each of {views} views, {number(wanted, True)} in all"


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown and HTML show it unchanged, and put it on one line."""
    text = re.sub(r"\s+", " ", escape(text, quote=False))
    text = re.sub(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    return re.sub(
        r"^(#+|[-+]|\d+(?=[.)]))(?=[.)]?(\s|$))",
        lambda mark: f"{mark[0][:-1]}&#{ord(mark[0][-1])};",
        text,
    )

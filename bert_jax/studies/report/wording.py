"""Format numbers and names for a report: means, differences, intervals and large amounts."""

import hashlib
import math
import re

from bert_jax.reporting.formats import HOLE, SIZES, SPACE, number, rounded
from bert_jax.reporting.metric_names import find_title, find_unit
from bert_jax.studies.report.intervals import Summary

LONGEST = 150  # bytes of a figure's name without its hash; file systems take 255 bytes


def format_number(
    value: float, share: bool = False, signed: bool = False, zero: bool = True
) -> str:
    """Format a number of a table: two decimals for shares and from 10 on, else three.

    A number that is not finite is a dash. With zero=False, a number that would be rounded to 0
    keeps its first digit that is not 0.
    """
    if not math.isfinite(value):
        return HOLE
    decimals = 2 if share or abs(value) >= 10 else 3
    value = 100 * value if share else value
    if not zero and value and not round(value, decimals):
        decimals = -math.floor(math.log10(abs(value)))
    sign = "+" if signed and round(value, decimals) else "z"  # z: no minus before zero
    text = f"{value:{sign}.{decimals}f}{f'{SPACE}%' if share else ''}"
    return text.replace("-", "\N{MINUS SIGN}")


def format_amount(value: float, metric: str, share: bool, signed: bool = False) -> str:
    """Format a value of a metric with its unit."""
    text = format_number(value, share, signed)
    return text if share else f"{text} {find_unit(metric)}".rstrip()


def format_mean(mean: Summary | None, seeds: int, share: bool) -> str:
    """Format a mean ± half the width of its interval.

    If some seeds have no value, the number of seeds is added.
    """
    if mean is None:
        return f"{HOLE} (0 of {seeds})"
    text = format_number(mean.mean, share)
    if math.isfinite(mean.high):
        half = format_number(mean.high - mean.mean, share)
        text = f"{text.removesuffix(f'{SPACE}%')} ± {half}"
    return text if mean.n == seeds else f"{text} ({mean.n} of {seeds})"


def format_interval(low: float, high: float, share: bool = False) -> str:
    """Format an interval; an end of an interval that excludes 0 is never rounded to 0."""
    if not math.isfinite(low + high):
        return HOLE
    if share and high - low > 2:
        return f"wider than ±100{SPACE}%"
    first, last = (format_number(end, share, True, zero=low * high <= 0) for end in (low, high))
    return f"{first.removesuffix(f'{SPACE}%')} to {last}"


def format_large(value: float) -> str:
    """Format a large number in short form, such as 1.25 M."""
    if value < 1e6:
        return number(value)
    nearest = float(f"{value:.3g}")
    size, mark = next(pair for pair in SIZES if nearest >= pair[0])
    return f"{rounded(nearest / size)}{SPACE}{mark}"


def join_names(*names: str) -> str:
    """Join names by commas; leave out empty names."""
    return ", ".join(filter(None, names))


def name_measure(metric: str) -> str:
    """Write a metric's title as inside a sentence, with a small first letter."""
    text = find_title(metric)
    return text if text[:2].isupper() else f"{text[:1].lower()}{text[1:]}"


def name_file(*names: str) -> str:
    """Make the file name of a figure from the names of what the figure shows.

    If other characters than blanks, commas and slashes are replaced, or if the name would be long,
    it ends with a short hash, because other names may be replaced by the same.
    """
    text = "_".join(filter(None, names))
    name = re.sub(r"[^\w.-]", "_", text.replace(" ", "").replace("%", ""))
    if re.search(r"[^\w .,/-]", text) or len(name.encode()) > LONGEST:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        name = f"{name.encode()[:LONGEST].decode(errors='ignore')}_{digest}"
    return name

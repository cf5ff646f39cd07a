"""Names of metrics for readers, from metrics.csv: title, unit, direction, baseline and meaning.

A row of the table applies to all metrics whose names end with its `ending`; the longest ending
counts. Only this table says whether higher or lower values are better. A metric without a row, or
without a direction, cannot rank models. The unit of a share is %.
"""

import csv
import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bert_jax.errors import ConfigError

CORRECTED = "_word_l2r"  # ends the name of a score by the within-word correction
SPELLED = (
    *("MLM", "LM", "NSP", "SOP", "MFU", "F1", "MCC", "PLL", "POS", "NER", "MNLI", "QNLI", "MRPC"),
    *("RTE", "BLiMP", "BabyLM", "EWoK", "SST-2", "STS-B", "Spearman", "Pearson", "SQuAD"),
    *("SQuAD-2", "CoNLL-2003"),
)
WORDS = {word.lower().replace("-", ""): word for word in SPELLED}
# Next to the results of an evaluation.
COUNTS = (
    *("_low", "_high", "character_error"),
    *("examples", "predictions", "seconds", "replaced_fraction"),
)
LEDGER = {  # metric -> name; the first two are shares of eligible tokens, the others of selected
    "masked_fraction": "selected, of eligible",
    "quota_fraction": "quota, of eligible",
    "mask_token_fraction": "by [MASK]",
    "random_fraction": "by a random token",
    "kept_fraction": "kept as it is",
}
# Part of a suite's score, as field in field/binding -> the metric that each value of the part is.
OF_GROUPS = dict.fromkeys(
    (
        *("field", "term", "paradigm", "split", "UID", "linguistics_term"),
        *("context_type", "context_contrast", "target_contrast"),
    ),
    "accuracy",
)
OF_GROUPS["explained"] = "eye_tracking"


class Metric(NamedTuple):
    """Row of metrics.csv, for the metrics whose names end with `ending`."""

    ending: str
    title: str = ""  # of the metric of exactly this name; by default the words of the name
    unit: str = ""
    better: str = ""  # "higher" or "lower"; empty if no value of the metric is better
    baseline: str = ""  # the metric of an evaluation that reading no context reaches
    baseline_words: str = ""  # what that is called
    chance: str = ""  # what guessing reaches
    meaning: str = ""


def _read_table() -> list[Metric]:
    """Read metrics.csv, sorted by the length of the endings, the longest first."""
    with Path(__file__).with_name("metrics.csv").open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    return sorted((Metric(*row) for row in rows), key=lambda row: -len(row.ending))


TABLE = _read_table()
CHANCE = {row.ending: float(row.chance) for row in TABLE if row.chance}
REFERENCES = tuple({row.baseline for row in TABLE if row.baseline})


@functools.cache
def _find_rows(name: str) -> list[Metric]:
    """List the rows whose endings fit a metric's name, the longest first."""
    path, _, last = name.rpartition("/")
    part = path.rpartition("/")[2]
    last = OF_GROUPS.get(part, last)
    short = re.sub(r"_\d+$", "", f"{part}/{last}".removesuffix(CORRECTED))
    return [row for row in TABLE if short.endswith(row.ending)]


def find_metric(name: str) -> Metric:
    """Find the row with the longest ending that fits a metric's name; without one an empty row."""
    return next(iter(_find_rows(name)), Metric(""))


def is_share(name: str) -> bool:
    """Tell whether a metric is a share, which lies between 0 and 1 and is written in per cent."""
    return find_metric(name).unit == "%"


def are_shares(name: str, values: Iterable[float | None]) -> bool:
    """Tell whether to write values of a metric in per cent; SQuAD's scores are so already."""
    return is_share(name) and all(abs(value) <= 1 for value in values if value is not None)


def is_result(name: str) -> bool:
    """Tell whether an evaluation's metric is a result, not a baseline, an interval or a count."""
    return not name.endswith((*REFERENCES, *COUNTS))


def list_baselines(name: str) -> tuple[list[str], str]:
    """Return the metrics that may be a metric's baseline, and what the baseline is called.

    The first metric of the list that was logged is the baseline. It is called "the unigram", for
    example.
    """
    row = find_metric(name)
    if row.ending != name or not row.baseline:
        return [], ""
    own = f"{name.rpartition('_')[0]}_{row.baseline}"  # if an evaluation reads in two ways
    return [own, row.baseline], row.baseline_words


def find_direction(name: str) -> int:
    """Return 1 if higher values of a metric are better, -1 if lower values are, else 0."""
    return {"higher": 1, "lower": -1, "": 0}[find_metric(name).better]


def need_direction(name: str) -> int:
    """Return 1 or -1 as `find_direction` does; refuse a metric that has no direction."""
    if direction := find_direction(name):
        return direction
    problem = f"neither a higher nor a lower {name} is better"
    raise ConfigError(problem, "name another metric, or add a row to reporting/metrics.csv")


def find_unit(name: str) -> str:
    """Return the unit of a metric; "" for a share or a plain number."""
    return find_metric(name).unit.replace("%", "")


def format_axis_title(name: str, words: str = "") -> str:
    """Format the title of an axis: the title of a metric, or `words`, with its unit.

    A share has no unit here, because the ticks show %.
    """
    words = words or find_title(name)
    return f"{words} ({find_unit(name)})" if find_unit(name) else words


def find_meaning(name: str) -> str:
    """Return the sentence that says what a metric means; "" if the table has none."""
    return next((row.meaning for row in _find_rows(name) if row.meaning), "")


def find_title(name: str) -> str:
    """Return the title of a metric, by default the words of its name."""
    row = find_metric(name)
    stem, _, number = name.rpartition("_")
    if row.title and row.ending == name:
        return row.title
    if row.title and row.ending == stem and number.isdigit():  # such as a tenth of the rates
        return row.title.format(int(number) + 1)
    words = " ".join(WORDS.get(word, word) for word in re.split("[/_]", name))
    return words[:1].upper() + words[1:]

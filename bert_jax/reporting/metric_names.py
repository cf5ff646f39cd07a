"""Names of metrics for readers, by metrics.csv: title, unit, direction, baseline and meaning.

A row of that table holds for all metrics whose names end with its `ending`, if no longer row fits.
Nothing else decides which way is better. The unit of a share is %.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax.config.knobs import OBJECTIVES

CORRECTED = "_word_l2r"  # ends the name of a score by the within-word correction
SHOUTED = {
    *("mlm", "lm", "nsp", "sop", "mfu", "f1", "mcc", "pll", "pos", "ner"),
    *("mnli", "qnli", "mrpc", "rte"),
}
WRITTEN = {
    "blimp": "BLiMP",
    "babylm": "BabyLM",
    "ewok": "EWoK",
    "sst2": "SST-2",
    "stsb": "STS-B",
    "spearman": "Spearman",
    "pearson": "Pearson",
    "squad": "SQuAD",
    "squad2": "SQuAD 2.0",
    "conll2003": "CoNLL-2003",
}
# Next to the results of an evaluation.
COUNTS = (
    *("_low", "_high", "character_error"),
    *("examples", "predictions", "seconds", "replaced_fraction"),
)


class Metric(NamedTuple):
    """Row of the table."""

    ending: str
    title: str = ""  # of the metric of exactly this name; by default the words of the name
    unit: str = ""
    better: str = "higher"
    baseline: str = ""  # the metric of an evaluation that reading no context reaches
    baseline_words: str = ""  # what that is called
    chance: str = ""  # what guessing reaches
    meaning: str = ""


def _read_table() -> list[Metric]:
    """Read metrics.csv, the longest endings first."""
    file = Path(__file__).with_name("metrics.csv")
    rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
    return sorted((Metric(*row) for row in rows[1:]), key=lambda row: -len(row.ending))


TABLE = _read_table()
CHANCE = {row.ending: float(row.chance) for row in TABLE if row.chance}


@functools.cache
def find_metric(name: str) -> Metric:
    """Find the longest row that a metric's name ends with; an empty row for an unknown metric."""
    return next(_find_rows(name), Metric(""))


def _find_rows(name: str) -> Iterator[Metric]:
    """Yield the rows that a metric's name ends with, the longest first."""
    short = re.sub(r"_\d+$", "", name.rpartition("/")[2].removesuffix(CORRECTED))
    return (row for row in TABLE if short.endswith(row.ending))


def is_share(name: str) -> bool:
    """Tell whether a metric lies between 0 and 1 and is written in per cent."""
    return find_metric(name).unit == "%"


def is_result(name: str) -> bool:
    """Tell whether a metric of an evaluation is a result: no baseline, interval or count."""
    references = {row.baseline for row in TABLE if row.baseline}
    return not name.endswith((*references, *COUNTS))


def baselines(name: str) -> tuple[list[str], str]:
    """List the metrics of which the first that is there is a metric's baseline; and its words."""
    row = find_metric(name)
    if row.ending != name or not row.baseline:
        return [], ""
    own = f"{name.rpartition('_')[0]}_{row.baseline}"  # where an evaluation reads in two ways
    return [own, row.baseline], row.baseline_words


def lower_is_better(name: str) -> bool:
    """Tell whether lower values of a metric are better."""
    return find_metric(name).better == "lower"


def unit(name: str) -> str:
    """Find the unit of a metric; empty for a share or a plain number."""
    objective = OBJECTIVES.get(name.rpartition("/")[2].removesuffix("_loss"))
    if objective and name.endswith("_loss"):
        return objective.unit
    return "" if is_share(name) else find_metric(name).unit


def axis_title(name: str, words: str = "") -> str:
    """Write a metric's name, or other words, with its unit; shares have theirs at the ticks."""
    words = words or pretty(name)
    return f"{words} ({unit(name)})" if unit(name) else words


def meaning(name: str) -> str:
    """Say what a metric means, by the longest row that says it; empty if none does."""
    return next((row.meaning for row in _find_rows(name) if row.meaning), "")


def pretty(name: str) -> str:
    """Write a metric's name as a title."""
    row = find_metric(name)
    stem, _, number = name.rpartition("_")
    if row.title and row.ending == name:
        return row.title
    if row.title and row.ending == stem and number.isdigit():  # such as a tenth of the rates
        return row.title.format(int(number) + 1)
    words = name.replace("/", " ").replace("_", " ").split(" ")
    text = " ".join(word.upper() if word in SHOUTED else WRITTEN.get(word, word) for word in words)
    return text[:1].upper() + text[1:]

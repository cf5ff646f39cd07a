"""Names of metrics for readers, by metrics.csv: title, unit, direction, baseline and meaning.

A row of that table holds for all metrics whose names end with its `ending`, if no longer row fits.
Nothing else decides which way is better. A metric without a row or a direction ranks nothing. The
unit of a share is %.
"""

from __future__ import annotations

import csv
import functools
import re
from pathlib import Path
from typing import NamedTuple

from bert_jax.config.knobs import OBJECTIVES
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
    """Row of the table."""

    ending: str
    title: str = ""  # of the metric of exactly this name; by default the words of the name
    unit: str = ""
    better: str = ""  # "higher" or "lower"; empty if no value of the metric is better
    baseline: str = ""  # the metric of an evaluation that reading no context reaches
    baseline_words: str = ""  # what that is called
    chance: str = ""  # what guessing reaches
    meaning: str = ""


def _read_table() -> list[Metric]:
    """Read metrics.csv, the longest endings first."""
    with Path(__file__).with_name("metrics.csv").open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    return sorted((Metric(*row) for row in rows), key=lambda row: -len(row.ending))


TABLE = _read_table()
CHANCE = {row.ending: float(row.chance) for row in TABLE if row.chance}
REFERENCES = tuple({row.baseline for row in TABLE if row.baseline})


@functools.cache
def _find_rows(name: str) -> list[Metric]:
    """List the rows that a metric's name ends with, the longest first."""
    path, _, last = name.rpartition("/")
    part = path.rpartition("/")[2]
    last = OF_GROUPS.get(part, last)
    short = re.sub(r"_\d+$", "", f"{part}/{last}".removesuffix(CORRECTED))
    return [row for row in TABLE if short.endswith(row.ending)]


def find_metric(name: str) -> Metric:
    """Find the longest row that a metric's name ends with; an empty row for an unknown metric."""
    return next(iter(_find_rows(name)), Metric(""))


def is_share(name: str) -> bool:
    """Tell whether a metric lies between 0 and 1 and is written in per cent."""
    return find_metric(name).unit == "%"


def is_result(name: str) -> bool:
    """Tell whether a metric of an evaluation is a result: no baseline, interval or count."""
    return not name.endswith((*REFERENCES, *COUNTS))


def baselines(name: str) -> tuple[list[str], str]:
    """List the possible baselines of a metric, and the words for a baseline.

    The baseline is the first metric of the list that was logged.
    """
    row = find_metric(name)
    if row.ending != name or not row.baseline:
        return [], ""
    own = f"{name.rpartition('_')[0]}_{row.baseline}"  # if an evaluation reads in two ways
    return [own, row.baseline], row.baseline_words


def find_direction(name: str) -> int:
    """Return 1 if higher values of a metric are better, -1 if lower ones are, 0 if none are."""
    return {"higher": 1, "lower": -1, "": 0}[find_metric(name).better]


def need_direction(name: str) -> int:
    """Return 1 or -1 as `find_direction` does; refuse a metric of which no value is better."""
    if direction := find_direction(name):
        return direction
    problem = f"neither a higher nor a lower {name} is better"
    raise ConfigError(problem, "name another metric, or add a row to reporting/metrics.csv")


def unit(name: str) -> str:
    """Find the unit of a metric; empty for a share or a plain number."""
    objective = OBJECTIVES.get(name.rpartition("/")[2].removesuffix("_loss"))
    if objective and name.endswith("_loss"):
        return objective.unit
    return find_metric(name).unit.replace("%", "")


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
    words = " ".join(WORDS.get(word, word) for word in re.split("[/_]", name))
    return words[:1].upper() + words[1:]

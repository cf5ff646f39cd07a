"""What several models scored in `evaluate --output=FILE.json`, beside one another.

    read_all([Path("runs/a/evaluation.json"), Path("b.json")])  -> what runs/a and b scored
    sections({"a": …, "b": …})                                  -> HTML

Loss over the masking rate is drawn with a line for each model, and every other number is a line of
a table. Models of different vocabularies compare by nats a character and a word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import DataError, need
from bert_jax.reporting.beside import TONES, Line, best_of, table
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import HOLE, SPACE, number
from bert_jax.reporting.metric_names import (
    CORRECTED,
    axis_title,
    is_result,
    is_share,
    meaning,
    pretty,
)
from bert_jax.reporting.page import section
from bert_jax.reporting.svg import draw
from bert_jax.reporting.terms import explain
from bert_jax.system import jsons

FILES = "evaluation*.json"  # in the folder of a run or model
SWEEP = re.compile(r"cross_rate/(0\.\d+|1)/(\w+)")  # rate and metric
CHARTS = {  # metric of the sweep -> note
    "nats_per_character": "On whole words, the same ones for every model.",
    "word_accuracy": "",
    "mlm_loss": "By token: compare models of one vocabulary alone.",
    "mlm_accuracy": "By token: compare models of one vocabulary alone.",
}
BANDS = f" Bands are 95{SPACE}% intervals over documents."
# What is equal where the same text is scored, whatever the vocabulary; then the unigram's loss, of
# models of one vocabulary.
SAME = ("words", "characters", "texts", "pairs", "examples", "unigram_loss")
PARTS = re.compile("/(field|term|paradigm)/")  # of minimal pairs, whose accuracies are named so
BY_TOKEN = ("nats_per_token", "perplexity")  # endings of what other vocabularies do not compare by
UNKNOWN = 0.01  # share of words beyond which [UNK] is warned of
Scores = dict[str, dict[str, Any]]  # suite -> metric, or part and then metric -> value
Flat = Mapping[str, Mapping[str, float]]  # model -> SUITE/METRIC, or with parts between -> value


def find(path: Path) -> list[Path]:
    """List the files of an argument: itself, or those in the folder of a run or model."""
    return [path] if path.is_file() else sorted(path.glob(FILES))


def read_all(files: Iterable[Path]) -> dict[Path, Scores]:
    """Read files of `evaluate --output`; return what each model scored, by the path that names it.

    FOLDER/evaluation*.json are of the model in the folder, a file of another name is a model's own.
    """
    hint = "give a file that `bert-jax evaluate --output=FILE.json` wrote"
    scores: dict[Path, Scores] = {}
    for file in files:
        model = file.parent if file.match(FILES) else file.with_suffix("")
        for suite, found in jsons.read(file, DataError, {str: dict}, hint=hint).items():
            known = scores.setdefault(model, {})
            need(suite not in known, f"{file}: {suite} of {model} is there twice", "give one file")
            known[suite] = found
    return scores


def sections(scored: Mapping[str, Scores]) -> str:
    """Write the warnings, charts and tables of models by name, in the colours of their order."""
    flat = {name: dict(_numbers(scores)) for name, scores in scored.items()}
    charts = "".join(_chart(flat, metric) for metric in CHARTS)
    keys = dict.fromkeys(key for values in flat.values() for key in values)
    main = [key for key in keys if key.count("/") == 1 or "/left_to_right/" in key]
    rest = [key for key in keys if key not in main]
    tables = table(flat, "", [_line(flat, key) for key in main]) if main else ""
    if rest:
        said = f"{len(rest)} numbers of their parts"
        more = table(flat, "", [_line(flat, key) for key in rest])
        tables += f"<details><summary>{said}</summary>{more}</details>"
    warnings = "".join(f'<p class="warning">{explain(text)}</p>' for text in _warnings(flat))
    shown = f'<div class="charts">{charts}</div>' if charts else ""
    return warnings + section("By masking rate", shown) + section("Evaluations", tables)


def _numbers(tree: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, float]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{at}{key}/")
        elif isinstance(value, (int, float)) and math.isfinite(value):
            yield f"{at}{key}", value


def _line(flat: Flat, key: str) -> Line:
    """Return the line of a number; of results, which counts are not, one is the best."""
    suite, _, name = key.partition("/")
    metric, values = name.rpartition("/")[2], [numbers.get(key) for numbers in flat.values()]
    counts = all(isinstance(value, int) for value in values if value is not None)
    ranked = is_result(metric) and not counts and not metric.endswith("standard_error")
    if metric.removesuffix(CORRECTED).endswith(BY_TOKEN):
        tokens = f"{key.rpartition('/')[0]}/tokens"
        ranked = len({numbers.get(tokens) for numbers in flat.values() if key in numbers}) == 1
    ranked = ranked and not _unlike(flat, suite)
    share = is_share(metric) or PARTS.search(key) is not None
    cells = [HOLE if value is None else number(value, share) for value in values]
    best = best_of(values, metric) if ranked else None
    return f"{suite}: {pretty(name)}", meaning(metric), cells, best


def _chart(flat: Flat, metric: str) -> str:
    """Draw a metric over the masking rate; empty where no model has it."""
    series, rates = [], set()
    for at, (model, values) in enumerate(flat.items()):
        points, band = [], []
        for key, value in values.items():
            if (found := SWEEP.fullmatch(key)) and found[2] == metric:
                rate, error = float(found[1]), values.get(f"{key}_error", math.nan)
                points.append((rate, value))
                band.append((rate, value - 1.96 * error, value + 1.96 * error))
        rates |= {rate for rate, _ in points}
        band = [interval for interval in band if math.isfinite(interval[1])]
        series.append(Series(model, sorted(points), TONES[at % len(TONES)], band=sorted(band)))
    chart = Chart(
        f"{pretty(metric)} by masking rate",
        series,
        percent=is_share(metric),
        log=False,
        x="masking rate",
        y=axis_title(metric),
        ticks=[(rate, f"{100 * rate:g}{SPACE}%") for rate in sorted(rates)],
        last=False,
        note=CHARTS[metric] + (BANDS if any(each.band for each in series) else ""),
    )
    return draw(chart, about=meaning(metric))


def _unlike(flat: Flat, suite: str) -> str:
    """Say in what the text of a suite differs, model by model; empty where it is the same."""
    scored = [v for v in flat.values() if any(key.startswith(f"{suite}/") for key in v)]
    keys = dict.fromkeys(key for v in scored for key in v if key.startswith(f"{suite}/"))
    for name in SAME:
        for key in (key for key in keys if key.rpartition("/")[2] == name):
            found = [number(v[key]) if key in v else "none" for v in scored]
            if len({*found}) > 1:
                what = key.partition("/")[2].replace("/", " ").replace("_", " ")
                return f"{what} {', '.join(found)}"
    return ""


def _warnings(flat: Flat) -> Iterator[str]:
    """Warn of suites that did not score the same text, and of words that a model cannot read."""
    for suite in dict.fromkeys(key.partition("/")[0] for values in flat.values() for key in values):
        if what := _unlike(flat, suite):
            yield (
                f"The models are not scored on the same text by {suite}: {what}. Their scores "
                "cannot be compared."
            )
    for model, values in flat.items():
        shares = [
            value / values[f"{key.rpartition('/')[0]}/words"]
            for key, value in values.items()
            if key.endswith("/unknown_words") and values.get(f"{key.rpartition('/')[0]}/words")
        ]
        if shares and max(shares) > UNKNOWN:
            yield (
                f"{number(max(shares), True)} of the words are [UNK] to {model}, which is easier "
                "to predict than they are."
            )

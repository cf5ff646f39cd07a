"""A page that compares several runs: final scores, differences of their configs, and curves.

    build_comparison(runs, read_scores([Path("runs/a/evaluation.json"), Path("b.json")]))

The scores come from files of `evaluate --output=FILE.json`, for these runs or for other models. A
chart shows the loss by masking rate with a line for each model. Every other number is a row of a
table.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from bert_jax import config as configs
from bert_jax.errors import DataError, need
from bert_jax.reporting import metric_names
from bert_jax.reporting import page as pages
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import HOLE, SPACE, number
from bert_jax.reporting.page import Cell, Table
from bert_jax.reporting.run_charts import HELD, SPENT, draw_metric, list_learned
from bert_jax.reporting.run_record import RunRecord
from bert_jax.reporting.svg import draw_svg
from bert_jax.system import jsons
from bert_jax.system.counts import format_count
from bert_jax.system.durations import format_duration

TONES = ("c1", "c2", "c3", "c4", "c5", "q0", "q4", "q6", "q8", "q9")  # of runs, in turn
FILES = "evaluation*.json"  # in the folder of a run or model
SWEEP = re.compile(r"cross_rate/(0\.\d+|1)/(\w+)")  # rate and metric
BY_TOKEN = "By token: compare models of one vocabulary only."
CHARTS = {  # metric of the sweep -> note
    "nats_per_character": "On whole words, the same ones for every model.",
    "word_accuracy": "",
    "mlm_loss": BY_TOKEN,
    "mlm_accuracy": BY_TOKEN,
}
# What is equal if the same text is scored, whatever the vocabulary; then the unigram's loss, of
# models of one vocabulary.
SAME = ("words", "characters", "texts", "pairs", "examples", "unigram_loss")
CURE = (
    "To compare them, score each on the same words of one text: bert-jax evaluate --model=RUN "
    "--suite=cross_rate --source=TEXT --output=RUN/evaluation_words.json; report shows them then."
)
Scores = dict[str, dict[str, Any]]  # suite -> metric, or part and then metric -> value
Runs = Mapping[str, RunRecord]  # by a name that no other has
Flat = Mapping[str, Mapping[str, float]]  # model -> SUITE/METRIC, or with parts between -> value


def build_comparison(
    records: Sequence[RunRecord], scores: Mapping[Path, Scores] = MappingProxyType({})
) -> str:
    """Build the page that compares runs, and models by their scores.

    `scores` maps the path of each model to its scores. Scores whose path is the folder of a run are
    shown with that run.
    """
    folders = list(dict.fromkeys([*(record.folder for record in records), *scores]))
    named = dict(zip(folders, name_runs(folders), strict=True))
    runs = {named[record.folder]: record for record in records}
    flat = {name: dict(_flatten_scores(scores.get(folder, {}))) for folder, name in named.items()}
    for name, run in runs.items():
        flat[name] = dict(_list_served(run)) | flat[name]
    kind = "run" if len(runs) == len(named) else "model"
    warnings = [f"{name}: {text}" for name, run in runs.items() for text in run.list_warnings()]
    scores_table, parts = _tabulate_scores(runs, flat)
    learned, others = _draw_curves(runs)
    return pages.render(
        "reporting/comparison.html",
        heading=format_count(len(named), kind),
        names=list(named.values()),
        tones=TONES,
        warnings=[*warnings, *_find_warnings(flat)],
        scores=scores_table,
        parts=parts,
        sweeps=[_draw_sweep(flat, metric) for metric in CHARTS],
        several=len(runs) > 1,
        knobs=_tabulate_differences(
            runs, [run.recorded for run in runs.values()], configs.list_usual_values()
        ),
        learned=learned,
        others=others,
        facts=_tabulate_differences(runs, [run.environment for run in runs.values()]),
    )


def name_runs(folders: Sequence[Path]) -> list[str]:
    """Name runs by the last parts of their paths, using as many parts as make the names differ."""
    paths = [folder.resolve() for folder in folders]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    need(twice is None, f"{twice} is given twice", "name every run once")
    names = [path.name for path in paths]
    count = 1
    while len(set(names)) < len(names):
        count += 1
        names = ["/".join(path.parts[-count:]) for path in paths]
    return names


# --- scores ------------------------------------------------------------------------------------


def read_scores(files: Iterable[Path]) -> dict[Path, Scores]:
    """Read files of `evaluate --output`, as {path of the model: scores}.

    A file FOLDER/evaluation*.json has scores of the model FOLDER. A file of any other name has
    scores of a model of that name.
    """
    hint = "give a file that `bert-jax evaluate --output=FILE.json` wrote"
    scores: dict[Path, Scores] = {}
    for file in files:
        found = jsons.read(file, DataError, dict[str, dict[str, Any]], hint)
        model = file.parent if file.match(FILES) else file.with_suffix("")
        known = scores.setdefault(model, {})
        for suite in found:
            need(suite not in known, f"{file}: {suite} of {model} is there twice", "give one file")
        known |= found
    return scores


def _flatten_scores(tree: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, float]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten_scores(value, f"{at}{key}/")
        elif jsons.is_finite(value):
            yield f"{at}{key}", value


def _list_served(run: RunRecord) -> Iterator[tuple[str, float]]:
    """Yield (metric, value) of a run's evaluations at the step that is served."""
    for key in run.curves:
        if key.startswith("eval/") and not key.endswith(("_low", "_high", "seconds")):
            yield key.removeprefix("eval/"), run.find_served(key)[1]


def _find_warnings(flat: Flat) -> Iterator[str]:
    """Warn of suites that scored different texts, and of models that cannot read some words."""
    for suite in dict.fromkeys(key.partition("/")[0] for values in flat.values() for key in values):
        if what := _find_other_text(flat, suite):
            yield f"{suite} did not score the same text: {what}. Do not compare its scores. {CURE}"
    for model, values in flat.items():
        shares = [
            value / max(values.get(key.replace("unknown_words", "words"), 0), 1)
            for key, value in values.items()
            if key.endswith("/unknown_words")
        ]
        if max(shares, default=0) > 0.01:
            yield (
                f"{number(max(shares), True)} of the words are [UNK] to {model}, which is easier "
                "to predict than they are."
            )


def _find_other_text(flat: Flat, suite: str) -> str:
    """Say how the texts that a suite scored differ between models; return "" if they agree."""
    scored = {name: v for name, v in flat.items() if any(k.startswith(f"{suite}/") for k in v)}
    for key in dict.fromkeys(key for values in scored.values() for key in values):
        name = key.rpartition("/")[2]
        found = [number(values[key]) if key in values else "none" for values in scored.values()]
        if key.startswith(f"{suite}/") and name in SAME and len({*found}) > 1:
            said = [f"{value} ({model})" for value, model in zip(found, scored, strict=True)]
            what = key.partition("/")[2].replace("/", " ").replace("_", " ")
            return f"{what} {', '.join(said)}"
    return ""


def _tabulate_scores(runs: Runs, flat: Flat) -> tuple[Table, Table]:
    """Make a table of states, costs and main scores of models, and a table of all other scores.

    The other scores are of parts of suites, such as one task of BabyLM.
    """
    rows = []
    for name, write in (
        ("state", lambda run: run.state),
        ("steps", lambda run: f"{run.step:,} of {run.steps:,}"),
        ("step served", lambda run: _format_number(run.served)),
        ("time", lambda run: format_duration(run.seconds)),
        ("tokens per second", lambda run: _format_number(run.last("tokens_per_second"))),
        ("parameters", lambda run: _format_number(run.environment.get("parameters"))),
        ("vocabulary", lambda run: _format_number(run.environment.get("vocabulary"))),
    ):
        if runs:
            rows.append([name, *(write(runs[model]) if model in runs else HOLE for model in flat)])
    keys = dict.fromkeys(key for values in flat.values() for key in values)
    main = [key for key in keys if key.count("/") == 1 or "/left_to_right/" in key]
    rest = [key for key in keys if key not in main]
    return _tabulate_keys(flat, main, rows), _tabulate_keys(flat, rest)


def _format_number(value: float | None, percent: bool = False) -> str:
    return HOLE if value is None else number(value, percent)


def _tabulate_keys(flat: Flat, keys: Iterable[str], rows: Sequence[list[str]] = ()) -> Table:
    """Make a table of the scores `keys`, with a column for each model, below the given `rows`.

    The best value of each result is bold.
    """
    shown: list[list[Any]] = [*rows]
    about = {}
    for key in keys:
        suite, _, name = key.partition("/")
        values = [numbers.get(key) for numbers in flat.values()]
        share = metric_names.are_shares(name, values)
        title = f"{suite}: {metric_names.find_title(name)}"
        cells: list[Any] = [_format_number(value, share) for value in values]
        if (winner := find_best(values, name)) is not None and _is_ranked(flat, key):
            cells[winner] = Cell(cells[winner], "n best")
        shown.append([title, *cells])
        about[title] = metric_names.find_meaning(name)
    return Table(["", *flat], shown, about=about)


def find_best(values: Sequence[float | None], name: str) -> int | None:
    """Return the index of the best value of a metric.

    None if all values are equal, or if neither higher nor lower values are better.
    """
    known = [value for value in values if value is not None]
    direction = metric_names.find_direction(name)
    if not known or not direction:
        return None
    best = max(known, key=lambda value: direction * value)
    return values.index(best) if known.count(best) < len(known) else None


def _is_ranked(flat: Flat, key: str) -> bool:
    """Tell whether a score ranks models: a result, not a count, and measured on the same text."""
    metric = key.rpartition("/")[2]
    values = [values[key] for values in flat.values() if key in values]
    if all(isinstance(value, int) for value in values) or not metric_names.is_result(metric):
        return False
    if metric.removesuffix(metric_names.CORRECTED).endswith(("nats_per_token", "perplexity")):
        tokens = f"{key.rpartition('/')[0]}/tokens"  # others of another vocabulary
        if len({values.get(tokens) for values in flat.values() if key in values}) > 1:
            return False
    return not _find_other_text(flat, key.partition("/")[0])


def _draw_sweep(flat: Flat, metric: str) -> Markup:
    """Draw a metric by masking rate, a line for each model; return "" if no model has it."""
    series = []
    rates: set[float] = set()
    for at, (model, values) in enumerate(flat.items()):
        points, band = [], []
        for key, value in values.items():
            found = SWEEP.fullmatch(key)
            if found and found[2] == metric:
                rate = float(found[1])
                error = 1.96 * values.get(f"{key}_error", math.nan)
                points.append((rate, value))
                band.append((rate, value - error, value + error))
                rates.add(rate)
        known = [edge for edge in sorted(band) if not math.isnan(edge[1])]
        series.append(Series(model, sorted(points), TONES[at % len(TONES)], band=known))
    note = CHARTS[metric]
    if any(each.band for each in series):
        note += f" Bands are 95{SPACE}% intervals over documents."
    chart = Chart(
        f"{metric_names.find_title(metric)} by masking rate",
        series,
        percent=metric_names.is_share(metric),
        log=False,
        x="masking rate",
        y=metric_names.format_axis_title(metric),
        ticks=[(rate, f"{100 * rate:g}{SPACE}%") for rate in sorted(rates)],
        note=note,
    )
    return draw_svg(chart, about=metric_names.find_meaning(metric))


# --- configs and curves ------------------------------------------------------------------------


def _tabulate_differences(
    runs: Runs, trees: Sequence[dict[str, Any]], usual: Mapping[str, Any] = MappingProxyType({})
) -> Table:
    """Tabulate the knobs or facts that differ between runs.

    `trees` has the config, or the facts, of each run, and `usual` the usual values of knobs. A knob
    is left out if every run that records it has the usual value.
    """
    flat = [configs.flatten(tree) for tree in trees]
    rows = []
    for path in sorted({path for values in flat for path in values} - {"command"}):
        known = [values[path] for values in flat if path in values]
        cells = []
        for values in flat:
            cells.append(pages.format_value(values[path]) if path in values else HOLE)
        idle = path in usual and all(value == usual[path] for value in known)
        if len(set(cells)) > 1 and not idle:
            rows.append([path, *cells])
    return Table(["", *runs], rows, about=pages.read_knob_docs(row[0] for row in rows))


def _draw_curves(runs: Runs) -> tuple[list[Markup], list[Markup]]:
    """Draw the curves of all runs, a chart for each metric.

    The result is the charts that show learning, and all other charts.
    """
    found = dict.fromkeys(name for run in runs.values() for name in run.curves)
    learned = [
        full
        for name in list_learned(runs.values())
        for full in found
        if full.rpartition("/")[2] == name
    ]
    left_out = {*learned, *(f"train/{name}" for name in (*SPENT, *HELD))}
    others = [full for full in found if full.startswith("train/") and full not in left_out]
    drawn = [_draw_curve(runs, full) for full in learned]
    return drawn, [_draw_curve(runs, full) for full in others]


def _draw_curve(runs: Runs, full: str) -> Markup:
    """Draw the curves of all runs for one metric, and the baselines of its evaluation."""
    kind, _, name = full.partition("/")
    suite, _, name = name.rpartition("/")
    series, levels = [], []
    for i, (run_name, run) in enumerate(runs.items()):
        series.append(Series(run_name, run.curves.get(full, []), TONES[i % len(TONES)]))
        level = run.find_baseline(suite, name)
        if level and kind == "eval" and full in run.curves:
            levels.append((level[0].removeprefix("the "), level[1]))
    first = next(iter(runs.values()))
    title = f"{metric_names.find_title(name)}, {suite or 'training'}"
    return draw_metric(first, name, series, title, baselines=list(dict.fromkeys(levels)))

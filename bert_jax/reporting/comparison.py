"""Several runs on one page: final scores, what differs in their configs, curves over one another.

    build(runs, evaluations)

Evaluations are those of `evaluate --output=FILE.json`, of these runs or of other models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert_jax import config as configs
from bert_jax.errors import need
from bert_jax.reporting import evaluations
from bert_jax.reporting.beside import TONES, Line, best_of, table, tone
from bert_jax.reporting.evaluations import Scores
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import HOLE, number
from bert_jax.reporting.metric_names import is_share, meaning, pretty
from bert_jax.reporting.page import asset, contents, fold, knob_docs, page, section, written
from bert_jax.reporting.run_charts import HELD, SPENT, axis_of, baseline, learned
from bert_jax.reporting.run_record import RunRecord
from bert_jax.reporting.svg import draw
from bert_jax.reporting.terms import SERVED, WORDS, explain
from bert_jax.system.durations import duration

# Values of an evaluation that are the same where the same is predicted.
SAME = {"unigram_loss": "the unigram's loss", "examples": "the number of examples"}
CURE = (
    "To compare them, score each on the same words of one text: bert-jax evaluate --model=RUN "
    "--suite=cross_rate --source=TEXT --output=RUN/evaluation_words.json; report shows them then."
)
Runs = Mapping[str, RunRecord]  # by a name that no other has


def build(
    records: Sequence[RunRecord], scores: Mapping[Path, Scores] = MappingProxyType({})
) -> str:
    """Build the page of several runs, and of what models scored, by their paths."""
    folders = list(dict.fromkeys([*(record.folder for record in records), *scores]))
    named = dict(zip(folders, names(folders), strict=True))
    runs = {named[record.folder]: record for record in records}
    scored = {name: scores.get(folder, {}) for folder, name in named.items()}
    kind = "runs" if len(runs) == len(named) else "models"
    title = f"{len(named)} {kind if len(named) > 1 else kind.removesuffix('s')}"
    shown = "".join(
        f'<li><i style="color:var(--{tone(i)})"></i>{escape(name)}</li>'
        for i, name in enumerate(named.values())
    )
    body = section("Final scores", _scores(runs)) if runs else ""
    body += evaluations.sections(scored) if scores else ""
    body += section("What differs in their configs", _differences(runs)) if len(runs) > 1 else ""
    body += section("Curves", _curves(runs))
    body += section("What differs in their environments", _environments(runs))
    top = f'<h1>{title}</h1><ul class="runs">{shown}</ul>{_warnings(runs)}'
    style = asset(__file__, ".css")
    return page(f"{title}: {', '.join(named.values())}", top + contents(body) + body, style)


def names(folders: Sequence[Path]) -> list[str]:
    """Name runs by the last parts of their paths, as many as tell them apart."""
    paths = [folder.resolve() for folder in folders]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    need(twice is None, f"{twice} is given twice", "name every run once")
    for count in range(1, max(len(path.parts) for path in paths) + 1):
        found = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(found)) == len(found):
            break
    return found


def _warnings(runs: Runs) -> str:
    """Warn of runs that are not finished, and of evaluations that scored different examples."""
    found = [f"{name}: {text}" for name, run in runs.items() for text in run.warnings()]
    found += [
        f"The runs are not scored on the same predictions of {suite}: {what}. Their losses cannot "
        f"be compared. {CURE}"
        for suite in _suites(runs)
        if (what := _unlike(runs, suite))
    ]
    return "".join(f'<p class="warning">{explain(text)}</p>' for text in found)


def _unlike(runs: Runs, suite: str) -> str:
    """Say in what the examples of an evaluation differ, run by run; empty where they are alike."""
    for key, what in SAME.items():
        full = f"eval/{suite}/{key}"
        curves = {name: run.curves[full] for name, run in runs.items() if full in run.curves}
        values = {name: number(points[-1][1]) for name, points in curves.items()}
        if len({*values.values()}) > 1:
            return f"{what} is {', '.join(f'{value} ({name})' for name, value in values.items())}"
    return ""


def _suites(runs: Runs) -> list[str]:
    return list(dict.fromkeys(suite for run in runs.values() for suite in run.suites()))


# --- tables ------------------------------------------------------------------------------------


def _scores(runs: Runs) -> str:
    """Tabulate every result at the step that is served, with the best in bold, and the costs."""
    lines: list[Line] = []
    for name, about, text in (
        ("state", "", RunRecord.state),
        ("steps", "", lambda run: f"{run.step:,} of {run.steps:,}"),
        ("step served", SERVED, lambda run: HOLE if run.served is None else f"{run.served:,}"),
    ):
        lines.append((name, about, [text(run) for run in runs.values()], None))
    for suite in _suites(runs):
        results = dict.fromkeys(n for run in runs.values() for n in run.results(suite))
        for name in results:
            lines += _score_lines(runs, suite, name)
    times = [duration(run.seconds) if run.rows else HOLE for run in runs.values()]
    lines.append(("time", "", times, None))
    for name in ("tokens_per_second", "step_seconds"):
        values = [run.curves.get(f"train/{name}") for run in runs.values()]
        if any(values):
            cells = [number(points[-1][1]) if points else HOLE for points in values]
            lines.append((pretty(name), meaning(name), cells, None))
    for name in ("parameters", "vocabulary"):
        sizes = [run.environment.get(name) for run in runs.values()]
        cells = [f"{size:,}" if isinstance(size, int) else HOLE for size in sizes]
        lines.append((name, "", cells, None))
    said = "Results are those of the step that is served."
    if any(best is not None for *_, best in lines):
        said += " The best of each is bold."
    return f'<p class="sub">{said}</p>{table(runs, "", lines)}'


def _score_lines(runs: Runs, suite: str, name: str) -> list[Line]:
    """Return the line of a result, and one of its baseline where it has one."""
    full, percent = f"eval/{suite}/{name}", is_share(name)
    values = [run.at_served(full)[1] if full in run.curves else None for run in runs.values()]
    ranks = not name.endswith("threshold") and not _unlike(runs, suite)
    winner = best_of(values, name) if ranks else None
    cells = [HOLE if value is None else number(value, percent) for value in values]
    lines: list[Line] = [(f"{suite}: {pretty(name)}", meaning(name), cells, winner)]
    levels = [
        baseline(run.curves, f"eval/{suite}/", name) if full in run.curves else None
        for run in runs.values()
    ]
    if label := next((level[0] for level in levels if level), ""):
        cells = [number(level[1], percent) if level else HOLE for level in levels]
        lines.append((f" {label.removeprefix('the ')}", WORDS.get(label, ""), cells, None))
    return lines


def _differences(runs: Runs) -> str:
    """Tabulate the knobs whose values differ, but for defaults that some runs have no use for."""
    flat = [configs.flat(run.recorded) for run in runs.values()]
    usual = configs.usual()
    lines: list[Line] = []
    for path in sorted({path for values in flat for path in values}):
        cells = [_knob(values, path) for values in flat]
        known = [values[path] for values in flat if path in values]
        idle = path in usual and all(value == usual[path] for value in known)
        if len(set(cells)) > 1 and not idle:
            lines.append((path, knob_docs([path])[path], cells, None))
    if not lines:
        return '<p class="sub">Nothing: all knobs have the same values.</p>'
    return table(runs, "knob", lines)


def _knob(values: Mapping[str, Any], path: str) -> str:
    """Write a run's value of a knob; its default, if the run is older than the knob."""
    usual, section = configs.usual(), path.rpartition(".")[0]
    older = path in usual and any(other.rpartition(".")[0] == section for other in values)
    return written(values.get(path, usual.get(path))) if path in values or older else HOLE


def _environments(runs: Runs) -> str:
    """Tabulate the facts of versions, machines and data that differ, folded."""
    flat = [configs.flat(run.environment) for run in runs.values()]
    lines: list[Line] = []
    for path in sorted({path for values in flat for path in values} - {"command"}):
        cells = [written(values[path]) if path in values else HOLE for values in flat]
        if len(set(cells)) > 1:
            lines.append((path, "", cells, None))
    if not lines:
        return ""
    said = f"{len(lines)} facts of their machines, versions and data differ"
    return f"<details><summary>{said}</summary>{table(runs, '', lines)}</details>"


# --- curves ------------------------------------------------------------------------------------


def _curves(runs: Runs) -> str:
    """Draw each metric of all runs over one another: what is learned, and folded all others."""
    found = dict.fromkeys(name for run in runs.values() for name in run.curves)
    suites = _suites(runs)
    results = [name for run in runs.values() for suite in suites for name in run.results(suite)]
    first = [
        full
        for name in learned(found, results)
        for full in (f"train/{name}", *(f"eval/{suite}/{name}" for suite in suites))
        if full in found
    ]
    left_out = {*first, *(f"train/{name}" for name in (*SPENT, *HELD))}
    rest = [name for name in found if name.startswith("train/") and name not in left_out]
    curves, others = (
        "".join(draw(_chart(runs, full), about=meaning(full)) for full in part)
        for part in (first, rest)
    )
    shown = f'<div class="charts">{curves}</div>' if curves else ""
    more = f'<div class="charts">{others}</div>' if others else ""
    return shown + fold("All other measurements", more)


def _chart(runs: Runs, full: str) -> Chart:
    """Describe one metric of all runs."""
    kind, _, rest = full.partition("/")
    suite, _, name = rest.rpartition("/") if kind == "eval" else ("training", "", rest)
    series, levels = [], []
    for i, (run_name, run) in enumerate(runs.items()):
        series.append(Series(run_name, run.curves.get(full, []), TONES[i % len(TONES)]))
        shown = kind == "eval" and full in run.curves
        level = baseline(run.curves, f"eval/{suite}/", name) if shown else None
        levels += [(level[0].removeprefix("the "), level[1])] if level else []
    y = axis_of(next(iter(runs.values())), name)
    title = f"{pretty(name)}, {suite}"
    return Chart(title, series, list(dict.fromkeys(levels)), percent=is_share(name), y=y)

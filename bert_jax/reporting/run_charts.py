"""Charts and tables of one run: what it learned, the masking ledger, its time, and the rest."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from bert_jax.config import knobs
from bert_jax.masking import rates
from bert_jax.reporting import palette
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import SPACE, number
from bert_jax.reporting.metric_names import (
    LEDGER,
    find_meaning,
    find_title,
    format_axis_title,
    is_share,
)
from bert_jax.reporting.page import Table
from bert_jax.reporting.run_record import RunRecord, find_section
from bert_jax.reporting.svg import draw_svg
from bert_jax.system.durations import format_duration

SPENT = {  # metric -> what the time was spent on
    "compile_seconds": "compiling the update",
    "data_seconds": "waiting for data",
    "evaluation_seconds": "evaluations",
    "saving_seconds": "checkpoints, as far as training waited for them",
}
HELD = {  # metric -> which memory
    "host_memory_bytes": "peak memory of the process",
    "device_memory_bytes": "peak memory of a device",
}


def draw_metric(
    run: RunRecord, name: str, series: Sequence[Series], title: str = "", **options: Any
) -> Markup:
    """Draw a chart of a metric, with its unit and meaning.

    The metric `loss` has the unit of the run's first objective.
    """
    objective = next(iter(find_section(run.recorded, "objectives")), "")
    y = format_axis_title(name)
    if name == "loss" and objective:
        y = format_axis_title(f"{objective}_{name}", find_title(name))
    log = name != "learning_rate"  # a schedule is read on a linear axis
    chart = Chart(
        title or find_title(name), series, percent=is_share(name), log=log, y=y, **options
    )
    return draw_svg(chart, about=find_meaning(name))


def list_learned(runs: Iterable[RunRecord]) -> list[str]:
    """List the names of the losses and accuracies of training and of the results of evaluations.

    Losses come first.
    """
    names = set()
    for run in runs:
        trained = {name.removeprefix("train/") for name in run.curves if name.startswith("train/")}
        names |= {name for name in trained if name.endswith(("loss", "accuracy"))}
        names |= {name for suite in run.list_suites() for name in run.list_results(suite)}
    return sorted(
        names, key=lambda n: (not n.endswith("loss"), n.partition("_")[0] not in ("loss", "mlm"), n)
    )


def draw_learned(run: RunRecord, name: str) -> Markup:
    """Draw the curves of a metric in training and in every evaluation, with its baselines."""
    series, levels = [], []
    evaluated = [suite for suite in run.list_suites() if f"eval/{suite}/{name}" in run.curves]
    if points := run.curves.get(f"train/{name}"):
        series.append(Series("training", points, faint=bool(evaluated)))
    for i, suite in enumerate(evaluated):
        key = f"eval/{suite}/{name}"
        low = dict(run.curves.get(f"{key}_low", []))
        high = dict(run.curves.get(f"{key}_high", []))
        band = [(step, low[step], high[step]) for step in sorted(low.keys() & high.keys())]
        series.append(Series(suite, run.curves[key], f"c{2 + i % (palette.HUES - 1)}", band=band))
    for suite in evaluated or [""]:
        if level := run.find_baseline(suite, name):
            levels.append((level[0].removeprefix("the "), level[1]))
    parts = [n for n in run.curves if n.startswith("train/") and n.endswith("_loss")]
    title = "Loss, the weighted sum" if name == "loss" and parts else ""
    levels = list(dict.fromkeys(levels))
    return draw_metric(run, name, series, title, baselines=levels, mark=run.mark)


def draw_others(run: RunRecord) -> list[Markup]:
    """Draw the training metrics that no other chart shows."""
    known = {*LEDGER, *SPENT, *HELD, *list_learned([run])}
    drawn = []
    for key, points in sorted(run.curves.items()):
        name = key.removeprefix("train/")
        if name != key and name not in known:
            drawn.append(draw_metric(run, name, [Series("training", points)]))
    return drawn


# --- the masking ledger ------------------------------------------------------------------------


def draw_ledger(run: RunRecord) -> tuple[list[Markup], Table]:
    """Draw what was really masked by step; tabulate it next to what the config asks for."""
    masking = find_section(run.recorded, "masking")
    rate = _find_rate(masking)
    replace = masking.get("replace") or (None, None, None)
    asked = dict(zip(LEDGER, (rate, rate, *replace), strict=False))
    unknown = "scheduled" if masking.get("phases") else "drawn"
    lines = []
    drawn = []
    for name, text in LEDGER.items():
        if points := run.curves.get(f"train/{name}"):
            wish, levels = unknown, []
            if (expected := asked[name]) is not None:
                wish = number(expected, True)
                levels = [("config", expected)]
            values = [value for _, value in points]
            found = [number(f(values), True) for f in (statistics.fmean, min, max)]
            lines.append([text, wish, *found])
            drawn.append(draw_metric(run, name, [Series("", points)], baselines=levels))
    about = {text: find_meaning(name) for name, text in LEDGER.items()}
    head = ["share", "config", "mean", "lowest", "highest"]
    return drawn, Table(head, lines, about=about)


def _find_rate(masking: dict[str, Any]) -> float | None:
    """Return the share of tokens that the config selects; None if the share varies."""
    if masking.get("phases") or masking.get("draw") not in (None, "fixed"):
        return None
    rate = masking.get("rate")
    wanted = masking.get("prediction_rate")
    if rate and wanted and rate < wanted:
        return wanted / rates.count_views(knobs.Masking(rate=rate, prediction_rate=wanted))
    return rate


# --- time and memory ---------------------------------------------------------------------------


def tabulate_times(run: RunRecord) -> Table:
    """Tabulate how the time was spent, and the peak memory."""
    head = ["what", "used", "share of the time"]
    spent = {text: run.last(name) for name, text in SPENT.items()}
    times = {text: seconds for text, seconds in spent.items() if seconds is not None}
    if len(times) < len(SPENT) or not run.seconds:
        return Table(head, [])
    times["steps"] = max(0.0, run.seconds - sum(times.values()))
    lines = [
        [text, format_duration(value), number(value / run.seconds, True)]
        for text, value in times.items()
    ]
    for name, text in HELD.items():
        if held := run.last(name):
            lines.append([text, f"{held / 1e9:.2f}{SPACE}GB", ""])
    return Table(head, lines)

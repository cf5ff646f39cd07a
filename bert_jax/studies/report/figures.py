"""Figures of a study: means over an axis, losses during training, and matrices of two axes.

The functions draw_… return {name of the file: chart or matrix}, see `reporting.figures`.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.reporting import palette
from bert_jax.reporting.figures import Chart, Figure, Heat, Series
from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import find_direction, find_title, format_axis_title
from bert_jax.studies import scaling
from bert_jax.studies.cell_result import Result
from bert_jax.studies.report.baselines import list_levels
from bert_jax.studies.report.families import Family
from bert_jax.studies.report.intervals import summarize_values
from bert_jax.studies.report.view import Value, View, find_values, get_metric, summarize
from bert_jax.studies.report.wording import join_names, name_file
from bert_jax.studies.spec import Axis, Comparison

WIDE = 30.0  # an axis whose numbers are so many times apart is logarithmic
TONES = 10  # of the page's sequence of colours
CLOSE = 1e-9  # of a budget, by which two of them may differ and be called equal


# --- means over an axis -------------------------------------------------------------------------


def draw_means(view: View, comparison: Comparison, metric: str) -> dict[str, Figure]:
    """Make charts of a metric's means over the axis of a comparison."""
    axis = view.axis(comparison.axis)
    return {
        name_file(axis.name, metric, part): _draw_over_axis(
            axis,
            join_names(find_title(metric), part),
            _list_means(axis, part, families, get_metric(metric)),
            percent=view.is_percent(metric),
            baselines=list_levels(view, metric),
            y=format_axis_title(metric),
            note=_note_seeds(families, get_metric(metric)),
        )
        for part, families in view.panels(axis.name).items()
    }


def _draw_over_axis(axis: Axis, title: str, series: Sequence[Series], **options: Any) -> Chart:
    """Make a chart of series over an axis, or a chart of rows if the points are no numbers."""
    if axis.numeric:
        options["ticks"] = [(x, label) for label, x in _place_points(axis).items()]
    else:
        options["rows"] = axis.labels
    x = f"{axis.title}, logarithmic" if _is_logarithmic(axis) else axis.title
    return Chart(title, series, x=x, edge=True, **options)


def _place_points(axis: Axis) -> dict[str, float]:
    """Return {label of a point: the point's place on the axis of a chart}.

    The place is the point's number, or its logarithm if the numbers are far apart. Points that are
    not numbers have the places 0, 1, 2 and so on.
    """
    if not axis.numeric:
        return {label: float(row) for row, label in enumerate(axis.labels)}
    place = math.log10 if _is_logarithmic(axis) else float
    return {label: place(value) for label, value in zip(axis.labels, axis.values, strict=True)}


def _is_logarithmic(axis: Axis) -> bool:
    return axis.numeric and 0 < min(axis.values) < max(axis.values) / WIDE


def _list_means(axis: Axis, part: str, families: Sequence[Family], value: Value) -> list[Series]:
    """Make a line for each family: means over seeds, their intervals, and the value of every seed.

    `value` returns the value of a run. A line is named after its family, without `part`, which the
    title of the chart has.
    """
    at = _place_points(axis)
    lines = []
    for i, family in enumerate(families):
        name = family.name.removeprefix(part).removeprefix(", ")
        points = []
        whiskers = []
        dots = []
        for label, runs in family.runs.items():
            mean = summarize(runs, value)
            if mean is None:
                continue
            points.append((at[label], mean.mean))
            if mean.n > 1:
                whiskers.append((at[label], mean.low, mean.high))
                dots += [(at[label], single) for single in find_values(runs, value)]
        colour = f"c{1 + i % palette.HUES}"
        lines.append(Series(name, points, colour, whiskers=whiskers, dots=dots))
    return lines


def _note_seeds(families: Sequence[Family], value: Value) -> str:
    """Write how many seeds the means of a figure have, and which points have fewer seeds."""
    runs = {(f.name, label): runs for f in families for label, runs in f.runs.items()}
    counts = {place: len(find_values(of_place, value)) for place, of_place in runs.items()}
    if max(counts.values(), default=0) < 2:
        return "One seed: no interval."
    planned = max(map(len, runs.values()))
    fewer = [
        f"{join_names(*place)} ({count} of {len(runs[place])})"
        for place, count in counts.items()
        if 0 < count < len(runs[place])
    ]
    text = f"Means of {planned} seeds with 95{SPACE}% t intervals."
    return f"{text} Fewer: {'; '.join(fewer)}." if fewer else text


# --- losses during training -----------------------------------------------------------------------


def draw_curves(view: View, axis: Axis, metric: str) -> dict[str, Figure]:
    """Make charts of the mean loss of each point by step, with 95 % bands, one for each family.

    A mean is drawn at the steps that all seeds of the point have.
    """
    name = metric.partition("/")[2]
    charts: dict[str, Figure] = {}
    for family in view.families(axis.name):
        lines = []
        for i, label in enumerate(axis.labels):
            runs = family.runs.get(label, [])
            seeds = [dict(run.history.evaluations.get(metric, [])) for run in runs]
            shared = sorted(set.intersection(*map(set, seeds))) if seeds else []
            if not shared:
                continue
            means = [(step, summarize_values([seed[step] for seed in seeds])) for step in shared]
            band = [(step, mean.low, mean.high) for step, mean in means if mean.n > 1]
            tone = f"q{round(i * (TONES - 1) / max(len(axis.labels) - 1, 1))}"
            lines.append(Series(label, [(x, mean.mean) for x, mean in means], tone, band=band))
        charts[name_file(axis.name, "curves", family.name)] = Chart(
            join_names(find_title(name), family.name),
            lines,
            list_levels(view, metric),
            y=format_axis_title(name),
            edge=True,
            note=f"On held-out text, during training. Means of all seeds, 95{SPACE}% bands.",
        )
    return charts


def draw_at_equal(view: View, axis: Axis, metric: str) -> dict[str, Figure]:
    """Make charts of the loss where each run has spent as many FLOPs as the cheapest run.

    The cheapest run is taken within each family.
    """
    read: dict[str, float | None] = {}
    for family in view.families(axis.name):
        runs = [run for runs in family.runs.values() for run in runs]
        common = min(run.spent("flops", run.state.steps) for run in runs)
        for run in runs:
            spent = run.clock("flops")
            points = run.history.evaluations.get(metric, [])
            curve = [(spent(step), value) for step, value in points]
            read[run.entry.id] = read_curve(curve, common)

    def value(result: Result) -> float | None:
        return read[result.entry.id]

    name = metric.partition("/")[2]
    return {
        name_file(axis.name, "equal_flops", part): _draw_over_axis(
            axis,
            join_names(f"{find_title(name)} after equal FLOPs", part),
            _list_means(axis, part, families, value),
            y=format_axis_title(name),
            baselines=list_levels(view, metric),
            note=f"Read where each line's cheapest run ends. {_note_seeds(families, value)}",
        )
        for part, families in view.panels(axis.name).items()
    }


def read_curve(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """Interpolate a curve at `at`, linearly in the logarithm of x; None outside its ends."""
    if not points or not points[0][0] <= at * (1 + CLOSE) or at > points[-1][0] * (1 + CLOSE):
        return None
    return float(scaling.weigh_between([x for x, _ in points], at) @ [y for _, y in points])


# --- matrices -----------------------------------------------------------------------------------


def draw_cross_rates(view: View, axis: Axis) -> dict[str, Figure]:
    """Make matrices of the loss: a row for each trained point, a column for each evaluated rate.

    Each family has a matrix for each evaluation by the suite `cross_rate`.
    """
    matrices: dict[str, Figure] = {}
    for name, spec in view.study.evaluations.items():
        if spec.get("name") == "cross_rate":
            for family in view.families(axis.name):
                matrices[name_file(name, family.name)] = _draw_cross_rate(axis, family, name)
    return matrices


def _draw_cross_rate(axis: Axis, family: Family, evaluation: str) -> Heat:
    """Make the matrix of one family; shades show the distance to the best of a column."""
    metrics = {key for runs in family.runs.values() for run in runs for key in run.metrics}
    losses = [m for m in metrics if m.startswith(f"{evaluation}/") and m.endswith("/mlm_loss")]
    rates = sorted({key.split("/")[1] for key in losses}, key=float)
    grid = []
    names = []
    whole = []
    for label, runs in family.runs.items():
        have = sum(any(key in run.metrics for key in losses) for run in runs)
        whole.append(have == len(runs))
        names.append(label if whole[-1] else f"{label} ({have} of {len(runs)})")
        grid.append([_find_mean(runs, f"{evaluation}/{rate}/mlm_loss") for rate in rates])
    values = np.array(grid)  # [rows, columns]
    # The best of a column is among the rows that have all seeds.
    kept = values[whole] if any(whole) else values
    best = np.min(kept, axis=0, initial=np.inf, where=np.isfinite(kept))
    # By the root, to show small distances.
    away = np.sqrt(np.maximum(values - best, 0))
    return Heat(
        join_names("MLM loss (nats) by rate of evaluation", family.name),
        names,
        [f"{100 * float(rate):g}{SPACE}%" for rate in rates],
        grid,
        **_shade_cells(away, np.array(whole)[:, None]),
        y=axis.words,
        x="masking rate of evaluation (share of tokens)",
        note="Rows: the setting of training. Columns: the masking rate of evaluation, on nested "
        "masks. Framed: the best of a column among rows with all seeds; darker cells are nearer.",
    )


def draw_crossed(view: View) -> dict[str, Heat]:
    """Make a matrix of each compared metric over two crossed axes; {} if there are none."""
    axes = find_crossed(view)
    if not axes:
        return {}
    first, second = axes
    others = [axis.name for axis in view.study.axes if axis not in axes]
    groups: dict[str, dict[tuple[str, str], list[Result]]] = {}
    for result in view.results:
        labels = result.entry.labels
        cells = groups.setdefault(", ".join(labels[other] for other in others), {})
        cells.setdefault((labels[first.name], labels[second.name]), []).append(result)
    metrics = dict.fromkeys(metric for c in view.comparisons for metric in c.metrics)
    figures: dict[str, Heat] = {}
    for metric, (name, cells) in itertools.product(metrics, groups.items()):
        grid = [
            [find_whole_mean(cells.get((a, b), []), metric) for b in second.labels]
            for a in first.labels
        ]
        note = "Means over seeds; empty if a seed is missing."
        shaded: dict[str, Any] = {"shades": np.zeros(np.shape(grid)).tolist()}
        if direction := find_direction(metric):
            losses = -direction * np.array(grid)
            best = np.min(losses, initial=np.inf, where=np.isfinite(losses))
            shaded = _shade_cells(losses - best, np.array(True))
            note += " Framed: the best; darker cells are nearer to it."
        figures[name_file(first.name, second.name, metric, name)] = Heat(
            join_names(format_axis_title(metric), name),
            first.labels,
            second.labels,
            grid,
            **shaded,
            y=first.words,
            x=second.title,
            percent=view.is_percent(metric),
            note=note,
        )
    return figures


def find_crossed(view: View) -> list[Axis]:
    """Return two axes of masking, or a study's only two axes if both are compared; else []."""
    several = [axis for axis in view.study.axes if len(axis.labels) > 1]
    masking = [axis for axis in several if axis.name.startswith("masking.")]
    if len(masking) >= 2:
        return masking[:2]
    return several if len(view.study.axes) == len(several) == len(view.comparisons) == 2 else []


def _find_mean(runs: Sequence[Result], metric: str) -> float:
    mean = summarize(runs, get_metric(metric))
    return mean.mean if mean else math.nan


def find_whole_mean(runs: Sequence[Result], metric: str) -> float:
    """Return the mean of a metric over seeds; NaN if a seed lacks the metric."""
    return _find_mean(runs, metric) if all(metric in run.metrics for run in runs) else math.nan


def _shade_cells(away: np.ndarray, whole: np.ndarray) -> dict[str, Any]:
    """Shade the cells of a matrix by their distances to the best, and mark the best cells.

    Returns {"shades": numbers, "marks": {(row, column), …}}. A shade is 1 for the best cell, and 0
    for the farthest. Only cells where `whole` is true can be marked.
    """
    most = np.nanmax(away, initial=0.0) or 1.0
    marks = np.argwhere((away == 0) & whole)
    return {
        "shades": np.nan_to_num(1 - away / most).tolist(),
        "marks": {(int(row), int(column)) for row, column in marks},
    }

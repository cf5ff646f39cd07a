"""Heat maps of a study: runs trained at one masking rate and evaluated at others; crossed axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from bert_jax.reporting.figures import Figure, Heat
from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import axis_title, lower_is_better
from bert_jax.studies.report.collect import Axis, Family, Result
from bert_jax.studies.report.view import View, get_metric, summarize
from bert_jax.studies.report.wording import join_names, name_file

Shades = tuple[list[list[float]], set[tuple[int, int]]]  # of all cells, and which are the best


def draw_cross_rate(view: View) -> dict[str, Figure]:
    """Tabulate the loss by the rate of training and the rate of evaluation."""
    axis = view.axis(view.comparisons[0]["axis"])
    evaluations = view.study.get("evaluations", {})
    return {
        name_file(name, family.name): _cross_rate(axis, family, name)
        for name, spec in evaluations.items()
        if spec.get("name") == "cross_rate"
        for family in view.families(axis.name)
    }


def _cross_rate(axis: Axis, family: Family, evaluation: str) -> Heat:
    """Describe the heat map of one family; shades show the distance to the best of a column."""
    keys = {key for runs in family.runs.values() for result in runs for key in result.metrics}
    losses = [k for k in keys if k.startswith(f"{evaluation}/") and k.endswith("/mlm_loss")]
    rates = sorted({key.split("/")[1] for key in losses}, key=float)
    grid, names, whole = [], [], []
    for label in filter(family.runs.get, axis.labels):  # a study may leave points out
        runs = family.runs[label]
        have = sum(any(k.startswith(f"{evaluation}/") for k in r.metrics) for r in runs)
        whole.append(have == len(runs))
        names.append(label if whole[-1] else f"{label} ({have} of {len(runs)})")
        grid.append([_mean(runs, f"{evaluation}/{rate}/mlm_loss") for rate in rates])
    shades, marks = _shade_columns(grid, whole)
    return Heat(
        join_names("MLM loss (nats) by rate of evaluation", family.name),
        names,
        [f"{100 * float(rate):g}{SPACE}%" for rate in rates],
        grid,
        shades,
        marks=marks,
        y=axis.words,
        x="masking rate of evaluation (share of tokens)",
        note="Rows: the setting that runs were trained with. Columns: the masking rate they are "
        "evaluated at, on one set of nested masks. Means over seeds, over fewer where noted; bold: "
        "the best of its column among rows with all seeds; darker cells are nearer to it.",
    )


def draw_crossed(view: View) -> dict[str, Figure]:
    """Tabulate each metric over two axes of masking, or over the only two that are compared."""
    several = [axis for axis in view.axes if len(axis.labels) > 1]
    axes = [axis for axis in several if axis.name.startswith("masking.")]
    if len(axes) < 2 and len(view.axes) == len(several) == len(view.comparisons) == 2:
        axes = several
    if len(axes) < 2:
        return {}
    first, second = axes[:2]
    others = [axis.name for axis in view.axes if axis not in (first, second)]
    groups: dict[str, dict[tuple[str, str], list[Result]]] = {}
    for result in view.results:
        labels = result.entry.labels
        name = ", ".join(labels[other] for other in others)
        cell = labels[first.name], labels[second.name]
        groups.setdefault(name, {}).setdefault(cell, []).append(result)
    metrics = dict.fromkeys(metric for c in view.comparisons for metric in c["metrics"])
    figures: dict[str, Figure] = {}
    for metric, (name, cells) in itertools.product(metrics, groups.items()):
        grid = [
            [_whole_mean(cells.get((a, b), []), metric) for b in second.labels]
            for a in first.labels
        ]
        shades, marks = _shade_all(grid, lower_is_better(metric))
        figures[name_file(first.name, second.name, metric, name)] = Heat(
            join_names(axis_title(metric), name),
            first.labels,
            second.labels,
            grid,
            shades,
            marks=marks,
            y=first.title,
            x=second.title,
            percent=view.is_percent(metric),
            note="Means over seeds; empty if a seed is missing. Bold: the best; darker cells are "
            "nearer to it.",
        )
    return figures


def _mean(runs: Sequence[Result], metric: str) -> float:
    mean = summarize(runs, get_metric(metric))
    return mean.mean if mean else math.nan


def _whole_mean(runs: Sequence[Result], metric: str) -> float:
    """Return the mean if every seed has the metric; a mean of some would be read as that of all."""
    return _mean(runs, metric) if all(metric in result.metrics for result in runs) else math.nan


def _shade(away: np.ndarray, whole: Sequence[bool]) -> Shades:
    """Shade cells by their distance from the best, 0, and mark the best of the whole rows."""
    most = np.nanmax(away, initial=0.0) or 1.0
    shades = np.nan_to_num(1 - away / most)
    marks = {(i, j) for i, j in np.argwhere(away == 0).tolist() if whole[i]}
    return shades.tolist(), marks


def _shade_columns(grid: Sequence[Sequence[float]], whole: Sequence[bool]) -> Shades:
    """Shade cells by the root of their distance from the column's least, to show small distances.

    The least is that of the rows that are whole.
    """
    values = np.array(grid)  # [rows, columns]
    of_whole = values[list(whole)] if any(whole) else values
    least = np.min(of_whole, axis=0, initial=np.inf, where=np.isfinite(of_whole))
    return _shade(np.sqrt(np.maximum(values - least, 0)), whole)


def _shade_all(grid: Sequence[Sequence[float]], lower: bool) -> Shades:
    """Shade cells by their distance from the best of all."""
    values = np.array(grid) * (1 if lower else -1)
    least = np.min(values, initial=np.inf, where=np.isfinite(values))
    return _shade(values - least, [True] * len(values))

"""The figures of a report as PNGs, for where a page cannot go: the same data, the same colours, by matplotlib."""

from __future__ import annotations

import itertools
import math
import os
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.reporting import charts, plots
from bert_jax.reporting.charts import Chart, Series, number
from bert_jax.reporting.page import STYLE
from bert_jax.reporting.plots import HOLE, Heat

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS = 160  # an inch
WIDTH, HEAD, FOOT = 7.2, 0.45, 1.05  # inches
GLYPH = 0.085  # inches of a character
INK, SOFT, LINE = "#1c2430", "#5b6675", "#dfe4ea"
COLOURS = dict(
    reversed(re.findall(r"\b([cq]\d)\b[^#;]{1,12}(#[0-9a-f]{6})", STYLE))
)  # the first is of the light page


def write(folder: Path, figures: Mapping[str, plots.Figure], source: str) -> list[Path]:
    """Writes NAME.png for every figure that shows something; `source` says below each where it comes from."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        if not plots.draw(figure):
            continue
        with rc_context(
            {
                "font.family": "sans-serif",
                "font.size": 10,
                "text.color": INK,
                "axes.unicode_minus": True,
            }
        ):
            drawn = _heat(figure) if isinstance(figure, Heat) else _chart(figure)
            _caption(drawn, figure.title, " ".join(filter(None, [figure.note, source])))
            path = folder / f"{name}.png"
            draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            FigureCanvasAgg(drawn).print_png(
                draft, metadata={"Software": ""}
            )  # the same bytes from the same data
        draft.replace(path)
        written.append(path)
    return written


def _new(tall: float, left: float, above: float = 0.0) -> tuple[Figure, Axes]:
    """A figure with room for its title, and for `left` inches of names; `above` for what stands over the axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, tall + FOOT + HEAD + above), dpi=DOTS, facecolor="white")
    high = figure.get_figheight()
    axes = figure.add_axes((left / WIDTH, FOOT / high, (WIDTH - left - 0.25) / WIDTH, tall / high))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(SOFT)
    axes.tick_params(colors=SOFT, length=0)
    axes.set_axisbelow(True)
    return figure, axes


def _caption(figure: Figure, title: str, below: str) -> None:
    """Title above, source below."""
    high = figure.get_figheight()
    figure.text(
        0.12 / WIDTH, 1 - 0.12 / high, title, ha="left", va="top", fontsize=12, fontweight="bold"
    )
    for row, line in enumerate(reversed(textwrap.wrap(below, 124, max_lines=3))):
        figure.text(
            0.12 / WIDTH,
            (0.1 + 0.16 * row) / high,
            line,
            ha="left",
            va="bottom",
            fontsize=8,
            color=SOFT,
        )


def _chart(chart: Chart) -> Figure:
    lines = [s for s in chart.series if s.points]
    names = [textwrap.fill(name, 26) for name in chart.rows]
    tall = (0.2 * len(lines) + 0.2) * len(chart.rows) if chart.rows else 3.1
    left = 0.3 + GLYPH * max((len(line) for name in names for line in name.split("\n")), default=5)
    several = len(lines) > 1 or bool(lines[0].name)
    above = 0.2 * math.ceil(len(lines) / 5) + 0.05 if several else 0.0
    figure, axes = _new(tall, left, above)
    values = charts.y_range(chart)
    axis = charts.Axis(values, 0, 1, pad=0.06)
    ticks = axis.ticks(6)
    labels = [charts.short(tick, chart.percent, ticks) for tick in ticks]
    dodge = 0.012 * _span(chart) if chart.ticks else 0.0
    for order, series in enumerate(lines):
        _series(
            axes, chart, series, (order - (len(lines) - 1) / 2) * (0.2 if chart.rows else dodge)
        )
    if chart.rows:
        axes.set_xlim(axis.low, axis.high)
        axes.set_xticks(ticks, labels)
        axes.set_yticks(range(len(chart.rows)), names, color=INK)
        axes.set_ylim(len(chart.rows) - 0.5, -0.5)
        axes.grid(axis="x", color=LINE)
    else:
        axes.set_ylim(axis.low, axis.high)
        axes.set_yticks(ticks, labels)
        axes.grid(axis="y", color=LINE)
        axes.set_xlabel(chart.x, color=SOFT)
        if chart.ticks:
            axes.set_xticks(*zip(*_apart(chart), strict=True))
        else:
            axes.xaxis.set_major_formatter(
                lambda x, _: charts.short(x, False, axes.get_xticks().tolist())
            )
    for name, value in chart.baselines:
        line = axes.axvline if chart.rows else axes.axhline
        line(value, color=SOFT, linestyle=(0, (4, 3)), linewidth=1)
        if not chart.rows:
            text = f"{name} {number(value, chart.percent)}" if name else ""
            axes.annotate(
                text,
                (1, value),
                (0, 3),
                axes.get_yaxis_transform(),
                "offset points",
                ha="right",
                color=SOFT,
            )
    if chart.mark is not None:
        axes.axvline(chart.mark, color=SOFT, linestyle=(0, (4, 3)), linewidth=1)
    if several:
        corner = (-left / (WIDTH - left), 1.0)
        axes.legend(
            loc="lower left",
            bbox_to_anchor=corner,
            borderaxespad=0.2,
            ncols=5,
            frameon=False,
            fontsize=9,
        )
    return figure


def _series(axes: Axes, chart: Chart, series: Series, aside: float) -> None:
    colour = COLOURS[series.kind.split()[0]]
    xs, ys = [x + aside for x, _ in series.points], [y for _, y in series.points]
    dots = [x + aside for x, _ in series.dots], [y for _, y in series.dots]
    bars = [(x + aside, low, high) for x, low, high in series.whiskers]
    if chart.rows:
        axes.plot(ys, xs, "o", color=colour, markersize=5, label=series.name)
        axes.plot(
            dots[1],
            dots[0],
            "o",
            markersize=3,
            alpha=0.6,
            color=colour,
            fillstyle="none",
            markeredgewidth=0.8,
        )
        for row, low, high in bars:
            axes.hlines(row, low, high, color=colour, linewidth=1.2, alpha=0.8)
        return
    axes.plot(
        xs,
        ys,
        "o-" if len(xs) <= 25 else "-",
        color=colour,
        markersize=4,
        linewidth=1.6,
        label=series.name,
    )
    axes.plot(
        *dots, "o", markersize=3, alpha=0.6, color=colour, fillstyle="none", markeredgewidth=0.8
    )
    if bars:
        axes.vlines(*zip(*bars, strict=True), color=colour, linewidth=1.2, alpha=0.8)
    if series.band:
        edges = [[one[part] for one in series.band] for part in range(3)]
        axes.fill_between(edges[0], edges[1], edges[2], color=colour, alpha=0.15, linewidth=0)


def _span(chart: Chart) -> float:
    places = [x for x, _ in chart.ticks]
    return max(places) - min(places)


def _apart(chart: Chart) -> list[tuple[float, str]]:
    """Ticks that do not run into each other."""
    kept: list[tuple[float, str]] = []
    for tick, label in sorted(chart.ticks):
        if not kept or tick - kept[-1][0] > _span(chart) * 0.007 * (len(label) + len(kept[-1][1])):
            kept.append((tick, label))
    return kept


def _heat(heat: Heat) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap

    left = 0.3 + GLYPH * max(map(len, heat.rows))
    figure, axes = _new(0.34 * len(heat.rows), left, 0.3)
    shades = [
        [s if math.isfinite(v) else math.nan for s, v in zip(*row, strict=True)]
        for row in _both(heat)
    ]
    colours = LinearSegmentedColormap.from_list("page", ["#ffffff", COLOURS["c1"]])
    axes.imshow(shades, cmap=colours, vmin=0, vmax=1.25, aspect="auto")
    small = 9 if len(heat.columns) <= 8 else 8
    for i, j in itertools.product(range(len(heat.rows)), range(len(heat.columns))):
        value = heat.values[i][j]
        best = (i, j) in heat.marks
        text = (
            f"{number(value, heat.percent)}{' *' if best else ''}" if math.isfinite(value) else HOLE
        )
        dark = math.isfinite(value) and heat.shades[i][j] > 0.75
        weight = "bold" if best else "normal"
        axes.text(
            j,
            i,
            text,
            ha="center",
            va="center",
            fontsize=small,
            fontweight=weight,
            color="w" if dark else INK,
        )
    axes.set_xticks(range(len(heat.columns)), heat.columns)
    axes.set_yticks(range(len(heat.rows)), heat.rows)
    axes.set_title(heat.corner, loc="left", fontsize=9, color=SOFT)
    return figure


def _both(heat: Heat) -> list[tuple]:
    return list(zip(heat.shades, heat.values, strict=True))

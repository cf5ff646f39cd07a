"""Runs compared at equal budgets of steps, tokens, predictions or FLOPs, by held-out loss.

The common budget is the smallest that any run was given. A run that was given more is read where it
had spent as much, between two of its evaluations, on a line over the logarithm of what was spent;
its learning rate had not decayed fully there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.reporting.figures import Chart, Figure, Series
from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import axis_title, pretty
from bert_jax.studies import scaling
from bert_jax.studies.report import charts, intervals
from bert_jax.studies.report.baselines import draw_levels
from bert_jax.studies.report.blocks import Block, Figures, Paragraph, add_detail
from bert_jax.studies.report.collect import Axis, Family, Result
from bert_jax.studies.report.view import View
from bert_jax.studies.report.wording import format_large, join_names, name_file

POINTS = 120  # of a drawn curve, at most
LISTED = 4  # amounts in a sentence, at most
CLOSE = 1e-6  # of a budget, by which two of them may differ and be called equal
KINDS = {"steps": "steps", "tokens": "tokens", "predictions": "predictions", "flops": "FLOPs"}
SPENT = {  # titles of the axis, with their units
    "steps": "step",
    "tokens": "tokens read",
    "predictions": "tokens predicted",
    "flops": "FLOPs of matmuls",
}
PREFERRED = ("validation/mlm_loss", "validation/loss")


def describe_budgets(view: View, axis: str) -> list[Block]:
    """Describe every kind of budget; nothing if nothing was evaluated during training."""
    metric = choose_metric(view.results)
    if not metric:
        return []
    panels = [Panel(view, view.axis(axis), metric, kind) for kind in KINDS]
    blocks: list[Block] = []
    for panel in panels:
        figures = panel.draw_readings()
        if panel.kind == "steps":  # over other budgets the curves are stretched or squeezed
            figures |= panel.draw_curves()
        if any(chart.series for chart in figures.values() if isinstance(chart, Chart)):
            title = f"Equal {KINDS[panel.kind]}"
            blocks.append(add_detail(title, [Paragraph(panel.explain()), Figures(figures)]))
    return blocks


def choose_metric(results: Sequence[Result]) -> str:
    """Choose the loss to draw: that of the pre-training evaluation if there is one."""
    known = dict.fromkeys(name for result in results for name in result.history.evaluations)
    losses = (n for n in (*PREFERRED, *known) if n in known and n.endswith("loss"))
    return next(losses, "")


def format_budget(budget: Mapping[str, Any]) -> str:
    """Write the budget that study.json records."""
    amounts = budget["amount"] if isinstance(budget["amount"], list) else [budget["amount"]]
    listed = " or ".join(format_large(amount) for amount in amounts)
    return f"{listed} {KINDS.get(budget['kind'], budget['kind'])} per cell"


def find_given(result: Result, kind: str) -> float:
    """Return the budget of a whole run."""
    return result.spent(kind, result.state.steps)


def find_common(family: Family, kind: str) -> float:
    """Return the smallest budget that any run of a family was given."""
    return min(find_given(result, kind) for runs in family.runs.values() for result in runs)


def read_curve(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """Interpolate a curve, as `scaling` does; return None before its first point or after its last.

    Args:
      points: what was spent, above 0, and the loss there.
      at: what is to be spent.
    """
    if not points or not points[0][0] <= at * (1 + 1e-9) or not at <= points[-1][0] * (1 + 1e-9):
        return None
    return float(scaling.between([x for x, _ in points], at) @ [y for _, y in points])


@dataclass(frozen=True)
class Panel:
    """Losses of a study's runs over one kind of budget."""

    view: View
    axis: Axis
    metric: str
    kind: str

    @functools.cached_property
    def families(self) -> list[Family]:
        return self.view.families(self.axis.name)

    @functools.cached_property
    def common(self) -> dict[str, float]:
        """Return the common budget of each family."""
        return {family.name: find_common(family, self.kind) for family in self.families}

    @functools.cached_property
    def longer(self) -> list[str]:
        """Return the points that have a run with more than the common budget."""
        return [
            label
            for label in self.axis.labels
            if any(
                find_given(result, self.kind) > self.common[family.name] * (1 + CLOSE)
                for family in self.families
                for result in family.runs.get(label, [])
            )
        ]

    def curve(self, result: Result) -> list[tuple[float, float]]:
        """Return the loss of a run over the budget spent."""
        spent = result.clock(self.kind)
        points = result.history.evaluations.get(self.metric, [])
        return [(spent(step), value) for step, value in points]

    def explain(self) -> str:
        """Say at which budget the losses are read, and for which points that is not the end."""
        amounts = _list_amounts(self.common.values())
        of_a_line = " of a line" if len(self.families) > 1 else ""
        kind = KINDS[self.kind]
        text = f"Read after {amounts} {kind}, the smallest budget of any run{of_a_line}."
        if self.longer:
            which = ", ".join(self.longer)
            if len(self.longer) == len(self.axis.labels) - 1:
                rest = next(label for label in self.axis.labels if label not in self.longer)
                which = f"all runs but {rest}"
            text += f" The learning-rate schedule of {which} had not ended there."
        if unread := self._list_unread():
            text += f" Not read, because spent before the first evaluation: {'; '.join(unread)}."
        return text

    def _list_unread(self) -> list[str]:
        """List points whose first evaluation came after the common budget was spent."""
        listed = []
        for family in self.families:
            late = []
            for label, runs in family.runs.items():
                firsts = [points[0][0] for points in map(self.curve, runs) if points]
                if firsts and min(firsts) > self.common[family.name] * (1 + 1e-9):
                    late.append(label)
            if late:
                listed.append(f"{f'{family.name}: ' if family.name else ''}{', '.join(late)}")
        return listed

    def draw_readings(self) -> dict[str, Figure]:
        """Describe the losses at the common budget, a figure for each panel of families."""
        read = {
            result.entry.id: read_curve(self.curve(result), self.common[family.name])
            for family in self.families
            for runs in family.runs.values()
            for result in runs
        }

        def value(result: Result) -> float | None:
            return read[result.entry.id]

        short = self.metric.partition("/")[2]
        title = f"{pretty(short)} after equal {KINDS[self.kind]}"
        return {
            name_file(self.axis.name, "equal", self.kind, part): charts.chart_over(
                self.axis,
                join_names(title, part),
                charts.strip_names(part, charts.list_means(self.axis, families, value)),
                y=axis_title(short),
                baselines=draw_levels(self.view, self.metric),
                note=charts.note_seeds(families, value),
            )
            for part, families in self.view.panels(self.axis.name).items()
        }

    def draw_curves(self) -> dict[str, Figure]:
        """Describe the mean loss of each point over the budget, a figure for each family."""
        return {
            name_file(self.axis.name, "curves", family.name): self._draw_curves(family)
            for family in self.families
        }

    def _draw_curves(self, family: Family) -> Chart:
        """Describe means with 95 % bands over the seeds that have come furthest."""
        lines, fewer = [], []
        for i, label in enumerate(self.axis.labels):
            runs = family.runs.get(label, [])
            seeds = [dict(p) for r in runs if (p := r.history.evaluations.get(self.metric))]
            furthest = max((max(seed) for seed in seeds), default=0)
            # The mean would jump at the step where a seed ends.
            seeds = [seed for seed in seeds if max(seed) == furthest]
            if not seeds:
                continue
            if len(seeds) < len(runs):
                fewer.append(f"{label} ({len(seeds)} of {len(runs)})")
            shared = sorted(set.intersection(*map(set, seeds)))
            shared = sorted({*shared[:: -(-len(shared) // POINTS)], *shared[-1:]})
            spent = runs[0].clock(self.kind)
            means = [
                (spent(s), intervals.summarize_values([seed[s] for seed in seeds])) for s in shared
            ]
            band = [(x, mean.low, mean.high) for x, mean in means if math.isfinite(mean.high)]
            tone = charts.find_tone(i, len(self.axis.labels))
            lines.append(Series(label, [(x, mean.mean) for x, mean in means], tone, band=band))
        short = self.metric.partition("/")[2]
        most = max(len(runs) for runs in family.runs.values())
        note = "On held-out text, during training. "
        note += f"Means of {most} seeds, 95{SPACE}% bands." if most > 1 else "One seed."
        note += f" Fewer: {', '.join(fewer)}." if fewer else ""
        note += " Dashed: the budget that all runs have." if self.longer else ""
        return Chart(
            join_names(pretty(short), family.name),
            lines,
            draw_levels(self.view, self.metric),
            x=SPENT[self.kind],
            y=axis_title(short),
            mark=self.common[family.name] if self.longer else None,
            edge=True,
            note=note,
        )


def _list_amounts(budgets: Iterable[float]) -> str:
    """List amounts from the least to the most; of many only these two."""
    listed = list(dict.fromkeys(map(format_large, sorted(budgets))))
    if len(listed) > LISTED:
        return f"{listed[0]} to {listed[-1]}"
    return " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))

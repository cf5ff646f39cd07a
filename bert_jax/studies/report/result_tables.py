"""Tables of a study's results: best points, means, and differences from the baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.reporting.metric_names import pretty
from bert_jax.studies.report.answers import find_leader
from bert_jax.studies.report.baselines import find_baseline, find_behind
from bert_jax.studies.report.blocks import Block, Bold, Table, Text
from bert_jax.studies.report.collect import Axis, Family
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.view import View, get_metric, summarize
from bert_jax.studies.report.wording import (
    format_interval,
    format_mean,
    format_number,
    format_p,
    join_names,
)


def tabulate_best(
    view: View,
    comparison: Mapping[str, Any],
    metrics: Sequence[str],
    differences: Sequence[Difference],
) -> list[Block]:
    """Tabulate the best point by some metrics in each family, minus the baseline."""
    known = {(gap.metric, gap.family, gap.point): gap for gap in differences if gap.pairs}
    rows: list[list[Text]] = []
    base = comparison["baseline"]
    for metric in metrics:
        share = view.is_percent(metric)
        words, levels = find_baseline(view, metric)
        for family in view.families(comparison["axis"]):
            best = find_leader(family, metric, base, differences)
            if best is None:
                continue
            gap = known.get((metric, family.name, best))
            difference: Text = "is the baseline" if best == base else HOLE
            if gap is not None:
                difference = _format_gap(gap, share)
            mean = summarize(family.runs[best], get_metric(metric))
            shown = format_mean(mean, len(family.runs[best]), share)
            if find_behind(family, metric, levels)[1]:
                best = f"none; nearest {best}"
                difference = f"no point is shown to be better than {words}"
            rows.append([join_names(pretty(metric), family.name), best, shown, difference])
    minus = f"minus {base or 'baseline'} (simultaneous 95{SPACE}%)"
    return [Table(["metric", "best point", "mean", minus], rows)] if rows else []


def _format_gap(gap: Difference, share: bool) -> Text:
    """Format a difference and its simultaneous interval; a significant one is bold."""
    size = format_number(gap.mean, share, True)
    interval = "no interval"
    if gap.tested:
        interval = format_interval(gap.low, gap.high, share)
    return Bold(size) if gap.significant else size, f" ({interval})"


def tabulate_means(view: View, comparison: Mapping[str, Any]) -> list[Block]:
    """Tabulate means with half their intervals: points by measures of families, or the reverse.

    The longer of the two goes down.
    """
    axis, families = view.axis(comparison["axis"]), view.families(comparison["axis"])
    columns = [(metric, family) for metric in comparison["metrics"] for family in families]
    if not columns:
        return []
    names = [join_names(pretty(metric), family.name) for metric, family in columns]
    values = [
        [_format_mean(view, metric, family, label) for metric, family in columns]
        for label in axis.labels
    ]
    if len(columns) > len(axis.labels):
        turned = zip(*values, strict=True)
        rows = [[name, *cells] for name, cells in zip(names, turned, strict=True)]
        return [Table(["metric", *axis.labels], rows)]
    rows = [[label, *cells] for label, cells in zip(axis.labels, values, strict=True)]
    return [Table([axis.name, *names], rows)]


def _format_mean(view: View, metric: str, family: Family, label: str) -> str:
    if label not in family.runs:
        return ""
    runs = family.runs[label]
    return format_mean(summarize(runs, get_metric(metric)), len(runs), view.is_percent(metric))


def tabulate_gaps(view: View, axis: str, differences: Sequence[Difference]) -> list[Block]:
    """Tabulate the differences in one metric with all that is known of them."""
    others = [other.name for other in view.axes if other.name != axis]
    head = [join_names(*others, axis), "difference", f"simultaneous 95{SPACE}%", "p", ""]
    head += ["spread", "pairs", "missing", "examples"]
    rows = []
    for gap in differences:
        share = view.is_percent(gap.metric)
        word = "significant" if gap.significant else "not significant"
        spread = format_number(gap.spread, share)
        rows.append(
            [
                join_names(gap.family, gap.point),
                format_number(gap.mean, share, True),
                format_interval(gap.low, gap.high, share),
                format_p(gap.p),
                word if gap.tested else HOLE,
                f"{spread}, own" if gap.own else spread,
                str(gap.pairs),
                str(gap.holes) if gap.holes else "",
                f"{gap.examples:,}" if gap.examples else HOLE,
            ]
        )
    if not any(gap.pairs for gap in differences):
        return []
    # Without columns that are not known.
    kept = [i for i in range(len(head)) if {row[i] for row in rows} - {"", HOLE}]
    return [Table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])]


def name_uneven(differences: Sequence[Difference]) -> str:
    """Say in which families the spreads of the points differ; empty if in none."""
    names = dict.fromkeys(
        join_names(pretty(gap.metric), gap.family) for gap in differences if gap.uneven
    )
    if not names:
        return ""
    return (
        "Seeds scatter more at some points than at others, beyond chance. There, each interval "
        f"rests on its own pairs only: {'; '.join(names)}."
    )


@dataclasses.dataclass(frozen=True)
class ComparisonTables:
    """Tables of one comparison: means, and differences from the baseline."""

    view: View
    comparison: Mapping[str, Any]
    gaps: Mapping[tuple[str, str, str], Difference]  # that have pairs, by metric, family and point

    @property
    def axis(self) -> Axis:
        return self.view.axis(self.comparison["axis"])

    def list_points(
        self, families: Sequence[Family], metrics: Sequence[str], with_means: bool
    ) -> Table:
        """Tabulate measures, with a row for each point of each family."""
        several, base = len(families) > 1, self.comparison["baseline"]
        others = [other.name for other in self.view.axes if other.name != self.axis.name]
        head = [join_names(*(others if several else []), self.axis.name or "cells")]
        for metric in metrics:
            head += [self._title(metric)] if with_means else []
            if self.gaps:
                head.append(f"minus {base}" if with_means else self._title(metric))
        rows = []
        for family in families:
            for label in family.runs:
                if not with_means and label == base:
                    continue
                row: list[Text] = [join_names(family.name if several else "", label or "all")]
                for metric in metrics:
                    row += [self._mean(metric, family, label)] if with_means else []
                    row += [self._gap(metric, family, label)] if self.gaps else []
                rows.append(row)
        return Table(head, rows)

    def cross_means(self, metric: str, part: str, families: Sequence[Family]) -> Table:
        """Tabulate the means of a measure: a row for each point, a column for each family."""
        title = join_names(self._title(metric), part)
        rows = [
            [label, *(self._mean(metric, family, label) for family in families)]
            for label in self._labels(families)
        ]
        return Table([title, *_name_columns(part, families)], rows)

    def cross_gaps(self, metric: str, part: str, families: Sequence[Family]) -> Table:
        """Tabulate the differences from the baseline: a row for each point except the baseline."""
        base = self.comparison["baseline"]
        rows = [
            [label, *(self._gap(metric, family, label) for family in families)]
            for label in self._labels(families)
            if label != base
        ]
        return Table([f"minus {base}", *_name_columns(part, families)], rows)

    def _labels(self, families: Sequence[Family]) -> list[str]:
        return [one for one in self.axis.labels if any(one in family.runs for family in families)]

    def _title(self, metric: str) -> str:
        return f"{pretty(metric)} (%)" if self.view.is_percent(metric) else pretty(metric)

    def _mean(self, metric: str, family: Family, label: str) -> str:
        """Format a mean without its unit, which the title has."""
        return _format_mean(self.view, metric, family, label).replace(f"{SPACE}%", "")

    def _gap(self, metric: str, family: Family, label: str) -> Text:
        """Format a difference without its unit; one that is significant is bold."""
        if label not in family.runs or label == self.comparison["baseline"]:
            return ""
        gap = self.gaps.get((metric, family.name, label))
        if gap is None:
            return HOLE
        share = self.view.is_percent(metric)
        size = format_number(gap.mean, share, True).replace(f"{SPACE}%", "")
        rest = ""
        if gap.tested:
            rest = f" ({format_interval(gap.low, gap.high, share)})".replace(f"{SPACE}%", "")
        if gap.holes:
            rest += f", {gap.pairs} pair{'s' if gap.pairs > 1 else ''}"
        return Bold(size) if gap.significant else size, rest


def _name_columns(part: str, families: Sequence[Family]) -> list[str]:
    return [family.name.removeprefix(f"{part}, ") for family in families]

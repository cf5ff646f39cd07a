"""Tables of a study: best points, differences, means, what was masked, and what is missing."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bert_jax.reporting.formats import HOLE, SPACE, format_rate, number
from bert_jax.reporting.metric_names import LEDGER, find_title, is_result
from bert_jax.studies.cell_result import Result
from bert_jax.studies.report.answers import Findings, count_significant, find_leader
from bert_jax.studies.report.baselines import find_baseline, find_behind
from bert_jax.studies.report.blocks import Block, Bold, Bullets, Paragraph, Section, Table, Text
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.families import Family
from bert_jax.studies.report.view import View, get_metric, summarize
from bert_jax.studies.report.wording import format_interval, format_mean, format_number, join_names
from bert_jax.studies.spec import Comparison

COLUMNS = ("metric", "family", "point", "baseline", "pairs", "holes", "examples", "uneven")
NUMBERS = ("mean", "low", "high", "spread")
Columns = Sequence[tuple[str, Family]]  # of a table: metric and family of each


def format_differences(found: Findings) -> str:
    """Format all differences as CSV text; a number that is not finite is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *NUMBERS, "significant"])
    for gap in (gap for gaps in found.gaps for gap in gaps):
        values = [getattr(gap, name) for name in NUMBERS]
        said = [f"{value:.6g}" if abs(value) < float("inf") else "" for value in values]
        significant = gap.significant if gap.tested else ""
        writer.writerow([*(getattr(gap, name) for name in COLUMNS), *said, significant])
    return text.getvalue()


class ComparisonTables(NamedTuple):
    """A comparison of a study with its differences; its methods make tables."""

    view: View
    spec: Comparison
    gaps: Sequence[Difference]

    @property
    def metrics(self) -> list[str]:
        """The metrics of the comparison that some cell has."""
        return [metric for metric in self.spec.metrics if metric in self.view.metrics]

    def tabulate_best(self) -> list[Block]:
        """Make a table of each family's best point by the first metric, with its difference."""
        if not self.metrics or len(self.view.axis(self.spec.axis).labels) < 2:
            return []
        metric = self.metrics[0]
        words, levels = find_baseline(self.view, metric)
        rows: list[list[Text]] = []
        for family in self.view.families(self.spec.axis):
            best = find_leader(family, metric, self.spec.baseline, self.gaps)
            if best is None:
                continue
            row = [
                family.name or find_title(metric),
                best,
                self.format_mean_cell(metric, family, best),
            ]
            row.append(self.format_gap_cell(metric, family, best))
            if best == self.spec.baseline:
                row[3] = "is the baseline"
            if find_behind(family, metric, levels)[1]:
                row[1] = f"none; nearest {best}"
                row[3] = f"no point is shown to be better than {words}"
            rows.append(row)
        minus = f"minus {self.spec.baseline or 'baseline'}"
        return [Table([self._title(metric), "best point", "mean", minus], rows)] if rows else []

    def count_others(self) -> Bullets:
        """Count the significant differences of each metric but the first, each in a sentence."""
        others = self.metrics[1:]
        counts = [count_significant(self.spec, m, self.gaps) for m in others]
        return Bullets(list(filter(None, counts)))

    def tabulate_means(self, metrics: Sequence[str]) -> list[Table]:
        """Make tables of means: a row for each point, a column for each family or metric."""
        labels = self.view.axis(self.spec.axis).labels
        return [
            Table([title, *names], self._make_rows(labels, columns, self.format_mean_cell))
            for title, names, columns in self._divide_columns(metrics)
        ]

    def tabulate_gaps(self, metrics: Sequence[str]) -> list[Table]:
        """Make tables of the baseline's means and, below, the differences of the points.

        If no difference has an interval, these are the tables of `tabulate_means`.
        """
        if not any(gap.tested for gap in self.gaps):
            return self.tabulate_means(metrics)
        labels = [one for one in self.view.axis(self.spec.axis).labels if one != self.spec.baseline]
        tables = []
        for title, names, columns in self._divide_columns(metrics):
            rows = self._make_rows([self.spec.baseline], columns, self.format_mean_cell)
            for row in rows:
                row[0] = f"{self.spec.baseline}, mean"
            rows += self._make_rows(labels, columns, self.format_gap_cell)
            tables.append(Table([f"{title}, minus {self.spec.baseline}", *names], rows))
        return tables

    def _divide_columns(self, metrics: Sequence[str]) -> Iterator[tuple[str, list[str], Columns]]:
        """Yield each table's title, the names of its columns, and their (metric, family) pairs.

        With one family there is one table with a column for each metric. Otherwise each metric has
        tables with a column for each family.
        """
        panels = self.view.panels(self.spec.axis)
        if len(panels) == 1 and len(panels[""]) == 1:
            columns = [(metric, panels[""][0]) for metric in metrics]
            yield self.spec.axis or "cells", [self._title(m) for m in metrics], columns
            return
        for metric in metrics:
            for part, families in panels.items():
                names = [family.name.removeprefix(part).removeprefix(", ") for family in families]
                columns = [(metric, family) for family in families]
                yield join_names(self._title(metric), part), names, columns

    def _make_rows(
        self, labels: Sequence[str], columns: Columns, write: Callable[[str, Family, str], Text]
    ) -> list[list[Text]]:
        """Make a row for each point; leave out points that have no value in any column.

        `write` returns the text of a cell, given its metric, its family and the point.
        """
        rows: list[list[Text]] = []
        for label in labels:
            cells = [write(metric, family, label) for metric, family in columns]
            if any(cells):
                rows.append([label or "all", *cells])
        return rows

    def format_mean_cell(self, metric: str, family: Family, label: str) -> Text:
        """Format a mean ± half its interval's width, without the unit, which is in the title."""
        if label not in family.runs:
            return ""
        runs = family.runs[label]
        mean = summarize(runs, get_metric(metric))
        text = format_mean(mean, len(runs), self.view.is_percent(metric))
        return text.replace(f"{SPACE}%", "")

    def format_gap_cell(self, metric: str, family: Family, label: str) -> Text:
        """Format a difference with its interval, without unit; a significant difference is bold."""
        own = (
            g for g in self.gaps if (g.metric, g.family, g.point) == (metric, family.name, label)
        )
        gap = next(own, None)
        if label not in family.runs or gap is None:
            return ""
        if not gap.pairs:
            return HOLE
        share = self.view.is_percent(metric)
        size = format_number(gap.mean, share, True).replace(f"{SPACE}%", "")
        rest = " (no interval)"
        if gap.tested:
            rest = f" ({format_interval(gap.low, gap.high, share)})".replace(f"{SPACE}%", "")
        if gap.holes:
            rest += f", {gap.pairs} pair{'s' if gap.pairs > 1 else ''}"
        return Bold(size) if gap.significant else size, rest

    def _title(self, metric: str) -> str:
        return f"{find_title(metric)} (%)" if self.view.is_percent(metric) else find_title(metric)

    def name_uneven(self, metrics: Sequence[str]) -> Paragraph:
        """Name the families in which the spreads of points differ more than chance allows."""
        uneven = (gap for gap in self.gaps if gap.uneven and gap.metric in metrics)
        names = dict.fromkeys(join_names(find_title(gap.metric), gap.family) for gap in uneven)
        if not names:
            return Paragraph("")
        return Paragraph(
            "Seeds scatter more at some points than at others, so each interval rests on its own "
            f"pairs only: {'; '.join(names)}."
        )


# --- cells --------------------------------------------------------------------------------------


def tabulate_holes(view: View) -> list[Block]:
    """Make a table of cells and evaluations without results, with the reasons."""
    rows: list[list[str]] = []
    for result in view.results:
        state, entry = result.state, result.entry
        cell = [", ".join(entry.labels.values()) or "all", str(entry.seed), entry.id]
        for name, error in result.errors.items():
            rows.append([*cell, f"{name}: no result", "", error])
        if state.name != "done":
            lacks = f"no result of {', '.join(state.missing)}" if state.missing else ""
            step = f"{state.step:,} of {state.steps:,}"
            rows.append([*cell, state.name, step, state.error or lacks])
    head = ["cell", "seed", "id", "state", "step", "reason"]
    return [Table(head, rows, prose=True)] if rows else []


def tabulate_tasks(view: View) -> list[Block]:
    """Make tables of the means of all results of each fine-tuned task, and of BLiMP by field."""
    blocks: list[Block] = []
    for name, spec in view.study.evaluations.items():
        keys = [key for key in view.metrics if key.startswith(f"{name}/") and is_result(key)]
        if spec.get("name") == "blimp":
            keys = [key for key in keys if key == f"{name}/accuracy" or "/field/" in key]
        elif spec.get("kind") != "finetune":
            continue
        rows = [
            [label, *(_average_metric(view, runs, key) for key in keys)]
            for label, runs in view.points().items()
            if any(summarize(runs, get_metric(key)) for key in keys)
        ]
        titles = [find_title(key.rpartition("/")[2].replace("_", " ")) for key in keys]
        head = [join_names(*(axis.name for axis in view.study.axes)) or "cells", *titles]
        if rows:
            blocks.append(Section(find_title(name), [Table(head, rows)], detail=True))
    return blocks


def _average_metric(view: View, runs: Sequence[Result], key: str) -> str:
    return format_mean(summarize(runs, get_metric(key)), len(runs), view.is_percent(key))


def tabulate_ledger(view: View) -> list[Block]:
    """Make a table of what was really masked next to what the config asks for.

    Numbers are means over updates and seeds.
    """
    head = [join_names(*(axis.name for axis in view.study.axes)) or "cells", "rate in config"]
    head += ["in whole tokens", "selected"]
    for name in ("[MASK]", "random", "kept"):
        head += [f"{name} in config", name]
    rows = []
    for label, runs in view.points().items():
        known = {name: _average_ledger(runs, name) for name in LEDGER}
        if known["masked_fraction"] == HOLE:
            continue
        row = [
            label,
            format_rate(runs[0].entry.config.masking),
            known["quota_fraction"],
            known["masked_fraction"],
        ]
        names = ("mask_token_fraction", "random_fraction", "kept_fraction")
        for share, name in zip(runs[0].entry.config.masking.replace, names, strict=True):
            row += [number(share, True), known[name]]
        rows.append(row)
    return [Table(head, rows)] if rows else []


def _average_ledger(runs: Sequence[Result], name: str) -> str:
    mean = summarize(runs, lambda result: result.history.ledger.get(name))
    return number(mean.mean, True) if mean else HOLE

"""summary.md of a study: its tables as Markdown, to stand beside its figures."""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.reporting.metric_names import pretty
from bert_jax.studies import sameness, trunks
from bert_jax.studies.report import aggregate, answers, budgets, grid, judged, sections
from bert_jax.studies.report.aggregate import View, getter, plain, plus_minus
from bert_jax.studies.report.collect import Axis, Family
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.findings import Findings
from bert_jax.studies.report.optimum import Best
from bert_jax.system.durations import duration

ROWS = 10  # most points of a comparison whose other measures are tabulated too
MORE = "More: `report.html` (all measures, further analyses), `results.csv` (every cell)."


def text(view: View, found: Findings) -> str:
    """Write the question, the answer with its warnings, the conditions, tables and verdicts."""
    name, question = (str(view.study.get(key) or "") for key in ("name", "question"))
    parts = [f"# {literal(name)}", literal(question), literal(grid.best_cell(view))]
    parts += [literal(found.lead(view, i)) for i in range(len(view.comparisons))]
    parts += [_list_warnings(view), "## Conditions", _origin(view), _explain(view, found)]
    known: set[str] = set()
    for i, comparison in enumerate(view.comparisons):
        axis = comparison["axis"]
        parts.append(f"## By {literal(axis)}" if axis else "## Means")
        parts += _describe_best(found.best[i])
        parts += _describe_comparison(view, comparison, found.gaps[i], known)
        known |= set(comparison["metrics"])
    if found.claims:
        parts += ["## Published claims", judged.LEGEND]
        for claim, verdicts in judged.sentences(found.claims).items():
            parts += [literal(claim), _list(verdicts)]
    return "\n\n".join(filter(None, [*parts, MORE])) + "\n"


def _list(texts: Sequence[str]) -> str:
    return "\n".join(f"- {literal(text)}" for text in texts)


def _list_warnings(view: View) -> str:
    """List the warnings of the study and of its comparisons, each once."""
    warned = answers.warnings(view)
    for comparison in view.comparisons:
        warned += answers.behind_baseline(view, comparison)
    return _list(list(dict.fromkeys(warned)))


def literal(text: str) -> str:
    """Escape a user's text so that Markdown and HTML show it as it is, on one line."""
    text = " ".join(escape(text, quote=False).split())
    text = re.sub(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    return re.sub(
        r"^(#+|[-+]|\d+(?=[.)]))(?=[.)]?(\s|$))",
        lambda mark: f"{mark[0][:-1]}&#{ord(mark[0][-1])};",
        text,
    )


def code(text: str) -> str:
    """Format a span of code, whatever backticks are in it."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"


def table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """Format a table of Markdown; the first column holds names, the others numbers."""
    first, *others = ("| " + " | ".join(line) + " |" for line in [head, *rows])
    return "\n".join([first, f"|---|{'---:|' * (len(head) - 1)}", *others])


# --- origin ------------------------------------------------------------------------------------


def command(recorded: Sequence[str] | str, name: str) -> str:
    """Return the command of a study with folders under runs/ instead of those of its machine."""
    if isinstance(recorded, str):
        return recorded
    kept, words = [], iter(recorded[1:])
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in ("--workdir", "--reuse"):
            folder = Path(value if equals else next(words, "")).name
            kept += [f"--reuse=runs/{folder}"] if flag == "--reuse" else []
        else:
            kept.append(word)
    return shlex.join(["bert-jax", *kept, f"--workdir=runs/{name}"]) if kept else ""


def _origin(view: View) -> str:
    """List command, commit, machine, date, size and costs."""
    study, results = view.study, view.results
    lines = []
    if typed := command(study.get("command") or "", str(study.get("name", ""))):
        lines.append(code(typed))
    if commits := study.get("commits") or list(filter(None, [study.get("git_commit")])):
        # A last + says: with uncommitted changes.
        short = [commit[:7] + "+" * commit.endswith("+") for commit in commits]
        lines.append(f"commit{'s' if len(short) > 1 else ''} {literal(', '.join(short))}")
    lines += [f"text: {code(text)}" for text in sameness.list_texts(results)]
    lines.append(literal("; ".join(dict.fromkeys(r.hardware for r in results if r.hardware))))
    lines.append(" to ".join(dict.fromkeys(time[:10] for time in aggregate.span(view) if time)))
    done = sum(result.state.name == "done" for result in results)
    seeds = ", ".join(map(str, study.get("seeds", [])))
    parts = ", ".join(map(literal, study.get("parts") or []))
    of_parts = f" of the parts {parts}" if parts else ""
    lines.append(f"{done} of {len(results)} cells{of_parts} done, seeds {seeds}")
    if budget := study.get("budget"):
        lines.append(budgets.described(budget))
    lines.append(trunks.described([result.entry for result in results]))
    training = duration(sum(result.seconds for result in results))
    evaluation = duration(sum(result.evaluation_seconds for result in results))
    lines.append(f"{training} of training and {evaluation} of evaluation in all")
    return "\n".join(f"- {line}" for line in lines if line)


# --- comparisons -------------------------------------------------------------------------------


def _describe_best(found: Sequence[Best]) -> list[str]:
    """Write the best values as a table and their trend; at equal FLOPs the answer only."""
    parts = []
    for best in found:
        if best.read_between:
            answer = best.answer()
            at_equal = f"At equal {budgets.KINDS[best.kind]}, {answer[:1].lower()}{answer[1:]}"
            parts.append(literal(at_equal) if answer else "")
            continue
        head, *rows = ([literal(cell) for cell in row] for row in best.rows())
        parts += [table(rows, head), *map(literal, best.trend())]
    return parts


def _describe_comparison(
    view: View, comparison: Mapping[str, Any], differences: Sequence[Difference], known: set[str]
) -> list[str]:
    """Write tables of the main measures, then the other measures as tables or as counts.

    Without an interval, differences only repeat the means: only these are shown, of all measures.

    Args:
      view: the study.
      comparison: of the study.
      differences: of the comparison.
      known: measures that an earlier comparison has. Their means are the same.
    """
    metrics, families = comparison["metrics"], view.families(comparison["axis"])
    tested = [gap for gap in differences if gap.tested]
    main = _choose_main(view, comparison) if tested else list(metrics)
    others = [metric for metric in metrics if metric not in main]
    pairs = {(gap.metric, gap.family, gap.point): gap for gap in differences if gap.pairs}
    tables = Tables(view, comparison, pairs if tested else {})
    panels = view.panels(comparison["axis"])
    crossed = max(map(len, panels.values()), default=0) > 1 and (tested or len(main) == 1)
    parts = [] if crossed else [tables.list_points(families, main, True)]
    for metric in main if crossed else ():
        for part, several in panels.items():
            parts += [] if metric in known else [tables.cross_means(metric, part, several)]
            parts += [tables.cross_gaps(metric, part, several)] if tested else []
    tabulated = list(main)
    if others and sum(len(family.runs) for family in families) <= ROWS:
        tabulated += others
        parts.append(f"Other measures, minus {literal(comparison['baseline'])}:")
        parts.append(tables.list_points(families, others, False))
    elif others:
        counted = (answers.count_significant(view, comparison, m, differences) for m in others)
        parts.append(_list(list(filter(None, counted))))
    uneven = sections.uneven([gap for gap in differences if gap.metric in tabulated])
    return [*parts, literal(uneven)]


def _choose_main(view: View, comparison: Mapping[str, Any]) -> list[str]:
    """Return the measures that the answer and the claims rest on."""
    claimed = {claim.metric for claim in view.claims if claim.axis == comparison["axis"]}
    return [m for i, m in enumerate(comparison["metrics"]) if i == 0 or m in claimed]


def _explain(view: View, found: Findings) -> str:
    """Explain the intervals of the tables."""
    tested = [gap for listed in found.gaps.values() for gap in listed if gap.tested]
    if not tested:
        return ""
    metrics = dict.fromkeys(gap.metric for gap in tested)
    both = dict.fromkeys(gap.metric for gap in tested if gap.examples)
    over = "seeds"
    if len(both) == len(metrics):
        over = "seeds and examples"
    elif both:
        over = f"seeds, and over examples for {literal(', '.join(map(pretty, both)))}"
    count = view.family_count
    together = f"all {count} families" if count > 1 else "all"
    return (
        f"Means are ± half their 95{SPACE}% t intervals over seeds. Differences pair runs of one "
        f"seed, with simultaneous 95{SPACE}% intervals over {over}: {together} hold together if "
        "spreads are alike. Bold differences are significant."
    )


@dataclasses.dataclass(frozen=True)
class Tables:
    """Tables of one comparison: means, and differences from the baseline."""

    view: View
    comparison: Mapping[str, Any]
    gaps: Mapping[tuple[str, str, str], Difference]  # that have pairs, by metric, family and point

    @property
    def axis(self) -> Axis:
        return self.view.axis(self.comparison["axis"])

    def list_points(
        self, families: Sequence[Family], metrics: Sequence[str], with_means: bool
    ) -> str:
        """Tabulate measures, with a row for each point of each family."""
        several, base = len(families) > 1, self.comparison["baseline"]
        others = [other.name for other in self.view.axes if other.name != self.axis.name]
        head = [", ".join([*(others if several else []), self.axis.name or "cells"])]
        columns = []
        for metric in metrics:
            if with_means:
                head.append(self._title(metric))
                columns.append(functools.partial(self._mean, metric))
            if self.gaps:
                head.append(f"minus {base}" if with_means else self._title(metric))
                columns.append(functools.partial(self._gap, metric))
        rows = []
        for family in families:
            for label in family.runs:
                name = ", ".join(filter(None, [family.name if several else "", label or "all"]))
                if with_means or label != base:
                    rows.append([literal(name), *(cell(family, label) for cell in columns)])
        return table(rows, list(map(literal, head)))

    def cross_means(self, metric: str, part: str, families: Sequence[Family]) -> str:
        """Tabulate the means of a measure: a row for each point, a column for each family."""
        title = ", ".join(filter(None, [self._title(metric), part]))
        return self._cross(title, part, families, functools.partial(self._mean, metric))

    def cross_gaps(self, metric: str, part: str, families: Sequence[Family]) -> str:
        """Tabulate the differences from the baseline: a row for each point except the baseline."""
        title = f"minus {self.comparison['baseline']}"
        cell = functools.partial(self._gap, metric)
        return self._cross(title, part, families, cell, self.comparison["baseline"])

    def _cross(
        self,
        title: str,
        part: str,
        families: Sequence[Family],
        cell: Callable[[Family, str], str],
        without: str | None = None,
    ) -> str:
        head = [title, *(family.name.removeprefix(f"{part}, ") for family in families)]
        rows = [
            [literal(label), *(cell(family, label) for family in families)]
            for label in self.axis.labels
            if label != without and any(label in family.runs for family in families)
        ]
        return table(rows, list(map(literal, head)))

    def _title(self, metric: str) -> str:
        share = aggregate.percent(metric, self.view.results)
        return f"{pretty(metric)} (%)" if share else pretty(metric)

    def _mean(self, metric: str, family: Family, label: str) -> str:
        """Format a mean without its unit, which the title has."""
        if label not in family.runs:
            return ""
        runs, share = family.runs[label], aggregate.percent(metric, self.view.results)
        mean = aggregate.summary(runs, getter(metric))
        return plus_minus(mean, len(runs), share).replace(f"{SPACE}%", "")

    def _gap(self, metric: str, family: Family, label: str) -> str:
        """Format a difference without its unit; one that is significant is bold."""
        if label not in family.runs or label == self.comparison["baseline"]:
            return ""
        share = aggregate.percent(metric, self.view.results)
        gap = self.gaps.get((metric, family.name, label))
        if gap is None:
            return HOLE
        text = plain(gap.mean, share, True)
        text = f"**{text}**" if gap.significant else text
        if gap.tested:
            text += f" ({aggregate.interval(gap.low, gap.high, share)})"
        if gap.holes:
            text += f", {gap.pairs} pair{'s' if gap.pairs > 1 else ''}"
        return text.replace(f"{SPACE}%", "")

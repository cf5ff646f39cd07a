"""summary.md of a study: its tables as Markdown, to stand beside its figures."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.reporting.metric_names import pretty
from bert_jax.studies import sameness, trunks
from bert_jax.studies.report import aggregate, answers, budgets, grid, judged, sections
from bert_jax.studies.report.aggregate import View, getter, plain, plus_minus
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.findings import Findings
from bert_jax.studies.report.optimum import Best
from bert_jax.system.durations import duration


def text(view: View, found: Findings) -> str:
    """Write Markdown: the study's origin, means, and paired differences."""
    name, question = (str(view.study.get(key) or "") for key in ("name", "question"))
    parts = [f"# {literal(name)}", literal(question), _origin(view)]
    parts.append(literal(grid.best_cell(view)))
    for i, comparison in enumerate(view.comparisons):
        axis = comparison["axis"]
        parts.append(f"## By {literal(axis)}" if axis else "## Means")
        parts.append(literal(found.lead(view, i)))
        parts += _comparison(view, comparison, found.gaps[i], found.best[i])
    if said := judged.sentences(found.claims):
        parts += ["## Published claims", *map(literal, said)]
    return "\n\n".join(filter(None, parts)) + "\n"


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
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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
    lines += [f"text: {code(text)}" for text in sameness.list_texts(view.place)]
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


def _comparison(
    view: View,
    comparison: Mapping[str, Any],
    differences: Sequence[Difference],
    best: Sequence[Best],
) -> list[str]:
    """Write the tables of means and of paired differences of a comparison."""
    axis, families = view.axis(comparison["axis"]), view.families(comparison["axis"])
    metrics, several = comparison["metrics"], len(families) > 1
    share = {metric: aggregate.percent(metric, view.results) for metric in metrics}
    others = ", ".join(other.name for other in view.axes if other.name != comparison["axis"])
    corner = ", ".join([*([others] if several else []), axis.name or "cells"])
    head = [literal(corner), *(literal(pretty(metric)) for metric in metrics)]
    means, pairs = [], []
    for family in families:
        for label in (label for label in axis.labels if label in family.runs):
            parts = [family.name if several else "", label or "all"]
            name, runs = literal(", ".join(filter(None, parts))), family.runs[label]
            sums = {metric: aggregate.summary(runs, getter(metric)) for metric in metrics}
            cells = [plus_minus(sums[m], len(runs), share[m]) for m in metrics]
            means.append([name, *cells])
            known = {
                gap.metric: gap
                for gap in differences
                if (gap.family, gap.point) == (family.name, label) and gap.pairs
            }
            if known:
                pairs.append([name, *(_gap(known.get(m), share[m]) for m in metrics)])
    warned = answers.warnings(view) + answers.behind_baseline(view, comparison)
    parts = ["\n".join(f"- {literal(text)}" for text in warned)]
    parts += [literal(line) for each in best for line in each.sentences()]
    parts += [f"Means over seeds ± half their 95{SPACE}% t intervals.", table(means, head)]
    if pairs:
        baseline = literal(comparison["baseline"])
        parts.append(f"Minus {baseline}, in pairs of one seed. {_intervals(view, differences)}")
        parts.append(literal(sections.uneven(differences)))
        parts.append(table(pairs, head))
    return parts


def _intervals(view: View, differences: Sequence[Difference]) -> str:
    """Explain the intervals of a table of differences."""
    tested = [gap for gap in differences if gap.tested]
    if not tested:
        return "There are no intervals: one seed."
    metrics = dict.fromkeys(gap.metric for gap in tested)
    both = dict.fromkeys(gap.metric for gap in tested if gap.examples)
    over = "seeds"
    if len(both) == len(metrics):
        over = "seeds and examples"
    elif both:
        names = literal(", ".join(map(pretty, both)))
        over = f"seeds and examples for {names}, over seeds for others"
    count = view.family_count
    together = f"those of {count} families" if count > 1 else "all of them"
    return (
        f"In brackets simultaneous 95{SPACE}% intervals over {over}: {together} hold together in "
        "95 of 100 studies if spreads are alike. Bold: significant, as the interval excludes zero."
    )


def _gap(gap: Difference | None, share: bool) -> str:
    """Format a cell of the table of differences."""
    if gap is None:
        return HOLE
    value = plain(gap.mean, share, True)
    missing = f", {gap.pairs} pair{'s' if gap.pairs > 1 else ''}" if gap.holes else ""
    if not gap.tested:
        return f"{value}{missing}"
    value = f"**{value}**" if gap.significant else value
    return f"{value} ({aggregate.interval(gap.low, gap.high, share)}){missing}"

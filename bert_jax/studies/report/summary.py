"""summary.md of a study: its tables as text, to lay beside its figures where others read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bert_jax.reporting.charts import SPACE
from bert_jax.reporting.page import duration
from bert_jax.reporting.plots import HOLE
from bert_jax.studies.report import aggregate, budgets, sections
from bert_jax.studies.report.aggregate import View, of, plain, plus_minus
from bert_jax.studies.report.compare import LEVEL, Difference

Gaps = Mapping[int, Sequence[Difference]]  # by the number of the comparison


def text(view: View, gaps: Gaps) -> str:
    """Markdown: where it comes from, means, and differences in pairs."""
    study = view.study
    parts = [
        f"# {literal(str(study.get('name', '')))}",
        literal(str(study.get("question") or "")),
        _origin(view),
    ]
    for number, one in enumerate(view.comparisons):
        head = f"## By {literal(one['axis'])}" if one["axis"] else "## Means"
        parts += [head, *_comparison(view, one, gaps[number])]
    return "\n\n".join(filter(None, parts)) + "\n"


def literal(text: str) -> str:
    """Write what a user named so that Markdown and HTML show it as it is, in one line."""
    text = " ".join(escape(text, quote=False).split())
    text = re.sub(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    return re.sub(
        r"^(#+|[-+]|\d+(?=[.)]))(?=[.)]?(\s|$))",
        lambda mark: f"{mark[0][:-1]}&#{ord(mark[0][-1])};",
        text,
    )


def command(given: Sequence[str] | str, name: str) -> str:
    """What was typed, but for where it lay on the machine it was typed on."""
    if isinstance(given, str):
        return given
    kept, words = [], iter(given[1:])
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in ("--workdir", "--reuse"):
            folder = Path(value if equals else next(words, "")).name
            kept += [f"--reuse=runs/{folder}"] if flag == "--reuse" else []
        else:
            kept.append(word)
    return shlex.join(["bert-jax", *kept, f"--workdir=runs/{name}"]) if kept else ""


def _origin(view: View) -> str:
    """Command, commit, machine, date, size."""
    study, found = view.study, view.results
    done = sum(one.state.name == "done" for one in found)
    seconds = [sum(one.seconds for one in found), sum(one.evaluation_seconds for one in found)]
    lines = [
        code(typed)
        if (typed := command(study.get("command") or "", str(study.get("name", ""))))
        else "",
        f"commit {literal(_commit(str(study['git_commit'])))}" if study.get("git_commit") else "",
        literal("; ".join(dict.fromkeys(one.hardware for one in found if one.hardware))),
        aggregate.span(view)[1][:10],
        f"{done} of {len(found)} cells done, seeds {', '.join(map(str, study.get('seeds', [])))}",
        f"{aggregate.short_amount(budget['amount'])} {budgets.KINDS.get(budget['kind'], budget['kind'])} a cell"
        if (budget := study.get("budget"))
        else "",
        f"{duration(seconds[0])} of training and {duration(seconds[1])} of evaluation in all",
    ]
    return "\n".join(f"- {line}" for line in lines if line)


def code(text: str) -> str:
    """Write a span of code, whatever marks are in it."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"


def _commit(text: str) -> str:
    return text[:7] + ("+" if text.endswith("+") else "")  # with changes of its own


def _comparison(view: View, one: Mapping[str, Any], found: Sequence[Difference]) -> list[str]:
    axis, families = view.axis(one["axis"]), view.families(one["axis"])
    metrics, several = one["metrics"], len(families) > 1
    share = {metric: aggregate.percent(metric, view.results) for metric in metrics}
    titles = [literal(aggregate.title(metric)) for metric in metrics]
    points = [
        (family, label) for family in families for label in axis.labels if label in family.arms
    ]
    head = [
        literal(", ".join([*([] if not several else [_others(view, one)]), axis.name or "cells"]))
    ]
    means, pairs = [], []
    for family, label in points:
        name = literal(", ".join(filter(None, [family.name if several else "", label or "all"])))
        arm = family.arms[label]
        means.append(
            [
                name,
                *(plus_minus(aggregate.summary(arm, of(m)), len(arm), share[m]) for m in metrics),
            ]
        )
        mine = {
            d.metric: d for d in found if (d.family, d.point) == (family.name, label) and d.pairs
        }
        if mine:
            pairs.append([name, *(_gap(mine.get(metric), share[metric]) for metric in metrics)])
    said = [
        f"Means over seeds ± half their 95{SPACE}% t intervals.",
        table(means, [*head, *titles]),
    ]
    if pairs:
        said.append(
            f"Less {literal(one['baseline'])}, in pairs of one seed. {_intervals(metrics, found)}"
        )
        said.append(table(pairs, [*head, *titles]))
        worth = [
            f"- {literal(aggregate.title(metric))}: {told[0].lower()}{told[1:]}"
            for metric in metrics
            if (told := sections.pairing([d for d in found if d.metric == metric], share[metric]))
        ]
        said.append("\n".join(worth))
    return said


def _intervals(metrics: Sequence[str], found: Sequence[Difference]) -> str:
    """Say what the intervals and p values of a table of differences are."""
    tested = {
        metric: max((d.tests for d in found if d.metric == metric), default=0) for metric in metrics
    }
    if not any(tested.values()):
        return "One pair has no interval."
    both = [
        aggregate.title(metric)
        for metric in metrics
        if any(d.examples for d in found if d.metric == metric)
    ]
    over = (
        f"seeds and examples for {literal(', '.join(both))}, over seeds alone for others"
        if both
        else "seeds alone"
    )
    if len(both) == len(metrics):
        over = "seeds and examples"
    counts = (
        ""
        if max(tested.values()) == 1
        else f", corrected by Holm's method for the {_count(tested)} of its column"
    )
    return (
        f"In brackets 95{SPACE}% intervals, each by itself, over {over}; p is that of the difference{counts}. "
        f"Bold: p of at most {LEVEL}."
    )


def _count(tested: Mapping[str, int]) -> str:
    """How many differences a column has; as a range where columns differ."""
    low, high = min(tested.values()), max(tested.values())
    return str(high) if low == high else f"{low} to {high}"


def _others(view: View, one: Mapping[str, Any]) -> str:
    return ", ".join(axis.name for axis in view.axes if axis.name != one["axis"])


def _gap(one: Difference | None, share: bool) -> str:
    if one is None:
        return HOLE
    value = plain(one.mean, share, True)
    missing = f", {one.pairs} pair{'s' if one.pairs > 1 else ''}" if one.holes else ""
    if one.pairs == 1:
        return f"{value}{missing}"
    value = f"**{value}**" if one.resolved else value
    at = sections.probability(one.corrected)
    p = f"p{'' if at.startswith('<') else f'{SPACE}='}{SPACE}{at}".replace("<", "&lt;")
    return f"{value} ({aggregate.interval(*one.widest, share)}; {p}){missing}"


def table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """A table of Markdown; the first column names, the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)

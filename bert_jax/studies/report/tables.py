"""Tables beside a study's answer: masking ledger, tasks, costs, missing results, published ones."""

from __future__ import annotations

from collections.abc import Sequence

from bert_jax.masking import rates
from bert_jax.reporting.figures import Figure, Series
from bert_jax.reporting.formats import HOLE, number
from bert_jax.reporting.metric_names import is_result, is_share, pretty
from bert_jax.reporting.page import table
from bert_jax.studies.report import aggregate, published
from bert_jax.studies.report.aggregate import View, getter, plus_minus
from bert_jax.studies.report.collect import LEDGER, SPENT, Axis, Result
from bert_jax.system.durations import duration


def holes(view: View) -> str:
    """Tabulate cells and evaluations without results, with reasons; fold cells that only wait."""
    lines: list[list[str]] = []
    waiting: list[list[str]] = []
    for result in view.results:
        state, entry = result.state, result.entry
        cell = [", ".join(entry.labels.values()) or "all", str(entry.seed), entry.id]
        for name, error in result.errors.items():
            lines.append([*cell, f"{name}: no result", "", error])
        if state.name == "done":
            continue
        name = "interrupted" if state.name == "waiting" and state.step else state.name
        lacks = f"no result yet of {', '.join(state.missing)}" if state.step >= state.steps else ""
        line = [*cell, name, f"{state.step:,} of {state.steps:,}", state.error or lacks]
        (waiting if state.name == "waiting" and not state.error else lines).append(line)
    head = ["cell", "seed", "id", "state", "step", "reason"]
    listed = table(lines, head) if lines else ""
    if not waiting:
        return listed
    begun = sum(line[3] == "interrupted" for line in waiting)
    summary = f"Waiting: {len(waiting)}{f', of which {begun} were begun' if begun else ''}"
    return f"{listed}<details><summary>{summary}</summary>{table(waiting, head)}</details>"


def ledger(view: View) -> str:
    """Tabulate what masking did beside what the config asks for; means over updates and seeds."""
    head = [view.names, "rate in config", "in whole tokens", "selected"]
    for name in ("[MASK]", "random", "kept"):
        head += [f"{name} in config", name]
    lines = []
    for label, runs in view.points():
        masking = runs[0].entry.config.masking
        shares = [masking.rate, *(to for _, to, _ in masking.phases)]
        rate = " to ".join(number(value, True) for value in shares)
        if masking.draw != "fixed":
            low, high = (number(value, True) for value in rates.rate_range(masking))
            rate = f"{masking.draw}, {low} to {high}"
        wanted, views = masking.prediction_rate, rates.count_views(masking)
        if wanted is not None and views > 1:
            rate = f"{rate} in each of {views} views, {number(wanted, True)} in all"
        known = {name: _ledger_mean(runs, name) for name in LEDGER}
        if known["masked_fraction"] == HOLE:
            lines.append([label, rate, *[HOLE] * 8])
            continue
        line = [label, rate, known["quota_fraction"], known["masked_fraction"]]
        names = ("mask_token_fraction", "random_fraction", "kept_fraction")
        for share, name in zip(masking.replace, names, strict=True):
            line += [number(share, True), known[name]]
        lines.append(line)
    return table(lines, head, True) if any(HOLE not in line for line in lines) else ""


def _ledger_mean(runs: Sequence[Result], name: str) -> str:
    mean = aggregate.summary(runs, lambda result: result.history.ledger.get(name))
    return number(mean.mean, True) if mean else HOLE


def downstream(view: View) -> list[tuple[str, str]]:
    """Return title and table of minimal pairs by field and of each fine-tuned task."""
    titled = []
    for name, spec in view.study.get("evaluations", {}).items():
        metrics = (key for result in view.results for key in result.metrics)
        keys = list(dict.fromkeys(key for key in metrics if key.startswith(f"{name}/")))
        if spec.get("kind") == "finetune":
            chosen = [key for key in keys if is_result(key.rpartition("/")[2])]
            title = f"{pretty(name)}: fine-tuned on {spec.get('task', name)}"
        elif spec.get("name") == "blimp":
            main = [key for key in keys if key.count("/") == 1 and "accuracy" in key]
            chosen = [key for key in main if is_result(key)]
            chosen += [key for key in keys if key.startswith(f"{name}/field/")]
            title = f"{pretty(name)}: minimal pairs, by field"
        else:
            continue
        if chosen:
            titled.append((title, _metrics(view, chosen)))
    return titled


def _metrics(view: View, keys: Sequence[str]) -> str:
    head = [view.names, *(pretty(key.rpartition("/")[2].replace("_", " ")) for key in keys), "n"]
    shares = [is_share(key.partition("/")[2]) or "/field/" in key for key in keys]
    lines = []
    for label, runs in view.points():
        if all(aggregate.left_out(runs, getter(key)) for key in keys):
            continue
        means = [aggregate.summary(runs, getter(key)) for key in keys]
        most = max((mean.n for mean in means if mean), default=0)
        cells = [
            plus_minus(mean, mean.n if mean else len(runs), share)
            for mean, share in zip(means, shares, strict=True)
        ]
        lines.append([label, *cells, f"{most} of {len(runs)}" if most < len(runs) else str(most)])
    return table(lines, head, True)


# --- costs -------------------------------------------------------------------------------------


def cost(view: View) -> str:
    """Tabulate the mean costs of a cell at each point, and those of all cells."""
    head = [view.names, "parameters", "updates", "tokens", "predictions", "FLOPs"]
    head += ["training", "evaluation", "cells"]
    lines = []
    for label, runs in view.points():
        begun = [result for result in runs if result.state.step]
        if not begun:
            lines.append([label, *[HOLE] * 7, f"0 of {len(runs)}"])
            continue
        sizes = {result.parameters for result in begun if result.parameters}
        amounts = [_mean([result.spent(kind) for result in begun]) for kind in SPENT]
        times = [
            _mean([result.seconds for result in begun if result.seconds]),
            _mean([r.evaluation_seconds for r in begun if r.evaluation_seconds]),
        ]
        done = sum(result.state.name == "done" for result in runs)
        lines.append(
            [
                label,
                f"{max(sizes):,}" if sizes else HOLE,
                number(_mean([float(result.state.step) for result in begun])),
                *map(aggregate.short_amount, amounts),
                *map(duration, times),
                f"{done} of {len(runs)}" if done < len(runs) else str(done),
            ]
        )
    everything = view.results
    lines.append(
        [
            "all cells",
            "",
            number(sum(result.state.step for result in everything)),
            *(aggregate.short_amount(sum(r.spent(kind) for r in everything)) for kind in SPENT),
            duration(sum(result.seconds for result in everything)),
            duration(sum(result.evaluation_seconds for result in everything)),
            str(len(everything)),
        ]
    )
    return table(lines, head, True)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


# --- published ---------------------------------------------------------------------------------


def figures_of(name: str) -> list[Figure]:
    """Describe a figure for every column of a published table."""
    source = published.TABLE[name]
    axis = Axis(source.axis, tuple(source.rows), source.values or tuple(source.rows))
    at = aggregate.places(axis)
    figures: list[Figure] = []
    for column in source.columns:
        points = [(at[label], score) for label, score in source.column(column).items()]
        title = f"Published: {column}, per cent"
        figures.append(
            aggregate.chart_over(axis, title, [Series("", points, 3)], y=f"{column} (%)")
        )
    return figures


def table_of(name: str) -> str:
    """Tabulate the published numbers."""
    source = published.TABLE[name]
    lines = [
        [label, *(f"{score:.1f}" if score == score else HOLE for score in row)]
        for label, row in source.rows.items()
    ]
    return table(lines, [source.axis, *source.columns], True)

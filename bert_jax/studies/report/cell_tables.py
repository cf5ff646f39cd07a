"""Tables of a study's cells: masking ledger, tasks, costs and missing results."""

from __future__ import annotations

from collections.abc import Sequence

from bert_jax.masking import rates
from bert_jax.reporting.formats import HOLE, number
from bert_jax.reporting.metric_names import is_result, is_share, pretty
from bert_jax.studies.report.blocks import Block, Table, add_detail
from bert_jax.studies.report.collect import LEDGER, SPENT, Result
from bert_jax.studies.report.view import View, get_metric, is_left_out, summarize
from bert_jax.studies.report.wording import format_large, format_mean, join_names
from bert_jax.system.durations import duration


def tabulate_holes(view: View) -> list[Block]:
    """Tabulate cells and evaluations without results, with reasons; fold cells that only wait."""
    rows: list[list[str]] = []
    waiting: list[list[str]] = []
    for result in view.results:
        state, entry = result.state, result.entry
        cell = [", ".join(entry.labels.values()) or "all", str(entry.seed), entry.id]
        for name, error in result.errors.items():
            rows.append([*cell, f"{name}: no result", "", error])
        if state.name == "done":
            continue
        name = "interrupted" if state.name == "waiting" and state.step else state.name
        lacks = f"no result yet of {', '.join(state.missing)}" if state.step >= state.steps else ""
        row = [*cell, name, f"{state.step:,} of {state.steps:,}", state.error or lacks]
        (waiting if state.name == "waiting" and not state.error else rows).append(row)
    head = ["cell", "seed", "id", "state", "step", "reason"]
    blocks: list[Block] = []
    if rows:
        table = Table(head, rows, prose=True)
        blocks.append(add_detail("Cells without all their results", [table]))
    if waiting:
        begun = sum(row[3] == "interrupted" for row in waiting)
        title = f"Waiting: {len(waiting)}{f', of which {begun} were begun' if begun else ''}"
        blocks.append(add_detail(title, [Table(head, waiting, prose=True)]))
    return blocks


def tabulate_ledger(view: View) -> list[Block]:
    """Tabulate what masking did beside what the config asks for; means over updates and seeds."""
    head = [_name_axes(view), "rate in config", "in whole tokens", "selected"]
    for name in ("[MASK]", "random", "kept"):
        head += [f"{name} in config", name]
    rows = []
    for label, runs in view.points():
        masking = runs[0].entry.config.masking
        rate = _format_rate(runs[0])
        known = {name: _mean_ledger(runs, name) for name in LEDGER}
        if known["masked_fraction"] == HOLE:
            rows.append([label, rate, *[HOLE] * 8])
            continue
        row = [label, rate, known["quota_fraction"], known["masked_fraction"]]
        names = ("mask_token_fraction", "random_fraction", "kept_fraction")
        for share, name in zip(masking.replace, names, strict=True):
            row += [number(share, True), known[name]]
        rows.append(row)
    return [Table(head, rows)] if any(HOLE not in row for row in rows) else []


def _format_rate(result: Result) -> str:
    """Write the masking rate that a config asks for: a number, a schedule, a law or views."""
    masking = result.entry.config.masking
    shares = [masking.rate, *(to for _, to, _ in masking.phases)]
    rate = " to ".join(number(value, True) for value in shares)
    if masking.draw != "fixed":
        low, high = (number(value, True) for value in rates.rate_range(masking))
        rate = f"{masking.draw}, {low} to {high}"
    wanted, views = masking.prediction_rate, rates.count_views(masking)
    if wanted is None or views == 1:
        return rate
    return f"{rate} in each of {views} views, {number(wanted, True)} in all"


def _mean_ledger(runs: Sequence[Result], name: str) -> str:
    mean = summarize(runs, lambda result: result.history.ledger.get(name))
    return number(mean.mean, True) if mean else HOLE


def _name_axes(view: View) -> str:
    return join_names(*(axis.name for axis in view.axes))


def tabulate_tasks(view: View) -> list[Block]:
    """Tabulate minimal pairs by field and each fine-tuned task."""
    blocks: list[Block] = []
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
            blocks.append(add_detail(title, [_tabulate_metrics(view, chosen)]))
    return blocks


def _tabulate_metrics(view: View, keys: Sequence[str]) -> Table:
    titles = [pretty(key.rpartition("/")[2].replace("_", " ")) for key in keys]
    shares = [is_share(key.partition("/")[2]) or "/field/" in key for key in keys]
    rows = []
    for label, runs in view.points():
        if all(is_left_out(runs, get_metric(key)) for key in keys):
            continue
        means = [summarize(runs, get_metric(key)) for key in keys]
        most = max((mean.n for mean in means if mean), default=0)
        cells = [
            format_mean(mean, mean.n if mean else len(runs), share)
            for mean, share in zip(means, shares, strict=True)
        ]
        rows.append([label, *cells, f"{most} of {len(runs)}" if most < len(runs) else str(most)])
    return Table([_name_axes(view), *titles, "n"], rows)


def tabulate_cost(view: View) -> Table:
    """Tabulate the mean costs of a cell at each point, and the sum over all cells."""
    head = [_name_axes(view), "parameters", "updates", "tokens", "predictions", "FLOPs"]
    head += ["training", "evaluation", "cells"]
    rows = []
    for label, runs in view.points():
        begun = [result for result in runs if result.state.step]
        if not begun:
            rows.append([label, *[HOLE] * 7, f"0 of {len(runs)}"])
            continue
        sizes = {result.parameters for result in begun if result.parameters}
        done = sum(result.state.name == "done" for result in runs)
        rows.append(
            [
                label,
                f"{max(sizes):,}" if sizes else HOLE,
                number(_mean([float(result.state.step) for result in begun])),
                *(format_large(_mean([r.spent(kind) for r in begun])) for kind in SPENT),
                duration(_mean([result.seconds for result in begun if result.seconds])),
                duration(_mean([r.evaluation_seconds for r in begun if r.evaluation_seconds])),
                f"{done} of {len(runs)}" if done < len(runs) else str(done),
            ]
        )
    every = view.results
    rows.append(
        [
            "all cells",
            "",
            number(sum(result.state.step for result in every)),
            *(format_large(sum(result.spent(kind) for result in every)) for kind in SPENT),
            duration(sum(result.seconds for result in every)),
            duration(sum(result.evaluation_seconds for result in every)),
            str(len(every)),
        ]
    )
    return Table(head, rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0

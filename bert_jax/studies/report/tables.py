"""What stands beside a study's answer: what was really masked, tasks, cost, holes, and what others have published."""

from __future__ import annotations

from collections.abc import Sequence

from bert_jax.reporting.charts import Series, number
from bert_jax.reporting.metric_names import is_result, is_share, pretty
from bert_jax.reporting.page import duration, table
from bert_jax.reporting.plots import HOLE, Figure
from bert_jax.studies.report import aggregate, published
from bert_jax.studies.report.aggregate import View, of, plus_minus
from bert_jax.studies.report.collect import Axis, Result

LEDGER = (
    "masked_fraction",
    "quota_fraction",
    "mask_token_fraction",
    "random_fraction",
    "kept_fraction",
)


def holes(view: View) -> str:
    """Every cell and evaluation that came to nothing so far, with the reason; cells that only wait are folded."""
    lines: list[list[str]] = []
    waiting: list[list[str]] = []
    for one in view.results:
        state, where = (
            one.state,
            [", ".join(one.entry.labels.values()) or "all", str(one.entry.seed), one.entry.id],
        )
        tries = f"{state.attempts} {'try' if state.attempts == 1 else 'tries'}"
        lines += [
            [*where, f"{name}: no result", "", "", error] for name, error in one.errors.items()
        ]
        if state.name == "done":
            continue
        name = "interrupted" if state.name == "waiting" and state.attempts else state.name
        lacks = f"no result yet of {', '.join(state.missing)}" if state.step >= state.steps else ""
        line = [*where, name, f"{state.step:,} of {state.steps:,}", tries, state.error or lacks]
        (waiting if state.name == "waiting" and not state.error else lines).append(line)
    head = ["cell", "seed", "id", "state", "step", "tries", "what is known"]
    listed = table(lines, head) if lines else ""
    begun = sum(line[3] == "interrupted" for line in waiting)
    said = f"Waiting: {len(waiting)}{f', of which {begun} were begun' if begun else ''}"
    return listed + (
        f"<details><summary>{said}</summary>{table(waiting, head)}</details>" if waiting else ""
    )


def ledger(view: View) -> str:
    """What masking did, beside what the config says; means over updates and seeds."""
    head = [view.names, "rate asked", "in whole tokens", "selected"]
    head += ["[MASK] asked", "[MASK]", "random asked", "random", "kept asked", "kept"]
    lines = []
    for label, arm in view.points():
        masking = arm[0].entry.config.masking
        rate = number(masking.rate, True)
        if masking.schedule != "constant" and masking.final_rate is not None:
            rate = f"{rate} to {number(masking.final_rate, True)}"
        mean = {name: aggregate.summary(arm, _kept(name)) for name in LEDGER}
        if mean["masked_fraction"] is None:
            lines.append([label, rate, *[HOLE] * 8])
            continue
        said = {name: number(found.mean, True) if found else HOLE for name, found in mean.items()}
        asked = [number(share, True) for share in masking.replace]
        shares = [
            said[name] for name in ("mask_token_fraction", "random_fraction", "kept_fraction")
        ]
        pairs = [text for pair in zip(asked, shares, strict=True) for text in pair]
        lines.append([label, rate, said["quota_fraction"], said["masked_fraction"], *pairs])
    return table(lines, head, True) if any(HOLE not in line for line in lines) else ""


def _kept(name: str) -> aggregate.Value:
    return lambda one: one.history.ledger.get(name)


def downstream(view: View) -> list[tuple[str, str]]:
    """Title and table of minimal pairs by field, and of each fine-tuned task."""
    found = []
    for name, one in view.study.get("evaluations", {}).items():
        keys = dict.fromkeys(
            key for cell in view.results for key in cell.metrics if key.startswith(f"{name}/")
        )
        if one.get("kind") == "finetune":
            chosen = [key for key in keys if is_result(key.rpartition("/")[2])]
            title = f"{pretty(name)}: fine-tuned on {one.get('task', name)}"
        elif one.get("name") == "blimp":
            main = [
                key for key in keys if key.count("/") == 1 and "accuracy" in key and is_result(key)
            ]
            chosen = main + [key for key in keys if key.startswith(f"{name}/field/")]
            title = f"{pretty(name)}: minimal pairs, by field"
        else:
            continue
        if chosen:
            found.append((title, _metrics(view, chosen)))
    return found


def _metrics(view: View, keys: Sequence[str]) -> str:
    head = [view.names, *(pretty(key.rpartition("/")[2].replace("_", " ")) for key in keys), "n"]
    lines = []
    for label, arm in view.points():
        shares = {key: is_share(key.partition("/")[2]) or "/field/" in key for key in keys}
        sums = {key: aggregate.summary(arm, of(key)) for key in keys}
        most = max((one.n for one in sums.values() if one), default=0)
        cells = [
            plus_minus(found, found.n if found else len(arm), shares[key])
            for key, found in sums.items()
        ]
        lines.append([label, *cells, f"{most} of {len(arm)}" if most < len(arm) else str(most)])
    return table(lines, head, True)


def cost(view: View) -> str:
    """What a cell of each point took, and the whole."""
    head = [
        view.names,
        "parameters",
        "updates",
        "tokens",
        "predictions",
        "FLOPs",
        "training",
        "evaluation",
        "cells",
    ]
    lines = []
    for label, arm in view.points():
        begun = [one for one in arm if one.state.step]
        if not begun:
            lines.append([label, *[HOLE] * 7, f"0 of {len(arm)}"])
            continue
        amounts = [
            aggregate.short_amount(_mean([one.spent(k) for one in begun]))
            for k in ("tokens", "predictions", "flops")
        ]
        sizes = {one.parameters for one in begun if one.parameters}
        updates = number(_mean([float(one.state.step) for one in begun]))
        times = [
            duration(_mean([value for one in begun if (value := each(one))]))
            for each in (_training, _evaluation)
        ]
        done = sum(one.state.name == "done" for one in arm)
        whole = f"{done} of {len(arm)}" if done < len(arm) else str(done)
        lines.append(
            [label, f"{max(sizes):,}" if sizes else HOLE, updates, *amounts, *times, whole]
        )
    total = [
        aggregate.short_amount(sum(one.spent(k) for one in view.results))
        for k in ("tokens", "predictions", "flops")
    ]
    sums = [duration(sum(map(each, view.results))) for each in (_training, _evaluation)]
    updates = number(sum(one.state.step for one in view.results))
    lines.append(["all cells", "", updates, *total, *sums, str(len(view.results))])
    return table(lines, head, True)


def _training(one: Result) -> float:
    return one.seconds


def _evaluation(one: Result) -> float:
    return one.evaluation_seconds


def _mean(found: Sequence[float]) -> float:
    return sum(found) / len(found) if found else 0.0


# --- published ------------------------------------------------------------------------------------------------------


def figures_of(name: str) -> list[Figure]:
    """A figure for every column of a published table."""
    one = published.TABLE[name]
    axis = Axis(one.axis, tuple(one.rows), one.values or tuple(one.rows))
    at = aggregate.places(axis)
    series = {
        column: Series("", [(at[label], score) for label, score in one.column(column).items()], 3)
        for column in one.columns
    }
    return [
        aggregate.over(axis, f"Published: {column}, per cent", [line])
        for column, line in series.items()
    ]


def table_of(name: str) -> str:
    """The published numbers."""
    one = published.TABLE[name]
    lines = [
        [label, *(f"{score:.1f}" if score == score else HOLE for score in row)]
        for label, row in one.rows.items()
    ]
    return table(lines, [one.axis, *one.columns], True)

"""`report.html` of a run: one page to read offline, from config.json, environment.json and metrics.jsonl alone.

Whatever is missing is left out, so the page of a run in progress is the same page with less on it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

from bert_jax.errors import DataError
from bert_jax.reporting import records
from bert_jax.reporting.charts import SPACE, Chart, Series, draw, number
from bert_jax.reporting.metric_names import BASELINES, CHANCE, SHOUTED, is_result, is_share, pretty
from bert_jax.reporting.page import (
    config_box,
    duration,
    environment_box,
    page,
    samples,
    section,
    subtree,
    table,
    tile,
)
from bert_jax.system import disk, jsons

Curves = dict[str, list[tuple[int, float]]]  # metric -> (step, value), by step

LEDGER = {  # metric -> name, colour; the first two are shares of eligible tokens, the others of selected ones
    "masked_fraction": ("selected, of eligible", 1),
    "quota_fraction": ("quota, of eligible", 5),
    "mask_token_fraction": ("by [MASK]", 1),
    "random_fraction": ("by a random token", 2),
    "kept_fraction": ("kept as it is", 3),
}
SPEED = ("tokens_per_second", "step_seconds", "data_wait", "mfu", "model_flops_per_second")
SPENT = {  # metric -> what the time went into
    "compile_seconds": "compiling the update",
    "data_seconds": "waiting for data",
    "evaluation_seconds": "evaluations",
    "saving_seconds": "checkpoints, as far as they held up training",
}
HELD = {  # metric -> where the memory is
    "host_memory_bytes": "memory of the process, at most",
    "device_memory_bytes": "memory of a device, at most",
}
OPTIMISER = ("learning_rate", "grad_norm", "skipped", "spikes", "spike_fraction")


def write(workdir: Path) -> Path:
    """Writes `report.html` in one move, and returns its path."""
    workdir = Path(workdir)
    recorded, environment = _json(workdir / "config.json"), _json(workdir / "environment.json")
    metrics = workdir / records.METRICS
    rows = sorted(records.rows(metrics), key=lambda row: row["step"]) if metrics.exists() else []
    curves: Curves = defaultdict(list)
    objectives = list(subtree(recorded, "objectives"))
    hundreds = ("exact", "f1") if "span" in objectives else ()  # SQuAD's are published in per cent
    own = (
        f"train/{objectives[0]}_" if subtree(recorded, "task").get("source") and objectives else "?"
    )
    for row in rows:
        for key, value in row.items():
            name = (
                f"train/{key.removeprefix(own)}" if key.startswith(own) else key
            )  # beside the evaluation's
            if name != key and name in row:
                continue
            if "/" in name and isinstance(value, (int, float)) and math.isfinite(value):
                curves[name].append((row["step"], value / (100 if name.endswith(hundreds) else 1)))
    seconds = max((float(row.get("time") or 0) for row in rows), default=0.0)
    title = _title(recorded, workdir)
    body = (
        f"<h1>{escape(title)}</h1>{_subtitle(recorded, environment, workdir, rows)}"
        f'<div class="tiles">{_tiles(recorded, curves, rows, seconds)}</div>{_sections(recorded, curves, seconds)}'
        + section("Predictions", samples(workdir / "samples.jsonl"), "samples")
        + section("Config", config_box(recorded))
        + section("Environment", environment_box(environment))
    )
    path = workdir / "report.html"
    disk.write(path, page(title, body))
    return path


# --- head -----------------------------------------------------------------------------------------------------------


def _title(recorded: dict[str, Any], workdir: Path) -> str:
    model, corpus, task = (subtree(recorded, name) for name in ("model", "corpus", "task"))
    if source := str(task.get("source") or ""):
        return f"BERT fine-tuned on {task.get('name') or Path(source.partition(':')[2]).name}"
    if not model or not corpus:
        return workdir.resolve().name
    source = Path(str(corpus.get("path") or "")).name or corpus.get("source", "")
    return f"BERT {model.get('size', '')} on {source}"


def _subtitle(
    recorded: dict[str, Any], environment: dict[str, Any], workdir: Path, rows: list[dict[str, Any]]
) -> str:
    parts = [f"<b>{escape(workdir.resolve().name)}</b>"]
    if objectives := subtree(recorded, "objectives"):
        parts.append(
            escape(" + ".join(name.upper() if name in SHOUTED else name for name in objectives))
        )
    masking = subtree(recorded, "masking")
    if "rate" in masking and "mlm" in objectives:
        parts.append(
            escape(
                f"masking rate {number(masking['rate'], True)} of {masking.get('unit', 'token')}s"
            )
        )
    for key, text in (("batch_size", "batch of {:,}"), ("sequence_length", "length {:,}")):
        if isinstance(recorded.get(key), int):
            parts.append(text.format(recorded[key]))
    if isinstance(parameters := environment.get("parameters"), int):
        parts.append(f"{parameters:,} parameters")
    if not rows:
        parts.append("nothing is measured yet")
    return f'<p class="sub">{" · ".join(parts)}</p>'


def _tiles(
    recorded: dict[str, Any], curves: Curves, rows: list[dict[str, Any]], seconds: float
) -> str:
    step, steps = (rows[-1]["step"] if rows else 0), recorded.get("steps")
    known = isinstance(steps, int) and steps > 0
    below = (
        f"of {steps:,}{', finished' if step >= steps else ', in progress'}"
        if known and steps
        else ""
    )
    tiles = [tile("Steps", f"{step:,}", below), tile("Time", duration(seconds), _compiled(curves))]
    if skipped := curves.get("train/skipped"):
        spikes = curves["train/spikes"][-1][1]
        tiles.append(
            tile("Skipped updates", number(skipped[-1][1]), f"{spikes:,.0f} of them loss spikes")
        )
    for suite in _suites(curves):
        for name in _measured(curves, suite):
            tiles.append(_result_tile(curves, suite, name))
    if speed := curves.get("train/tokens_per_second"):
        tiles.append(tile("Tokens a second", number(round(speed[-1][1])), _waiting(curves)))
    return "".join(tiles)


def _result_tile(curves: Curves, suite: str, name: str) -> str:
    """The last value of one evaluation metric, and by how much it beats what needs no context, where it does."""
    at = f"eval/{suite}/"
    step, value = curves[at + name][-1]
    low, high = (curves.get(f"{at}{name}_{end}", [(0, math.nan)])[-1][1] for end in ("low", "high"))
    below = [f"{suite}, step {step:,}"]
    if not math.isnan(low + high):
        below.append(f"95{SPACE}% interval {100 * low:.1f} to {100 * high:.1f}")
    reference, label = BASELINES.get(name, ("", ""))
    base = curves.get(at + reference)
    other = base[-1][1] if base else CHANCE.get(name)
    verdict = ""
    if other is not None:
        label, said = label or "chance", number(other, is_share(name))
        if name.endswith("loss") and value < other:
            verdict = f"{other - value:.2f} nats below {label} {said}"
        elif not name.endswith("loss") and (low if not math.isnan(low) else value) > other > 0:
            verdict = f"{value / other:.1f} times {label} {said}"
        else:
            below.append(f"not better than {label} {said}")
    return tile(pretty(name), number(value, is_share(name)), "; ".join(below), verdict)


def _compiled(curves: Curves) -> str:
    compiled = curves.get("train/compile_seconds")
    return f"{compiled[-1][1]:.1f} s compiling" if compiled else ""


def _waiting(curves: Curves) -> str:
    parts = []
    if steps := curves.get("train/step_seconds"):
        parts.append(f"{_span(steps[-1][1])} a step")
    if waits := curves.get("train/data_wait"):
        parts.append(f"{100 * waits[-1][1]:.2g}{SPACE}% waiting for data")
    if shares := curves.get("train/mfu"):
        parts.append(f"{100 * shares[-1][1]:.1f}{SPACE}% of the devices' nominal FLOP/s")
    return ", ".join(parts)


# --- charts ---------------------------------------------------------------------------------------------------------


def _sections(recorded: dict[str, Any], curves: Curves, seconds: float) -> str:
    """Every curve is drawn once: what is learned, the masking ledger, the optimiser, the speed, and any other."""
    shown = (*LEDGER, *OPTIMISER, *SPEED, *SPENT, *HELD)
    rest = {n for n in curves if n.startswith("train/")} - {f"train/{n}" for n in shown}
    learned = sorted(
        {n.removeprefix("train/") for n in rest if n.endswith(("loss", "accuracy"))}
        | {n for suite in _suites(curves) for n in _measured(curves, suite)},
        key=lambda n: (not n.endswith("loss"), n.partition("_")[0] not in ("loss", "mlm"), n),
    )
    rest -= {f"train/{n}" for n in learned}
    speed = (
        "tokens_per_second" if "train/tokens_per_second" in curves else "step_seconds",
        "data_wait",
        "mfu",
    )
    others = [_alone(curves, n) for n in sorted(rest)]
    return (
        section("Learning", "".join(draw(_learning(curves, n)) for n in learned), "charts")
        + section("Masking ledger", _ledger(recorded, curves), "charts")
        + section(
            "Optimiser", "".join(_alone(curves, f"train/{n}") for n in OPTIMISER[:-1]), "charts"
        )
        + section(
            "Speed",
            "".join(_alone(curves, f"train/{n}") for n in speed) + _spent(curves, seconds),
            "charts",
        )
        + section("Other measurements", "".join(others), "charts")
    )


def _learning(curves: Curves, name: str) -> Chart:
    """A metric in training and in every evaluation, with its baseline."""
    series, baselines = [], []
    if points := curves.get(f"train/{name}"):
        series.append(Series("training", points, 1, faint=bool(_suites(curves))))
    for colour, suite in enumerate(_suites(curves)):
        at = f"eval/{suite}/{name}"
        if points := curves.get(at):
            low, high = dict(curves.get(at + "_low", [])), dict(curves.get(at + "_high", []))
            band = [(s, low[s], high[s]) for s in sorted(low.keys() & high.keys())]
            series.append(Series(suite, points, 2 + colour % 4, band=band))
        reference, label = BASELINES.get(name, ("", ""))
        if reference and (base := curves.get(f"eval/{suite}/{reference}")):
            entry = (label.removeprefix("the "), base[-1][1])
            baselines += [] if entry in baselines else [entry]
    if name in CHANCE:
        baselines.append(("chance", CHANCE[name]))
    several = name == "loss" and any(n.startswith("train/") and n.endswith("_loss") for n in curves)
    title = "Loss, the weighted sum" if several else pretty(name)
    return Chart(title, series, baselines, percent=is_share(name))


def _alone(curves: Curves, name: str) -> str:
    short = name.partition("/")[2]
    return draw(
        Chart(pretty(short), [Series("training", curves.get(name, []))], percent=is_share(short))
    )


def _ledger(recorded: dict[str, Any], curves: Curves) -> str:
    """What masking really did, beside what the config says."""
    masking = subtree(recorded, "masking")
    replace = masking.get("replace") or (None, None, None)
    rate = masking.get("rate") if masking.get("schedule") == "constant" else None
    said = dict(zip(LEDGER, (rate, rate, *replace), strict=False))
    lines, drawn = [], []
    for name, (text, colour) in LEDGER.items():
        expected = said.get(name)
        if points := curves.get(f"train/{name}"):
            values = [v for _, v in points]
            wanted = number(expected, True) if expected is not None else "scheduled"
            lines.append(
                [text, wanted, *(number(f(values), True) for f in (statistics.fmean, min, max))]
            )
            drawn.append((Series(text, points, colour), expected))
    if not drawn:
        return ""

    def chart(title: str, wanted: list[tuple[Series, float | None]]) -> str:
        baselines = [
            ("config", value) for value in dict.fromkeys(v for _, v in wanted) if value is not None
        ]
        return draw(Chart(title, [s for s, _ in wanted], baselines, percent=True, zero=True))

    first = [d for d in drawn if d[0].name.endswith("eligible")]
    box = f'<div class="box">{table(lines, ["share", "config", "mean", "lowest", "highest"], True)}</div>'
    return (
        chart("Tokens selected", first)
        + chart("Replaced, of selected", [d for d in drawn if d not in first])
        + box
    )


def _spent(curves: Curves, seconds: float) -> str:
    """A table of what the time went into, the rest of it stepping, and of the memory that was held."""
    known = {
        text: curves[f"train/{name}"][-1][1]
        for name, text in SPENT.items()
        if f"train/{name}" in curves
    }
    if len(known) < len(SPENT) or not seconds:
        return ""
    known["steps"] = max(0.0, seconds - sum(known.values()))
    lines = [
        [text, duration(value), number(value / seconds, True)] for text, value in known.items()
    ]
    for name, text in HELD.items():
        if points := curves.get(f"train/{name}"):
            lines.append([text, f"{points[-1][1] / 1e9:.2f}{SPACE}GB", ""])
    return (
        f'<div class="box">{table(lines, ["time and memory went into", "", "share"], True)}</div>'
    )


# --- small things ---------------------------------------------------------------------------------------------------


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is none or it is being written."""
    try:
        return jsons.read(path, DataError)
    except DataError:
        return {}


def _suites(curves: Curves) -> list[str]:
    return list(
        dict.fromkeys(
            name.split("/")[1]
            for name in curves
            if name.count("/") == 2 and name.startswith("eval/")
        )
    )


def _measured(curves: Curves, suite: str) -> list[str]:
    """The metrics of an evaluation that are results: no baselines, intervals or counts."""
    names = [n.removeprefix(f"eval/{suite}/") for n in curves if n.startswith(f"eval/{suite}/")]
    return [n for n in names if is_result(n)]


def _span(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"

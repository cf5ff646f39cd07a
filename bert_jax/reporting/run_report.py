"""`report.html` of a run: a page for offline reading, made from the files in the run's folder.

It reads config.json, environment.json, metrics.jsonl and samples.jsonl. Whatever is missing is left
out, so the page of a run in progress is the same page with less on it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

from bert_jax.config import knobs, laws
from bert_jax.errors import DataError
from bert_jax.reporting import records
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import SPACE, number
from bert_jax.reporting.metric_names import (
    CHANCE,
    SHOUTED,
    axis_title,
    baselines,
    is_result,
    is_share,
    pretty,
)
from bert_jax.reporting.page import (
    config_box,
    environment_box,
    page,
    samples,
    section,
    subtree,
    table,
    tile,
)
from bert_jax.reporting.svg import draw
from bert_jax.system import disk, jsons
from bert_jax.system.durations import duration

Curves = dict[str, list[tuple[int, float]]]  # metric -> (step, value), by step

LEDGER = {  # metric -> name, colour; two are shares of eligible tokens, the others of selected ones
    "masked_fraction": ("selected, of eligible", 1),
    "quota_fraction": ("quota, of eligible", 5),
    "mask_token_fraction": ("by [MASK]", 1),
    "random_fraction": ("by a random token", 2),
    "kept_fraction": ("kept as it is", 3),
}
SPEED = ("tokens_per_second", "step_seconds", "data_wait", "mfu", "model_flops_per_second")
SPENT = {  # metric -> what the time was spent on
    "compile_seconds": "compiling the update",
    "data_seconds": "waiting for data",
    "evaluation_seconds": "evaluations",
    "saving_seconds": "checkpoints, as far as training waited for them",
}
HELD = {  # metric -> which memory
    "host_memory_bytes": "peak memory of the process",
    "device_memory_bytes": "peak memory of a device",
}
OPTIMISER = ("learning_rate", "grad_norm", "skipped", "spikes", "spike_fraction")


def write(workdir: Path) -> Path:
    """Write `report.html` in one move and return its path."""
    workdir = Path(workdir)
    recorded, environment = _json(workdir / "config.json"), _json(workdir / "environment.json")
    metrics = workdir / records.METRICS
    rows = sorted(records.rows(metrics), key=lambda row: row["step"]) if metrics.exists() else []
    curves = _curves(rows, recorded)
    seconds = max((float(row.get("time") or 0) for row in rows), default=0.0)
    title = _title(recorded, workdir)
    body = (
        f"<h1>{escape(title)}</h1>{_subtitle(recorded, environment, workdir, rows)}"
        f'<div class="tiles">{_tiles(recorded, curves, rows, seconds)}</div>'
        + _sections(recorded, curves, seconds)
        + section("Predictions", samples(workdir / "samples.jsonl"), "samples")
        + section("Config", config_box(recorded))
        + section("Environment", environment_box(environment))
    )
    path = workdir / "report.html"
    disk.write(path, page(title, body))
    return path


def _json(path: Path) -> dict[str, Any]:
    """Read a JSON object; return an empty one if it is missing or being written."""
    try:
        return jsons.read(path, DataError)
    except DataError:
        return {}


def _curves(rows: list[dict[str, Any]], recorded: dict[str, Any]) -> Curves:
    """Collect the values of every metric by step."""
    curves: Curves = defaultdict(list)
    objectives = list(subtree(recorded, "objectives"))
    hundreds = ("exact", "f1") if "span" in objectives else ()  # SQuAD's are published in per cent
    # A task's training metrics are named after its objective; its evaluation's have no such prefix.
    tuned = bool(subtree(recorded, "task").get("source") and objectives)
    prefix = f"train/{objectives[0]}_" if tuned else "?"
    for row in rows:
        for key, value in row.items():
            name = f"train/{key.removeprefix(prefix)}" if key.startswith(prefix) else key
            if name != key and name in row:
                continue
            if "/" in name and isinstance(value, (int, float)) and math.isfinite(value):
                curves[name].append((row["step"], value / (100 if name.endswith(hundreds) else 1)))
    return curves


def _suites(curves: Curves) -> list[str]:
    names = [name.split("/") for name in curves if name.startswith("eval/")]
    return list(dict.fromkeys(parts[1] for parts in names if len(parts) == 3))


def _results(curves: Curves, suite: str) -> list[str]:
    """Return the metrics of an evaluation, without its baselines, intervals and counts."""
    names = [n.removeprefix(f"eval/{suite}/") for n in curves if n.startswith(f"eval/{suite}/")]
    return [name for name in names if is_result(name)]


# --- head --------------------------------------------------------------------------------------


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
        names = (name.upper() if name in SHOUTED else name for name in objectives)
        parts.append(escape(" + ".join(names)))
        if "hybrid" in objectives:
            parts.append(f"{number(objectives['hybrid'].get('share'), True)} of examples causal")
    masking = subtree(recorded, "masking")
    if "rate" in masking and {"mlm", "diffusion", "hybrid"} & set(objectives):
        unit, law = masking.get("unit", "token"), masking.get("draw", "fixed")
        rate = number(masking["rate"], True) if law == "fixed" else f"drawn by the law {law}"
        parts.append(escape(f"masking rate {rate} of {unit}s"))
    for key, text in (("batch_size", "batch of {:,}"), ("sequence_length", "length {:,}")):
        if isinstance(recorded.get(key), int):
            parts.append(text.format(recorded[key]))
    if isinstance(parameters := environment.get("parameters"), int):
        parts.append(f"{parameters:,} parameters")
    trunk, _, fork = str(recorded.get("branch_from") or "").rpartition("@")
    if trunk:
        parts.append(escape(f"branch of the run {trunk} from step {fork} on"))
    if not rows:
        parts.append("no measurements yet")
    return f'<p class="sub">{" · ".join(parts)}</p>'


def _tiles(
    recorded: dict[str, Any], curves: Curves, rows: list[dict[str, Any]], seconds: float
) -> str:
    step, steps = (rows[-1]["step"] if rows else 0), recorded.get("steps")
    below = ""
    if isinstance(steps, int) and steps > 0:
        below = f"of {steps:,}, {'finished' if step >= steps else 'in progress'}"
    compiled = curves.get("train/compile_seconds")
    compiling = f"{compiled[-1][1]:.1f} s compiling" if compiled else ""
    tiles = [tile("Steps", f"{step:,}", below), tile("Time", duration(seconds), compiling)]
    if skipped := curves.get("train/skipped"):
        spikes = curves["train/spikes"][-1][1]
        below = f"{spikes:,.0f} of them loss spikes"
        tiles.append(tile("Skipped updates", number(skipped[-1][1]), below))
    for suite in _suites(curves):
        tiles += [_result_tile(curves, suite, name) for name in _results(curves, suite)]
    if speed := curves.get("train/tokens_per_second"):
        tiles.append(tile("Tokens per second", number(round(speed[-1][1])), _pace(curves)))
    return "".join(tiles)


def _result_tile(curves: Curves, suite: str, name: str) -> str:
    """Show the last value of a metric and how it compares with its baseline."""
    prefix = f"eval/{suite}/"
    step, value = curves[prefix + name][-1]
    low, high = (
        curves.get(f"{prefix}{name}_{end}", [(0, math.nan)])[-1][1] for end in ("low", "high")
    )
    below = [f"{suite}, step {step:,}"]
    if not math.isnan(low + high):
        below.append(f"95{SPACE}% interval {100 * low:.1f} to {100 * high:.1f}")
    references, label = baselines(name)
    levels = next((curves[prefix + key] for key in references if prefix + key in curves), None)
    baseline = levels[-1][1] if levels else CHANCE.get(name)
    verdict = ""
    if baseline is not None:
        text = f"{label or 'chance'} {number(baseline, is_share(name))}"
        if name.endswith("loss") and value < baseline:
            verdict = f"{baseline - value:.2f} nats below {text}"
        elif not name.endswith("loss") and (low if not math.isnan(low) else value) > baseline > 0:
            verdict = f"{value / baseline:.1f} times {text}"
        else:
            below.append(f"not better than {text}")
    return tile(pretty(name), number(value, is_share(name)), "; ".join(below), verdict)


def _pace(curves: Curves) -> str:
    parts = []
    if steps := curves.get("train/step_seconds"):
        seconds = steps[-1][1]
        pace = f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"
        parts.append(f"{pace} per step")
    if waits := curves.get("train/data_wait"):
        parts.append(f"{100 * waits[-1][1]:.2g}{SPACE}% waiting for data")
    if shares := curves.get("train/mfu"):
        parts.append(f"{100 * shares[-1][1]:.1f}{SPACE}% of the devices' nominal FLOP/s")
    return ", ".join(parts)


# --- charts ------------------------------------------------------------------------------------


def _sections(recorded: dict[str, Any], curves: Curves, seconds: float) -> str:
    """Draw every curve once: learning, masking ledger, optimiser, speed, and all others."""
    known = {f"train/{name}" for name in (*LEDGER, *OPTIMISER, *SPEED, *SPENT, *HELD)}
    rest = {name for name in curves if name.startswith("train/")} - known
    learned = sorted(
        {name.removeprefix("train/") for name in rest if name.endswith(("loss", "accuracy"))}
        | {name for suite in _suites(curves) for name in _results(curves, suite)},
        key=lambda n: (not n.endswith("loss"), n.partition("_")[0] not in ("loss", "mlm"), n),
    )
    rest -= {f"train/{name}" for name in learned}
    pace = "tokens_per_second" if "train/tokens_per_second" in curves else "step_seconds"

    def alone(*names: str) -> str:
        return "".join(_alone(curves, name) for name in names)

    learning = "".join(draw(_learning(curves, name)) for name in learned)
    speed = alone(f"train/{pace}", "train/data_wait", "train/mfu") + _spent(curves, seconds)
    optimiser = alone(*(f"train/{name}" for name in OPTIMISER[:-1]))
    return (
        section("Learning", learning, "charts")
        + section("Masking ledger", _ledger(recorded, curves), "charts")
        + section("Optimiser", optimiser, "charts")
        + section("Speed", speed, "charts")
        + section("Other measurements", alone(*sorted(rest)), "charts")
    )


def _learning(curves: Curves, name: str) -> Chart:
    """Describe a metric in training and in every evaluation, with its baselines."""
    series, levels = [], []
    suites = _suites(curves)
    if points := curves.get(f"train/{name}"):
        series.append(Series("training", points, 1, faint=bool(suites)))
    for colour, suite in enumerate(suites):
        key = f"eval/{suite}/{name}"
        if points := curves.get(key):
            low, high = dict(curves.get(key + "_low", [])), dict(curves.get(key + "_high", []))
            band = [(s, low[s], high[s]) for s in sorted(low.keys() & high.keys())]
            series.append(Series(suite, points, 2 + colour % 4, band=band))
        references, label = baselines(name)
        for found in [curves[p] for key in references if (p := f"eval/{suite}/{key}") in curves][
            :1
        ]:
            level = (label.removeprefix("the "), found[-1][1])
            levels += [] if level in levels else [level]
    if name in CHANCE:
        levels.append(("chance", CHANCE[name]))
    several = name == "loss" and any(n.startswith("train/") and n.endswith("_loss") for n in curves)
    title = "Loss, the weighted sum" if several else pretty(name)
    return Chart(title, series, levels, percent=is_share(name), y=axis_title(name))


def _alone(curves: Curves, name: str) -> str:
    short = name.partition("/")[2]
    series = [Series("training", curves.get(name, []))]
    return draw(Chart(pretty(short), series, percent=is_share(short), y=axis_title(short)))


def _rate(masking: dict[str, Any]) -> float | None:
    """Return which share of an update the config selects; None where that is not one number."""
    changes = masking.get("schedule") != "constant" or masking.get("phases")
    if changes or masking.get("draw") not in (None, "fixed"):
        return None
    rate, wanted = masking.get("rate"), masking.get("prediction_rate")
    if isinstance(rate, float) and isinstance(wanted, float) and 0 < rate < wanted:
        return wanted / laws.views(knobs.Masking(rate=rate, prediction_rate=wanted))
    return rate


def _ledger(recorded: dict[str, Any], curves: Curves) -> str:
    """Draw what masking did beside what the config asks for."""
    masking = subtree(recorded, "masking")
    replace = masking.get("replace") or (None, None, None)
    rate, drawn = _rate(masking), masking.get("draw") not in (None, "fixed")
    configured = dict(zip(LEDGER, (rate, rate, *replace), strict=False))
    lines = []
    selected: list[tuple[Series, float | None]] = []
    replaced: list[tuple[Series, float | None]] = []
    for name, (text, colour) in LEDGER.items():
        if points := curves.get(f"train/{name}"):
            expected, values = configured.get(name), [value for _, value in points]
            wish = (
                number(expected, True)
                if expected is not None
                else ("drawn" if drawn else "scheduled")
            )
            means = [number(f(values), True) for f in (statistics.fmean, min, max)]
            lines.append([text, wish, *means])
            shares = selected if text.endswith("eligible") else replaced
            shares.append((Series(text, points, colour), expected))
    if not lines:
        return ""

    def chart(title: str, shares: list[tuple[Series, float | None]]) -> str:
        levels = dict.fromkeys(value for _, value in shares if value is not None)
        baselines = [("config", value) for value in levels]
        series = [line for line, _ in shares]
        return draw(Chart(title, series, baselines, percent=True, zero=True, y="share of tokens"))

    head = ["share", "config", "mean", "lowest", "highest"]
    return (
        chart("Tokens selected", selected)
        + chart("Replaced, of selected", replaced)
        + f'<div class="box">{table(lines, head, True)}</div>'
    )


def _spent(curves: Curves, seconds: float) -> str:
    """Tabulate where the time went, the rest of it being steps, and the peak memory."""
    spent = {
        text: curves[f"train/{name}"][-1][1]
        for name, text in SPENT.items()
        if f"train/{name}" in curves
    }
    if len(spent) < len(SPENT) or not seconds:
        return ""
    spent["steps"] = max(0.0, seconds - sum(spent.values()))
    lines = [
        [text, duration(value), number(value / seconds, True)] for text, value in spent.items()
    ]
    for name, text in HELD.items():
        if points := curves.get(f"train/{name}"):
            lines.append([text, f"{points[-1][1] / 1e9:.2f}{SPACE}GB", ""])
    return f'<div class="box">{table(lines, ["time and memory", "", "share"], True)}</div>'

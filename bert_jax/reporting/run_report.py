"""`report.html` of a run: a page for offline reading, made from the files in the run's folder.

It reads config.json, environment.json, metrics.jsonl and samples.jsonl. Whatever is missing is left
out, so the page of a run in progress is the same page with less on it.
"""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from bert_jax.reporting import page as pages
from bert_jax.reporting import records, run_charts, run_record, task_results
from bert_jax.reporting.formats import HOLE, SPACE, number, rounded
from bert_jax.reporting.metric_names import (
    SHOUTED,
    is_share,
    lower_is_better,
    meaning,
    pretty,
)
from bert_jax.reporting.page import (
    config_box,
    contents,
    environment_box,
    page,
    samples,
    section,
    table,
    tile,
    tiles,
)
from bert_jax.reporting.run_record import FindKept, RunRecord, subtree
from bert_jax.reporting.terms import SERVED
from bert_jax.system.durations import duration


def write(workdir: Path, find_kept: FindKept | None = None, output: Path | None = None) -> Path:
    """Write the page, by default `report.html` in the workdir, in one move; return its path.

    `find_kept` returns the checkpoints of a run's folder, the one that is served first.
    """
    path = output or Path(workdir) / "report.html"
    html = build(run_record.read(Path(workdir), find_kept))
    pages.write(path, html, named=output is not None)
    return path


def build(run: RunRecord) -> str:
    """Build the page of a run."""
    recorded, title = run.recorded, _title(run)
    learning = section("Learning", run_charts.learning(run))
    if subtree(recorded, "task").get("source"):
        shown = learning + task_results.write(run)
    else:
        guesses = samples(run.folder / records.SAMPLES, run.served)
        shown = section("Predictions", guesses) + learning
    beside = section("Steps kept", _kept(run)) + run_charts.ledger_section(run)
    head = f"<h1>{escape(title)}</h1>{_subtitle(run)}{_warnings(run)}{tiles(_tiles(run))}"
    body = (
        shown
        + (f'<div class="boxes">{beside}</div>' if beside else "")
        + run_charts.others(run)
        + section("Config", config_box(recorded))
        + section("Environment", environment_box(run.environment))
    )
    return page(title, head + contents(body) + body)


def _title(run: RunRecord) -> str:
    model, corpus, task = (subtree(run.recorded, name) for name in ("model", "corpus", "task"))
    if source := str(task.get("source") or ""):
        return f"BERT fine-tuned on {task.get('name') or Path(source.partition(':')[2]).name}"
    if not model or not corpus:
        return run.name
    source = Path(str(corpus.get("path") or "")).name or corpus.get("source", "")
    return f"BERT {model.get('size', '')} on {source}"


def _subtitle(run: RunRecord) -> str:
    recorded = run.recorded
    parts = [f"<b>{escape(run.name)}</b>"]
    if objectives := subtree(recorded, "objectives"):
        names = (name.upper() if name in SHOUTED else name for name in objectives)
        parts.append(escape(" + ".join(names)))
        if "hybrid" in objectives:
            parts.append(f"{number(objectives['hybrid'].get('share'), True)} of examples causal")
        if share := subtree(objectives, "replaced").get("generator"):
            parts.append(f"a generator of {number(share, True)} of the width")
    masking = subtree(recorded, "masking")
    if "rate" in masking and {"mlm", "diffusion", "hybrid", "replaced"} & set(objectives):
        unit, law = masking.get("unit", "token"), masking.get("draw", "fixed")
        rate = number(masking["rate"], True) if law == "fixed" else f"drawn by the law {law}"
        parts.append(escape(f"masking rate {rate} of {unit}s"))
    for key, text in (("batch_size", "batch of {:,}"), ("sequence_length", "length {:,}")):
        if isinstance(recorded.get(key), int):
            parts.append(text.format(recorded[key]))
    if isinstance(parameters := run.environment.get("parameters"), int):
        parts.append(f"{parameters:,} parameters")
    trunk, _, fork = str(recorded.get("branch_from") or "").rpartition("@")
    if trunk:
        parts.append(escape(f"branch of the run {trunk} from step {fork} on"))
    if not run.rows:
        parts.append("no measurements yet")
    return f'<p class="sub">{" · ".join(parts)}</p>'


def _warnings(run: RunRecord) -> str:
    return "".join(f'<p class="warning">{escape(text)}</p>' for text in run.warnings())


# --- tiles -------------------------------------------------------------------------------------


def _tiles(run: RunRecord) -> list[str]:
    """Make the tiles of a run: its results, then its steps and its speed."""
    curves = run.curves
    shown = [
        _result_tile(run, suite, name) for suite in run.suites() for name in run.results(suite)
    ]
    below = f"of {run.steps:,}, {run.state()}" if run.steps else ""
    compiled = curves.get("train/compile_seconds")
    compiling = f"{compiled[-1][1]:.1f} s compiling" if compiled else ""
    shown.append(tile("Steps", f"{run.step:,}", below))
    if run.served is not None:
        shown.append(tile("Step served", f"{run.served:,}", _why_served(run), about=SERVED))
    shown.append(tile("Time", duration(run.seconds), compiling))
    if speed := curves.get("train/tokens_per_second"):
        about = meaning("tokens_per_second")
        value = number(round(speed[-1][1]))
        shown.append(tile("Tokens per second", value, _pace(run), about=about))
    return shown


def _why_served(run: RunRecord) -> str:
    """Say by what the step that is served was chosen, and from which."""
    if len(run.kept) == 1:
        return "the only one kept"
    if not run.ranked_by or run.kept[0][1] is None:
        return f"the latest of {len(run.kept)} kept"
    best = "lowest" if lower_is_better(run.ranked_by) else "highest"
    return f"{best} {_ranked_by(run)} of {len(run.kept)} kept"


def _ranked_by(run: RunRecord) -> str:
    _, suite, name = run.ranked_by.split("/")
    short = pretty(name)
    return f"{suite} {short if short[:2].isupper() else short.lower()}"


def _kept(run: RunRecord) -> str:
    """Tabulate the checkpoints, and say which of them is served."""
    if not run.kept:
        return ""
    values = dict(run.curves.get(run.ranked_by, []))
    percent = is_share(run.ranked_by)
    lines = [
        [
            f"{step:,}",
            number(values[step], percent) if step in values else HOLE,
            "served" if step == run.served else "",
        ]
        for step, _ in sorted(run.kept)
    ]
    head = ["step", _ranked_by(run) if run.ranked_by else "no metric ranks them", ""]
    said = "Evaluate, predict, inspect and export open step "
    said += f"{run.served:,} of this run: {_why_served(run)}. Another is RUN/checkpoints/STEP."
    return f'<div class="box"><p>{escape(said)}</p>{table(lines, head, True)}</div>'


def _result_tile(run: RunRecord, suite: str, name: str) -> str:
    """Show a metric at the step that is served and how it compares with its baseline."""
    prefix, curves = f"eval/{suite}/", run.curves
    step, value = run.at_served(prefix + name)
    low, high = (
        dict(curves.get(f"{prefix}{name}_{end}", [])).get(step, math.nan) for end in ("low", "high")
    )
    below = [f"{suite}, step {step:,}{', served' if step == run.served else ''}"]
    last, ended = curves[prefix + name][-1]
    if last != step:
        below.append(f"{number(ended, is_share(name))} at step {last:,}")
    if not math.isnan(low + high):
        below.append(f"95{SPACE}% interval {100 * low:.1f} to {100 * high:.1f}")
    level = run_charts.baseline(curves, prefix, name)
    verdict = ""
    if level is not None:
        label, baseline = level
        text = f"{label} {number(baseline, is_share(name))}"
        if name.endswith("loss") and value < baseline:
            verdict = f"{baseline - value:.2f} nats below {text}"
        elif not name.endswith("loss") and (low if not math.isnan(low) else value) > baseline > 0:
            verdict = f"{value / baseline:.1f} times {text}"
        else:
            below.append(f"not better than {text}")
    shown = number(value, is_share(name))
    return tile(pretty(name), shown, "; ".join(below), verdict, about=meaning(name))


def _pace(run: RunRecord) -> str:
    curves, parts = run.curves, []
    if steps := curves.get("train/step_seconds"):
        seconds = steps[-1][1]
        pace = f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"
        parts.append(f"{pace} per step")
    if waits := curves.get("train/data_wait"):
        parts.append(f"{rounded(100 * waits[-1][1], 2)}{SPACE}% waiting for data")
    if shares := curves.get("train/mfu"):
        parts.append(f"{100 * shares[-1][1]:.1f}{SPACE}% of the devices' nominal FLOP/s")
    return ", ".join(parts)

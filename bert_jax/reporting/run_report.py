"""`report.html` of a run: a page for offline reading, made from the files in the run's folder.

These are config.json, environment.json, metrics.jsonl and samples.jsonl. What is missing is left
out, so the page of a run in progress is the same page with less content.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from bert_jax.reporting import page as pages
from bert_jax.reporting import run_charts, run_record, samples
from bert_jax.reporting.formats import SPACE, number, rounded
from bert_jax.reporting.metric_names import WORDS, find_direction, is_share, meaning, pretty
from bert_jax.reporting.page import explain_words, render_section, render_tile
from bert_jax.reporting.run_record import FindKept, RunRecord, find_section
from bert_jax.system.durations import duration

SERVED = (
    "The checkpoint that evaluate, predict, inspect and export open when they are given this run: "
    "the best of those kept, else the latest."
)
INTERVAL = (
    "The examples are a sample; the accuracy of this model over all such examples is not known. Of "
    "intervals made in this way from many samples, 95 in 100 hold it (Wilson's interval of a "
    "proportion). What another seed would give is not in it."
)


def write_report(
    workdir: Path, find_kept: FindKept | None = None, output: Path | None = None
) -> Path:
    """Write the page of a run in one move; return its path.

    The path is `output`, or `report.html` in the workdir. `find_kept` lists the checkpoints in the
    run's folder, first the one that is served.
    """
    path = output or Path(workdir) / "report.html"
    html = build_report(run_record.read_run(Path(workdir), find_kept))
    pages.write_document(path, html, named=output is not None)
    return path


def build_report(run: RunRecord) -> str:
    """Build the HTML page of a run."""
    title = _format_title(run)
    head = f"<h1>{escape(title)}</h1>{_render_subtitle(run)}"
    head += pages.render_warnings(run.list_warnings())
    head += f'<div class="tiles">{"".join(_list_tiles(run))}</div>'
    learning = render_section("Learning", run_charts.draw_learning(run))
    if find_section(run.recorded, "task").get("source"):
        body = learning + samples.render_outcomes(run)
    else:
        body = samples.render_predictions(run) + learning
    body += run_charts.render_ledger(run)
    body += run_charts.render_times(run)
    body += run_charts.draw_others(run)
    body += render_section("Config", pages.render_config(run.recorded))
    body += render_section("Environment", pages.render_environment(run.environment))
    return pages.page(title, head + pages.render_contents(body) + body)


def _format_title(run: RunRecord) -> str:
    model, corpus, task = (find_section(run.recorded, name) for name in ("model", "corpus", "task"))
    if source := str(task.get("source") or ""):
        return f"BERT fine-tuned on {task.get('name') or Path(source.partition(':')[2]).name}"
    if not model or not corpus:
        return run.name
    source = Path(str(corpus.get("path") or "")).name or corpus.get("source", "")
    return f"BERT {model.get('size', '')} on {source}"


def _render_subtitle(run: RunRecord) -> str:
    """Render a line with a run's name, objectives, masking, batch size and parameter count."""
    recorded = run.recorded
    objectives = find_section(recorded, "objectives")
    masking = find_section(recorded, "masking")
    parts = [" + ".join(WORDS.get(name, name) for name in objectives)]
    if "hybrid" in objectives:
        parts.append(f"{number(objectives['hybrid'].get('share'), True)} of examples causal")
    if share := find_section(objectives, "replaced").get("generator"):
        parts.append(f"a generator of {number(share, True)} of the width")
    if "rate" in masking and {"mlm", "diffusion", "hybrid", "replaced"} & set(objectives):
        law = masking.get("draw", "fixed")
        rate = number(masking["rate"], True) if law == "fixed" else f"drawn by the law {law}"
        parts.append(f"masking rate {rate} of {masking.get('unit', 'token')}s")
    for known, text in (
        (recorded.get("batch_size"), "batch of {:,}"),
        (recorded.get("sequence_length"), "length {:,}"),
        (run.environment.get("parameters"), "{:,} parameters"),
    ):
        if isinstance(known, int):
            parts.append(text.format(known))
    trunk, _, fork = str(recorded.get("branch_from") or "").rpartition("@")
    if trunk:
        parts.append(f"branch of the run {trunk} from step {fork} on")
    if not run.rows:
        parts.append("no measurements yet")
    shown = "".join(f" · {escape(part)}" for part in parts if part)
    return f'<p class="sub"><b>{escape(run.name)}</b>{shown}</p>'


def _list_tiles(run: RunRecord) -> list[str]:
    """Write the tiles of a run: its results, steps, time and speed."""
    shown = [
        _make_result_tile(run, suite, name)
        for suite in run.list_suites()
        for name in run.list_results(suite)
    ]
    of = f"of {run.steps:,}, " if run.steps else ""
    shown.append(render_tile("Steps", f"{run.step:,}", of + run.state))
    if run.served is not None:
        why = escape(_explain_served(run))
        shown.append(render_tile("Step served", f"{run.served:,}", why, about=SERVED))
    shown.append(render_tile("Time", duration(run.seconds)))
    if speed := run.last("tokens_per_second"):
        about = meaning("tokens_per_second")
        shown.append(
            render_tile("Tokens per second", number(round(speed)), _format_pace(run), about=about)
        )
    return shown


def _make_result_tile(run: RunRecord, suite: str, name: str) -> str:
    """Write the tile of a metric at the step that is served, with its interval and its baseline."""
    key, percent = f"eval/{suite}/{name}", is_share(name)
    step, value = run.find_served(key)
    parts = [escape(f"{suite}, step {step:,}{', served' if step == run.served else ''}")]
    last, ended = run.curves[key][-1]
    if last != step:
        parts.append(f"{number(ended, percent)} at step {last:,}")
    low = dict(run.curves.get(f"{key}_low", [])).get(step)
    high = dict(run.curves.get(f"{key}_high", [])).get(step)
    if low is not None and high is not None:
        words = explain_words(f"95{SPACE}% interval", INTERVAL)
        parts.append(f"{words} {100 * low:.1f} to {100 * high:.1f}")
    if level := run.find_baseline(suite, name):
        label, baseline, about = level
        parts.append(f"{explain_words(label, about)} {number(baseline, percent)}")
    return render_tile(pretty(name), number(value, percent), "; ".join(parts), about=meaning(name))


def _format_pace(run: RunRecord) -> str:
    parts = []
    if seconds := run.last("step_seconds"):
        pace = f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"
        parts.append(f"{pace} per step")
    if wait := run.last("data_wait"):
        parts.append(f"{rounded(100 * wait, 2)}{SPACE}% waiting for data")
    if share := run.last("mfu"):
        parts.append(f"{100 * share:.1f}{SPACE}% of the devices' nominal FLOP/s")
    return ", ".join(parts)


def _explain_served(run: RunRecord) -> str:
    """Say how the step that is served was chosen among the saved steps."""
    if len(run.kept) == 1:
        return "the only one kept"
    steps = " and ".join(f"{step:,}" for step, _ in sorted(run.kept))
    if not run.ranked_by or run.kept[0][1] is None:
        return f"the latest of {steps}"
    best = "lowest" if find_direction(run.ranked_by) < 0 else "highest"
    return f"{best} validation {pretty(run.ranked_by.rpartition('/')[2])} of {steps}"

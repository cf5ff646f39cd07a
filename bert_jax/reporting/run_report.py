"""`report.html` of a run: a page for offline reading, made from the files in the run's folder.

These are config.json, environment.json, metrics.jsonl and samples.jsonl. What is missing is left
out, so the page of a run in progress is the same page with less content.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bert_jax.config import knobs
from bert_jax.masking import rates
from bert_jax.reporting import page as pages
from bert_jax.reporting import run_charts, run_record, samples
from bert_jax.reporting.formats import SPACE, format_rate, number, rounded
from bert_jax.reporting.metric_names import (
    WORDS,
    find_direction,
    find_meaning,
    find_title,
    is_share,
)
from bert_jax.reporting.run_record import RunRecord, find_section
from bert_jax.system import disk
from bert_jax.system.durations import format_duration

SERVED = (
    "The checkpoint that evaluate, predict, inspect and export open when they are given this run: "
    "the best of those kept, else the latest."
)
INTERVAL = (
    "The examples are a sample; the accuracy of this model over all such examples is not known. Of "
    "intervals made in this way from many samples, 95 in 100 hold it (Wilson's interval of a "
    "proportion). What another seed would give is not in it."
)
UNITS = {"token": "", "word": ", in words", "span": ", in spans", "pmi": ", in collocations"}


class Tile(NamedTuple):
    """A number at the top of a page, with its name, its meaning and notes."""

    name: str
    value: str
    notes: Sequence[tuple[str, str, str]] = ()  # words, what they mean, and a value
    about: str = ""


def write_report(workdir: Path) -> Path:
    """Write the page of a run, `report.html` in its workdir, in one move; return its path."""
    path = workdir / "report.html"
    html = build_report(run_record.read_run(workdir))
    disk.write(path, html.encode(errors="replace"))  # UTF-8 has no lone surrogates
    return path


def build_report(run: RunRecord) -> str:
    """Build the page of a run."""
    tuned = bool(find_section(run.recorded, "task").get("source"))
    return pages.render(
        "reporting/run_report.html",
        title=_format_title(run),
        run=run,
        facts=_list_facts(run),
        tiles=_list_tiles(run),
        sentences=[] if tuned else samples.read_sentences(run),
        outcomes=samples.read_outcomes(run) if tuned else {},
        learned=[run_charts.draw_learned(run, name) for name in run_charts.list_learned([run])],
        ledger=run_charts.draw_ledger(run),
        times=run_charts.tabulate_times(run),
        others=run_charts.draw_others(run),
        knobs=pages.tabulate_knobs(run.recorded),
        environment=pages.tabulate_environment(run.environment),
    )


def _format_title(run: RunRecord) -> str:
    model, corpus, task = (find_section(run.recorded, name) for name in ("model", "corpus", "task"))
    if source := str(task.get("source") or ""):
        return f"BERT fine-tuned on {task.get('name') or Path(source.partition(':')[2]).name}"
    if not model or not corpus:
        return run.folder.resolve().name
    source = Path(str(corpus.get("path") or "")).name or corpus.get("source", "")
    return f"BERT {model.get('size', '')} on {source}"


def _list_facts(run: RunRecord) -> list[str]:
    """Describe a run's objectives, masking, batch size and parameter count."""
    recorded = run.recorded
    objectives = find_section(recorded, "objectives")
    masking = find_section(recorded, "masking")
    parts = [" + ".join(WORDS.get(name, name) for name in objectives)]
    if "hybrid" in objectives:
        parts.append(f"{number(objectives['hybrid'].get('share'), True)} of examples causal")
    if share := find_section(objectives, "replaced").get("generator"):
        parts.append(f"a generator of {number(share, True)} of the width")
    if masking and {"mlm", "diffusion", "hybrid", "replaced"} & set(objectives):
        settings = msgspec.convert(masking, knobs.Masking)
        parts.append(f"masking rate {format_rate(settings)}{UNITS[settings.unit]}")
        if settings.prediction_rate is not None and rates.count_views(settings) == 1:
            parts.append(f"prediction rate {number(settings.prediction_rate, True)}")
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
    return list(filter(None, parts))


def _list_tiles(run: RunRecord) -> list[Tile]:
    """Make the tiles of a run: its results, steps, time and speed."""
    shown = [
        _make_result_tile(run, suite, name)
        for suite in run.list_suites()
        for name in run.list_results(suite)
    ]
    of = f"of {run.steps:,}, " if run.steps else ""
    shown.append(Tile("Steps", f"{run.step:,}", [(of + run.state, "", "")]))
    if run.served is not None:
        shown.append(
            Tile("Step served", f"{run.served:,}", [(_explain_served(run), "", "")], about=SERVED)
        )
    shown.append(Tile("Time", format_duration(run.seconds)))
    if speed := run.last("tokens_per_second"):
        about = find_meaning("tokens_per_second")
        pace = [(_format_pace(run), "", "")]
        shown.append(Tile("Tokens per second", number(round(speed)), pace, about))
    return shown


def _make_result_tile(run: RunRecord, suite: str, name: str) -> Tile:
    """Make the tile of a metric at the step that is served, with its interval and its baseline."""
    key, percent = f"eval/{suite}/{name}", is_share(name)
    step, value = run.find_served(key)
    notes = [(f"{suite}, step {step:,}{', served' if step == run.served else ''}", "", "")]
    last, ended = run.curves[key][-1]
    if last != step:
        notes.append((f"{number(ended, percent)} at step {last:,}", "", ""))
    low = dict(run.curves.get(f"{key}_low", [])).get(step)
    high = dict(run.curves.get(f"{key}_high", [])).get(step)
    if low is not None and high is not None:
        ends = f"{100 * low:.1f} to {100 * high:.1f}"
        notes.append((f"95{SPACE}% interval", INTERVAL, ends))
    if level := run.find_baseline(suite, name):
        label, baseline, about = level
        notes.append((label, about, number(baseline, percent)))
    return Tile(find_title(name), number(value, percent), notes, find_meaning(name))


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
    ranked = [step for step, metric in run.kept if run.ranked_by and metric is not None]
    if len(ranked) == 1:
        return "the only evaluated one of those kept"
    steps = " and ".join(f"{step:,}" for step in sorted(ranked or dict(run.kept)))
    if not ranked:
        return f"the latest of {steps}"
    best = "lowest" if find_direction(run.ranked_by) < 0 else "highest"
    return f"{best} validation {find_title(run.ranked_by.rpartition('/')[2])} of {steps}"

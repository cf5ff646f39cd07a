"""Charts of one run: what it learned, the masking ledger, optimiser, speed, and all the rest."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from bert_jax.config import knobs
from bert_jax.masking import rates
from bert_jax.reporting.figures import Chart, Series, is_constant
from bert_jax.reporting.formats import SPACE, number
from bert_jax.reporting.metric_names import (
    CHANCE,
    axis_title,
    baselines,
    is_share,
    meaning,
    pretty,
)
from bert_jax.reporting.page import fold, section, table
from bert_jax.reporting.run_record import Curves, RunRecord, subtree
from bert_jax.reporting.svg import draw
from bert_jax.reporting.terms import LEDGER as LEDGER_MEANS
from bert_jax.reporting.terms import term
from bert_jax.system.durations import duration

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
OPTIMISER = ("learning_rate", "grad_norm")


def learned(curves: Iterable[str], results: Iterable[str]) -> list[str]:
    """List the losses and accuracies of training and the results of evaluations, losses first."""
    trained = {name.removeprefix("train/") for name in curves if name.startswith("train/")}
    trained = {name for name in trained if name.endswith(("loss", "accuracy"))}
    return sorted(
        trained | set(results),
        key=lambda n: (not n.endswith("loss"), n.partition("_")[0] not in ("loss", "mlm"), n),
    )


def learning(run: RunRecord) -> str:
    """Draw every measure of learning, in training and in every evaluation."""
    suites = run.suites()
    results = [name for suite in suites for name in run.results(suite)]
    drawn = "".join(_drawn(_learning(run, n), n) for n in learned(run.curves, results))
    mark = ""
    if drawn and _mark(run) is not None:
        mark = (
            f'<p class="sub">The upright dashed line is step {run.served:,}, which is served.</p>'
        )
    return mark + (f'<div class="charts">{drawn}</div>' if drawn else "")


def others(run: RunRecord) -> str:
    """Draw the optimiser, the speed and, folded, every other curve, each once.

    A sentence names those that do not change, with their values.
    """
    curves = run.curves
    known = {*LEDGER, *OPTIMISER, *SPEED, *SPENT, *HELD, *learned(curves, ())}
    rest = sorted(short for name in curves if (short := name.removeprefix("train/")) != name)
    pace = "tokens_per_second" if "train/tokens_per_second" in curves else "step_seconds"
    speed = _alone(run, (pace, "data_wait", "mfu")) + _spent(curves, run.seconds)
    rest = [name for name in rest if name not in known]
    drawn = _alone(run, rest)
    charts = f'<div class="charts">{drawn}</div>' if drawn else ""
    other = _constants(run, rest) + fold("Charts of those that change", charts)
    optimiser = _alone(run, OPTIMISER) + _constants(run, OPTIMISER)
    speed += _constants(run, (pace, "data_wait", "mfu"))
    return (
        section("Optimiser", optimiser, "charts")
        + section("Speed", speed, "charts")
        + section("Other measurements", other)
    )


def ledger_section(run: RunRecord) -> str:
    """Write the section of the masking ledger."""
    return section("Masking ledger", ledger(run.recorded, run.curves), about=LEDGER_MEANS)


def _drawn(chart: Chart, name: str) -> str:
    return draw(chart, about=meaning(name))


def _mark(run: RunRecord) -> int | None:
    """Return the step to mark in charts: the one served, if it is not the last."""
    return run.served if run.served and run.served < run.step else None


def _learning(run: RunRecord, name: str) -> Chart:
    """Describe a metric in training and in every evaluation, with its baselines."""
    series, levels = [], []
    curves, suites = run.curves, run.suites()
    if points := curves.get(f"train/{name}"):
        behind = any(f"eval/{suite}/{name}" in curves for suite in suites)
        series.append(Series("training", points, 1, faint=behind))
    for colour, suite in enumerate(suites):
        key = f"eval/{suite}/{name}"
        if points := curves.get(key):
            low, high = dict(curves.get(key + "_low", [])), dict(curves.get(key + "_high", []))
            band = [(s, low[s], high[s]) for s in sorted(low.keys() & high.keys())]
            series.append(Series(suite, points, 2 + colour % 4, band=band))
        if level := baseline(curves, f"eval/{suite}/", name):
            levels.append((level[0].removeprefix("the "), level[1]))
    levels = list(dict.fromkeys(levels or ([("chance", CHANCE[name])] if name in CHANCE else [])))
    several = name == "loss" and any(n.startswith("train/") and n.endswith("_loss") for n in curves)
    title = "Loss, the weighted sum" if several else pretty(name)
    y = axis_of(run, name)
    return Chart(title, series, levels, percent=is_share(name), y=y, mark=_mark(run))


def axis_of(run: RunRecord, name: str) -> str:
    """Write the title of a metric's axis; the loss has the unit of the objective's."""
    objective = next(iter(subtree(run.recorded, "objectives")), "") if name == "loss" else ""
    return axis_title(f"{objective}_{name}", pretty(name)) if objective else axis_title(name)


def baseline(curves: Curves, prefix: str, name: str) -> tuple[str, float] | None:
    """Return the name and the last value of an evaluation's baseline for a metric."""
    references, label = baselines(name)
    found = [curves[prefix + key][-1][1] for key in references if prefix + key in curves]
    if not found and name in CHANCE:
        label, found = "chance", [CHANCE[name]]
    return (label, found[0]) if found else None


def _alone(run: RunRecord, names: Iterable[str]) -> str:
    """Draw each measure of training that changes, in a chart of its own."""
    drawn = ""
    for name in names:
        points = run.curves.get(f"train/{name}")
        if not points or is_constant(value for _, value in points):
            continue
        log = False if name == "learning_rate" else None  # a schedule is read on a linear axis
        series, y = [Series("training", points)], axis_title(name)
        chart = Chart(pretty(name), series, percent=is_share(name), y=y, log=log)
        drawn += _drawn(chart, name)
    return drawn


def _constants(run: RunRecord, names: Iterable[str]) -> str:
    """Name the measures of training that do not change, with their values."""
    said = []
    for name in names:
        points = run.curves.get(f"train/{name}")
        if points and is_constant(value for _, value in points):
            value = number(points[-1][1], is_share(name))
            said.append(f"{term(pretty(name), meaning(name))} <b>{value}</b>")
    if not said:
        return ""
    return f'<div class="box"><p>The same at every step: {", ".join(said)}.</p></div>'


def _rate(masking: dict[str, Any]) -> float | None:
    """Find the share of tokens that the config selects; None if that is not one number."""
    if masking.get("phases") or masking.get("draw") not in (None, "fixed"):
        return None
    rate, wanted = masking.get("rate"), masking.get("prediction_rate")
    if isinstance(rate, float) and isinstance(wanted, float) and 0 < rate < wanted:
        return wanted / rates.count_views(knobs.Masking(rate=rate, prediction_rate=wanted))
    return rate


def ledger(recorded: dict[str, Any], curves: Curves) -> str:
    """Tabulate what masking did beside what the config asks for; draw it if that changes."""
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
        series, wanted = [line for line, _ in shares], [("config", value) for value in levels]
        return draw(Chart(title, series, wanted, percent=True, zero=True, y="share of tokens"))

    head = ["share", "config", "mean", "lowest", "highest"]
    about = {text: meaning(name) for name, (text, _) in LEDGER.items()}
    charts = chart("Tokens selected", selected) + chart("Replaced, of selected", replaced)
    charts = f'<div class="charts">{charts}</div>'
    if all(expected is not None for _, expected in selected + replaced):  # one number for each
        charts = fold("Charts over the steps", charts)
    return f'<div class="box">{table(lines, head, True, about)}</div>{charts}'


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

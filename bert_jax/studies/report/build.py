"""Report of a study: report.html for offline reading, results.csv, summary.md and figures.

    write(StudyFolder(workdir))

It shows the study's present state. Every figure is laid out once, for the page and for PNG, SVG
and PDF files.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from bert_jax.config import to_dict
from bert_jax.reporting import files as figure_files
from bert_jax.reporting.formats import SPACE
from bert_jax.reporting.metric_names import pretty
from bert_jax.reporting.page import asset, config_box, contents, page, section, table, tile
from bert_jax.reporting.svg import draw
from bert_jax.studies import files, results, sameness, trunks
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import (
    aggregate,
    answers,
    budgets,
    compare,
    findings,
    grid,
    judged,
    matrices,
    parts,
    published,
    sections,
    summary,
    tables,
)
from bert_jax.studies.report.aggregate import Figures, View
from bert_jax.studies.report.findings import Findings
from bert_jax.studies.report.parts import box, fold, fold_section, say
from bert_jax.system.durations import duration

STATES = ("done", "running", "waiting", "failed", "diverged")
STYLE = asset(__file__, ".css")


def write(place: StudyFolder) -> str:
    """Write a study's figures, summary.md and, last, report.html; return what to print.

    In a folder of tables without cells, only the figures that lie there are drawn again.
    """
    found_results = results.read_results(place)
    view = View(place, place.read_study(), found_results)
    found = findings.find(view)
    body, shown = compose(view, found)
    if place.cells_folder.exists():
        for name, figure in shown.items():
            figure_files.write(place.figures / name, [figure], source=_source(view))
    else:
        there = {file.stem for file in place.workdir.glob("*.png")}
        for name, figure in shown.items():
            if name in there or not there:  # the first time all of them
                path = place.workdir / name
                figure_files.write(path, [figure], source=_source(view), kinds=("png",))
    files.write_text(place.summary, summary.text(view, found))
    files.write_text(place.report, page(f"Study {_name(view)}", body, STYLE))
    return _join_answer(view, found)


def _join_answer(view: View, found: Findings) -> str:
    """Join the lines for a terminal: the answer, then the warnings."""
    return "\n".join(filter(None, [found.answer(view), *answers.warnings(view)]))


def _name(view: View) -> str:
    return str(view.study.get("name") or view.place.workdir.resolve().name)


def _source(view: View) -> str:
    """Say where figures come from."""
    done = sum(result.state.name == "done" for result in view.results)
    ended = aggregate.span(view)[1][:10] or "not begun"
    return f"{_name(view)}: {done} of {len(view.results)} cells done, {ended}."


def compose(view: View, found: Findings) -> tuple[str, Figures]:
    """Build the page, section by section, and its figures by name."""
    shown: Figures = {}

    def charts(chosen: Figures) -> str:
        shown.update(chosen)
        return parts.charts(chosen.values())

    answer, course, paired, equal = "", "", "", ""
    for i, comparison in enumerate(view.comparisons):
        name, metrics, gaps = comparison["axis"], comparison["metrics"], found.gaps[i]
        axis, families = view.axis(name), view.families(name)
        title = f"<h3>By {escape(name)}</h3>" if len(view.comparisons) > 1 else ""
        first, others = _headlines(view, comparison)
        if first:
            lead = found.lead(view, i)
            warned = answers.behind_baseline(view, comparison)
            warned = warned if answer else answers.warnings(view) + warned
            best = sections.best(view, comparison, gaps) if len(axis.labels) > 1 else ""
            means = sections.mean_table(view, axis, families, metrics)
            fitted = found.best[i][0].figures() if found.best[i] else {}
            answer += f'{title}<p class="lead">{escape(lead)}</p>{parts.warn(warned)}'
            answer += charts(fitted | first)
            for metric, figures in others.items():
                answer += fold(pretty(metric), charts(figures))
            answer += fold("Best point by each metric", box(best)) + fold("Means", box(means))
        for number, fit in enumerate(found.best[i]):
            course += f"{title}{''.join(map(say, fit.sentences()))}"
            course += charts(fit.figures()) if number else ""  # the first is with the answer
            title = ""
        drawn = charts(sections.gaps(view, comparison, gaps))
        listed = "".join(_gaps(view, name, metric, gaps) for metric in metrics)
        listed = say(sections.uneven(gaps)) + listed if listed else ""
        paired += f"{title}{drawn}{listed}" if listed else ""
        if tabs := _tabs(view, name, i, shown):
            equal += f"{title}{tabs}"
    crossed, cross_rate = charts(matrices.crossed(view)), charts(matrices.cross_rate(view))
    if cell := grid.best_cell(view):
        answer = f'<p class="lead">{escape(cell)}</p>{crossed}{answer}'
        crossed = ""
    ledger = tables.ledger(view)
    tasks = "".join(fold(title, box(text)) for title, text in tables.downstream(view))
    none = NONE + parts.warn(answers.warnings(view))
    body = (
        section("Answer", answer + parts.explain(ANSWER) if answer else none)
        + fold_section("Best value", course)
        + fold_section("Published claims", _claims(found.claims))
        + fold_section("Differences in pairs", paired and paired + parts.explain(PAIRS))
        + fold_section("Two axes at once", crossed)
        + fold_section("Equal budgets", equal and say(EQUAL) + equal)
        + fold_section("Trained at one rate, evaluated at others", cross_rate)
        + fold_section("What was masked", ledger and say(LEDGER) + box(ledger))
        + fold_section("Downstream", tasks)
        + "".join(_published(view, name) for name in view.study.get("published", []))
        + section("Notes", _notes(view))
        + fold_section("Config", _config(view))
        + fold_section("State and cost", _state(view))
    )
    return _head(view) + contents(body) + body, shown


def _headlines(view: View, comparison: Mapping[str, Any]) -> tuple[Figures, dict[str, Figures]]:
    """Describe the figures of the first metric that has values, and by metric those of others."""
    known = {metric for result in view.results for metric in result.metrics}
    figures = {
        metric: sections.headline(view, {**comparison, "metrics": [metric]})
        for metric in comparison["metrics"]
        if metric in known
    }
    first = next(iter(figures), "")
    return figures.pop(first, {}), figures


NONE = '<p class="lead">No answer yet: no cell has results.</p>'
ANSWER = (
    f"Means over seeds with 95{SPACE}% t intervals; small circles are single seeds. The best point "
    "is chosen after the results are known. Of several points that are equally good, one is best "
    "by chance, so read its difference from the baseline. If a seed is missing, the mean is over "
    "the other seeds and shifted by what the missing seed would have added. Compare in pairs then. "
    "An interval that reaches the edge of its figure continues beyond it."
)
PAIRS = (
    "Both runs of a pair share everything but the axis: the other axes, the seed, and the examples "
    "they are evaluated on. The intervals are simultaneous: all intervals of the study, those of "
    "the claims too, hold together in 95 of 100 studies, if spreads are alike. A family is one "
    "metric of all points that share the other axes. Its points share one estimate of the noise (a "
    "two-way layout of points and seeds), the quantile is that of the largest of its correlated t "
    "values (Dunnett, 1955), and the level is divided among the families (Bonferroni). Spread is "
    "the standard deviation of one run by that estimate. Own says that the pairs of this "
    "difference scatter more, and that the interval rests on them only. If single examples were "
    "recorded, the interval also covers what other examples would give, by a bootstrap that draws "
    "the same examples for both runs. A difference is significant if its interval excludes zero. "
    "One that is not significant may still exist. p is the level at which the interval reaches "
    "zero. Pairs that lack a side are missing and left out."
)
CLAIMED = (
    "study.py states which difference stands for each claim here, and whether it was stated after "
    "the runs. A gain by the metric counts above 0. Replicated: the simultaneous interval lies on "
    "the claimed side. Not replicated: it excludes that side. Otherwise the study is underpowered "
    "for the claim. The seeds needed give power 0.9 for a difference as large as the one seen."
)
EQUAL = (
    "Held-out loss during training over four kinds of budget, read where every run has spent the "
    "same amount."
)
LEDGER = (
    "Means over updates and seeds. The column in whole tokens has the rate after the quota of each "
    "example is rounded to a whole number of tokens, at least one."
)


# --- head --------------------------------------------------------------------------------------


def _head(view: View) -> str:
    study, results = view.study, view.results
    counts = [f"{escape(axis.name)}: {len(axis.labels)}" for axis in view.axes]
    counts.append(f"seeds: {len(study.get('seeds', []))}")
    said = [f"<b>{escape(str(study.get('name', '')))}</b>", ", ".join(counts)]
    if budget := study.get("budget"):
        said.append(budgets.described(budget))
    said += filter(None, [trunks.described([result.entry for result in results])])
    done = sum(result.state.name == "done" for result in results)
    said.append(f"{done} of {len(results)} cells done")
    return (
        f"<h1>{escape(study.get('question') or str(study.get('name', 'Study')))}</h1>"
        f'<p class="sub">{" · ".join(said)}</p>'
    )


def _tiles(view: View) -> str:
    study, results = view.study, view.results
    states = Counter(result.state.name for result in results)
    others = ", ".join(f"{states[name]} {name}" for name in STATES[1:] if states[name])
    training = sum(result.seconds for result in results)
    evaluation = sum(result.evaluation_seconds for result in results)
    work = f"{duration(training)} training, {duration(evaluation)} evaluation"
    # Of the updates that were made: those of a trunk are not made again.
    made = (r.spent("flops") - r.spent("flops", min(r.entry.fork, r.state.step)) for r in results)
    flops = aggregate.short_amount(sum(made))
    kinds = list(dict.fromkeys(result.hardware for result in results if result.hardware))
    hardware = kinds[0] if len(kinds) == 1 else f"{len(kinds)} kinds" if kinds else "none yet"
    platform = str((study.get("machine") or {}).get("platform", ""))
    begun, ended = aggregate.span(view)
    since = f"begun {begun[:16].replace('T', ' ')}" if begun else ""
    tiles = [
        tile("Cells done", f"{states['done']} of {len(results)}", others),
        tile("Work", duration(training + evaluation), work),
        tile("FLOPs", flops, "of matmuls"),
        tile("Hardware", hardware, platform),
        tile("Date", ended[:10] or "not begun", since),
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _state(view: View) -> str:
    """Show how far the study is, what it cost, and what would make it again."""
    study, (begun, ended) = view.study, aggregate.span(view)
    command = study.get("command") or ""
    machine = (study.get("machine") or {}).items()
    versions = (study.get("versions") or {}).items()
    rows = {
        "command": command if isinstance(command, str) else shlex.join(map(str, command)),
        "commit": study.get("git_commit"),
        "from, to": f"{begun.replace('T', ' ')}, {ended.replace('T', ' ')}" if begun else "",
        "hardware": "; ".join(dict.fromkeys(r.hardware for r in view.results if r.hardware)),
        "launched on": ", ".join(_fact(key, value) for key, value in machine if value),
        "versions": ", ".join(f"{key} {value}" for key, value in versions),
        "study": " ".join(filter(None, [study.get("spec"), study.get("hash")])),
        "text": ", ".join(sameness.list_texts(view.results)),
    }
    holes = tables.holes(view)
    return (
        _tiles(view)
        + (f"<h3>Cells without all their results</h3>{box(holes)}" if holes else "")
        + fold("Cost", box(tables.cost(view)))
        + "<h3>Origin</h3>"
        + box(table([[key, str(value)] for key, value in rows.items() if value]))
    )


def _fact(key: str, value: Any) -> str:
    """Format a fact about a machine; sizes in GiB."""
    size = key.endswith("bytes") and isinstance(value, int)
    return f"{key.removesuffix('_bytes')} {f'{value / 2**30:.1f} GiB' if size else value}"


# --- further sections --------------------------------------------------------------------------


def _gaps(view: View, axis: str, metric: str, gaps: Sequence[compare.Difference]) -> str:
    """Build the table of differences in a metric."""
    chosen = [gap for gap in gaps if gap.metric == metric]
    if not any(gap.pairs for gap in chosen):
        return ""
    return fold(pretty(metric), box(sections.gap_table(view, axis, chosen)))


def _tabs(view: View, axis: str, number: int, shown: Figures) -> str:
    """Build a tab for every kind of budget; a page without style shows all of them."""
    panels = budgets.panels(view, axis)
    heads, bodies = "", ""
    for i, panel in enumerate(panels):
        for part, reading in panel.readings.items():
            shown[aggregate.slug(axis, "equal", panel.kind, part)] = reading
        if i == 0:  # over other budgets the curves are the same, stretched or squeezed
            for family, chart in zip(view.families(axis), panel.curves, strict=True):
                shown[aggregate.slug(axis, "curves", family.name)] = chart
        name, checked = f"budget-{number}-{i}", " checked" if i == 0 else ""
        heads += f'<input type="radio" name="budget-{number}" id="{name}"{checked}>'
        heads += f'<label for="{name}">equal {budgets.KINDS[panel.kind]}</label>'
        bodies += (
            f"<div>{say(panel.text)}{parts.charts([*panel.readings.values(), *panel.curves])}</div>"
        )
    if not any(reading.series for panel in panels for reading in panel.readings.values()):
        return ""
    return f'<div class="tabs">{heads}{bodies}</div>'


def _published(view: View, name: str) -> str:
    """Draw a published table, with our first figure beside it."""
    if name not in published.TABLE:
        return section("Published", say(f"There is no published table called {name}."))
    source = published.TABLE[name]
    ours = sections.headline(view, view.comparisons[0])
    chosen = next((key for key in reversed(ours) if draw(ours[key])), None)
    beside, text = [], f"Another scale: {source.what}."
    if chosen is not None:
        beside = [dataclasses.replace(ours[chosen], title=f"Ours: {ours[chosen].title}")]
        text += " Ours are in the first figure, theirs in the others; compare only the shapes."
    drawn = parts.charts([*beside, *tables.figures_of(name)], "charts published")
    return fold_section(
        f"Published, beside ours: {source.title}",
        f"{say(text)}{drawn}{fold('Their numbers', box(tables.table_of(name)))}"
        f"{say(f'{source.source}.')}",
    )


def _claims(verdicts: Sequence[judged.Judged]) -> str:
    """Tabulate the verdicts on published claims."""
    lines = judged.rows(verdicts)
    return say(CLAIMED) + box(table(lines, judged.HEAD), "prose") if lines else ""


def _notes(view: View) -> str:
    orders = {result.entry.config.data_seed for result in view.results}
    data = ""
    if len(orders) == 1 and len(view.study.get("seeds", [])) > 1:
        data = "Seeds share the order of the data, so the intervals exclude the variance of orders."
    return say(str(view.study.get("notes") or "")) + say(data)


def _config(view: View) -> str:
    if not view.results:
        return ""
    text = say("Of the first cell; the other cells differ in the axes and the seed.")
    return text + config_box(to_dict(view.results[0].entry.config))

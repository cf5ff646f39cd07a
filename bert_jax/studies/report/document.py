"""The report of a study as a list of blocks: its answer first, then tables, details and origin."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.config import to_dict
from bert_jax.reporting.figures import Figure
from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.reporting.metric_names import pretty
from bert_jax.reporting.page import config_box
from bert_jax.studies import sameness, trunks
from bert_jax.studies.report import answers, budgets, cell_tables, charts, matrices, verdicts
from bert_jax.studies.report import result_tables as tables
from bert_jax.studies.report.answers import Findings
from bert_jax.studies.report.baselines import warn_of_behind
from bert_jax.studies.report.blocks import (
    Block,
    Bullets,
    Code,
    Figures,
    Html,
    Paragraph,
    Section,
    Table,
    Text,
    Title,
    add_detail,
    drop_repeated,
)
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.published import TABLES, Published
from bert_jax.studies.report.view import View
from bert_jax.system.durations import duration

ROWS = 10  # most points of a comparison whose other measures are tabulated too


def compose(view: View, found: Findings) -> list[Block]:
    """Compose the report of a study in its present state."""
    evaluated = matrices.draw_cross_rate(view)
    crossed = matrices.draw_crossed(view)
    notes = [Paragraph(text) for text in (str(view.study.get("notes") or ""), _note_order(view))]
    published = view.study.get("published", [])
    blocks: list[Block] = [
        Title(view.name, str(view.study.get("question") or "")),
        Section("Answer", _answer(view, found)),
        *(_compare(view, found, number) for number in range(len(view.comparisons))),
        Section("Published claims", verdicts.describe_claims(found.claims)),
        add_detail("Two axes at once", [Figures(crossed)]),
        add_detail("Trained at one rate, evaluated at others", [Figures(evaluated)]),
        add_detail("What was masked", cell_tables.tabulate_ledger(view)),
        add_detail("Downstream", cell_tables.tabulate_tasks(view)),
        *(_show_published(TABLES[name]) for name in published if name in TABLES),
        Section("Notes", notes, detail=True),
        Section("Conditions", [_list_conditions(view), *_detail_conditions(view)]),
        add_detail("Config", _show_config(view)),
    ]
    return drop_repeated(blocks, set())


# --- the answer ---------------------------------------------------------------------------------


def _answer(view: View, found: Findings) -> list[Block]:
    """Answer in at most 60 words a comparison, with warnings, one figure, and the best points."""
    if not any(result.metrics for result in view.results):
        none = Paragraph("No answer yet: no cell has results.", lead=True)
        return [none, Bullets(answers.list_warnings(view), warning=True)]
    numbers = range(len(view.comparisons))
    leads = [answers.name_best_cell(view), *(answers.write_lead(view, found, i) for i in numbers)]
    warned = answers.list_warnings(view)
    best: list[Block] = []
    for i, comparison in enumerate(view.comparisons):
        warned += warn_of_behind(view, comparison)
        if len(view.axis(comparison["axis"]).labels) > 1:
            first = comparison["metrics"][:1]
            best += tables.tabulate_best(view, comparison, first, found.gaps[i])
    return [
        *(Paragraph(text, lead=True) for text in leads if text),
        Bullets(list(dict.fromkeys(warned)), warning=True),
        Figures(_choose_figure(view, found)),
        *best,
        *_explain(view, found),
    ]


def _choose_figure(view: View, found: Findings) -> dict[str, Figure]:
    """Choose the figure of the answer: of the best values, of two axes, or of the first metric."""
    choices = [best.figures() for several in found.best.values() for best in several]
    if answers.name_best_cell(view):
        choices.append(matrices.draw_crossed(view))
    for comparison in view.comparisons:
        choices += [
            charts.draw_means(view, comparison, m) for m in _known_metrics(view, comparison)
        ]
    first = next(filter(None, choices), {})
    return dict(list(first.items())[:1])


def _known_metrics(view: View, comparison: Mapping[str, Any]) -> list[str]:
    known = {metric for result in view.results for metric in result.metrics}
    return [metric for metric in comparison["metrics"] if metric in known]


def _explain(view: View, found: Findings) -> list[Block]:
    """Explain the intervals of the tables."""
    tested = [gap for listed in found.gaps.values() for gap in listed if gap.tested]
    if not tested:
        return []
    metrics = dict.fromkeys(gap.metric for gap in tested)
    both = dict.fromkeys(gap.metric for gap in tested if gap.examples)
    over = "seeds"
    if len(both) == len(metrics):
        over = "seeds and examples"
    elif both:
        over = f"seeds, and over examples for {', '.join(map(pretty, both))}"
    count = view.family_count
    together = f"all {count} families" if count > 1 else "all"
    said = (
        f"Means are ± half their 95{SPACE}% t intervals over seeds. Differences pair runs of one "
        f"seed, with simultaneous 95{SPACE}% intervals over {over}: {together} hold together if "
        "spreads are alike. Bold differences are significant. The methods: "
    )
    return [Paragraph((said, Code("docs/statistics.md"), "."))]


# --- comparisons --------------------------------------------------------------------------------


def _compare(view: View, found: Findings, number: int) -> Section:
    """Tabulate a comparison, with its further figures and tables as details."""
    comparison, differences = view.comparisons[number], found.gaps[number]
    axis = comparison["axis"]
    blocks = [block for best in found.best[number] for block in best.describe()]
    blocks += _tabulate(view, comparison, differences, _known_before(view, number))
    for metric in _known_metrics(view, comparison):
        figures = Figures(charts.draw_means(view, comparison, metric))
        blocks.append(add_detail(pretty(metric), [figures]))
    if len(view.axis(axis).labels) > 1:
        best = tables.tabulate_best(view, comparison, comparison["metrics"][1:], differences)
        blocks.append(add_detail("Best points by other measures", best))
    pairs: list[Block] = [Figures(charts.draw_gaps(view, comparison, differences))]
    for metric in comparison["metrics"]:
        chosen = [gap for gap in differences if gap.metric == metric]
        pairs.append(add_detail(pretty(metric), tables.tabulate_gaps(view, axis, chosen)))
    blocks.append(add_detail("Means of all measures", tables.tabulate_means(view, comparison)))
    blocks.append(add_detail("Differences in pairs", pairs))
    blocks.append(add_detail("Equal budgets", budgets.describe_budgets(view, axis)))
    return Section(f"By {axis}" if axis else "Means", blocks)


def _known_before(view: View, number: int) -> set[str]:
    """Return the measures of earlier comparisons, whose means are the same."""
    return {metric for earlier in view.comparisons[:number] for metric in earlier["metrics"]}


def _tabulate(
    view: View, comparison: Mapping[str, Any], differences: Sequence[Difference], known: set[str]
) -> list[Block]:
    """Tabulate the main measures, then the other measures as a table or as counts.

    Without an interval, differences only repeat the means: only these are shown, of all measures.

    Args:
      view: the study.
      comparison: of the study.
      differences: of the comparison.
      known: measures whose means have been shown.
    """
    metrics, families = comparison["metrics"], view.families(comparison["axis"])
    if not _known_metrics(view, comparison):
        return []
    tested = any(gap.tested for gap in differences)
    main = _choose_main(view, comparison) if tested else list(metrics)
    others = [metric for metric in metrics if metric not in main]
    pairs = {(gap.metric, gap.family, gap.point): gap for gap in differences if gap.pairs}
    made = tables.ComparisonTables(view, comparison, pairs if tested else {})
    panels = view.panels(comparison["axis"])
    crossed = max(map(len, panels.values()), default=0) > 1 and (tested or len(main) == 1)
    blocks: list[Block] = []
    if not crossed:
        blocks.append(made.list_points(families, main, True))
    for metric in main if crossed else ():
        for part, several in panels.items():
            blocks += [] if metric in known else [made.cross_means(metric, part, several)]
            blocks += [made.cross_gaps(metric, part, several)] if tested else []
    tabulated = list(main)
    if others and sum(len(family.runs) for family in families) <= ROWS:
        tabulated += others
        blocks.append(Paragraph(f"Other measures, minus {comparison['baseline']}:"))
        blocks.append(made.list_points(families, others, False))
    elif others:
        counted = [answers.count_significant(view, comparison, m, differences) for m in others]
        blocks.append(Bullets(list(filter(None, counted))))
    uneven = tables.name_uneven([gap for gap in differences if gap.metric in tabulated])
    return [*blocks, Paragraph(uneven)]


def _choose_main(view: View, comparison: Mapping[str, Any]) -> list[str]:
    """Return the measures that the answer and the claims rest on."""
    claimed = {claim.metric for claim in view.claims if claim.axis == comparison["axis"]}
    return [m for i, m in enumerate(comparison["metrics"]) if i == 0 or m in claimed]


def _show_published(source: Published) -> Section:
    """Tabulate published numbers of other models, data and budgets."""
    rows = [
        [label, *(f"{score:.1f}" if score == score else HOLE for score in row)]
        for label, row in source.rows.items()
    ]
    said = Paragraph(f"Another scale: {source.what}. Compare only the shapes. {source.source}.")
    title = f"Published, beside ours: {source.title}"
    return add_detail(title, [said, Table([source.axis, *source.columns], rows)])


# --- origin -------------------------------------------------------------------------------------


def _list_conditions(view: View) -> Bullets:
    """List command, commit, text, machine, date, size and costs."""
    study, results = view.study, view.results
    facts: list[Text] = []
    if typed := write_command(study.get("command") or "", view.name):
        facts.append(Code(typed))
    if commits := study.get("commits") or list(filter(None, [study.get("git_commit")])):
        # A last + says: with uncommitted changes.
        short = [commit[:7] + "+" * commit.endswith("+") for commit in commits]
        facts.append(f"commit{'s' if len(short) > 1 else ''} {', '.join(short)}")
    facts += [("text: ", Code(text)) for text in sameness.list_texts(results)]
    facts.append("; ".join(dict.fromkeys(r.hardware for r in results if r.hardware)))
    facts.append(" to ".join(dict.fromkeys(time[:10] for time in view.span() if time)))
    done = sum(result.state.name == "done" for result in results)
    seeds = ", ".join(map(str, study.get("seeds", [])))
    parts = ", ".join(study.get("parts") or [])
    of_parts = f" of the parts {parts}" if parts else ""
    facts.append(f"{done} of {len(results)} cells{of_parts} done, seeds {seeds}")
    if budget := study.get("budget"):
        facts.append(budgets.format_budget(budget))
    facts.append(trunks.described([result.entry for result in results]))
    training = duration(sum(result.seconds for result in results))
    evaluation = duration(sum(result.evaluation_seconds for result in results))
    facts.append(f"{training} of training and {evaluation} of evaluation in all")
    return Bullets(list(filter(None, facts)))


def write_command(recorded: Sequence[str] | str, name: str) -> str:
    """Return the command of a study with folders under runs/ instead of those of its machine."""
    if isinstance(recorded, str):
        return recorded
    kept: list[str] = []
    words = iter(recorded[1:])
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in ("--workdir", "--reuse"):
            folder = Path(value if equals else next(words, "")).name
            kept += [f"--reuse=runs/{folder}"] if flag == "--reuse" else []
        else:
            kept.append(word)
    return shlex.join(["bert-jax", *kept, f"--workdir=runs/{name}"]) if kept else ""


def _detail_conditions(view: View) -> list[Block]:
    """Tabulate what is missing, what the cells cost, and what would make the study again."""
    study, (begun, ended) = view.study, view.span()
    machine = (study.get("machine") or {}).items()
    versions = (study.get("versions") or {}).items()
    rows = {
        "commit": study.get("git_commit"),
        "from, to": f"{begun.replace('T', ' ')}, {ended.replace('T', ' ')}" if begun else "",
        "launched on": ", ".join(_write_fact(key, value) for key, value in machine if value),
        "versions": ", ".join(f"{key} {value}" for key, value in versions),
        "study": " ".join(filter(None, [study.get("spec"), study.get("hash")])),
    }
    origin = [[key, str(value)] for key, value in rows.items() if value]
    return [
        *cell_tables.tabulate_holes(view),
        add_detail("Cost", [cell_tables.tabulate_cost(view)]),
        add_detail("Origin", [Table(["what", "value"], origin, prose=True)]),
    ]


def _write_fact(key: str, value: Any) -> str:
    """Write a fact about a machine; sizes in GiB."""
    size = key.endswith("bytes") and isinstance(value, int)
    return f"{key.removesuffix('_bytes')} {f'{value / 2**30:.1f} GiB' if size else value}"


def _note_order(view: View) -> str:
    orders = {result.entry.config.data_seed for result in view.results}
    if len(orders) == 1 and len(view.study.get("seeds", [])) > 1:
        return "Seeds share the order of the data, so the intervals exclude the variance of orders."
    return ""


def _show_config(view: View) -> list[Block]:
    if not view.results:
        return []
    said = Paragraph("Of the first cell; the other cells differ in the axes and the seed.")
    return [said, Html(config_box(to_dict(view.results[0].entry.config)))]

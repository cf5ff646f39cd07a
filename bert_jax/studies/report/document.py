"""The report of a study as a list of blocks: its answer first, then tables and conditions."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from bert_jax.config import to_dict
from bert_jax.reporting.figures import Figure
from bert_jax.reporting.formats import HOLE
from bert_jax.reporting.metric_names import find_title
from bert_jax.reporting.page import tabulate_knobs
from bert_jax.studies import sameness, trunks
from bert_jax.studies.published import TABLES
from bert_jax.studies.report import answers, blocks, figures, verdicts
from bert_jax.studies.report.answers import BRACKETS, Findings
from bert_jax.studies.report.best_value import KINDS, explain_absence
from bert_jax.studies.report.result_tables import (
    ComparisonTables,
    tabulate_holes,
    tabulate_ledger,
    tabulate_tasks,
)
from bert_jax.studies.report.view import View
from bert_jax.studies.report.wording import format_large
from bert_jax.system.durations import format_duration

PREFERRED = ("validation/mlm_loss", "validation/loss")  # of the losses during training


def compose_report(view: View, found: Findings) -> list[blocks.Block]:
    """Compose the report of a study in its present state."""
    compared = [
        ComparisonTables(view, spec, gaps)
        for spec, gaps in zip(view.comparisons, found.gaps, strict=True)
    ]
    axis = view.axis(view.comparisons[0].axis)
    config: list[blocks.Block] = []
    if view.results:
        said = "Of the first cell; the other cells differ in the axes and the seed."
        first = to_dict(view.results[0].entry.config)
        config = [blocks.Paragraph(said), tabulate_knobs(first)]
    return [
        blocks.Title(view.study.name, view.study.question),
        blocks.Section("Answer", _compose_answer(view, found, compared)),
        *(_compose_comparison(one, found, i) for i, one in enumerate(compared)),
        blocks.Section("Published claims", verdicts.describe_claims(view, found.claims)),
        _add_detail("Two axes at once", blocks.Figures(figures.draw_crossed(view))),
        _add_detail(
            "Trained at one rate, evaluated at others",
            blocks.Figures(figures.draw_cross_rates(view, axis)),
        ),
        _add_detail("During training", blocks.Figures(_draw_training(view))),
        _add_detail("Every result of tasks", *tabulate_tasks(view)),
        _add_detail("What was masked", *tabulate_ledger(view)),
        *_show_published(view),
        _add_detail("Cells without all their results", *tabulate_holes(view)),
        blocks.Section("Conditions", [_list_conditions(view)]),
        _add_detail("Notes", *_list_notes(view)),
        _add_detail("Config", *config),
    ]


def _add_detail(title: str, *inner: blocks.Block) -> blocks.Section:
    return blocks.Section(title, inner, detail=True)


def _compose_answer(
    view: View, found: Findings, compared: Sequence[ComparisonTables]
) -> list[blocks.Block]:
    """Compose the answer: at most 60 words, warnings, one figure, and tables of best points."""
    warnings = blocks.Bullets(answers.list_warnings(view), warning=True)
    if not view.metrics:
        return [blocks.Paragraph("No answer yet: no cell has results.", lead=True), warnings]
    return [
        blocks.Paragraph(" ".join(answers.list_leads(view, found)), lead=True),
        warnings,
        blocks.Figures(_choose_figure(view, found, compared)),
        *(block for one in compared for block in one.tabulate_best()),
        blocks.Paragraph((BRACKETS, answers.link_methods(view.place.workdir))),
    ]


def _choose_figure(
    view: View, found: Findings, compared: Sequence[ComparisonTables]
) -> dict[str, Figure]:
    """Choose the figure of the answer: the first that exists of three kinds.

    They are the best values, a matrix of two axes, and means over an axis.
    """
    choices: list[Mapping[str, Figure]] = [one.draw() for several in found.best for one in several]
    if len(compared) > 1:
        choices.append(figures.draw_crossed(view))
    choices += [figures.draw_means(view, one.spec, m) for one in compared for m in one.metrics]
    first = next(filter(None, choices), {})
    return dict(list(first.items())[:1])


def _compose_comparison(compared: ComparisonTables, found: Findings, number: int) -> blocks.Section:
    """Compose the section of a comparison: best values, differences, and details.

    The differences are by the first metric. If they would need several tables, they are among the
    details, which the summary leaves out.
    """
    axis, metrics = compared.spec.axis, compared.metrics
    several = len(compared.view.families(axis)) > 1
    groups = [[metric] for metric in metrics] if several else [metrics] * bool(metrics)
    parts = [block for best in found.best[number] for block in best.describe()]
    parts += explain_absence(compared.view, compared.spec)
    for group in groups[:1]:
        if len(compared.view.panels(axis)) == 1:
            parts += compared.tabulate_gaps(group)
        parts += [compared.count_others()] * several
        parts.append(compared.name_uneven(group))
    for group in groups:
        drawn = [figures.draw_means(compared.view, compared.spec, metric) for metric in group]
        inner: list[blocks.Block] = [blocks.Figures(one) for one in drawn]
        for table in (*compared.tabulate_means(group), *compared.tabulate_gaps(group)):
            if table not in (*parts, *inner):
                inner.append(table)
        parts.append(_add_detail("; ".join(map(find_title, group)), *inner))
    return blocks.Section(f"By {axis}" if axis else "Means", parts)


def _draw_training(view: View) -> dict[str, Figure]:
    """Make charts of a loss during training, and of the loss at equal FLOPs.

    The loss is preferably that of the pre-training evaluation. There is a line for each point of
    the first comparison's axis.
    """
    known = dict.fromkeys(name for result in view.results for name in result.history.evaluations)
    losses = [name for name in (*PREFERRED, *known) if name in known and name.endswith("loss")]
    metric = next(iter(losses), "")
    if not metric:
        return {}
    axis = view.axis(view.comparisons[0].axis)
    return figures.draw_at_equal(view, axis, metric) | figures.draw_curves(view, axis, metric)


def _show_published(view: View) -> list[blocks.Section]:
    """Make sections with published numbers, which are of other models, data and budgets."""
    sections = []
    for source in (TABLES[name] for name in view.study.published if name in TABLES):
        rows = [
            [label, *(f"{score:.1f}" if score == score else HOLE for score in row)]
            for label, row in source.rows.items()
        ]
        said = f"Another scale: {source.what}. Compare only the shapes. {source.source}."
        table = blocks.Table([source.axis, *source.columns], rows)
        sections.append(_add_detail(f"Published: {source.title}", blocks.Paragraph(said), table))
    return sections


# --- origin -------------------------------------------------------------------------------------


def _list_conditions(view: View) -> blocks.Bullets:
    """List command, commit, texts, hardware, dates, seeds, budget and costs of a study."""
    study, results = view.study, view.results
    facts: list[blocks.Text] = []
    if typed := format_command(study.command):
        facts.append(blocks.Code(typed))
    if commits := study.commits or list(filter(None, [study.git_commit])):
        # A last + says: with uncommitted changes.
        short = [commit[:7] + "+" * commit.endswith("+") for commit in commits]
        facts.append(f"commit{'s' if len(short) > 1 else ''} {', '.join(short)}")
    facts += [("text: ", blocks.Code(text)) for text in sameness.list_texts(results)]
    hardware = dict.fromkeys(result.hardware for result in results if result.hardware)
    ended = max((result.ended for result in results if result.ended), default="")
    days = dict.fromkeys(time[:10] for time in (study.begun, ended) if time)
    facts.append(", ".join(filter(None, ["; ".join(hardware), " to ".join(days)])))
    done = sum(result.state.name == "done" for result in results)
    facts.append(f"{done} of {len(results)} cells done, seeds {', '.join(map(str, study.seeds))}")
    if budget := study.budget:
        amounts = " or ".join(map(format_large, budget.amounts))
        facts.append(f"{amounts} {KINDS[budget.kind]} per cell")
    facts.append(trunks.describe_saving([result.entry for result in results]))
    training = format_duration(sum(result.seconds for result in results))
    evaluation = format_duration(sum(result.evaluation_seconds for result in results))
    facts.append(f"{training} of training and {evaluation} of evaluation in all")
    return blocks.Bullets(list(filter(None, facts)))


def _list_notes(view: View) -> list[blocks.Block]:
    notes = [blocks.Paragraph(view.study.notes)]
    orders = {result.entry.config.data_seed for result in view.results}
    if len(orders) == 1 and len(view.study.seeds) > 1:
        notes.append(
            blocks.Paragraph(
                "Seeds share the order of the data: intervals exclude the variance of orders."
            )
        )
    return list(notes)


def format_command(recorded: Sequence[str]) -> str:
    """Format the command that runs a study, with its folders moved to runs/."""
    kept: list[str] = []
    words = iter(recorded[1:])
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in ("--workdir", "--reuse"):
            kept.append(f"{flag}=runs/{Path(value if equals else next(words, '')).name}")
        else:
            kept.append(word)
    return shlex.join(["bert-jax", *kept]) if kept else ""

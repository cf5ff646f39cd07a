"""The files of a study's report: results.csv, summary.md, figures and report.html.

    write(StudyFolder(workdir))

It shows the study's present state. Every figure is described once, for the page and for PNG, SVG
and PDF files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from bert_jax.reporting import files as figure_files
from bert_jax.reporting.page import asset, page
from bert_jax.studies import files, kept, sameness
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import answers, collect
from bert_jax.studies.report.blocks import Block, find_figures, render_html, render_markdown
from bert_jax.studies.report.document import compose
from bert_jax.studies.report.view import View

STYLE = asset(__file__, ".css")
MORE = "More: `report.html` (all measures, further analyses), `results.csv` (every cell).\n"


def write(place: StudyFolder) -> str:
    """Write results.csv, figures/*, summary.md and, last, report.html; return what to print."""
    view = read_cells(place)
    found = answers.compute_findings(view)
    blocks = compose(view, found)
    _write_figures(view, blocks, place.figures, figure_files.KINDS)
    _write_summary(place, blocks, place.figures)
    _write_page(place, view, blocks)
    return answers.write_answer(view, found)


def write_summary(place: StudyFolder) -> str:
    """Write summary.md from study.json and results.csv, without the cells; return the answer.

    PNG figures beside it are drawn again, but for those of training, which take the cells.
    """
    results = collect.read_csv(place)
    evaluations = {key.partition("/")[0] for result in results for key in result.metrics}
    suites = {"evaluations": {name: {"name": name} for name in sorted(evaluations)}}
    view = View(place, suites | place.read_study(), results)
    found = answers.compute_findings(view)
    blocks = compose(view, found)
    beside = {figure.stem for figure in place.workdir.glob("*.png")}
    _write_figures(view, blocks, place.workdir, ("png",), beside)
    _write_summary(place, blocks, place.workdir)
    return answers.write_answer(view, found)


def write_kept(place: StudyFolder, archives: Sequence[Path]) -> str:
    """Write a study's json, table, summary, figures and page from its cells' records.

    Return the answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        whole = StudyFolder(Path(folder))
        kept.unpack(archives, whole)
        sameness.check_alike(whole)
        view = read_cells(whole)
        for file in (whole.study, whole.csv):
            files.write_text(place.workdir / file.name, file.read_text(encoding="utf-8"))
        found = answers.compute_findings(view)
        blocks = compose(view, found)
        # The first time all of them.
        beside = {figure.stem for figure in place.workdir.glob("*.png")} or None
        _write_figures(view, blocks, place.workdir, ("png",), beside)
        _write_summary(place, blocks, place.workdir)
        _write_page(place, view, blocks)
        return answers.write_answer(view, found)


def read_cells(place: StudyFolder) -> View:
    """Read a study's cells and write its results.csv."""
    study, results = place.read_study(), collect.results(place)
    collect.write_csv(place, results)
    return View(place, study, results)


def _write_figures(
    view: View,
    blocks: Sequence[Block],
    folder: Path,
    kinds: Collection[str],
    chosen: Collection[str] | None = None,
) -> None:
    """Draw the figures of a report into a folder; if some are `chosen` by name, only these."""
    done = sum(result.state.name == "done" for result in view.results)
    ended = view.span()[1][:10] or "not begun"
    source = f"{view.name}: {done} of {len(view.results)} cells done, {ended}."
    for name, figure in find_figures(blocks).items():
        if chosen is None or name in chosen:
            figure_files.write(folder / name, [figure], source=source, kinds=kinds)


def _write_summary(place: StudyFolder, blocks: Sequence[Block], figures: Path) -> None:
    """Write summary.md, with links to the figures that are there."""

    def find_picture(name: str) -> str | None:
        picture = figures / f"{name}.png"
        return str(picture.relative_to(place.workdir)) if picture.exists() else None

    text = render_markdown(blocks, find_picture)
    files.write_text(place.summary, f"{text}\n\n{MORE}")


def _write_page(place: StudyFolder, view: View, blocks: Sequence[Block]) -> None:
    """Write report.html, whole in one file."""
    html = page(f"Study {view.name}", render_html(blocks), STYLE)
    files.write_text(place.report, html)

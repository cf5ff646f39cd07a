"""The files of a study's report: figures, summary.md and report.html.

    write(StudyFolder(workdir))

It shows the study's present state. Every figure is described once, for the page and for PNG, SVG
and PDF files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from bert_jax.reporting import files as figure_files
from bert_jax.reporting.page import asset, page
from bert_jax.studies import files, results
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import answers
from bert_jax.studies.report.blocks import Block, find_figures, render_html, render_markdown
from bert_jax.studies.report.document import compose
from bert_jax.studies.report.view import View

STYLE = asset(__file__, ".css")
MORE = "More: `report.html` (all measures, further analyses), `results.csv` (every cell).\n"


def write(place: StudyFolder) -> str:
    """Write a study's figures, summary.md and, last, report.html; return what to print.

    In a folder of tables without cells, only the figures that lie there are drawn again, and the
    first time all of them.
    """
    view = View(place, place.read_study(), results.read_results(place))
    found = answers.compute_findings(view)
    blocks = compose(view, found)
    names = set(find_figures(blocks))
    if place.cells_folder.exists():
        _write_figures(view, blocks, place.figures, names, figure_files.KINDS)
        _write_summary(place, blocks, place.figures, names)
    else:
        there = {file.stem for file in place.workdir.glob("*.png")} or names
        _write_figures(view, blocks, place.workdir, there, ("png",))
        _write_summary(place, blocks, place.workdir, there)
    html = page(f"Study {view.name}", render_html(blocks), STYLE)
    files.write_text(place.report, html)
    return answers.write_answer(view, found)


def _write_figures(
    view: View, blocks: Sequence[Block], folder: Path, names: Collection[str], kinds: Sequence[str]
) -> None:
    """Draw the figures of a report that have some of the names into a folder."""
    done = sum(result.state.name == "done" for result in view.results)
    ended = view.span()[1][:10] or "not begun"
    source = f"{view.name}: {done} of {len(view.results)} cells done, {ended}."
    for name, figure in find_figures(blocks).items():
        if name in names:
            figure_files.write(folder / name, [figure], source=source, kinds=kinds)


def _write_summary(
    place: StudyFolder, blocks: Sequence[Block], folder: Path, names: Collection[str]
) -> None:
    """Write summary.md, with links to the figures in a folder that have some of the names."""

    def find_picture(name: str) -> str | None:
        picture = folder / f"{name}.png"
        if name not in names or not picture.exists():
            return None
        return str(picture.relative_to(place.workdir))

    text = render_markdown(blocks, find_picture)
    files.write_text(place.summary, f"{text}\n\n{MORE}")

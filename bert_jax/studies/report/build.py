"""Writes the files of a study's report: figures, differences.csv, summary.md and report.html.

    write_report(StudyFolder(workdir))

The report shows the study's present state. Each figure is described once, both for the page and for
the PNG, SVG and PDF files.
"""

from collections.abc import Collection

from bert_jax.reporting import files as figure_files
from bert_jax.studies import files, results
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import answers
from bert_jax.studies.report.blocks import find_figures, render_html, render_markdown
from bert_jax.studies.report.document import compose_report
from bert_jax.studies.report.result_tables import format_differences
from bert_jax.studies.report.view import View


def write_report(place: StudyFolder) -> str:
    """Write the files of a study's report, report.html last; return the answer to print.

    If the folder has tables and no cells, only the answer's figure and the figures whose files
    exist are drawn. If no such file exists, all figures are drawn.
    """
    view = View(place, place.read_study(), results.read_results(place))
    found = answers.compute_findings(view)
    blocks = compose_report(view, found)
    drawn = find_figures(blocks)
    folder, names = place.figures, set(drawn)
    kinds: Collection[str] = figure_files.KINDS
    if not place.cells_folder.exists():
        folder, kinds = place.workdir, ("png",)
        there = {file.stem for file in folder.glob("*.png")} or names
        names = {name for i, name in enumerate(drawn) if i == 0 or name in there}
    done = sum(result.state.name == "done" for result in view.results)
    source = f"{view.study.name}: {done} of {len(view.results)} cells done."
    for name in names:
        figure_files.write_figures(folder / name, [drawn[name]], source=source, kinds=kinds)

    def find_picture(name: str) -> str | None:
        picture = folder / f"{name}.png"
        known = name in names and picture.exists()
        return str(picture.relative_to(place.workdir)) if known else None

    files.write_text(place.workdir / "differences.csv", format_differences(found))
    files.write_text(place.summary, f"{render_markdown(blocks, find_picture)}\n")
    files.write_text(place.report, render_html(blocks))
    return answers.format_answer(view, found)

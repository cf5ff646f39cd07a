"""The tables of a study: reports are a function of them, and launches take their cells."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bert_jax.errors import ConfigError, DataError
from bert_jax.studies import actions, progress, results, reuse, sameness, tables, worker
from bert_jax.studies.cell_result import History
from bert_jax.studies.definition import Cell, Comparison, Study, Suite, expand, variants
from bert_jax.studies.folder import StudyFolder
from tests import study_workdir
from tests.studies.small import write_study

NAMES = ("study.json", "results.csv", "curves.csv", "examples.npz")
LOSS = (Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),)


def define(**changes: Any) -> Study:
    suites = {name: study_workdir.EVALUATIONS[name] for name in ("validation", "blimp")}
    fields = {"seeds": (0, 1), "evaluations": suites, "comparisons": LOSS, "published": ()}
    return study_workdir.masking_rate((0.15, 0.4), study_workdir.ONE_SIZE, **fields | changes)


@pytest.fixture
def place(tmp_path) -> StudyFolder:
    """A finished study of two rates and two seeds, with its tables."""
    made = study_workdir.build(tmp_path / "w", define(), examples=20, lines=8)
    results.read_results(made)
    return made


@pytest.fixture
def kept(place, tmp_path) -> StudyFolder:
    """What would be committed next to a study.py."""
    return copy_tables(place, tmp_path / "kept")


def copy_tables(place: StudyFolder, folder: Path) -> StudyFolder:
    folder.mkdir()
    for name in NAMES:
        shutil.copy(place.workdir / name, folder / name)
    return StudyFolder(folder)


def take(whole: StudyFolder, cells: list[Cell], *others: StudyFolder) -> dict[str, Path]:
    """Take cells as a launch does; the workdir then lists these cells alone."""
    folders = [other.workdir for other in others]
    finished = reuse.find_finished(whole, cells, folders, whole.workdir / "nowhere")
    reuse.copy_cells(whole, finished)
    write_study(whole.workdir, define(), cells)
    return finished


def read_arrays(folder: Path, cell: str) -> dict[str, bytes]:
    arrays = tables.Examples(folder).read(cell, "validation")
    return {name: array.tobytes() for name, array in arrays.items()}


def test_tables_have_examples_and_repeat_their_bytes(place, kept):
    for cell in place.read_cells():
        own = place.read_arrays(cell, "validation")
        assert read_arrays(kept.workdir, cell.id) == {n: a.tobytes() for n, a in own.items()}
    assert all(tables.is_finished(result) for result in results.read_results(kept))
    results.read_results(place)
    for name in NAMES:
        assert (place.workdir / name).read_bytes() == (kept.workdir / name).read_bytes()
    kept.csv.write_bytes(b"\xef\xbb\xbf" + kept.csv.read_bytes())  # Excel's "CSV UTF-8"
    assert all(tables.is_finished(result) for result in results.read_results(kept))


@pytest.mark.slow
def test_report_of_tables_equals_that_of_the_cells(place, tmp_path):
    actions.report_study(place.workdir)
    kept = copy_tables(place, tmp_path / "kept")
    actions.report_study(kept.workdir)
    for name in ("report.html", *NAMES):
        assert (kept.workdir / name).read_bytes() == (place.workdir / name).read_bytes(), name
    assert kept.summary.read_text() == place.summary.read_text().replace("](figures/", "](")
    drawn = {path.name for path in place.figures.iterdir()}
    name = "masking.rate_validation_mlm_loss"
    assert {f"{name}.{kind}" for kind in ("png", "svg", "pdf")} <= drawn
    assert {path.name for path in kept.workdir.glob("*.png")} == {n for n in drawn if "png" in n}


@pytest.mark.fault(24)
def test_cell_whose_folder_is_gone_waits(place):
    """The gap is shown and never averaged away."""
    lost = place.read_cells()[2]
    shutil.rmtree(place.cell(lost.id))
    results.read_results(place)
    rows = {row["cell"]: row for row in tables.read_csv(place.csv)}
    assert len(rows) == 4
    shown = [rows[lost.id][name] for name in ("state", "masking.rate.value", "validation/mlm_loss")]
    assert shown == ["waiting", "0.4", ""]
    assert progress.read_progress(place).counts["waiting"] == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results.csv", b"cell\n\xff"),
        ("results.csv", b"<<<<<<< HEAD\ncell,state\n"),
        ("curves.csv", b"cell,step,metric,value\nCELL,one,eval/mlm_loss,2\n"),
        ("curves.csv", b"step\n1\n"),
        ("examples.npz", b"\x80\x04N."),  # a pickle
    ],
)
def test_damaged_table_is_named(kept, name, content):
    first, path = kept.read_cells()[0].id, kept.workdir / name
    path.write_bytes(content.replace(b"CELL", first.encode()))

    def read_all() -> None:
        results.read_results(kept)
        tables.Examples(kept.workdir).read_all()

    with pytest.raises(DataError, match=name):
        read_all()


def test_flipped_bits_of_examples_are_named(kept):
    path = kept.workdir / tables.EXAMPLES
    whole = path.read_bytes()
    said = []
    for place in range(0, len(whole), 11):
        flipped = bytearray(whole)
        flipped[place] ^= 4
        path.write_bytes(flipped)
        try:
            tables.Examples(kept.workdir).read_all()
        except DataError as error:
            said.append(str(error))
    assert all(text.startswith(str(path)) for text in said)
    assert len(said) > len(whole) / 22  # a flipped date, for example, does no harm


def test_parts_make_one_study(tmp_path):
    """Of tables only the rows are taken; of a workdir the folders; axes may have other names."""
    parts = []
    for seed in (0, 1):
        study = define(seeds=(seed,))
        parts.append(study_workdir.build(tmp_path / f"part{seed}", study, examples=8, lines=4))
    results.read_results(parts[1])
    tabled = copy_tables(parts[1], tmp_path / "tabled")
    size = study_workdir.SIZES["2 x 64"]
    arms = variants("arm", {f"{rate}": size | {"masking.rate": rate} for rate in (0.15, 0.4)})
    whole, cells = StudyFolder(tmp_path / "whole"), expand(define(axes=(arms,), comparisons=()))
    finished = take(whole, cells, parts[0], tabled)
    seeds = {cell.seed for cell in cells if finished[cell.id].name == cell.id}
    assert (seeds, len(finished)) == ({0}, 4)
    theirs = {result.entry.id: result for part in parts for result in results.read_results(part)}
    for result in results.read_results(whole):
        cell, other = result.entry.id, theirs[result.entry.id]
        assert (result.state.name, result.metrics) == ("done", other.metrics)
        assert result.history == other.history
        source = parts[result.entry.seed].workdir
        assert read_arrays(whole.workdir, cell) == read_arrays(source, cell) != {}
    rows = tables.read_csv(whole.csv)
    assert [*rows[0]][2:5] == ["arm", "arm.value", "seed"]
    assert [row["arm"] for row in rows] == ["0.15", "0.15", "0.4", "0.4"]


def test_copy_spares_a_cell_that_was_trained_since(place, tmp_path):
    whole, cells = StudyFolder(tmp_path / "whole"), expand(define())[:1]
    finished = reuse.find_finished(whole, cells, [place.workdir], tmp_path)
    whole.write_trained(cells[0].id, 7, 1.0, "done")
    reuse.copy_cells(whole, finished)
    assert whole.read_trained(cells[0].id).step == 7


def test_row_is_taken_with_all_its_results_only(place, kept, tmp_path):
    """A row has no checkpoint to evaluate; a folder has one."""
    more = define(evaluations={**define().evaluations, "again": Suite("pretrain")})
    for source, count in ((kept, 0), (place, 4)):
        empty = StudyFolder(tmp_path / "empty")
        assert len(reuse.find_finished(empty, expand(more), [source.workdir], tmp_path)) == count
    row = tables.read_csv(kept.csv)[0] | {"errors": '{"blimp": "failed", "gone": "failed"}'}
    read = tables.read_row(expand(more)[0], row, History(), taken=True)
    assert read.errors == {"blimp": "failed"}


@pytest.mark.fault(25)
@pytest.mark.parametrize("own", [True, False])
def test_taken_rows_stay_for_what_they_hold(kept, tmp_path, own):
    """Also those of cells that a launch with another `--only` did not list."""
    whole, cells = StudyFolder(tmp_path / "whole"), expand(define())
    held = {cell.id: read_arrays(kept.workdir, cell.id) for cell in cells}
    others = [kept]
    if own:
        whole, others = kept, []
    for part in (cells[:1], cells[1:2], cells[2:], cells):
        take(whole, part, *others)
        results.read_results(whole)
    assert progress.read_progress(whole).counts["done"] == 4
    for cell in cells:
        assert read_arrays(whole.taken, cell.id) == held[cell.id] != {}
    edited = define(evaluations={"validation": Suite("nelbo")}, comparisons=())
    write_study(whole.workdir, edited)
    assert progress.read_progress(whole).counts["waiting"] == 4


def test_taken_cell_may_have_been_begun_here(kept, tmp_path):
    """Neither its checkpoints nor its failure keep the row from standing for it."""
    states = iter(["halfway", "failed", "killed", "untouched"])
    begun = study_workdir.build(tmp_path / "begun", define(), lambda cell: next(states), examples=5)
    assert len(take(begun, expand(define()), kept)) == 4
    assert progress.read_progress(begun).counts["done"] == 4
    worker.work(begun, *begun.read_groups(), lambda *_, **__: pytest.fail("it is trained again"))
    assert not [*begun.cells_folder.glob("*/trained.json")]


@pytest.mark.fault(7)
def test_cells_of_different_texts_are_refused(place):
    for number, cell in enumerate(place.read_cells()):
        path = place.cell(cell.id) / "environment.json"
        data = {"corpus": "a" if number else "b", "tokenizer": "t"}
        path.write_text(json.dumps(json.loads(path.read_text()) | data))
    with pytest.raises(ConfigError, match="were trained on different data"):
        actions.report_study(place.workdir)


@pytest.mark.fault(7)
def test_changed_text_is_found_behind_a_taken_cell(place, kept, monkeypatch):
    """Tables may come from a machine with another text, which matters once a cell trains here."""
    data = {"": ("text", "vocabulary")}
    local = dataclasses.replace(results.gather_cells(place)[0], data=data)
    taken = dataclasses.replace(results.gather_cells(kept)[0], data=data)
    with pytest.raises(ConfigError, match="was trained on other data than docstrings"):
        sameness.check_data(place, [taken], coming=[local.entry])
    monkeypatch.setattr(sameness, "_has_changed", lambda *_, **__: True)
    sameness.check_data(place, [taken])
    with pytest.raises(ConfigError, match="was trained on other data than"):
        sameness.check_data(place, [taken, local])

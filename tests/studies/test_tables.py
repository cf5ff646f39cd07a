"""The tables of a study: reports are a function of them, and launches take their cells."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bert_jax import cli
from bert_jax.errors import ConfigError, DataError
from bert_jax.studies import actions, progress, results, reuse, tables, worker
from bert_jax.studies.definition import Comparison, Suite
from bert_jax.studies.folder import Entry, StudyFolder
from tests import study_workdir

NAMES = ("study.json", "results.csv", "curves.csv", "examples.npz")


def define(rates: tuple[float, ...] = (0.15, 0.4), **changes: Any) -> Any:
    return study_workdir.masking_rate(
        rates,
        {"2 x 64": study_workdir.SIZES["2 x 64"]},
        **{
            "seeds": (0, 1),
            "evaluations": {
                "validation": Suite("pretrain"),
                "blimp": study_workdir.EVALUATIONS["blimp"],
            },
            "comparisons": (Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),),
            "published": (),
            **changes,
        },
    )


@pytest.fixture
def place(tmp_path) -> StudyFolder:
    """A finished study of two rates and two seeds, with its tables."""
    made = study_workdir.build(tmp_path / "w", define(), examples=20, lines=8)
    results.read_results(made)
    return made


def copy_tables(place: StudyFolder, folder: Path) -> StudyFolder:
    """Copy what would be committed next to a study.py."""
    folder.mkdir()
    for name in NAMES:
        shutil.copy(place.workdir / name, folder / name)
    return StudyFolder(folder)


def test_cells_are_the_same_in_tables(place, tmp_path):
    kept = copy_tables(place, tmp_path / "kept")
    gathered = {result.entry.id: result for result in results.gather_cells(place)}
    for result in results.read_results(kept):
        cell = gathered[result.entry.id]
        assert result.taken
        assert result.entry == cell.entry
        assert (result.metrics, result.history) == (cell.metrics, cell.history)
        assert result.state.name == "done"
        for kind in ("tokens", "predictions", "flops"):
            assert result.spent(kind) == cell.spent(kind)
            assert result.spent(kind, 100) == cell.spent(kind, 100)
        assert result.evaluated == cell.evaluated
        assert tables.is_finished(result)
        arrays = tables.Examples(kept.workdir).read(cell.entry.id, "validation")
        own = place.read_arrays(cell.entry, "validation")
        assert {name: array.tobytes() for name, array in arrays.items()} == {
            name: array.tobytes() for name, array in own.items()
        }
        assert tables.Examples(kept.workdir).read(cell.entry.id, "other") == {}


def test_same_cells_make_the_same_bytes(place):
    before = {name: (place.workdir / name).read_bytes() for name in NAMES}
    results.read_results(place)
    assert before == {name: (place.workdir / name).read_bytes() for name in NAMES}


@pytest.mark.slow
def test_report_of_tables_is_that_of_the_cells(place, tmp_path):
    actions.report(place.workdir)
    kept = copy_tables(place, tmp_path / "kept")
    actions.report(kept.workdir)
    for name in ("report.html", *NAMES):
        assert (kept.workdir / name).read_bytes() == (place.workdir / name).read_bytes(), name
    assert "](figures/" in place.summary.read_text()
    assert kept.summary.read_text() == place.summary.read_text().replace("](figures/", "](")
    drawn = {path.stem for path in place.figures.glob("*.png")}
    assert {path.stem for path in kept.workdir.glob("*.png")} == drawn
    kept_only, *others = sorted(kept.workdir.glob("*.png"))
    for path in others:
        path.unlink()
    actions.report(kept.workdir)
    assert list(kept.workdir.glob("*.png")) == [kept_only]  # those that lie there, and no others


@pytest.mark.fault(12)
def test_cell_whose_folder_is_gone_waits(place):
    """The gap is shown and never averaged away."""
    lost = place.cells()[2]
    shutil.rmtree(place.cell(lost.id))
    results.read_results(place)
    with place.csv.open() as file:
        rows = {row["cell"]: row for row in csv.DictReader(file)}
    assert len(rows) == 4
    assert (rows[lost.id]["state"], rows[lost.id]["seed"]) == ("waiting", str(lost.seed))
    assert (rows[lost.id]["masking.rate"], rows[lost.id]["masking.rate.value"]) == ("40 %", "0.4")
    assert rows[lost.id]["validation/mlm_loss"] == ""
    assert progress.look(place).counts["waiting"] == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results.csv", b"cell\n\xff"),
        ("results.csv", b"cell,state\nCELL,done\n"),
        ("curves.csv", b"cell,step,metric,value\nCELL,one,eval/mlm_loss,2\n"),
        ("curves.csv", b"cell,step\nCELL,1\n"),
        ("examples.npz", b""),
        ("examples.npz", b"PK\x03\x04 no"),
        ("examples.npz", b"\x80\x04N."),  # a pickle
    ],
)
def test_damaged_table_is_named(place, tmp_path, name, content):
    kept = copy_tables(place, tmp_path / "kept")
    first = kept.cells()[0].id
    (kept.workdir / name).write_bytes(content.replace(b"CELL", first.encode()))

    def read_all() -> None:
        results.read_results(kept)
        tables.Examples(kept.workdir).read(first, "validation")

    with pytest.raises(DataError, match=name):
        read_all()


def test_flipped_bit_of_examples_is_found(place, tmp_path):
    kept = copy_tables(place, tmp_path / "kept")
    path = kept.workdir / "examples.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(bytes(content))

    def read_all() -> None:
        examples = tables.Examples(kept.workdir)
        for cell in kept.cells():
            for name in cell.evaluations:
                examples.read(cell.id, name)

    with pytest.raises(DataError, match=r"examples\.npz"):
        read_all()


@pytest.mark.parametrize("error", ["a bar: 10 %\r20 %", 'lines,\r\n"quoted"\n', "x" * 200_000])
def test_any_error_is_read_again(place, error):
    cell = place.cells()[1]
    (place.cell(cell.id) / "trained.json").unlink()
    place.write_failure(cell.id, "training", error)
    (found,) = [one for one in results.read_results(place) if one.entry.id == cell.id]
    assert found.state.name == "failed"
    assert found.state.error[:20].split() == f"training: {error}"[:20].split()


def test_axis_may_have_the_name_of_a_column(tmp_path):
    study = define()
    axis = study.axes[1].__class__("step", study.axes[1].points)
    place = study_workdir.build(
        tmp_path / "w", define(axes=(study.axes[0], axis), comparisons=()), examples=5, lines=4
    )
    found = results.read_results(place)
    header = place.csv.read_text().splitlines()[0].split(",")
    assert {"axis.step", "axis.step.value", "step"} <= set(header)
    assert {result.entry.labels["step"] for result in found} == {"15 %", "40 %"}


# --- cells that are taken -------------------------------------------------------------------------


def entries(study: Any) -> list[Entry]:
    evaluations = actions.record_evaluations(study)
    cells = actions.definition.expand(study)
    return [Entry(**vars(cell), evaluations=evaluations) for cell in cells]


def test_parts_make_one_study(tmp_path):
    """Of tables only the rows are taken; of a workdir the folders."""
    parts = [
        study_workdir.build(tmp_path / f"part{seed}", define(seeds=(seed,)), examples=8, lines=4)
        for seed in (0, 1)
    ]
    results.read_results(parts[1])
    tabled = copy_tables(parts[1], tmp_path / "tabled")
    whole, cells = StudyFolder(tmp_path / "whole"), entries(define())
    sources = [parts[0].workdir, tabled.workdir]
    finished = reuse.find_finished(whole, cells, sources, tmp_path)
    assert len(finished) == 4
    assert {cell.seed for cell in cells if cell.id in finished.folders} == {0}
    whole.write_study(tabled.read_study(), cells)
    reuse.take(whole, finished)
    found = results.read_results(whole)
    assert [result.state.name for result in found] == ["done"] * 4
    for result in found:
        source = parts[result.entry.seed]
        (other,) = [r for r in results.gather_cells(source) if r.entry.id == result.entry.id]
        assert (result.metrics, result.history) == (other.metrics, other.history)
        arrays = tables.Examples(whole.workdir).read(result.entry.id, "validation")
        assert arrays.keys() == source.read_arrays(other.entry, "validation").keys()
    # A later launch has them already.
    assert len(reuse.find_finished(whole, cells, [], tmp_path).rows) == 2
    with pytest.raises(ConfigError, match="no study in"):
        reuse.find_finished(whole, cells, [tmp_path / "nowhere"], tmp_path)


def test_taken_cells_of_another_part_stay(place, tmp_path):
    kept = copy_tables(place, tmp_path / "kept")
    whole, cells = StudyFolder(tmp_path / "whole"), entries(define())
    whole.write_study(kept.read_study(), cells)
    for part in (cells[:2], cells[2:]):
        reuse.take(whole, reuse.find_finished(whole, part, [kept.workdir], tmp_path))
    assert progress.look(whole).counts["done"] == 4
    arrays = [tables.Examples(folder) for folder in (whole.taken, kept.workdir)]
    for cell in cells:
        ours, theirs = (one.read(cell.id, "validation") for one in arrays)
        assert ours.keys() == theirs.keys() != set()


def test_row_without_a_result_is_not_taken(place, tmp_path):
    kept = copy_tables(place, tmp_path / "kept")
    more = define(evaluations={**define().evaluations, "again": Suite("pretrain")})
    empty = StudyFolder(tmp_path / "empty")
    assert len(reuse.find_finished(empty, entries(more), [kept.workdir], tmp_path)) == 0
    assert len(reuse.find_finished(empty, entries(more), [place.workdir], tmp_path).folders) == 4
    other = define(evaluations={"validation": Suite("nsp")}, comparisons=())
    assert len(reuse.find_finished(empty, entries(other), [kept.workdir], tmp_path)) == 0


def test_taken_cell_is_trained_once_its_evaluation_changes(place, tmp_path):
    kept = copy_tables(place, tmp_path / "kept")
    whole, cells = StudyFolder(tmp_path / "whole"), entries(define())
    whole.write_study(kept.read_study(), cells)
    reuse.take(whole, reuse.find_finished(whole, cells, [kept.workdir], tmp_path))
    assert progress.look(whole).counts["done"] == 4
    edited = define(evaluations={"validation": Suite("nsp")}, comparisons=())
    study = kept.read_study() | {"evaluations": actions.record_evaluations(edited)}
    whole.write_study(study, entries(edited))
    assert progress.look(whole).counts["waiting"] == 4


def test_taken_cell_may_have_been_begun_here(place, tmp_path):
    """Neither its checkpoints nor its failure keep the row from standing for it."""
    kept = copy_tables(place, tmp_path / "kept")
    states = iter(["halfway", "failed", "killed", "untouched"])
    begun = study_workdir.build(
        tmp_path / "begun", define(), lambda cell: next(states), examples=5, lines=8
    )
    cells = entries(define())
    finished = reuse.find_finished(begun, cells, [kept.workdir], tmp_path)
    assert len(finished.rows) == 4
    reuse.take(begun, finished)
    assert progress.look(begun).counts["done"] == 4
    worker.work(begun, *begun.groups(), lambda *_, **__: pytest.fail("it is trained again"))
    assert not list(begun.cells_folder.glob("*/trained.json"))


def test_cells_of_different_texts_are_refused(place):
    for number, cell in enumerate(place.cells()):
        path = place.cell(cell.id) / "environment.json"
        data = {"corpus": "a" if number else "b", "tokenizer": "t"}
        path.write_text(json.dumps(json.loads(path.read_text()) | data))
    with pytest.raises(ConfigError, match="were trained on different data"):
        actions.report(place.workdir)


def test_damaged_workdir_is_one_line(place, capsys):
    place.study.write_text("{")
    assert cli.execute(["study", "report", f"--workdir={place.workdir}"]) == DataError.code
    error, hint = capsys.readouterr().err.splitlines()
    assert "study.json" in error
    assert "restore it, or remove it" in hint

"""Damaged and missing files of a study: the report shows the gap, and hints can be followed."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from bert_jax import cli
from bert_jax.errors import DataError
from bert_jax.studies import actions, progress
from bert_jax.studies.definition import Comparison, Suite
from bert_jax.studies.folder import StudyFolder
from tests import study_workdir, texts


@pytest.fixture
def place(tmp_path) -> StudyFolder:
    """A finished study of two rates and three seeds."""
    made = study_workdir.masking_rate(
        (0.15, 0.4),
        {"2 x 64": study_workdir.SIZES["2 x 64"]},
        evaluations={"validation": Suite("pretrain")},
        comparisons=(Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),),
        published=(),
    )
    return study_workdir.build(tmp_path / "w", made, examples=20, lines=8)


@pytest.mark.fault(24)
def test_report_shows_a_cell_whose_folder_is_gone(place):
    lost = next(entry for entry in place.cells() if entry.labels["masking.rate"] == "40 %")
    shutil.rmtree(place.cell(lost.id))
    actions.report(place.workdir)
    summary = place.summary.read_text()
    assert "5 of 6 cells done" in summary
    assert "(2 of 3)" in next(
        line for line in summary.splitlines() if "| 2 x 64, 40 %" in line or "| 40 %" in line
    )
    with place.csv.open() as file:
        rows = {row["cell"]: row for row in csv.DictReader(file)}
    assert len(rows) == 6
    assert (rows[lost.id]["state"], rows[lost.id]["seed"]) == ("waiting", str(lost.seed))
    assert rows[lost.id]["masking.rate"] == "40 %"
    assert rows[lost.id]["validation/mlm_loss"] == ""
    assert lost.id in place.report.read_text()
    assert progress.look(place).counts == {
        "done": 5,
        "diverged": 0,
        "running": 0,
        "failed": 0,
        "waiting": 1,
    }


def test_report_shows_a_point_whose_cells_are_gone(place):
    for entry in place.cells():
        if entry.labels["masking.rate"] == "40 %":
            shutil.rmtree(place.cell(entry.id))
    actions.report(place.workdir)
    assert "3 of 6 cells done" in place.summary.read_text()


def test_report_refuses_a_gap_that_it_cannot_place(place):
    """Of a study.json that does not say what its cells are."""
    study = json.loads(place.study.read_text())
    del study["expected"]
    place.study.write_text(json.dumps(study))
    shutil.rmtree(place.cell(study["cells"][0]))
    with pytest.raises(DataError, match=study["cells"][0]):
        actions.report(place.workdir)


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ["study.json", "group", "result", "trained.json", "cell.json"])
def test_hint_for_a_damaged_file_can_be_followed(damaged, tmp_path, capsys):
    """What it says to remove is made again by the same command."""
    config = texts.config_file(tmp_path)
    command = ["study", "sweep", f"--config={config}", "--axis=masking.rate=0.15,0.6"]
    command += ["--seeds=1", "--config.steps=4", "--config.evals.validation.every=4"]
    command += ["--config.pairs=none", "--jobs=1", f"--workdir={tmp_path / 'w'}"]
    assert cli.execute(command) == 0
    place = StudyFolder(tmp_path / "w")
    entry = place.cells()[0]
    file = {
        "study.json": place.study,
        "group": place.group(entry.group),
        "result": place.result(entry.id, "validation"),
    }.get(damaged, place.cell(entry.id) / damaged)
    file.write_text("torn")
    capsys.readouterr()
    asked = ["study", "report", f"--workdir={tmp_path / 'w'}"]
    assert cli.execute(asked) == (0 if damaged == "group" else DataError.code)
    hint = capsys.readouterr().err.rpartition("hint: ")[2]
    if "remove the cell's folder" in hint:
        assert damaged in ("trained.json", "cell.json")
        shutil.rmtree(place.cell(entry.id))
    elif hint:
        assert "restore it, or remove it" in hint
        file.unlink()
    assert cli.execute(command) == 0
    assert cli.execute(asked) == 0
    assert [state.name for state in place.states().values()] == ["done", "done"]

"""A worker makes the cells of its group, and does nothing twice, wherever it was interrupted."""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bert_jax.config import load_file, override, to_dict
from bert_jax.errors import DataError, DivergedError, Stopped
from bert_jax.studies import measures, worker
from bert_jax.studies.definition import Cell, Finetune, Study, Suite, axis, expand
from bert_jax.studies.folder import StudyFolder
from bert_jax.system import folder_locks
from bert_jax.train import train
from tests import outcomes, texts
from tests.studies.small import write_study

SMALL = {"steps": "12", "checkpoints.every": "12", "checkpoints.best": "", "pairs": "none"}
SMALL |= {"model.hidden": "16", "batch_size": "8", "sequence_length": "16"}
SMALL |= {"evals.validation.every": "6", "logging.samples": "2"}
RATES = (0.15, 0.6)
Made = tuple[StudyFolder, list[Cell]]


@pytest.fixture(scope="module", autouse=True)
def one_device():
    with texts.one_device():
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    """Define a study of two rates with every kind of evaluation."""
    folder = tmp_path_factory.mktemp("study")
    base = load_file(str(texts.config_file(folder)))
    for path, value in SMALL.items():
        override(base, path, value)
    rows = [f"{i}\tthe {'good' if i % 2 else 'bad'} film was {i}\t{i % 2}" for i in range(24)]
    (folder / "films.tsv").write_text("idx\tsentence\tlabel\n" + "\n".join(rows) + "\n")
    changes = {"task.source": f"files:{folder / 'films.tsv'}", "epochs": 1.0, "batch_size": 8}
    changes |= {"sequence_length": 16, "checkpoints.best": ""}
    films = Finetune("sst2", tuple(changes.items()))
    evaluations = {"validation": Suite("pretrain"), "films": films}
    return Study("?", base, (axis("masking.rate", RATES),), (3,), evaluations, pair_seeds=True)


def prepare(workdir: Path, study: Study, **changes: Any) -> Made:
    """Write a study whose cells are one group."""
    place = write_study(workdir, dataclasses.replace(study, **changes))
    place.write_group("g", [cell.id for cell in place.read_cells()], 20)
    return place, place.read_cells()


@pytest.fixture(scope="module")
def done(study, tmp_path_factory) -> Made:
    place, cells = prepare(tmp_path_factory.mktemp("w"), study)
    worker.work(place, "g", train)
    return place, cells


# --- whole cells ----------------------------------------------------------------------------------


def test_worker_makes_every_cell_once(done):
    place, cells = done
    assert [place.read_state(cell).name for cell in cells] == ["done"] * 2
    for cell in cells:
        found = {name: place.read_result(cell, name).metrics for name in cell.evaluations}
        loss = found["validation"]["mlm_loss"]
        last = place.read_last_metrics(cell.id)["eval/validation/mlm_loss"]
        each = place.read_arrays(cell, "validation")
        total = each["mlm_loss.sum"].sum() / each["mlm_loss.count"].sum()
        assert (last, total) == pytest.approx((loss, loss), rel=1e-6)
        known = measures.list_metrics(Suite("pretrain"), cell.config.objectives)
        assert found["validation"].keys() <= {*known}
        assert 0 <= found["films"]["accuracy"] <= 1
        described = json.loads((place.finetune(cell.id, "films") / "config.json").read_text())
        assert described["init_from"] == str(place.cell(cell.id) / "checkpoints" / "12")
        assert (described["seed"], described["data_seed"]) == (3, 3)
        guesses = outcomes.samples(place.cell(cell.id))
        assert [row["step"] for row in guesses] == [6, 6, 12, 12]
        assert [row["text"] for row in guesses[:2]] == [row["text"] for row in guesses[2:]]
        assert guesses[0]["predictions"] != guesses[2]["predictions"]
    written = {path: path.stat().st_mtime_ns for path in place.workdir.rglob("*.json")}
    worker.work(place, "g", lambda *_, **__: pytest.fail("trained again"))
    assert written == {path: path.stat().st_mtime_ns for path in place.workdir.rglob("*.json")}


def test_edited_evaluation_uses_its_new_masks(done, tmp_path):
    """Nothing is trained again, and what is found goes by the study as it is now."""
    made, (cell, _) = done
    place = StudyFolder(shutil.copytree(made.workdir, tmp_path / "w"))
    evals = {"validation": dataclasses.replace(cell.config.evals["validation"], rate=0.4)}
    edited = dataclasses.replace(cell, config=dataclasses.replace(cell.config, evals=evals))
    before = place.read_result(cell, "validation").metrics["mlm_predictions"]
    worker.Worker(place, 20, train).run_suite("validation", [edited])
    assert place.read_result(edited, "validation").metrics["mlm_predictions"] > 2 * before


def test_finetunings_with_patience_train_alone(done, monkeypatch):
    """Together all would end with the last of them, and their scores depend on their group."""
    place, cells = done
    tried: list[int] = []
    monkeypatch.setattr(worker.Worker, "attempt", lambda _, cells, *__: tried.append(len(cells)))
    for changes in {}, {"checkpoints.patience": 2}:
        asked = {"new": {"kind": "finetune", "task": "sst2", "changes": changes}}
        edited = [dataclasses.replace(cell, evaluations=asked) for cell in cells]
        worker.Worker(place, 20, train).evaluate(edited)
    assert tried == [2, 1, 1]


def test_finetuning_without_scores_has_no_result(done):
    """Even if a stop signal came, because it came after the last update."""
    place, (cell, _) = done
    asked = {"late": {"kind": "finetune", "task": "sst2", "changes": {"seed": 7}}}

    def stop(jobs: list[Any], **_: object) -> bool:
        for config, folder in jobs:
            assert (config.seed, config.data_seed) == (7, 3)  # as asked for, and the cell's
            folder.mkdir(parents=True)
            (folder / "metrics.jsonl").touch()
        return True

    edited = dataclasses.replace(cell, evaluations=asked)
    with pytest.raises(DataError, match="the last evaluation is missing"):
        worker.Worker(place, 20, stop).finetune("late", [edited])
    assert not place.result(cell.id, "late").exists()


def test_edited_finetuning_begins_anew(study, tmp_path):
    config = expand(study)[0].config
    folder = tmp_path / "films"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(to_dict(config)))
    # Steps follow from the data, and lines of a log from nothing that is trained.
    logging = dataclasses.replace(config.logging, every=3)
    worker.remove_outdated(dataclasses.replace(config, steps=99, logging=logging), folder)
    assert folder.exists()
    worker.remove_outdated(dataclasses.replace(config, init_from="elsewhere"), folder)
    assert not folder.exists()


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.fault(23, 24)
@pytest.mark.parametrize("end", ["done", "diverged"])
def test_cells_that_fail_together_are_tried_alone(study, tmp_path, end):
    """The order is: all cells, then each that has no end; the next worker tries each at once."""
    place, cells = prepare(tmp_path, study, evaluations={})
    tried: list[list[str]] = []

    def refuse(runs: list[Any], *, on_diverged: Any, **_: object) -> bool:
        names = [workdir.name for _, workdir in runs]
        tried.append(names)
        if end == "diverged" and cells[0].id in names:
            on_diverged(place.cell(cells[0].id), DivergedError("not finite"))
        if cells[1].id in names:
            raise DataError("the text is gone")
        return False

    names = [cell.id for cell in cells]
    worker.work(place, "g", refuse)
    again = [names[:1]] if end == "done" else []
    assert tried == [names, *again, names[1:]]
    assert [place.read_state(cell).name for cell in cells] == [end, "failed"]
    assert place.read_state(cells[1]).error == "training: the text is gone"
    tried.clear()
    worker.work(place, "g", refuse)
    assert tried == [names[1:]]


def test_cell_that_kills_its_process_is_tried_last(study, tmp_path):
    place, cells = prepare(tmp_path, study, evaluations={})
    for number, cell in enumerate(cells):  # as the launcher notes the end of a process
        place.write_failure(cell.id, "worker", "killed by SIGKILL")
        os.utime(place.cell(cell.id) / "error.json", (number, number))
    tried: list[str] = []

    def kill(runs: list[Any], **_: object) -> bool:
        tried.append(runs[0][1].name)
        if runs[0][1].name == cells[0].id:
            raise SystemExit  # which nothing in the process catches
        return False

    for _ in range(2):
        with pytest.raises(SystemExit):
            worker.work(place, "g", kill)
    assert tried == [cells[0].id, cells[1].id, cells[0].id]
    assert [place.read_state(cell).name for cell in cells] == ["failed", "done"]


@pytest.mark.fault(9)
def test_cells_in_other_hands_are_left_to_them(study, tmp_path):
    place, cells = prepare(tmp_path, study)
    with folder_locks.hold_lock(place.cell(cells[1].id), "work.lock"):
        assert place.read_state(cells[1]).name == "running"
        with pytest.raises(Stopped, match="another run uses"):
            worker.work(place, "g", train)
    assert not place.read_failure(cells[0].id)


# --- several processes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code", "made"), [("0", 0, ["validation"]), ("1", 0, []), ("0", 3, [])]
)
def test_first_worker_evaluates_what_children_train(
    study, tmp_path, monkeypatch, number, code, made
):
    only = {"validation": study.evaluations["validation"]}
    place, (cell,) = prepare(tmp_path / "w", study, axes=(), evaluations=only)
    place.write_trained(cell.id, 12, 1.0, "done")
    trained = place.cell(cell.id) / "trained.json"
    written = trained.rename(tmp_path / "trained.json")
    child = f"test $BERT_JAX_JOINED && test {code} = 0 && mv {written} {trained}; exit {code}"
    monkeypatch.setattr(worker.base, "WORKER", ("sh", "-c", child))
    monkeypatch.setenv("JAX_PROCESS_ID", number)
    evaluated: list[str] = []
    monkeypatch.setattr(worker.Worker, "run_suite", lambda *given: evaluated.append(given[1]))

    train_here = mock.Mock()
    assert worker._work_with_others(place, "g", cell, train_here) == code
    assert (evaluated, bool(place.read_trained(cell.id))) == (made, not code)
    if made:
        monkeypatch.setattr(worker.Worker, "run_suite", mock.Mock(side_effect=DataError("gone")))
        assert worker._work_with_others(place, "g", cell, train_here) == worker.base.FAILED
    assert not train_here.called


@pytest.mark.parametrize(("index", "noted"), [(0, True), (1, False)])
def test_child_of_another_process_writes_nothing(study, tmp_path, monkeypatch, index, noted):
    """It ends with its error, so that the others end, too."""
    place, (cell,) = prepare(tmp_path, study, axes=(), evaluations={})
    monkeypatch.setenv(worker.CHILD, "1")
    monkeypatch.setattr("jax.process_index", lambda: index)
    with pytest.raises(DataError, match="is gone"):
        worker.work(place, "g", mock.Mock(side_effect=DataError("the text is gone")))
    assert bool(place.read_failure(cell.id)) == noted
    worker.work(place, "g", lambda *_, **__: False)
    assert bool(place.read_trained(cell.id)) == noted

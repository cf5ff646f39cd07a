"""A worker makes the cells of its group, and does nothing twice, wherever it was interrupted."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax.checkpoints import reading, saving
from bert_jax.checkpoints.steps import list_steps
from bert_jax.config import load_file, override, to_dict
from bert_jax.errors import DataError, Stopped
from bert_jax.evaluation import inference
from bert_jax.studies import measures, worker
from bert_jax.studies.definition import Finetune, Study, Suite, axis, expand
from bert_jax.studies.folder import Entry, StudyFolder
from bert_jax.system import folder_locks
from bert_jax.train import train
from bert_jax.training import processes, run, runs
from bert_jax.training.step import compute_inputs
from tests import fault_points, outcomes, texts

SMALL = {
    "steps": "12",
    "checkpoints.every": "5",
    "evals.validation.every": "6",
    "checkpoints.best": "",
}
RATES = (0.15, 0.6)


@pytest.fixture(scope="module", autouse=True)
def one_device():
    with texts.one_device():
        yield


def written(evaluation: Suite | Finetune) -> dict:
    if isinstance(evaluation, Suite):
        return {
            "kind": "suite",
            "name": evaluation.name,
            "ask": [list(pair) for pair in evaluation.ask],
        }
    return {
        "kind": "finetune",
        "task": evaluation.task,
        "changes": [list(pair) for pair in evaluation.changes],
    }


def define(folder: Path, **evaluations: Suite | Finetune) -> Study:
    base = load_file(str(texts.config_file(folder)))
    for path, value in {**SMALL, "pairs": "none"}.items():
        override(base, path, value)
    return Study(
        question="?",
        base=base,
        axes=(axis("masking.rate", RATES),),
        seeds=(0,),
        evaluations=evaluations,
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    return define(tmp_path_factory.mktemp("study"), validation=Suite("pretrain"))


@pytest.fixture(scope="module")
def whole_study(tmp_path_factory) -> Study:
    """With every kind of evaluation."""
    folder = tmp_path_factory.mktemp("whole")
    rows = [f"{i}\tthe {'good' if i % 2 else 'bad'} film was {i}\t{i % 2}" for i in range(24)]
    (folder / "films.tsv").write_text("idx\tsentence\tlabel\n" + "\n".join(rows) + "\n")
    changes = {
        "task.source": f"files:{folder / 'films.tsv'}",
        "epochs": 1.0,
        "batch_size": 8,
        "sequence_length": 16,
    }
    films = Finetune("sst2", tuple((changes | {"checkpoints.best": ""}).items()))
    return define(folder, validation=Suite("pretrain"), cross_rate=Suite("cross_rate"), films=films)


def prepare(workdir: Path, study: Study, slots: int = 20) -> tuple[StudyFolder, list[Entry]]:
    place, cells = StudyFolder(workdir), expand(study)
    for cell in cells:
        place.write_cell(cell, "g", {name: written(one) for name, one in study.evaluations.items()})
    place.write_group("g", [cell.id for cell in cells], slots, 1.0)
    place.write_study({"name": "x", "cells": [cell.id for cell in cells]})
    return place, place.cells()


@pytest.fixture(scope="module")
def done(study, tmp_path_factory) -> tuple[StudyFolder, list[Entry]]:
    place, cells = prepare(tmp_path_factory.mktemp("w"), study)
    worker.work(place, "g", train)
    return place, cells


@pytest.fixture(scope="module")
def wholly_done(whole_study, tmp_path_factory) -> tuple[StudyFolder, list[Entry]]:
    place, cells = prepare(tmp_path_factory.mktemp("w"), whole_study)
    worker.work(place, "g", train)
    return place, cells


def results(place: StudyFolder, cells: list[Entry]) -> list[dict]:
    return [
        {name: place.read_result(cell, name)["metrics"] for name in cell.evaluations}  # type: ignore[index]  # all done
        for cell in cells
    ]


def test_every_cell_is_trained_and_evaluated(done):
    place, cells = done
    assert [place.state(cell).name for cell in cells] == ["done"] * 2
    for cell, found in zip(cells, results(place, cells), strict=True):
        last = [
            json.loads(line)
            for line in (place.cell(cell.id) / "metrics.jsonl").read_text().splitlines()
        ][-1]
        assert found["validation"]["mlm_loss"] == pytest.approx(
            last["eval/validation/mlm_loss"], rel=1e-6
        )
        each = place.read_each(cell, "validation")
        total = each["mlm_loss.sum"].sum() / each["mlm_loss.count"].sum()
        assert total == pytest.approx(found["validation"]["mlm_loss"], rel=1e-6)
        assert [note["event"] for note in place.attempts(cell.id)] == ["start", "end"] * 2
        assert place.trained(cell.id)["outcome"] == "done"


def written_at(place: StudyFolder) -> dict[Path, int]:
    """When each file was last written, but for the locks."""
    files = [
        path
        for path in sorted(place.workdir.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    ]
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.mark.slow  # the suites and fine-tuning have tests of their own
def test_every_kind_of_evaluation_is_kept(wholly_done):
    place, cells = wholly_done
    for cell, found in zip(cells, results(place, cells), strict=True):
        assert {name.partition("/")[0] for name in found["cross_rate"]} >= {"0.05", "0.15", "0.8"}
        assert 0 <= found["films"]["accuracy"] <= 1
        described = json.loads((place.finetune(cell.id, "films") / "config.json").read_text())
        assert described["init_from"] == str(place.checkpoint(cell.id))
        assert described["seed"] == cell.seed


def test_found_metrics_are_those_that_comparisons_may_take(done):
    _, (cell, _) = done
    (found,) = results(*done)[:1]
    for name in found["validation"]:
        assert name in measures.metrics(Suite("pretrain"), cell.config.objectives)


@pytest.mark.parametrize(("changes", "wanted"), [({}, 7), ({"data_seed": 5}, 5)])
def test_finetuning_reads_its_data_in_the_order_of_the_cell(done, monkeypatch, changes, wanted):
    """With pair_seeds the order of the data is paired with the seed, of what comes after
    pre-training too.
    """
    place, (cell, _) = done
    asked = {"films": {"kind": "finetune", "task": "sst2", "changes": list(changes.items())}}
    paired = dataclasses.replace(cell.config, data_seed=7)
    cell = dataclasses.replace(cell, config=paired, seed=7, evaluations=asked)
    begun: list = []

    def together(runs, *_):
        begun.extend(runs)
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "_train_together", together)
    with pytest.raises(KeyboardInterrupt):
        worker._finetune(place, "g", [cell], "films", train)
    ((config, _),) = begun
    assert (config.seed, config.data_seed) == (7, wanted)


def test_what_is_done_is_not_done_again(done, monkeypatch):
    place, _ = done
    before = written_at(place)
    monkeypatch.setattr(worker, "_train_together", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr(worker, "_suite", lambda *_: pytest.fail("evaluated again"))
    worker.work(place, "g", train)
    assert written_at(place) == before


def test_another_evaluation_under_the_same_name_is_another_one(done, tmp_path):
    place, cells = done
    changed = Entry(
        **{
            **cells[0].__dict__,
            "evaluations": {"validation": {"kind": "suite", "name": "nsp", "ask": []}},
        }
    )
    assert place.read_result(cells[0], "validation")
    assert place.read_result(changed, "validation") is None


@pytest.mark.slow  # test_fused_runs.py and the state of cells below have the parts of it
@pytest.mark.parametrize("where", [("step", 8), ("save-start", 12), ("evaluation", 1)])
def test_interrupted_anywhere_it_ends_the_same(
    whole_study, wholly_done, where, tmp_path, monkeypatch
):
    """While training, when some arms have saved the last step, in an evaluation after training."""
    place, cells = prepare(tmp_path, whole_study)
    seen = []

    save = saving.Checkpoints.save

    def die_saving(self: Any, step: int, *args: Any, **kwargs: Any) -> None:
        die("save-start", step)
        save(self, step, *args, **kwargs)

    def die(name: str, index: int) -> None:
        if (name, index) == where:
            seen.append(index)
            trained = len(list(tmp_path.glob("cells/*/trained.json")))
            if name == "step" or (name == "save-start" and len(seen) == 2) or trained == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        fault_points.plant(runs, die, patch.setattr)
        fault_points.plant(inference, die, patch.setattr)
        patch.setattr(saving.Checkpoints, "save", die_saving)
        with pytest.raises(KeyboardInterrupt):
            worker.work(place, "g", train)
    assert place.attempts(cells[0].id)[-1]["outcome"] == "stopped"
    worker.work(place, "g", train)
    assert results(place, cells) == results(*wholly_done)
    for cell in cells:
        outcomes.assert_same(place.cell(cell.id), wholly_done[0].cell(cell.id), 12)


def test_child_that_a_signal_ends_is_resumable(monkeypatch):
    """jax ends a process whose peers are lost; stop signals are passed on to the child."""
    monkeypatch.setattr(worker, "STOPS", (signal.SIGUSR1,))
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGINT)}
    told = "import os, signal, time; signal.signal(10, lambda *_: os._exit(7)); time.sleep(60)"
    try:
        knows = f"import os; assert os.environ['{worker.JOINED}']"
        assert worker._run_joined((sys.executable, "-c", knows)) == 0
        assert worker._run_joined((sys.executable, "-c", "import os; os.abort()")) == 75
        timer = threading.Timer(3, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        assert worker._run_joined((sys.executable, "-S", "-c", told)) == 7
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.slow
def test_first_of_several_processes_evaluates_what_all_have_trained(study, tmp_path, monkeypatch):
    """Each starts a process that trains; the engine says which of them is first."""
    joined = load_file(str(texts.config_file(tmp_path)))
    for path, value in {**SMALL, "pairs": "none", "parallel.distributed": "true"}.items():
        override(joined, path, value)
    alone = dataclasses.replace(study, base=joined, axes=study.axes[:1])
    place, cells = prepare(tmp_path / "w", alone)
    place.write_group("g", [cells[0].id], 20, 1.0)
    monkeypatch.setattr(worker, "STOPS", ())
    monkeypatch.setattr(worker, "_keep_programs", lambda place: None)
    begun = []

    def child(command: tuple[str, ...]) -> int:
        begun.append(command)
        with monkeypatch.context() as patch:
            patch.setenv(worker.JOINED, "1")
            patch.setattr(processes, "start_processes", lambda settings: begun.append(settings))
            patch.setattr(worker, "_suite", lambda *_: pytest.fail("a child evaluates"))
            return worker.main(place.workdir, "g", train)

    monkeypatch.setattr(worker, "_run_joined", lambda command: 75)
    assert worker.main(place.workdir, "g", train) == 75
    monkeypatch.setattr(worker, "_run_joined", child)
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    assert worker.main(place.workdir, "g", train) == 0
    words = f"-m bert_jax.study work --workdir={place.workdir} --group=g"
    assert " ".join(begun[0]).endswith(words)
    assert begun[1].distributed
    assert place.trained(cells[0].id)["step"] == 12
    assert place.missing(cells[0]) == ["validation"]
    monkeypatch.setenv("JAX_PROCESS_ID", "0")
    assert worker.main(place.workdir, "g", train) == 0
    assert len(begun) == 2, "it was trained already"
    assert place.missing(cells[0]) == []


def test_processes_but_the_first_write_nothing_of_the_study(tmp_path):
    place = StudyFolder(tmp_path)
    place.writes = False
    place.note_start("a", "g", "training")
    place.note_end("a", "g", "training", "done", 0, "")
    place.write_trained("a", 12, 1.0, "done")
    assert not place.cell("a").exists()


def test_an_arm_that_diverges_is_noted_and_final(study, tmp_path, monkeypatch):
    place, cells = prepare(tmp_path, dataclasses.replace(study, evaluations={}))
    real = compute_inputs

    def poisoned(config, step):
        found = real(config, step)
        bad = config.masking.rate == 0.6 and step >= 3
        return found._replace(weights={"mlm": np.float32(np.nan)}) if bad else found

    monkeypatch.setattr(run, "compute_inputs", poisoned)
    worker.work(place, "g", train)
    assert [place.state(cell).name for cell in cells] == ["done", "diverged"]
    assert "5 updates in a row" in place.state(cells[1]).error
    assert list_steps(place.cell(cells[1].id) / "checkpoints") == [5]
    assert not (place.cell(cells[1].id) / "results").exists()
    count = len(place.attempts(cells[1].id))
    worker.work(place, "g", train)
    assert len(place.attempts(cells[1].id)) == count


def test_masks_of_an_evaluation_that_was_edited_are_the_new_ones(study, done):
    """Nothing is trained again, and what is found goes by the study as it is now."""
    place, cells = done
    evals = {"validation": dataclasses.replace(cells[0].config.evals["validation"], rate=0.4)}
    edited = dataclasses.replace(cells[0], config=dataclasses.replace(cells[0].config, evals=evals))
    before = place.read_result(cells[0], "validation")
    assert place.read_result(edited, "validation") is None
    worker._suite(place, "g", edited, "validation")
    found = place.read_result(edited, "validation")
    assert found
    assert before
    assert found["metrics"]["mlm_predictions"] > 2 * before["metrics"]["mlm_predictions"]
    worker._suite(place, "g", cells[0], "validation")  # as the other tests know it
    assert place.read_result(cells[0], "validation")["metrics"] == before["metrics"]


def test_what_fails_is_noted_in_every_cell_and_raised(study, tmp_path, monkeypatch):
    place, cells = prepare(tmp_path, study)

    def refuse(*_: object, **__: object) -> None:
        raise DataError("the text is gone")

    for tries in (1, 2, 3):
        with pytest.raises(DataError, match="the text is gone"):
            worker.work(place, "g", refuse)
        states = [place.state(cell, retries=2) for cell in cells]
        assert [state.name for state in states] == ["waiting" if tries < 3 else "failed"] * 2
        assert {state.error for state in states} == {"the text is gone"}


def test_a_stop_when_training_has_ended_begins_nothing_more(study, tmp_path, monkeypatch):
    place, cells = prepare(tmp_path, study)

    def ended(runs: list, **_: object) -> bool:
        for _, workdir in runs:
            workdir.mkdir(parents=True, exist_ok=True)
            (workdir / "metrics.jsonl").write_text('{"step": 12, "time": 3.0}\n')
        return True  # a signal came with the last step

    monkeypatch.setattr(worker, "_suite", lambda *_: pytest.fail("an evaluation began"))
    with pytest.raises(Stopped):
        worker.work(place, "g", ended)
    assert [place.trained(cell.id)["step"] for cell in cells] == [12, 12]


def test_cells_in_other_hands_are_left_to_them(study, tmp_path):
    place, cells = prepare(tmp_path, study)
    with folder_locks.hold(place.cell(cells[1].id), "work.lock"):
        assert place.state(cells[1]).name == "running"
        with pytest.raises(Stopped, match="another run uses"):
            worker.work(place, "g", train)
    assert not place.attempts(cells[0].id)


def test_a_fine_tuning_that_was_edited_or_moved_begins_anew(study, tmp_path):
    config = expand(study)[0].config
    folder = tmp_path / "films"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(to_dict(config)))
    worker._make_way(config, folder)
    longer = dataclasses.replace(
        config, steps=99, logging=dataclasses.replace(config.logging, every=3)
    )
    worker._make_way(
        longer, folder
    )  # steps follow from the data, and lines of a log from nothing that is trained
    assert folder.exists()
    worker._make_way(dataclasses.replace(config, init_from="elsewhere"), folder)
    assert not folder.exists()
    worker._make_way(config, folder)


def test_cells_that_share_a_step_go_on_together():
    entries = [Entry(str(i), None, {}, {}, 0) for i in range(6)]  # type: ignore[arg-type]  # configs are not looked at
    saved = {"0": {5, 10}, "1": {5}, "2": set(), "3": {20}, "4": set(), "5": set()}
    forks = {name: 8 if name in "035" else 0 for name in saved}  # where they begin
    found = [[cell.id for cell in several] for several in worker.in_step(entries, saved, forks)]
    assert found == [["2", "4"], ["5"], ["0", "1"], ["3"]]


def test_the_last_step_counts_and_not_the_best_one(done):
    place, cells = done
    assert place.checkpoint(cells[0].id).name == "12"
    assert reading.read_model(place.checkpoint(cells[0].id).parent, 12)[1]["step"] == 12

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
from bert_jax.studies import actions, files, joined, measures, worker
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
    """Define a study with every kind of evaluation."""
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
    """Write a study whose cells are one group."""
    place, evaluations = StudyFolder(workdir), actions.record_evaluations(study)
    cells = [Entry(**vars(cell), evaluations=evaluations) for cell in expand(study)]
    place.write_group("g", [cell.id for cell in cells], slots)
    place.write_study({"name": "x", "evaluations": evaluations}, cells)
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


def read_metrics(place: StudyFolder, cells: list[Entry]) -> list[dict[str, Any]]:
    """Read what the evaluations of cells found."""
    found = [{name: place.read_result(cell, name) for name in cell.evaluations} for cell in cells]
    return [{name: result.metrics for name, result in each.items()} for each in found]


def test_every_cell_is_trained_and_evaluated(done):
    place, cells = done
    assert [place.read_state(cell).name for cell in cells] == ["done"] * 2
    for cell, found in zip(cells, read_metrics(place, cells), strict=True):
        last = place.read_last_metrics(cell.id)
        loss = found["validation"]["mlm_loss"]
        assert loss == pytest.approx(last["eval/validation/mlm_loss"], rel=1e-6)
        each = place.read_arrays(cell, "validation")
        total = each["mlm_loss.sum"].sum() / each["mlm_loss.count"].sum()
        assert total == pytest.approx(loss, rel=1e-6)
        for name in found["validation"]:
            assert name in measures.metrics(Suite("pretrain"), cell.config.objectives)
        # The last step counts, and not the best one.
        folder = place.saved(cell.id, place.read_trained(cell.id).step)
        assert folder.name == "12"
        assert reading.read_model(folder.parent, 12)[1]["step"] == 12


@pytest.mark.slow  # the suites and fine-tuning have tests of their own
def test_every_kind_of_evaluation_is_kept(wholly_done):
    place, cells = wholly_done
    for cell, found in zip(cells, read_metrics(place, cells), strict=True):
        assert {name.partition("/")[0] for name in found["cross_rate"]} >= {"0.05", "0.15", "0.8"}
        assert 0 <= found["films"]["accuracy"] <= 1
        described = json.loads((place.finetune(cell.id, "films") / "config.json").read_text())
        assert described["init_from"] == str(place.saved(cell.id, 12))
        assert described["seed"] == cell.seed


@pytest.mark.parametrize(("changes", "wanted"), [({}, 7), ({"data_seed": 5}, 5)])
def test_finetuning_has_the_data_order_of_its_cell(done, monkeypatch, changes, wanted):
    """With pair_seeds the order of the data is paired with the seed, after pre-training too."""
    place, (cell, _) = done
    asked = {"films": {"kind": "finetune", "task": "sst2", "changes": list(changes.items())}}
    paired = dataclasses.replace(cell.config, data_seed=7)
    cell = dataclasses.replace(cell, config=paired, seed=7, evaluations=asked)
    begun: list[Any] = []

    def train_together(runs: list[Any], *_: object) -> None:
        begun.extend(runs)
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "_train_together", train_together)
    with pytest.raises(KeyboardInterrupt):
        worker._finetune(place, [cell], "films", train)
    ((config, _),) = begun
    assert (config.seed, config.data_seed) == (7, wanted)


def test_work_that_is_done_is_not_done_again(done, monkeypatch):
    place, _ = done
    written = {path: path.stat().st_mtime_ns for path in place.workdir.rglob("*.json")}
    monkeypatch.setattr(worker, "_train_together", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr(worker, "_run_suite", lambda *_: pytest.fail("evaluated again"))
    worker.work(place, "g", train)
    assert written == {path: path.stat().st_mtime_ns for path in place.workdir.rglob("*.json")}


@pytest.mark.slow  # test_fused_runs.py and the state of cells below have the parts of it
@pytest.mark.parametrize("where", [("step", 8), ("save-start", 12), ("evaluation", 1)])
def test_interrupted_work_ends_the_same(whole_study, wholly_done, where, tmp_path, monkeypatch):
    """While training, when some runs have saved the last step, and in an evaluation afterwards."""
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
    assert not any(place.read_failure(cell.id) for cell in cells)
    worker.work(place, "g", train)
    assert read_metrics(place, cells) == read_metrics(*wholly_done)
    for cell in cells:
        outcomes.assert_same(place.cell(cell.id), wholly_done[0].cell(cell.id), 12)


def test_child_that_a_signal_ends_is_resumable(monkeypatch):
    """jax ends a process whose peers are lost; stop signals are passed on to the child."""
    stops = (signal.SIGUSR1,)
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGINT)}
    told = "import os, signal, time; signal.signal(10, lambda *_: os._exit(7)); time.sleep(60)"
    try:
        knows = f"import os; assert os.environ['{joined.VARIABLE}']"
        assert joined.run_child((sys.executable, "-c", knows), stops) == 0
        assert joined.run_child((sys.executable, "-c", "import os; os.abort()"), stops) == 75
        timer = threading.Timer(3, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        assert joined.run_child((sys.executable, "-S", "-c", told), stops) == 7
        # The worker evaluates next, and stops by its own handlers.
        assert before == {number: signal.getsignal(number) for number in before}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.slow
def test_first_of_several_processes_evaluates(study, tmp_path, monkeypatch):
    """Each starts a process that trains; the engine says which of them is first."""
    joined = load_file(str(texts.config_file(tmp_path)))
    for path, value in {**SMALL, "pairs": "none", "parallel.distributed": "true"}.items():
        override(joined, path, value)
    place, cells = prepare(tmp_path / "w", dataclasses.replace(study, base=joined))
    place.write_group("g", [cells[0].id], 20)
    monkeypatch.setattr(worker, "STOPS", ())
    monkeypatch.setattr(worker, "_keep_programs", lambda place: None)
    begun: list[Any] = []

    def run_child(command: tuple[str, ...], stops: object) -> int:
        begun.append(command)
        with monkeypatch.context() as patch:
            patch.setenv(joined.VARIABLE, "1")
            patch.setattr(processes, "start_processes", lambda settings: begun.append(settings))
            patch.setattr(worker, "_run_suite", lambda *_: pytest.fail("a child evaluates"))
            return worker.main(place.workdir, "g", train)

    monkeypatch.setattr(joined, "run_child", lambda *_: 75)
    assert worker.main(place.workdir, "g", train) == 75
    monkeypatch.setattr(joined, "run_child", run_child)
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    assert worker.main(place.workdir, "g", train) == 0
    words = f"-m bert_jax.study work --workdir={place.workdir} --group=g"
    assert " ".join(begun[0]).endswith(words)
    assert begun[1].distributed
    assert place.read_trained(cells[0].id).step == 12
    assert place.missing(cells[0]) == ["validation"]
    monkeypatch.setenv("JAX_PROCESS_ID", "0")
    assert worker.main(place.workdir, "g", train) == 0
    assert len(begun) == 2, "it was trained already"
    assert place.missing(cells[0]) == []


def test_run_that_diverges_is_final(study, tmp_path, monkeypatch):
    place, cells = prepare(tmp_path, dataclasses.replace(study, evaluations={}))
    real = compute_inputs

    def poison(config: Any, step: int) -> Any:
        found = real(config, step)
        bad = config.masking.rate == 0.6 and step >= 3
        return found._replace(weights={"mlm": np.float32(np.nan)}) if bad else found

    monkeypatch.setattr(run, "compute_inputs", poison)
    worker.work(place, "g", train)
    assert [place.read_state(cell).name for cell in cells] == ["done", "diverged"]
    assert "5 updates in a row" in place.read_state(cells[1]).error
    assert list_steps(place.cell(cells[1].id) / "checkpoints") == [5]
    assert not (place.cell(cells[1].id) / "results").exists()
    monkeypatch.setattr(worker, "_train_together", lambda *_: pytest.fail("trained again"))
    worker.work(place, "g", train)


def test_masks_of_an_edited_evaluation_are_the_new_ones(study, done):
    """Nothing is trained again, and what is found goes by the study as it is now."""
    place, cells = done
    evals = {"validation": dataclasses.replace(cells[0].config.evals["validation"], rate=0.4)}
    edited = dataclasses.replace(cells[0], config=dataclasses.replace(cells[0].config, evals=evals))
    before = place.read_result(cells[0], "validation")
    assert place.read_result(edited, "validation") is None
    worker._run_suite(place, edited, "validation")
    found = place.read_result(edited, "validation")
    assert found.metrics["mlm_predictions"] > 2 * before.metrics["mlm_predictions"]
    worker._run_suite(place, cells[0], "validation")  # as the other tests know it
    assert place.read_result(cells[0], "validation").metrics == before.metrics


def test_what_fails_together_is_tried_alone(study, tmp_path):
    """The order is: all cells, then each; the next worker tries each at once."""
    place, cells = prepare(tmp_path, dataclasses.replace(study, evaluations={}))
    tried: list[list[str]] = []

    def refuse(runs: list[Any], **_: object) -> bool:
        names = [workdir.name for _, workdir in runs]
        tried.append(names)
        if cells[1].id in names:
            raise DataError("the text is gone")
        return False

    names = [cell.id for cell in cells]
    worker.work(place, "g", refuse)
    assert tried == [names, [names[0]], [names[1]]]
    assert [place.read_state(cell).name for cell in cells] == ["done", "failed"]
    assert place.read_state(cells[1]).error == "training: the text is gone"
    tried.clear()
    worker.work(place, "g", refuse)
    assert tried == [[names[1]]]


def test_cell_that_kills_its_process_is_tried_last(study, tmp_path, monkeypatch):
    place, cells = prepare(tmp_path, dataclasses.replace(study, evaluations={}))
    times = iter(f"2026-01-01T00:00:{second:02}" for second in range(60))
    monkeypatch.setattr(files, "tell_time", lambda: next(times))
    for cell in cells:  # as the launcher notes the end of a process
        place.write_failure(cell.id, "worker", "killed by SIGKILL")
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


def test_stop_at_the_last_step_begins_nothing_more(study, tmp_path, monkeypatch):
    place, cells = prepare(tmp_path, study)

    def end(runs: list[Any], **_: object) -> bool:
        for _, workdir in runs:
            workdir.mkdir(parents=True, exist_ok=True)
            (workdir / "metrics.jsonl").write_text('{"step": 12, "time": 3.0}\n')
        return True  # a signal came with the last step

    monkeypatch.setattr(worker, "_run_suite", lambda *_: pytest.fail("an evaluation began"))
    with pytest.raises(Stopped):
        worker.work(place, "g", end)
    assert [place.read_trained(cell.id).step for cell in cells] == [12, 12]
    assert [place.read_trained(cell.id).seconds for cell in cells] == [1.5, 1.5]


def test_cells_in_other_hands_are_left_to_them(study, tmp_path):
    place, cells = prepare(tmp_path, study)
    with folder_locks.hold(place.cell(cells[1].id), "work.lock"):
        assert place.read_state(cells[1]).name == "running"
        with pytest.raises(Stopped, match="another run uses"):
            worker.work(place, "g", train)
    assert not place.read_failure(cells[0].id)


def test_edited_finetuning_begins_anew(study, tmp_path):
    config = expand(study)[0].config
    folder = tmp_path / "films"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(to_dict(config)))
    worker._remove_outdated(config, folder)
    # Steps follow from the data, and lines of a log from nothing that is trained.
    logging = dataclasses.replace(config.logging, every=3)
    worker._remove_outdated(dataclasses.replace(config, steps=99, logging=logging), folder)
    assert folder.exists()
    worker._remove_outdated(dataclasses.replace(config, init_from="elsewhere"), folder)
    assert not folder.exists()
    worker._remove_outdated(config, folder)


def test_cells_that_share_a_step_go_on_together():
    entries = [Entry(str(i), None, {}, {}, 0) for i in range(6)]  # type: ignore[arg-type]  # configs are not looked at
    saved = {"0": {5, 10}, "1": {5}, "2": set(), "3": {20}, "4": set(), "5": set()}
    forks = {name: 8 if name in "035" else 0 for name in saved}  # where they begin
    together = worker.split_by_step(entries, saved, forks)
    found = [[cell.id for cell in several] for several in together]
    assert found == [["2", "4"], ["5"], ["0", "1"], ["3"]]

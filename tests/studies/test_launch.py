"""A launch makes every cell once, whatever fails, is stopped, killed or edited.

Workers are calls in this process: the worker's own code, with a training that writes what a run
would leave.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bert_jax import errors
from bert_jax.studies import actions, engines, launch, origin, progress, worker
from bert_jax.studies.definition import Cell, Suite, axis, expand
from bert_jax.studies.engines.base import FULL, HELD
from bert_jax.studies.folder import StudyFolder
from bert_jax.system import disk
from tests.studies.small import make_base, make_study


class Bench:
    """A study, an engine that calls workers in this process, and what shall go wrong in them."""

    parallel = most = 2
    processes = 1

    def __init__(self, folder: Path) -> None:
        self.folder, self.workdir, self.place = folder, folder / "w", StudyFolder(folder / "w")
        self.seeds: tuple[int, ...] = (0, 1)
        self.rates: tuple[float, ...] = (0.15, 0.4)
        self.evaluations: tuple[str, ...] = ("validation",)
        self.knobs = {"steps": 5, "batch_size": 8, "optim__warmup_steps": 1}
        self.behaviour: dict[str, Any] = {}  # by the label of a rate
        self.made: Counter[str] = Counter()
        self.stops = 0

    def run(self, **flags: Any) -> None:
        suites = {name: Suite("pretrain") for name in self.evaluations}
        axes = (axis("masking.rate", self.rates),)
        base = make_base(**self.knobs)
        study = make_study(base=base, axes=axes, seeds=self.seeds, evaluations=suites)
        named = actions.Named(study, "toy", "toy", self.folder)
        actions.launch_study(named, self.workdir, actions.Flags(**flags))

    def start(self, groups: Sequence[str]) -> Iterator[str]:
        yield from groups

    def poll(self, group: str) -> int:
        """Work on a group as a process would, and return its code."""
        listed = self.place.read_group(group).cells
        labels = [c.labels["masking.rate"] for c in self.place.read_cells() if c.id in listed]
        behaviour = [self.behaviour.get(label) for label in labels]
        if "kill" in behaviour:
            return -signal.SIGKILL
        if "held" in behaviour:
            self.behaviour.clear()  # the next worker finds them free
            return HELD
        try:
            with contextlib.redirect_stderr(sys.stdout):
                worker.work(self.place, group, self.train)
        except disk.DiskFull:
            return FULL
        except SystemExit:
            return -signal.SIGKILL
        except errors.UserError as error:
            return error.code
        return 0

    def stop(self, workers: Sequence[str]) -> None:
        self.stops += 1

    def describe(self) -> str:
        return "calls in this process"

    def train(self, runs: Sequence[tuple[Any, Path]], *, slots: int, on_diverged: Any) -> bool:
        """Train runs as far as they behave; write what they leave."""
        stop = False
        behaviour = [self.behaviour.get(f"{100 * run.masking.rate:g} %") for run, _ in runs]
        if "fail" in behaviour:
            raise RuntimeError("out of luck")
        for (config, folder), mine in zip(runs, behaviour, strict=True):
            match mine:
                case "full":
                    raise disk.make_full_error(folder)
                case "stop":
                    raise errors.Stopped("stopped", "go on")
                case "interrupt":
                    os.kill(os.getpid(), signal.SIGTERM)
                    stop = True
            folder.mkdir(parents=True, exist_ok=True)
            row = {"step": config.steps, "time": 10.0 * len(runs), "train/loss": 2.0}
            (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
            (folder / "config.json").write_text("{}")
            self.made[f"{folder.name} training"] += 1
            if mine == "diverge":
                on_diverged(folder, errors.DivergedError("not finite", ""))
        return stop

    def evaluate(self, name: str, cell: Cell) -> None:
        if self.behaviour.get(cell.labels["masking.rate"]) == f"fail {name}":
            raise errors.DataError("the text is gone")
        if self.behaviour.get(cell.labels["masking.rate"]) == f"kill {name}":
            raise SystemExit  # which nothing in a worker catches
        self.made[f"{cell.id} {name}"] += 1
        self.place.write_result(cell, name, {"mlm_loss": 1.0}, 0.5, {})

    def finish(self, **flags: Any) -> None:
        """Run the study where nothing goes wrong any more."""
        self.behaviour.clear()
        self.run(**flags)
        self.check_complete()

    def count_states(self) -> Counter[str]:
        return Counter(self.place.read_state(cell).name for cell in self.place.read_cells())

    def check_complete(self, cells: int = 4) -> None:
        """Check that every listed cell is done, and that each of its parts was made once."""
        assert self.count_states() == {"done": cells}
        listed = [cell.id for cell in self.place.read_cells()]
        made = {key: count for key, count in self.made.items() if key.split()[0] in listed}
        parts = ("training", *self.evaluations)
        assert made == {f"{cell} {part}": 1 for cell in listed for part in parts}


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    monkeypatch.setattr(launch, "LOOK", 0.0)
    monkeypatch.setattr(launch, "PAUSE", 0.0)
    monkeypatch.setitem(engines.TABLE, "local", lambda *_: bench)
    monkeypatch.setattr(
        worker.Worker, "run_suite", lambda _, name, cells: bench.evaluate(name, *cells)
    )
    monkeypatch.setattr(actions, "_write_report", lambda place: "")
    return bench


# --- when all goes well ---------------------------------------------------------------------------


def test_time_left_follows_what_was_measured(bench, capfd):
    """Each of two trained cells took 10 s; two of the same length are left, side by side."""
    bench.evaluations = ()
    bench.rates = (0.15,)
    bench.run()
    bench.rates = (0.15, 0.1501)
    bench.behaviour["15.01 %"] = "stop"
    with pytest.raises(errors.Stopped):
        bench.run()
    now = progress.read_progress(bench.place)
    assert now.counts["waiting"] == 2
    one_group = replace(now, groups=dict.fromkeys(now.groups, "g"))
    for state, parallel, seconds in ((now, 2, 10), (now, 8, 10), (one_group, 8, 20), (now, 0, 20)):
        assert state.estimate_seconds(parallel) == pytest.approx(seconds, rel=0.01)
    first, second = now.unfinished
    epochs = replace(first, state=replace(first.state, steps=0))  # of data that nothing has read
    trained = replace(first, state=replace(first.state, step=5))  # its evaluations are left
    for left in ([epochs, second], [trained]):
        assert replace(now, cells=[*now.cells[:2], *left]).estimate_seconds() is None
    capfd.readouterr()
    bench.run(dry_run=True)
    assert "about 10 s at the pace so far" in capfd.readouterr().out


def test_one_cell_is_named_in_the_singular(bench, caplog):
    caplog.set_level("INFO")
    bench.rates, bench.seeds = (0.15,), (0,)
    bench.behaviour["15 %"] = "fail"
    with pytest.raises(errors.IncompleteError, match=r"^1 of 1 cell is not finished"):
        bench.run()
    bench.behaviour.clear()
    bench.run()
    bench.rates = (0.4,)
    bench.run()
    others, bench.workdir = [bench.workdir], bench.folder / "again"
    bench.run(reuse=others)
    for said in (
        ": 1 cell failed (log: ",
        "1 done of 1 cell",
        "1 cell that this launch leaves out is not shown",
        f"1 finished cell is taken from {others[0]}",
    ):
        assert said in caplog.text


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.fault(24)
@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("fail", "training: RuntimeError: out of luck"),
        ("fail validation", "evaluation validation: the text is gone"),
        ("kill", "worker: killed (signal 9)"),
    ],
)
def test_failed_cell_stops_no_other(bench, capfd, behaviour, message):
    bench.evaluations = ("validation", "other")
    bench.behaviour["40 %"] = behaviour
    with pytest.raises(errors.IncompleteError, match=re.escape(message)):
        bench.run(fuse="2")
    capfd.readouterr()
    actions.show_status(bench.workdir, as_json=True)
    told = json.loads(capfd.readouterr().out)
    assert (told["counts"]["done"], told["counts"]["failed"], told["seconds_left"]) == (2, 2, 0.0)
    failed = [cell for cell in told["cells"] if cell["state"] == "failed"]
    assert {cell["labels"]["masking.rate"] for cell in failed} == {"40 %"}
    actions.show_status(bench.workdir)
    told = capfd.readouterr().out
    assert (told.count(message), told.count("\ndone")) == (2, 0)
    if behaviour == "kill":  # the next launch tries its cells one by one
        bench.behaviour["40 %"] = "fail"
        with pytest.raises(errors.IncompleteError, match="out of luck"):
            bench.run()
        assert bench.count_states() == {"done": 2, "failed": 2}
    else:  # what a later worker dies of is shown, and not what an earlier one noted
        bench.behaviour["40 %"] = "kill validation" if behaviour == "fail" else "kill"
        with pytest.raises(errors.IncompleteError, match=re.escape("worker: killed (signal 9)")):
            bench.run()
    bench.finish()


@pytest.mark.fault(24)
def test_diverged_cell_is_final(bench):
    bench.behaviour["40 %"] = "diverge"
    bench.run()
    assert bench.count_states() == {"done": 2, "diverged": 2}
    made = bench.made.copy()
    bench.behaviour.clear()
    bench.run()
    assert bench.made == made


@pytest.mark.fault(22)
def test_launch_ends_where_a_cell_cannot_be_written(bench):
    bench.behaviour["40 %"] = "fail"
    with pytest.raises(errors.IncompleteError, match="out of luck"):
        bench.run()
    bench.behaviour.clear()
    lost = next(cell for cell in bench.place.read_cells() if cell.labels["masking.rate"] == "40 %")
    shutil.rmtree(bench.place.cell(lost.id))
    bench.place.cell(lost.id).write_text("a file")
    with pytest.raises(errors.ConfigError, match=f"cannot write in .*{lost.id} is no folder"):
        bench.run()


def test_launch_without_a_report_is_not_done(bench, monkeypatch):
    monkeypatch.setattr(actions, "_write_report", lambda place: None)
    with pytest.raises(errors.IncompleteError, match=r"report.html could not be written"):
        bench.run()


@pytest.mark.fault(4)
@pytest.mark.parametrize("where", ["worker", "launcher"])
def test_full_disk_stops_a_launch(bench, monkeypatch, where):
    def refuse(groups: Sequence[str]) -> Iterator[str]:
        yield groups[0]
        raise disk.make_full_error(bench.workdir)

    with monkeypatch.context() as patch:
        if where == "launcher":
            patch.setattr(bench, "start", refuse)
        bench.behaviour["15 %"] = bench.behaviour["40 %"] = "full" if where == "worker" else ""
        with pytest.raises(disk.DiskFull, match="the study"):
            bench.run(jobs=2, fuse="2")
    assert bench.stops == 1
    assert not bench.count_states()["failed"]
    bench.finish()


@pytest.mark.fault(24)
def test_stopped_study_goes_on_as_planned(bench):
    """Groups that were planned are not planned again, even with another --fuse."""
    bench.behaviour["40 %"] = "interrupt"
    with pytest.raises(errors.Stopped, match="stopped: "):
        bench.run(fuse="never")
    assert bench.stops == 1
    groups = bench.place.read_groups()
    assert [len(group.cells) for group in groups.values()] == [1] * 4
    bench.finish(fuse="auto")
    assert bench.place.read_groups() == groups


@pytest.mark.fault(2)
def test_only_the_same_signal_again_hurries(bench, monkeypatch):
    """A scheduler gives notice, and SIGTERM follows while cells are still saved."""
    launcher = launch.Launcher(bench.place, [], bench)
    monkeypatch.setattr(launch.signals, "SAME", 0.0)
    asked = []
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1):
        launcher.handle(number, None)
        asked.append(launcher._signal)
        launcher._signal, launcher.stopped = "", True
    assert asked == ["SIGUSR1", "", "SIGUSR1"]


def test_cells_in_other_hands_are_waited_for(bench, monkeypatch):
    """A worker of a launch that was killed may still save, and its lock be seen or not."""
    bench.behaviour["15 %"] = "held"
    looks: Counter[str] = Counter()

    def is_busy(place: StudyFolder, cell: str) -> bool:
        looks[cell] += 1
        return looks[cell] < 9 and not place.read_trained(cell)

    monkeypatch.setattr(StudyFolder, "is_busy", is_busy)
    bench.run()
    assert min(looks.values()) >= 9
    bench.check_complete()


# --- edits ----------------------------------------------------------------------------------------


@pytest.mark.fault(25)
def test_edited_study_adds_and_hides_cells(bench):
    bench.run()
    groups = bench.place.read_groups()
    bench.rates = (0.4, 0.3)
    bench.run()
    bench.check_complete()
    assert groups.items() <= bench.place.read_groups().items()  # none was planned again
    bench.evaluations = ("validation", "other")
    bench.rates = (0.15, 0.3, 0.4)
    bench.run()
    bench.check_complete(6)


def test_dry_run_plans_what_taken_cells_lack(bench, capfd):
    bench.run()
    other, bench.workdir = bench.workdir, bench.folder / "again"
    rows = (
        (("validation",), [], "1 group"),
        (("validation",), [other], "0 groups"),
        (("validation", "late"), [other], "1 group"),
    )
    for evaluations, reuse, groups in rows:
        bench.evaluations = evaluations
        capfd.readouterr()
        bench.run(dry_run=True, reuse=reuse, fuse="4")
        told = capfd.readouterr().out
        assert f"study toy: 4 cells, {groups} to do" in told
        assert ("training takes" in told) == (not reuse)


def test_study_records_the_commits_that_made_it(bench, monkeypatch):
    """A launch that has nothing to do leaves the record as it is."""
    bench.behaviour["40 %"] = "stop"
    for commit in "abc":
        monkeypatch.setattr(origin.machine, "git_commit", lambda commit=commit: commit)
        with contextlib.suppress(errors.Stopped):
            bench.run(command=("bert-jax", commit))
        bench.behaviour.clear()
    study = bench.place.read_study()
    assert (study.git_commit, study.commits) == ("b", ("a", "b"))
    assert study.command == ("bert-jax", "b")
    others, bench.workdir = [bench.workdir], bench.folder / "again"
    for rates, commits in (bench.rates, ("a", "b")), ((0.15, 0.3, 0.4), ("a", "b", "c")):
        bench.rates, bench.place = rates, StudyFolder(bench.workdir)
        bench.run(reuse=others)
        copied = bench.place.read_study()
        assert (copied.begun, copied.commits) == (study.begun, commits)


def test_sweep_goes_on_in_a_moved_workdir(tmp_path):
    """It is named after its workdir."""
    cells, spec, place = expand(make_study()), f"{actions.SWEEP}tiny.py", StudyFolder(tmp_path)
    place.write_study({"name": "before", "spec": spec}, cells)
    actions._check_same(place, actions.Named(make_study(), "now", spec, tmp_path), cells)


def test_launch_refuses_processes_that_join_nothing(bench, monkeypatch):
    monkeypatch.setattr(bench, "processes", 2)
    with pytest.raises(errors.ConfigError, match="starts 2 processes for each cell"):
        bench.run()
    bench.knobs["parallel__distributed"] = True
    monkeypatch.setattr(bench, "processes", 1)
    with pytest.raises(errors.ConfigError, match=r"starts 1 process for each .* is True"):
        bench.run()

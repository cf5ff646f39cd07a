"""Launching: every cell is made once, whatever crashes, is stopped, killed or edited. A worker of
our own trains.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import signal
import subprocess
import sys
import threading
import time
import types
from collections import Counter
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.config import costs
from bert_jax.errors import CheckpointError, ConfigError, DataError, IncompleteError
from bert_jax.studies import (
    actions,
    definition,
    engines,
    files,
    folder,
    groups,
    launch,
    plan,
    progress,
)
from bert_jax.studies.engines import LOST, local
from bert_jax.studies.folder import StudyFolder
from bert_jax.system import disk, folder_locks
from tests import clusters

STUDY = """
from bert_jax.config import default
from bert_jax.studies.definition import Study, Suite, axis

def get_study(scale="cpu"):
    base = default()
    base.model.size = "tiny"
    base.steps = 5
    base.batch_size = 8
    base.optim.warmup_steps = 1
    return Study(
        question="How much?",
        base=base,
        axes=(axis("masking.rate", {rates}),),
        seeds=(0, 1),
        evaluations={evaluations},
    )
"""
WORKER = '''
"""Trains a group as the real one does, then evaluates.

All cells train together, a step at a time, and each is saved.
"""
import contextlib, json, os, signal, sys, time
from pathlib import Path
from bert_jax.system import folder_locks
from bert_jax.errors import ConfigError
from bert_jax.studies import files

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
workdir, group = Path(flags["workdir"]), flags["group"]
behaviour = json.loads((Path(__file__).parent / "behaviour.json").read_text())
told = []
for number in (signal.SIGTERM, signal.SIGUSR2):
    signal.signal(number, lambda number, _: told.append(number))

class Cell:
    def __init__(self, name):
        self.id, self.folder = name, workdir / "cells" / name
        said = files.need(self.folder / "cell.json")
        self.mine = behaviour.get(said["labels"]["masking.rate"], {})
        self.evaluations = list(said["evaluations"])
        self.step = files.last_step(self.folder / "metrics.jsonl")[0]
        self.trained = files.read(self.folder / "trained.json")

    def note(self, **what):
        what = {"what": "training", "group": group, **what}
        files.append(self.folder / "attempts.jsonl", what)

    def did(self, what):
        with (workdir.parent / "ran").open("a") as file:
            file.write(f"{self.id} {what}\\n")

    @property
    def tries(self):
        return sum(note["event"] == "start" for note in files.lines(self.folder / "attempts.jsonl"))

def end(left, outcome, code, error=""):
    for cell in left:
        cell.note(event="end", outcome=outcome, code=code, error=error)
    print(error or outcome, flush=True)
    sys.exit(code)

cells = [Cell(name) for name in files.need(workdir / "groups" / f"{group}.json")["cells"]]
left = [cell for cell in cells if not cell.trained]
with contextlib.ExitStack() as locks:
    for cell in left:
        try:
            locks.enter_context(folder_locks.hold(cell.folder))
        except ConfigError as error:
            print(error)
            sys.exit(2)
        cell.note(event="start")
    for step in range(1 + max([cell.step for cell in left], default=0), 6):
        for cell in left:
            if step == 2 and cell.tries <= cell.mine.get("kill", 0):
                os.kill(os.getpid(), signal.SIGKILL)
            if step == 2 and cell.tries <= cell.mine.get("stop", 0):
                told.append("itself")
            if step == 2 and cell.tries <= cell.mine.get("fail", 0):
                end(left, "failed", cell.mine.get("code", 1), "out of luck")
            if step == 2 and cell.tries <= cell.mine.get("full", 0):
                end(left, "stopped", 28, "disk full")
            time.sleep(cell.mine.get("sleep", 0))
        for cell in left:
            cell.did(f"step {step}")
            row = {"step": step, "time": 2.0 * step * len(left)}
            files.append(cell.folder / "metrics.jsonl", row)
        if told:
            end(left, "stopped", 75)
    for cell in left:
        outcome = cell.mine.get("outcome", "done")
        how = cell.trained = {"step": 5, "seconds": 10.0, "outcome": outcome, "error": ""}
        files.write(cell.folder / "trained.json", how)
        files.write(cell.folder / "config.json", {})  # as a run writes it
        cell.note(event="end", outcome="done", code=0, error="")

if any(cell.evaluations for cell in cells):
    from bert_jax.studies.folder import StudyFolder
    place = StudyFolder(workdir)
    for entry in [place.read_cell(cell.id) for cell in cells if cell.trained["outcome"] == "done"]:
        for name in place.missing(entry):
            Cell(entry.id).did(name)
            place.write_result(entry, name, {"mlm_loss": 1.0}, 0.5, {})
'''


class Bench:
    """A study with a worker of our own."""

    def __init__(self, folder: Path):
        self.folder, self.workdir, self.place = folder, folder / "w", StudyFolder(folder / "w")
        self.file = folder / "toy" / "study.py"
        self.file.parent.mkdir()
        self.evaluations: tuple[str, ...] = ()
        (folder / "worker.py").write_text(WORKER)
        self.worker = (sys.executable, str(folder / "worker.py"))
        self.reports: list[int] = []  # cells that were done when each was written
        self.rates(0.15, 0.4)
        self.behave()

    def rates(self, *rates: float) -> None:
        """Writes the study: cells of these rates, two seeds each."""
        asked = ", ".join(f"{name!r}: Suite('pretrain')" for name in self.evaluations)
        self.file.write_text(STUDY.format(rates=list(rates), evaluations=f"{{{asked}}}"))

    def behave(self, **by_rate: dict) -> None:
        """What goes wrong in which cells: _15={"fail": 1} fails the rate 15 % the first time."""
        named = {f"{rate[1:]} %": what for rate, what in by_rate.items()}
        (self.folder / "behaviour.json").write_text(json.dumps(named))

    def run(self, **flags) -> None:
        actions.run(str(self.file.parent), self.workdir, worker=self.worker, **{"jobs": 2, **flags})

    def start(self, **flags) -> subprocess.Popen:
        """The same in a process of its own, whose end is as the command's."""
        call = (
            f"actions.run({str(self.file.parent)!r}, Path({str(self.workdir)!r}), "
            f"worker={self.worker!r}, **{flags!r})"
        )
        lines = [
            "import sys",
            "from pathlib import Path",
            "from bert_jax.studies import actions",
            "from bert_jax.errors import *",
        ]
        lines += ["actions._refresh = lambda place: None", "try:", f"    {call}"]
        lines += [
            "except UserError as error:",
            "    print(error, file=sys.stderr)",
            "    sys.exit(error.code)",
        ]
        return subprocess.Popen(
            [sys.executable, "-c", "\n".join(lines)], stderr=subprocess.PIPE, text=True
        )

    @property
    def ran(self) -> Counter:
        """How often each step and evaluation of each cell was made."""
        return (
            Counter((self.folder / "ran").read_text().splitlines())
            if (self.folder / "ran").exists()
            else Counter()
        )

    def states(self) -> Counter:
        return Counter(state.name for state in self.place.states().values())

    def complete(self, cells: int = 4) -> None:
        """Every step of every cell was made, and once."""
        assert self.states() == {"done": cells}
        each = [*(f"step {step}" for step in range(1, 6)), *self.evaluations]
        listed = [entry.id for entry in self.place.cells()]
        assert {key: count for key, count in self.ran.items() if key.split()[0] in listed} == {
            f"{cell} {what}": 1 for cell in listed for what in each
        }

    def until(self, what: str, count: int = 1) -> None:
        """Waits until something was made so often."""
        end = time.monotonic() + 30
        while sum(n for key, n in self.ran.items() if key.endswith(what)) < count:
            assert time.monotonic() < end, self.ran
            time.sleep(0.02)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "LOOK", 0.05)
    monkeypatch.setattr(launch, "REST", 0.0)
    bench = Bench(tmp_path)
    monkeypatch.setattr(
        actions, "_refresh", lambda place: bench.reports.append(bench.states()["done"])
    )
    return bench


# --- when all goes well ---------------------------------------------------------------------------


def test_every_cell_is_made_once_and_a_second_run_makes_none(bench, capfd):
    bench.evaluations = ("validation",)
    bench.rates(0.15, 0.4)
    bench.run(command=["bert-jax", "study", "run"], fuse="2")
    bench.complete()
    out, err = capfd.readouterr()
    assert out == f"{bench.place.report}\n"
    assert "4 waiting of 4 cells" in err
    assert "4 done of 4 cells" in err
    assert "text: docstrings" in err.splitlines()
    told = bench.place.read_study()
    assert (told["name"], told["question"], told["seeds"]) == ("toy", "How much?", [0, 1])
    assert told["axes"] == [
        {
            "name": "masking.rate",
            "points": [{"label": "15 %", "value": 0.15}, {"label": "40 %", "value": 0.4}],
        }
    ]
    assert told["evaluations"] == {"validation": {"kind": "suite", "name": "pretrain", "ask": {}}}
    assert len(told["cells"]) == len({entry.id for entry in bench.place.cells()}) == 4
    assert told["command"] == ["bert-jax", "study", "run"]
    before = bench.ran
    assert bench.reports[-1] == 4
    assert len(bench.reports) == 3  # after each of two groups, and in the end
    bench.run()
    assert bench.ran == before
    assert bench.place.read_study()["hash"] == told["hash"]


def test_a_cell_that_diverged_is_not_made_again(bench, capfd):
    bench.behave(_40={"outcome": "diverged"})
    bench.run()
    assert bench.states() == {"done": 2, "diverged": 2}
    before = bench.ran
    bench.run()
    assert bench.ran == before
    assert "2 done, 2 diverged of 4 cells" in capfd.readouterr().err


@pytest.mark.fault(5, 42)
def test_a_worker_without_room_stops_the_study_which_goes_on_once_there_is(bench, capfd):
    """The other tries would find no room either; it is no fault of the cell's, however often it
    happens.
    """
    bench.behave(_15={"full": 2})
    for _ in range(4):
        with pytest.raises(
            CheckpointError, match=r"^disk full: the study needs more than .* are free in"
        ) as error:
            bench.run(fuse="never", jobs=1, retries=0)
        assert error.value.code == 4
        assert "a worker found no room on the disk" in capfd.readouterr().err
    assert bench.states()["failed"] == 0
    bench.run(fuse="never", jobs=1, retries=0)
    assert bench.states() == {"done": 4}


@pytest.mark.fault(5, 42)
def test_a_launcher_without_room_for_a_log_or_a_plan_stops_in_order(bench, monkeypatch, capfd):
    """Its own writes fail: of the log of a task that starts, and of the plan to try each cell
    alone.
    """

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def no_room_for_a_plan(*_: object) -> None:
        raise disk.full(bench.workdir)

    with monkeypatch.context() as patch:
        patch.setattr(local, "start", no_room)
        with pytest.raises(CheckpointError, match=r"^disk full: the study needs"):
            bench.run()
    bench.behave(_15={"fail": 9})
    with monkeypatch.context() as patch:
        patch.setattr(launch.Launcher, "_divide", no_room_for_a_plan)
        with pytest.raises(CheckpointError, match=r"^disk full: the study needs"):
            bench.run(retries=0)
    bench.behave()
    bench.run()
    assert bench.states() == {"done": 4}


# --- when something goes wrong --------------------------------------------------------------------


@pytest.mark.fault(39)
def test_what_fails_once_is_tried_again(bench, capfd):
    bench.behave(_15={"fail": 1})
    bench.run(fuse="never")
    bench.complete()
    assert capfd.readouterr().err.count("failed (exit code 1): out of luck; it is tried again") == 2


@pytest.mark.fault(39)
def test_a_cell_that_always_fails_stops_no_other(bench, capfd):
    """Its group is tried twice, then its cells alone; the same command tries it again, and nothing
    else.
    """
    bench.behave(_40={"fail": 99})
    with pytest.raises(
        IncompleteError, match=r"2 of 4 cells failed, \w{12} \(masking.rate 40 %, seed 0\)"
    ) as error:
        bench.run(fuse="4", retries=1)
    assert error.value.code == 1
    assert "out of luck" in str(error.value)
    assert bench.states() == {"done": 2, "failed": 2}
    err = capfd.readouterr().err
    assert "each of its cells is tried alone" in err
    assert err.count("it is given up") == 2
    log = Path(re.search(r"log: (\S+);", error.value.hint)[1])
    assert "out of luck" in log.read_text()
    failed = [entry.id for entry in bench.place.cells() if entry.labels["masking.rate"] == "40 %"]
    assert [len(bench.place.attempts(cell)) for cell in failed] == [
        8,
        8,
    ]  # two with others, two alone; both ends
    actions.status(bench.workdir)
    said = capfd.readouterr().out
    assert "2 done, 2 failed of 4 cells" in said.splitlines()[0]
    assert said.count("out of luck") == 2
    bench.behave()
    bench.run()
    bench.complete()


def test_a_config_that_cannot_be_used_is_not_tried_again(bench):
    bench.behave(_40={"fail": 99, "code": 2})
    with pytest.raises(IncompleteError):
        bench.run(fuse="never")
    assert bench.states() == {"done": 2, "failed": 2}
    assert all(state.attempts == 1 for state in bench.place.states().values())


def test_a_worker_that_is_stopped_goes_on_and_nothing_is_counted(bench):
    bench.behave(_15={"stop": 4})
    bench.run(retries=0, fuse="never")
    bench.complete()


@pytest.mark.fault(39)
def test_killed_workers_are_tried_again_but_not_for_ever(bench, monkeypatch, capfd):
    bench.behave(_15={"kill": 1}, _40={"kill": 99})
    monkeypatch.setattr(launch, "KILLS", 2)
    with pytest.raises(IncompleteError):
        bench.run(fuse="never")
    # A try that got further is none of those that count.
    assert Counter(state.attempts for state in bench.place.states().values()) == {2: 2, 3: 2}
    assert "was killed (signal 9)" in capfd.readouterr().err
    done = [state for state in bench.place.states().values() if state.name == "done"]
    assert len(done) == 2


def test_a_worker_that_stops_without_getting_further_is_given_up(bench, monkeypatch):
    (bench.folder / "worker.py").write_text("raise SystemExit(75)")
    monkeypatch.setattr(launch, "KILLS", 2)
    bench.rates(0.15)
    with pytest.raises(IncompleteError, match="2 of 2 cells failed"):
        bench.run(fuse="never")
    (bench.folder / "worker.py").write_text(
        "raise SystemExit(0)"
    )  # nor one that says it was done, and was not
    with pytest.raises(IncompleteError, match="2 of 2 cells failed"):
        bench.run(fuse="never", retries=0)


def test_reports_leave_the_cores_to_the_workers(bench, monkeypatch):
    written = []
    engine = engines.make("local", bench.workdir, 1)
    launcher = launch.Launcher(
        bench.place, [], engine, after=lambda: (written.append(1), time.sleep(0.05))
    )
    monkeypatch.setattr(launch, "REST", 100.0)
    for _ in range(3):
        launcher._report()
    assert written == [1]
    monkeypatch.setattr(launch, "REST", 0.5)
    time.sleep(0.05)
    launcher._report()
    assert written == [1, 1]


@pytest.mark.parametrize(
    ("terminal", "took", "expected"), [(False, 0, [60]), (True, 0, [5, 10, 15]), (True, 1, [20])]
)
def test_a_bar_moves_more_often_than_a_log_has_lines(
    terminal, took, expected, tmp_path, monkeypatch
):
    """It rests twenty times as long as a glance at the cells takes, but five seconds at least."""
    clock, looks = [0.0], []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    engine = types.SimpleNamespace(room=types.SimpleNamespace(parallel=1))
    launcher = launch.Launcher(StudyFolder(tmp_path), [], engine)
    launcher._spoke, launcher._look_took = 0.0, took
    monkeypatch.setattr(launch.time, "monotonic", lambda: clock[0])
    known = progress.Progress([], {}, {}, 1)
    monkeypatch.setattr(progress, "look", lambda *_: looks.append(clock[0]) or known)
    while len(looks) < len(expected):
        clock[0] += 5
        launcher._show()
    assert looks == expected
    if launcher._bar is not None:
        launcher._bar.close()


# --- when it is stopped ---------------------------------------------------------------------------


@pytest.mark.fault(40)
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_stop_saves_and_the_same_command_goes_on(number, bench, capfd):
    bench.behave(_15={"sleep": 0.2}, _40={"sleep": 0.2})
    launched = bench.start(jobs=1)
    bench.until("step 2")
    launched.send_signal(number)
    _, err = launched.communicate(timeout=30)
    assert launched.returncode == 75, err
    assert f"{number.name}: waiting for 1 group to save" in err
    assert "stopped: " in err
    assert bench.states()["running"] == 0  # none is left behind
    actions.status(bench.workdir, verbose=True)
    assert capfd.readouterr().out.count("interrupted") >= 2
    bench.behave()
    bench.run(jobs=1)
    bench.complete()


@pytest.mark.fault(40)
def test_a_killed_launch_is_continued_by_the_same_command(bench):
    """At three moments; its workers end with it, saving, and the next launch waits for them."""
    bench.behave(_15={"sleep": 0.1}, _40={"sleep": 0.1})
    for moment in ("step 1", "step 2", "step 4"):
        launched = bench.start(jobs=2)
        bench.until(moment)
        launched.kill()
        launched.communicate()
    bench.run()
    bench.complete()


def test_cells_in_other_hands_are_waited_for(bench, monkeypatch):
    """As those of a launcher that was killed, whose jobs go on elsewhere."""
    with monkeypatch.context() as patch:
        patch.setattr(launch.Launcher, "run", lambda self: None)
        with pytest.raises(IncompleteError):  # writes what is to be done, and does nothing
            bench.run()
    entries = bench.place.cells()
    released = threading.Event()

    def other() -> None:
        with folder_locks.hold(bench.place.cell(entries[0].id)):
            held.set()
            released.wait(30)

    held = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    held.wait(10)
    threading.Timer(1.0, released.set).start()
    began = time.monotonic()
    bench.run(fuse="never")
    thread.join()
    assert time.monotonic() - began > 1.0
    bench.complete()


def test_a_second_launch_is_told_who_is_there(bench):
    bench.behave(_15={"sleep": 0.3}, _40={"sleep": 0.3})
    launched = bench.start(jobs=1)
    try:
        bench.until("step 1")
        with pytest.raises(ConfigError, match=f"pid {launched.pid},") as error:
            bench.run()
        assert error.value.code == 2
        actions.status(bench.workdir)  # who only looks is not refused
    finally:
        launched.kill()
        launched.communicate()


# --- when it is edited, or moved ------------------------------------------------------------------


@pytest.mark.fault(41)
def test_an_edited_study_adds_and_hides_and_makes_nothing_again(bench, capfd):
    bench.run()
    bench.rates(0.4, 0.6)
    bench.run()
    bench.complete(4)
    assert "2 cells of an earlier version" in capfd.readouterr().err
    assert len(list((bench.workdir / "cells").iterdir())) == 6
    assert {entry.labels["masking.rate"] for entry in bench.place.cells()} == {"40 %", "60 %"}
    before = bench.ran
    bench.rates(0.15, 0.4, 0.6)
    bench.run()  # what was hidden is there again
    assert bench.ran == before
    bench.complete(6)


@pytest.mark.fault(41)
def test_an_evaluation_that_is_added_trains_nothing_again(bench):
    bench.run()
    bench.evaluations = ("again",)
    bench.rates(0.15, 0.4)
    assert bench.states() == {"done": 4}
    bench.run()
    bench.complete()


@pytest.mark.slow
def test_another_engine_goes_on_with_the_same_cells(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", clusters.modules()["submitit"])
    bench.behave(_40={"fail": 99})
    with pytest.raises(IncompleteError):
        bench.run(retries=0, fuse="never")
    bench.behave()
    bench.run(engine="slurm", options={"cluster": "local"})
    bench.complete()


def test_cells_that_have_begun_stay_in_their_group(bench, monkeypatch):
    """Their slots, and with them the last bits of their numbers, must not follow from how far a
    study is.
    """
    bench.behave(_15={"fail": 99}, _40={"fail": 99})
    with pytest.raises(IncompleteError):
        bench.run(retries=0, fuse="4")
    cells = definition.expand(definition.load(str(bench.file.parent))[1])
    begun = plan.recorded(bench.place, cells)
    assert len(set(begun.values())) == 4  # each was tried alone in the end
    evaluations = bench.place.read_study()["evaluations"]
    planned = plan.plan(bench.place, cells, evaluations, "auto", engines.Capacity(1))
    assert {cell.id: group.id for group in planned for cell in group.cells} == begun
    assert {group.slots for group in planned} == {
        groups.own_slots(cells[-1].config)
    }  # of the highest rate of all
    fresh = plan.plan(
        StudyFolder(bench.folder / "new"), cells, evaluations, "auto", engines.Capacity(1)
    )
    assert len(fresh) < 4
    split = plan.plan(bench.place, cells, evaluations, "never", engines.Capacity(1))
    assert {cell.id: group.id for group in split for cell in group.cells} == begun


def test_a_begun_group_takes_the_time_of_what_is_left(bench, monkeypatch):
    cells = definition.expand(definition.load(str(bench.file.parent))[1])
    members = [cell.id for cell in cells]
    group = {"cells": members, "slots": 7, "estimate_seconds": 100.0}
    monkeypatch.setattr(plan, "recorded", lambda place, cells: dict.fromkeys(members, "g"))
    place = types.SimpleNamespace(read_group=lambda name: group, attempts=lambda cell: 1)
    (begun,) = plan._begun(place, cells, cells[:1], len(cells), groups.PACE)
    whole = groups.estimate_seconds(cells, groups.PACE)
    assert begun.seconds == pytest.approx(whole / len(cells))


# --- cells of another study -----------------------------------------------------------------------


def test_cells_that_another_study_has_trained_are_copied_and_only_their_new_evaluations_made(
    bench, capfd
):
    bench.behave(_40={"outcome": "diverged"})
    bench.run()
    first, (bench.workdir, bench.place) = (
        bench.workdir,
        (bench.folder / "v", StudyFolder(bench.folder / "v")),
    )
    bench.behave()
    bench.evaluations = ("validation",)
    bench.rates(0.15, 0.4, 0.6)
    before = bench.ran
    bench.run(reuse=[first], dry_run=True)
    out = capfd.readouterr().out
    assert f"2 trained cells are taken from {first}" in out
    assert out.count("finished") == 2
    assert not bench.workdir.exists()
    bench.run(reuse=[first])
    assert "2 trained cells are taken from" in capfd.readouterr().err
    assert bench.states() == {"done": 6}
    ratio = progress.look(bench.place).ratio
    assert ratio is not None
    assert ratio < 10  # what was copied says nothing of the pace here
    made = bench.ran - before
    ids = {(cell.labels["masking.rate"], cell.seed): cell.id for cell in bench.place.cells()}
    for (rate, _), cell in ids.items():
        steps = 0 if rate == "15 %" else 5  # one that diverged is no use to another study
        assert {key: n for key, n in made.items() if key.startswith(cell)} == {
            **{f"{cell} step {step}": 1 for step in range(1, steps + 1)},
            f"{cell} validation": 1,
        }
    assert not list(bench.workdir.glob("cells/.*"))
    again = bench.ran
    bench.run(reuse=[first])
    assert bench.ran == again


# --- what is printed ------------------------------------------------------------------------------


def test_a_job_that_nobody_saw_end_is_not_called_killed(bench, monkeypatch, capfd):
    """A cluster that keeps no accounts forgets jobs: of one that is gone no signal is known."""
    ended = local.Local.poll
    monkeypatch.setattr(
        local.Local, "poll", lambda self: [(task, code and LOST) for task, code in ended(self)]
    )
    bench.behave(_15={"kill": 1})
    bench.run(fuse="never")
    said = capfd.readouterr().err
    assert "ended without an exit code; it is tried again" in said
    assert "signal" not in said
    bench.complete()


@pytest.mark.parametrize(
    ("code", "words", "state"),
    [
        (engines.CANCELLED, "was cancelled", "waiting"),
        (engines.OUT_OF_TIME, "was killed (out of time)", "failed"),
        (engines.OUT_OF_MEMORY, "was killed (out of memory)", "failed"),
        (-9, "was killed (signal 9)", "failed"),
    ],
)
def test_a_job_that_was_cancelled_is_told_from_one_that_was_killed(
    code, words, state, bench, monkeypatch, capfd
):
    """In what is said and in the status; a cell that was cancelled often has not failed."""
    ended = local.Local.poll
    monkeypatch.setattr(
        local.Local, "poll", lambda self: [(task, code if c < 0 else c) for task, c in ended(self)]
    )
    monkeypatch.setattr(launch, "KILLS", 2)
    monkeypatch.setattr(folder, "KILLS", 2)
    bench.rates(0.15)
    bench.behave(_15={"kill": 99})
    with pytest.raises(IncompleteError, match=re.escape(words)):
        bench.run(fuse="never")
    said = capfd.readouterr().err
    assert f"{words}; it is tried again" in said
    assert bench.states() == {state: 2}
    actions.status(bench.workdir)
    out = capfd.readouterr().out
    assert out.count(f"\n          {words}\n") == 2
    bench.behave()
    bench.run(fuse="never")
    assert bench.states() == {"done": 2}


@pytest.mark.parametrize(
    ("joined", "engine", "options", "words", "hint"),
    [
        (True, "local", {}, "engine local starts one process for each cell", "nodes=N"),
        (True, "slurm", {"mem_gb": "4"}, "engine slurm starts one process", "nodes=N"),
        (False, "slurm", {"nodes": "2"}, "would start 2 processes", "parallel.distributed=true"),
        (False, "slurm", {"tasks_per_node": "3"}, "would start 3 processes", "tasks_per_node"),
    ],
)
def test_processes_of_a_cell_are_as_many_as_the_engine_starts(
    joined, engine, options, words, hint, bench
):
    """Refused before anything is written, in a dry run too."""
    overrides = [("parallel.distributed", "true")] if joined else []
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match=words) as error:
            bench.run(overrides=overrides, engine=engine, options=options, dry_run=dry_run)
        assert hint in error.value.hint
    assert not bench.workdir.exists()


def test_cells_of_several_processes_train_apart(bench, capfd):
    given = {"engine": "slurm", "options": {"nodes": "2"}, "fuse": "4", "dry_run": True}
    bench.run(overrides=[("parallel.distributed", "true")], **given)
    out = capfd.readouterr().out
    assert out.count("several processes train one run") == 4
    assert "4 cells, 4 groups to do" in out


def test_a_dry_run_prints_and_writes_nothing(bench, capfd):
    bench.run(dry_run=True, jobs=1, fuse="4")
    out, err = capfd.readouterr()
    assert err == ""
    cells = definition.expand(definition.load(str(bench.file.parent))[1])
    for cell in cells:
        assert f"\n{cell.id}  {cell.labels['masking.rate']}" in out
    assert re.search(r"\w{12} +4 +\d+ +\d+%\n", out)
    assert " about " not in out
    total = out.splitlines()[-1]
    assert re.search(r"study toy: 4 cells, 1 groups to do; training takes \S+ FLOPs;", total)
    assert "--flops-per-second=N" in total
    assert not bench.workdir.exists()
    bench.behave(_40={"fail": 99})
    with pytest.raises(IncompleteError):
        bench.run(fuse="never", retries=0)
    capfd.readouterr()
    bench.run(dry_run=True, engine="slurm")  # no need of submitit
    assert capfd.readouterr().out.count("finished") == 2


@pytest.mark.parametrize("engine", ["local", "slurm"])
def test_dry_run_has_hours_at_a_stated_speed_only(engine, bench, capfd):
    """No engine's hours come from the speed of some core."""
    bench.run(dry_run=True, engine=engine, jobs=1, fuse="4")
    unknown = capfd.readouterr().out
    assert not re.search(r"\d (s|min|h)\b", unknown)
    flops = float(re.search(r"training takes (\S+) FLOPs", unknown)[1])
    speed = flops / 36_000
    bench.run(dry_run=True, engine=engine, jobs=1, fuse="4", flops_per_second=speed)
    known = capfd.readouterr().out.splitlines()[-1]
    assert f"training takes {flops:.1e} FLOPs, about 10 h at {speed:.3g} FLOP/s a worker" in known


def test_dry_run_has_hours_at_the_pace_of_cells(bench, capfd):
    bench.run()
    done = bench.place.cells()
    spent = sum(5 * costs.flops_per_step(cell.config, cell.vocab_size) for cell in done)
    for entry in done:
        bench.place.write_trained(entry.id, 5, 36_000.0, "done")
    bench.rates(0.15, 0.4, 0.6)
    capfd.readouterr()
    bench.run(dry_run=True, jobs=1)
    total = capfd.readouterr().out.splitlines()[-1]
    found = re.search(r"(\S+) FLOPs, about (\d+) h at the pace of the cells so far", total)
    hours = len(done) * 10 * float(found[1]) / spent
    assert float(found[2]) == pytest.approx(hours, rel=0.05)


def test_a_dry_run_counts_evaluations_once_some_were_made(bench, capfd):
    bench.evaluations = ("validation",)
    bench.rates(0.15)
    bench.run(dry_run=True)
    assert "evaluations take" not in capfd.readouterr().out
    bench.run()
    bench.rates(0.15, 0.4, 0.6)
    bench.behave()
    capfd.readouterr()
    bench.run(dry_run=True, jobs=2)  # four cells of half a second, two at a time
    assert "evaluations take about 1 s more: 0.5 s a cell so far" in capfd.readouterr().out


MANY = """
import sys, time
from pathlib import Path
from bert_jax.studies import actions
actions.run(sys.argv[1], Path(sys.argv[2]), dry_run=True)
print(time.process_time(), [name for name in ("jax", "flax", "matplotlib") if name in sys.modules])
"""


def test_two_hundred_cells_are_expanded_checked_and_planned_in_two_seconds_without_jax(bench):
    bench.rates(*(i / 200 for i in range(5, 105)))
    command = [sys.executable, "-c", MANY, str(bench.file.parent), str(bench.workdir)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "study toy: 200 cells" in out[-2]
    seconds, _, loaded = out[-1].partition(" ")
    assert loaded == "[]"
    assert float(seconds) < 2.0


def test_status_says_how_far_it_is(bench, capfd):
    bench.evaluations = ("validation",)
    bench.rates(0.15, 0.4)
    bench.behave(_15={"sleep": 0.3}, _40={"sleep": 0.3})
    launched = bench.start(jobs=2, fuse="2")
    bench.until("step 2", 4)
    actions.status(bench.workdir, as_json=True)
    told = json.loads(capfd.readouterr().out)
    actions.status(bench.workdir, verbose=True)
    text = capfd.readouterr().out
    launched.terminate()
    launched.communicate()
    assert (told["study"], told["workdir"]) == ("toy", str(bench.workdir))
    assert told["counts"] == {"done": 0, "diverged": 0, "running": 4, "failed": 0, "waiting": 0}
    assert {cell["step"] for cell in told["cells"]} <= {2, 3, 4}
    assert all(cell["steps"] == 5 and cell["missing"] == ["validation"] for cell in told["cells"])
    # A step of two cells takes 4 seconds of its clock: 5 - step of them are left, and as much again
    # / 9 to evaluate.
    for cell in told["cells"]:
        assert cell["seconds_left"] == pytest.approx(sum_left(cell["step"]), rel=0.3)
    assert told["seconds_left"] == pytest.approx(
        max(2 * cell["seconds_left"] for cell in told["cells"]), rel=0.01
    )
    assert text.splitlines()[0].startswith("4 running of 4 cells; about ")
    assert len(text.splitlines()) == 5
    assert "running " in text


def sum_left(step: int) -> float:
    done = 0.9 * step / 5
    return 2.0 * step * (1 - done) / done


def test_time_left_follows_from_what_was_done():
    """Two groups of 100 expected seconds: one half done in 100 real ones, the other not begun."""

    def cell(name: str, step: int, seconds: float, state: str = "running", fork: int = 0):
        about = {"id": name, "evaluations": {}, "labels": {}, "seed": 0, "fork": fork}
        entry = type("Entry", (), about)
        told = type("State", (), {"name": state, "step": step, "steps": 100, "missing": ()})
        return type(
            "Result",
            (),
            {"entry": entry, "state": told, "seconds": seconds, "evaluation_seconds": 0.0},
        )

    expected, of = {"a": 100.0, "b": 100.0}, {"a": "one", "b": "other"}
    one = {"a": "g", "b": "g"}

    def left(cells, groups=of, parallel: int = 1, measured={"a": 200.0}) -> float | None:  # noqa: B006
        now = progress.Progress(cells, expected, groups, parallel, measured=measured)
        return now.seconds_left

    both = [cell("a", 50, 100.0), cell("b", 0, 0.0, "waiting")]
    assert left(both) == pytest.approx(100 + 200)
    assert left(both, parallel=2) == pytest.approx(200)  # the other, whole
    assert left(both, one, 2) == pytest.approx(300)
    failed = [both[0], cell("b", 0, 0.0, "failed")]
    assert left(failed) == pytest.approx(100)
    branch = [cell("a", 90, 100.0, fork=80), cell("b", 0, 0.0, "waiting", fork=80)]
    assert left(branch) == pytest.approx(100 + 200)
    fresh = [cell("a", 0, 0.0, "waiting"), both[1]]
    now = progress.Progress(fresh, expected, of, 1)
    assert now.seconds_left is None  # an estimate that nothing was measured for
    assert now.line() == "2 waiting of 2 cells"


def test_progress_follows_a_machine_that_slows_down(bench, capfd):
    """By the metrics of a group of four cells: 0.1 s an update, then one of a minute."""
    bench.run(fuse="4")
    cells = bench.place.cells()
    bench.place.write_group(cells[0].group, [cell.id for cell in cells], 1, 4.0)
    for entry in cells:
        (bench.place.cell(entry.id) / "trained.json").unlink()
        (bench.place.cell(entry.id) / "attempts.jsonl").unlink()
        rows = [{"step": step, "time": 30 + 0.1 * step} for step in range(1, 4)]
        (bench.place.cell(entry.id) / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with contextlib.ExitStack() as running:
        for entry in cells:
            running.enter_context(folder_locks.hold(bench.place.cell(entry.id)))
        assert progress.look(bench.place).seconds_left == pytest.approx(2 * 0.1)
        for entry in cells:
            files.append(
                bench.place.cell(entry.id) / "metrics.jsonl", {"step": 4, "time": 30.3 + 60}
            )
        slow = progress.look(bench.place)
    assert slow.seconds_left == pytest.approx(60.2 / 3)
    assert "about 20 s left" in slow.line()


# --- what is refused ------------------------------------------------------------------------------


def fails(capsys, *argv: object) -> tuple[int, str]:
    code = cli.execute(["study", *map(str, argv)])
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return code, err


def test_wrong_input(bench, capsys):
    toy, workdir = bench.file.parent, f"--workdir={bench.workdir}"
    for argv, said in [
        (["run", workdir], "no study given"),
        (["run", toy], "--workdir"),
        (["run", bench.folder / "nowhere", workdir], "no study at"),
        (["rnu", toy, workdir], "rnu"),
        (["run", toy, workdir, "--engine=slrum"], "no engine 'slrum'"),
        (["run", toy, workdir, "--engine=slrum", "--dry-run"], "no engine 'slrum'"),
        (["run", toy, workdir, "--fuse=some"], "--fuse=some"),
        (["run", toy, workdir, "--jobs=0"], "'0' is not a whole number of 1 or more"),
        (["run", toy, workdir, "--retries=-1"], "'-1' is not a whole number"),
        (["run", toy, workdir, "--engine-option", "mem"], "--engine-option 'mem' has no value"),
        (["run", toy, workdir, "--engine-option", "mem=1"], "engine local has no option 'mem'"),
        (["run", toy, workdir, "--json"], "study run has no flag --json"),
        (["status", workdir, "--dry-run"], "study status has no flag --dry-run"),
        (["status", workdir, "--reuse=x"], "study status has no flag --reuse"),
        (["run", toy, workdir, "--reuse=nowhere", "--dry-run"], "no study in nowhere"),
        (["run", toy, workdir, "--config.masking.rat=0.4", "--dry-run"], "did you mean 'rate'"),
        (["status", workdir], "no study in"),
        (["report", workdir], "no study in"),
    ]:
        code, err = fails(capsys, *argv)
        assert code == 2, argv
        assert said in err, err
        assert "hint: " in err
    assert not (bench.workdir / "cells").exists()
    bench.file.write_text(bench.file.read_text().replace("masking.rate", "masking.rat"))
    code, err = fails(capsys, "run", toy, workdir)
    assert code == 2
    assert "rat" in err
    assert "'rate'" in err


def test_a_folder_of_something_else(bench, capsys):
    bench.run()
    capsys.readouterr()
    other = bench.folder / "other"
    bench.file.parent.rename(other)
    code, err = fails(capsys, "run", other, f"--workdir={bench.workdir}")
    assert code == 2
    assert "holds another study" in err
    (bench.folder / "run" / "checkpoints").mkdir(parents=True)
    code, err = fails(capsys, "run", other, f"--workdir={bench.folder / 'run'}")
    assert code == 2
    assert "is the folder of a run" in err


def test_a_scale_of_its_own_wants_a_folder_of_its_own(bench):
    bench.run()
    toy = str(bench.file.parent)
    actions.run(f"{toy}:cpu", bench.workdir, worker=bench.worker)  # the same cells by another name
    bench.file.write_text(
        bench.file.read_text().replace("base.steps = 5", "base.steps = 5 + (scale == 'full')")
    )
    with pytest.raises(ConfigError, match="holds another study"):
        actions.run(f"{toy}:full", bench.workdir, worker=bench.worker)
    assert len(list((bench.workdir / "cells").iterdir())) == 4


def test_a_study_of_another_text_wants_another_folder(bench):
    text = bench.folder / "text.txt"
    text.write_text("A sentence.\n\nAnother one.\n")
    bench.run()
    other = [("corpus.source", "files"), ("corpus.path", str(text))]
    said = rf"holds a study of docstrings, and this one is of files {re.escape(str(text))}"
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match=said):
            bench.run(overrides=other, dry_run=dry_run)
    bench.complete()


def test_a_finished_study_needs_its_text_no_more(bench):
    text = bench.folder / "text.txt"
    text.write_text("A sentence.\n\nAnother one.\n")
    other = [("corpus.source", "files"), ("corpus.path", str(text))]
    bench.run(overrides=other)
    text.unlink()
    bench.run(overrides=other)
    bench.rates(0.15, 0.4, 0.6)
    with pytest.raises(DataError, match=re.escape(str(text))):
        bench.run(overrides=other)


def test_the_command_passes_its_flags_on(monkeypatch, tmp_path):
    seen = {}
    for name in ("run", "status", "report"):
        monkeypatch.setattr(
            actions, name, lambda *args, name=name, **kwargs: seen.update({name: (args, kwargs)})
        )
    flags = [
        "--engine=ray",
        "--engine-option=num_cpus=2",
        "--jobs=3",
        "--fuse=never",
        "--retries=0",
        "--dry-run",
        "--flops-per-second=3e14",
    ]
    flags += ["--reuse=runs/a", "--reuse", "b"]
    argv = [
        "study",
        "run",
        "experiments/x:full",
        f"--workdir={tmp_path}",
        "--config.steps=7",
        *flags,
    ]
    assert cli.execute(argv) == 0
    assert seen["run"][0] == ()
    assert seen["run"][1] == {
        "spec": "experiments/x:full",
        "workdir": tmp_path,
        "overrides": [("steps", "7")],
        "options": {"num_cpus": "2"},
        "command": ["bert-jax", *argv],
        "engine": "ray",
        "jobs": 3,
        "fuse": "never",
        "retries": 0,
        "reuse": [Path("runs/a"), Path("b")],
        "dry_run": True,
        "flops_per_second": 3e14,
    }
    assert cli.execute(["study", "status", f"--workdir={tmp_path}", "--json", "--verbose"]) == 0
    assert seen["status"] == ((tmp_path,), {"verbose": True, "as_json": True})
    assert cli.execute(["study", "report", f"--workdir={tmp_path}"]) == 0
    assert seen["report"] == ((tmp_path, None), {})

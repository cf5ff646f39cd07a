"""The folder of a study: what is written is read again, whole at every moment, and says how far a
cell is.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import DataError
from bert_jax.studies import files
from bert_jax.studies.definition import Cell, expand
from bert_jax.studies.folder import KILLS, StudyFolder, spec_hash
from bert_jax.system import folder_locks
from tests.test_study_definition import study

SUITE = {"kind": "suite", "name": "pretrain", "ask": []}
ASKED = {
    "validation": SUITE,
    "sst2": {"kind": "finetune", "task": "sst2", "changes": [["epochs", 2.0]]},
}
CELL, GROUP = expand(study())[1], "feedbeef0123"


@pytest.fixture
def place(tmp_path) -> StudyFolder:
    made = StudyFolder(tmp_path / "w")
    made.write_cell(CELL, GROUP, ASKED)
    return made


def entry(place: StudyFolder):
    return place.read_cell(CELL.id)


# --- the layout -----------------------------------------------------------------------------------


def test_everything_lies_where_the_layout_says(tmp_path):
    place = StudyFolder(tmp_path)
    there = {
        "study.json": place.study,
        "groups/g.json": place.group("g"),
        "logs/g.log": place.log("g"),
        "cells/c": place.cell("c"),
        "cells/c/results/n.json": place.result("c", "n"),
        "cells/c/results/n.npz": place.each("c", "n"),
        "cells/c/finetune/n": place.finetune("c", "n"),
        "results.csv": place.csv,
        "report.html": place.report,
        "figures": place.figures,
        "compiled": place.compiled,
    }
    assert {name: Path(path) for name, path in there.items()} == {
        name: tmp_path / name for name in there
    }
    assert not any(tmp_path.iterdir())  # asking makes nothing


def test_a_cell_is_read_as_it_was_written(place):
    assert json.loads((place.cell(CELL.id) / "cell.json").read_text()).keys() == {
        *("id", "labels", "values", "seed", "config", "group", "evaluations", "vocabulary", "trunk")
    }
    found = entry(place)
    for field in ("id", "config", "labels", "values", "seed"):
        assert getattr(found, field) == getattr(CELL, field), field
    assert (found.group, found.evaluations) == ("feedbeef0123", ASKED)


def test_a_study_lists_its_cells_and_hides_the_others(place):
    assert place.read_study() == {}
    assert place.cells() == []
    others = expand(study())
    for cell in others:
        place.write_cell(cell, "g", ASKED)
    place.write_study({"name": "one", "cells": [others[3].id, others[0].id]})
    assert place.read_study()["name"] == "one"
    assert [cell.id for cell in place.cells()] == [others[3].id, others[0].id]
    assert set(place.states()) == {others[3].id, others[0].id}
    assert len([*(place.workdir / "cells").iterdir()]) == len(others)


def test_groups_and_the_end_of_training_are_read_as_they_were_written(place):
    place.write_group("g", iter(["b", "a"]), 12, 3.5)
    assert place.read_group("g") == {"cells": ["b", "a"], "slots": 12, "estimate_seconds": 3.5}
    assert place.trained(CELL.id) == {}
    place.write_trained(CELL.id, 1_000, 2.5, "done")
    assert place.trained(CELL.id) == {"step": 1_000, "seconds": 2.5, "outcome": "done", "error": ""}
    assert place.checkpoint(CELL.id) == place.cell(CELL.id) / "checkpoints" / "1000"


def test_what_is_missing_or_broken_is_named(place):
    with pytest.raises(DataError, match=r"no .*groups/g.json"):
        place.read_group("g")
    with pytest.raises(DataError, match=r"no .*cells/none/cell.json"):
        place.read_cell("none")
    place.study.write_text('{"name": ')
    with pytest.raises(DataError, match=r"study.json: not JSON"):
        place.read_study()


# --- results --------------------------------------------------------------------------------------

EACH = {"mlm_loss.sum": np.array([1.5, 2.0]), "mlm_loss.count": np.array([1.0, 3.0])}


def test_a_result_is_read_as_it_was_written(place):
    assert place.missing(entry(place)) == ["validation", "sst2"]
    assert place.read_result(entry(place), "validation") is None
    assert place.read_each(entry(place), "validation") == {}
    place.write_result(entry(place), "validation", {"0.15/mlm_loss": 2.0}, 1.5, EACH)
    found = place.read_result(entry(place), "validation")
    assert found is not None
    assert (found["metrics"], found["seconds"], found["error"]) == ({"0.15/mlm_loss": 2.0}, 1.5, "")
    for key, value in place.read_each(entry(place), "validation").items():
        np.testing.assert_array_equal(value, EACH[key])
    assert place.missing(entry(place)) == ["sst2"]


def evaluated(cell: Cell, **changes: object) -> Cell:
    """The cell with another validation while it trains; its name stays."""
    validation = dataclasses.replace(cell.config.evals["validation"], **changes)
    return dataclasses.replace(
        cell, config=dataclasses.replace(cell.config, evals={"validation": validation})
    )


@pytest.mark.parametrize(
    ("cell", "asked", "stands"),
    [
        (CELL, ASKED, True),
        (CELL, ASKED | {"more": SUITE}, True),
        (evaluated(CELL, every=7, batch_size=3), ASKED, True),
        (evaluated(CELL, rate=0.4), ASKED, False),
        (evaluated(CELL, unit="word"), ASKED, False),
        (CELL, ASKED | {"validation": SUITE | {"ask": [["changes", [["pairs", "none"]]]]}}, False),
        (CELL, ASKED | {"validation": SUITE | {"name": "nsp"}}, False),
    ],
)
def test_a_result_stands_for_the_very_evaluation_it_is_of(place, cell, asked, stands):
    place.write_result(entry(place), "validation", {"mlm_loss": 2.0}, 1.5, EACH)
    place.write_cell(cell, "g", asked)
    assert (place.read_result(entry(place), "validation") is not None) is stands
    assert bool(place.read_each(entry(place), "validation")) is stands
    assert ("validation" not in place.missing(entry(place))) is stands


def test_results_of_two_cells_are_not_exchanged(place):
    other = dataclasses.replace(CELL, id="0" * 12)
    place.write_cell(other, "g", ASKED)
    assert spec_hash(place.read_cell(other.id), "validation") != spec_hash(
        entry(place), "validation"
    )


def test_arrays_do_not_outlive_the_evaluation_they_are_of(place):
    place.write_result(entry(place), "validation", {"mlm_loss": 2.0}, 1.5, EACH)
    place.write_cell(CELL, "g", ASKED | {"validation": {"kind": "suite", "name": "nsp", "ask": []}})
    place.write_result(entry(place), "validation", {"nsp_accuracy": 0.5}, 1.5, {})
    assert place.read_result(entry(place), "validation")
    assert place.read_each(entry(place), "validation") == {}


# --- attempts and states --------------------------------------------------------------------------


def attempt(place: StudyFolder, outcome: str = "", code: int = 0, what: str = "training") -> None:
    place.note_start(CELL.id, GROUP, what)
    if outcome:
        place.note_end(CELL.id, GROUP, what, outcome, code, f"{outcome} {code}" if code else "")


FAILED, USAGE, STOPPED, KILLED, DONE = ("failed", 1), ("failed", 2), ("stopped", 75), (), ("done",)


@pytest.mark.parametrize(
    ("tries", "name"),
    [
        ([], "waiting"),
        ([STOPPED] * 9, "waiting"),
        ([FAILED] * 2, "waiting"),
        ([FAILED] * 3, "failed"),
        ([FAILED, STOPPED, FAILED, KILLED, FAILED], "failed"),
        (
            [FAILED, FAILED, DONE, FAILED, FAILED],
            "waiting",
        ),  # trained at last; then an evaluation fails
        ([FAILED, FAILED, DONE, FAILED, FAILED, FAILED], "failed"),
        ([USAGE], "failed"),  # no other try can help,
        ([USAGE, STOPPED, FAILED], "waiting"),  # but it did
        ([KILLED] * (KILLS - 1), "waiting"),
        ([KILLED] * KILLS, "failed"),
        ([KILLED] * KILLS + [DONE], "waiting"),
    ],
)
def test_a_cell_that_is_not_done_waits_until_it_has_failed_too_often(place, tries, name):
    for one in tries:
        attempt(place, *one)
    state = place.state(entry(place))
    assert (state.name, state.attempts) == (name, len(tries))
    failed = [one for one in tries if one[:1] == ("failed",)]
    if failed and DONE not in tries:
        assert state.error == f"failed {failed[-1][1]}"
    with folder_locks.hold(place.cell(CELL.id)):
        assert place.state(entry(place)).name == "running"


def test_what_failed_in_company_waits_to_be_tried_alone(place):
    for one in [FAILED] * 3:
        attempt(place, *one)
    assert place.state(entry(place)).name == "failed"
    place.write_cell(CELL, "alone", ASKED)
    state = place.state(entry(place))
    assert (state.name, state.attempts, state.error) == ("waiting", 3, "")


def test_tries_are_counted_as_told(place):
    attempt(place, *FAILED)
    assert place.state(entry(place), retries=1).name == "waiting"
    assert place.state(entry(place), retries=0).name == "failed"


def test_a_cell_is_done_when_it_is_trained_and_evaluated(place):
    (place.cell(CELL.id) / "metrics.jsonl").write_text(
        '{"step": 900, "time": 4.5}\n{"step": 1000, "time": 5}\n{"st'
    )
    place.write_trained(CELL.id, 1_000, 2.5, "done")
    state = place.state(entry(place))
    assert (state.name, state.step, state.steps, state.seconds) == ("waiting", 1_000, 1_000, 5.0)
    assert state.missing == ("validation", "sst2")
    for name in ASKED:
        place.write_result(entry(place), name, {}, 1.0, {})
    assert place.state(entry(place)).name == "done"
    place.write_cell(CELL, "g", ASKED | {"more": SUITE})  # an edited study asks more
    assert (place.state(entry(place)).name, place.state(entry(place)).missing) == (
        "waiting",
        ("more",),
    )


def test_a_cell_that_diverged_stays_so(place):
    place.write_trained(CELL.id, 300, 2.5, "diverged", "5 updates in a row were not finite")
    for _ in range(9):
        attempt(place, *FAILED)
    state = place.state(entry(place))
    assert (state.name, state.error) == ("diverged", "5 updates in a row were not finite")


def test_attempts_say_when_where_and_why(place):
    attempt(place, *FAILED, what="evaluation validation")
    start, end = place.attempts(CELL.id)
    assert start.keys() == {"event", "time", "host", "pid", "group", "what"}
    assert end.keys() == start.keys() | {"outcome", "code", "error"}
    assert (end["what"], end["outcome"], end["code"], end["error"]) == (
        "evaluation validation",
        "failed",
        1,
        "failed 1",
    )


# --- files ----------------------------------------------------------------------------------------

LINES = st.lists(
    st.fixed_dictionaries({"step": st.integers(0, 10**6), "time": st.floats(0, 1e6)}), max_size=5
)


@given(LINES, LINES.filter(len), st.integers(1, 20))
def test_a_torn_line_costs_no_other(tmp_path_factory, before, after, left):
    path = tmp_path_factory.mktemp("lines") / "x" / "lines.jsonl"
    for one in before:
        files.append(path, one)
    path.parent.mkdir(exist_ok=True)
    torn = json.dumps({"step": 7, "time": 1.0})[:left]
    with path.open("a") as file:
        file.write(torn)
    assert files.last_step(path) == (
        (before[-1]["step"], before[-1]["time"]) if before else (0, 0.0)
    )
    for one in after:
        files.append(path, one)
    assert files.lines(path) == [*before, *after]
    assert files.last_step(path) == (after[-1]["step"], after[-1]["time"])


def test_the_last_step_is_read_from_the_end_of_a_long_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert files.last_step(path) == (0, 0.0)
    row = {f"eval/{number}": 0.5 for number in range(300)}
    path.write_text(
        "".join(json.dumps({"step": step, "time": 2 * step, **row}) + "\n" for step in range(1, 40))
    )
    assert path.stat().st_size > 5 * files.TAIL
    assert files.last_step(path) == (39, 78.0)


WRITER = """
import sys
from pathlib import Path
from bert_jax.studies import files
for number in range(10**9):
    files.write(Path(sys.argv[1]), {"number": number, "same": [number] * 5000})
"""


def test_a_file_is_whole_while_it_is_written_and_after_its_writer_is_killed(tmp_path):
    path = tmp_path / "one.json"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    try:
        seen = set()
        while len(seen) < 40:
            if found := files.read(path):
                assert set(found["same"]) == {found["number"]}
                seen.add(found["number"])
    finally:
        writer.kill()
        writer.wait()
    assert files.read(path)


def test_looking_needs_no_jax():
    told = (
        "import sys, bert_jax.studies.folder, bert_jax.studies.progress; "
        "print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

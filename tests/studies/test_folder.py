"""The folder of a study: what is written is read, and states follow from files."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import DataError
from bert_jax.studies import files
from bert_jax.studies.definition import expand
from bert_jax.studies.folder import WORK, Entry, StudyFolder, hash_evaluation
from bert_jax.system import folder_locks
from tests import study_workdir

ASKED = {"validation": {"kind": "suite", "name": "pretrain", "ask": {}}}


@pytest.fixture(scope="module")
def cells() -> list[Entry]:
    study = study_workdir.masking_rate((0.15, 0.4), seeds=(0,))
    return [Entry(**vars(cell), evaluations=ASKED) for cell in expand(study)]


@pytest.fixture
def place(tmp_path, cells) -> StudyFolder:
    made = StudyFolder(tmp_path)
    made.write_study({"name": "x", "evaluations": ASKED}, cells)
    return made


def test_cells_are_read_as_they_were_written(place, cells):
    assert place.cells() == cells
    phases = dataclasses.replace(cells[1].config.masking, phases=((1.0, 0.2, "linear"),))
    other = dataclasses.replace(
        cells[1], config=dataclasses.replace(cells[1].config, masking=phases)
    )
    without = dataclasses.replace(cells[0], config=dataclasses.replace(cells[0].config, evals={}))
    branch = dataclasses.replace(cells[2], trunk=f"{cells[0].id}@16", vocabulary=300)
    changed = [cells[0], other, dataclasses.replace(without, id="w"), branch]
    place.write_study({"name": "x", "evaluations": ASKED}, changed)
    assert place.cells() == changed
    assert [cell.fork for cell in place.cells()] == [0, 0, 0, 16]


def test_study_lists_its_cells_and_hides_others(place, cells):
    place.write_study({"name": "x", "evaluations": ASKED}, cells[1:])
    assert place.cells() == cells[1:]
    assert place.read_study()["name"] == "x"
    assert StudyFolder(place.workdir / "other").read_study() == {}


def test_result_is_read_as_it_was_written(place, cells):
    each = {"mlm_loss.sum": np.arange(3.0), "mlm_loss.count": np.ones(3)}
    place.write_result(cells[0], "validation", {"mlm_loss": 1.5}, 2.5, each)
    found = place.read_result(cells[0], "validation")
    assert (found.metrics, found.seconds, found.error) == ({"mlm_loss": 1.5}, 2.5, "")
    arrays = place.read_arrays(cells[0], "validation")
    assert {name: array.tolist() for name, array in arrays.items()} == {
        name: array.tolist() for name, array in each.items()
    }
    place.write_result(cells[0], "validation", {"mlm_loss": 2.0}, 1.0, {})
    assert place.read_arrays(cells[0], "validation") == {}
    assert place.missing(cells[0]) == []
    assert place.missing(cells[1]) == ["validation"]


def test_result_stands_for_the_evaluation_it_is_of(place, cells):
    """Not for another definition, for other masks, or for another cell."""
    cell = cells[0]
    place.write_result(cell, "validation", {"mlm_loss": 1.5}, 2.5, {})

    def with_evals(**changes: object) -> Entry:
        settings = dataclasses.replace(cell.config.evals["validation"], **changes)
        config = dataclasses.replace(cell.config, evals={"validation": settings})
        return dataclasses.replace(cell, config=config)

    assert place.read_result(with_evals(every=7, batch_size=3), "validation")
    asked = {"validation": {"kind": "suite", "name": "nsp", "ask": {}}}
    others = [with_evals(rate=0.4), dataclasses.replace(cell, evaluations=asked)]
    for other in others:
        assert place.read_result(other, "validation") is None
    hashes = {hash_evaluation(one, "validation") for one in [cell, *others, cells[1]]}
    assert len(hashes) == 4


def test_state_follows_from_the_files(place, cells):
    cell = cells[0]

    def name() -> str:
        return place.read_state(cell).name

    assert name() == "waiting"
    place.cell(cell.id).mkdir(parents=True)
    (place.cell(cell.id) / "metrics.jsonl").write_text('{"step": 7, "time": 3.5}\n')
    assert (place.read_state(cell).step, place.read_state(cell).seconds) == (7, 3.5)
    place.write_failure(cell.id, "training", "ValueError: no")
    assert (name(), place.read_state(cell).error) == ("failed", "training: ValueError: no")
    with folder_locks.hold(place.cell(cell.id), WORK):
        assert name() == "running"
    place.clear_failure(cell.id, "evaluation validation")
    assert name() == "failed"
    place.clear_failure(cell.id, "training")
    assert name() == "waiting"
    place.write_trained(cell.id, 12, 3.0, "done")
    assert (name(), place.read_state(cell).missing) == ("waiting", ("validation",))
    place.write_result(cell, "validation", {}, 1.0, {})
    assert (name(), place.read_state(cell).step) == ("done", 12)
    place.write_trained(cell.id, 5, 3.0, "diverged", "not finite")
    assert (name(), place.read_state(cell).error) == ("diverged", "not finite")


def test_processes_but_the_first_write_nothing(place, cells):
    place.writes = False
    place.write_trained("a", 12, 1.0, "done")
    place.write_failure("a", "training", "no")
    assert not place.cell("a").exists()


DAMAGE = {
    "torn": "{",
    "empty": "",
    "a list": "[]",
    "of another type": '{"step": "seven", "seconds": 1, "outcome": "done"}',
    "with a fourth outcome": '{"step": 7, "seconds": 1, "outcome": "lost"}',
    "without a field": '{"step": 7}',
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_damaged_file_is_named_with_a_hint(place, cells, content):
    path = place.cell(cells[0].id) / "trained.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(DataError, match=r"trained\.json") as error:
        place.read_trained(cells[0].id)
    assert "restore it, or remove the cell's folder" in error.value.hint


def test_damaged_arrays_are_named(place, cells):
    place.write_result(cells[0], "validation", {}, 1.0, {"a.sum": np.ones(2)})
    for content in (b"", b"PK", b"\x80\x04N."):  # the last is a pickle
        place.each(cells[0].id, "validation").write_bytes(content)
        with pytest.raises(DataError, match="holds no arrays of numbers"):
            place.read_arrays(cells[0], "validation")


def test_damaged_study_is_named(place):
    for text in ('{"config": {}, "cells": {"a": {}}}', '{"config": {}, "cells": ["a"]}'):
        place.study.write_text(text)
        with pytest.raises(DataError, match=r"study\.json"):
            place.cells()


LINES = st.lists(st.sampled_from(('{"step": 3}', '{"step": 4, "time": 2.0}', '{"ste', "[]", "")))


@given(LINES)
def test_last_metrics_are_those_of_whole_lines(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "metrics.jsonl"
    path.write_text("\n".join(lines))
    steps = [int(line[9]) for line in lines if line.startswith('{"step": ')]
    assert files.read_last_metrics(path).get("step") == (steps[-1] if steps else None)


def test_last_metrics_are_at_the_end_of_a_long_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [f'{{"step": {step}, "time": {step / 2}, "x": "{"y" * 500}"}}' for step in range(200)]
    path.write_text("\n".join(rows) + "\n")
    assert files.read_last_metrics(path)["time"] == 99.5
    assert files.read_last_metrics(tmp_path / "none") == {}


WRITER = """
import sys
from pathlib import Path
from bert_jax.studies import files
while True:
    for size in (1, 100_000):
        files.write_json(Path(sys.argv[1]), {"a": "x" * size})
"""


def test_file_is_whole_while_it_is_written(tmp_path):
    """And after its writer is killed."""
    path = tmp_path / "a.json"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    while not path.exists():
        assert writer.poll() is None
    for _ in range(300):
        assert len(files.read_json(path, dict[str, str])["a"]) in (1, 100_000)
    writer.kill()
    writer.wait()
    assert len(files.read_json(path, dict[str, str])["a"]) in (1, 100_000)

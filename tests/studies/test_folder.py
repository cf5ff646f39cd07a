"""The folder of a study: what is written is read, and states follow from files."""

import dataclasses

import numpy as np
import pytest

from bert_jax.errors import DataError
from bert_jax.studies.definition import Cell, expand
from bert_jax.studies.folder import WORK, StudyFolder, hash_evaluation
from bert_jax.system import folder_locks
from tests.studies.small import make_base, make_study, write_study


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return expand(make_study(base=make_base(checkpoints__best=""), seeds=(0,)))


@pytest.fixture
def place(tmp_path, cells) -> StudyFolder:
    return write_study(tmp_path, make_study(), cells)


def test_cells_and_results_are_read_as_written(place, cells):
    masking = dataclasses.replace(cells[1].config.masking, phases=((1.0, 0.2, "linear"),))
    phased = dataclasses.replace(cells[1].config, masking=masking)
    bare = dataclasses.replace(cells[0].config, evals={})
    changed = [
        dataclasses.replace(cells[2], trunk=f"{cells[0].id}@16", vocabulary=300),
        dataclasses.replace(cells[1], config=phased, evaluations={}),
        dataclasses.replace(cells[0], config=bare, id="w"),
    ]
    for listed in (changed, cells):
        write_study(place.workdir, make_study(), listed)
        assert place.read_cells() == listed
    each = {"mlm_loss.sum": np.arange(3.0), "mlm_loss.count": np.ones(3)}
    place.write_result(cells[0], "validation", {"mlm_loss": 1.5}, 2.5, each)
    found = place.read_result(cells[0], "validation")
    assert (found.metrics, found.seconds, found.error) == ({"mlm_loss": 1.5}, 2.5, "")
    assert repr(place.read_arrays(cells[0], "validation")) == repr(each)
    assert [place.list_missing(cell) for cell in cells[:2]] == [[], ["validation"]]
    place.write_result(cells[0], "validation", {"mlm_loss": 2.0}, 1.0, {})
    assert place.read_arrays(cells[0], "validation") == {}


@pytest.mark.fault(25)
def test_result_stands_for_the_evaluation_it_is_of(place, cells):
    """Not for another definition, for other masks, or for another cell; one more spoils none."""
    cell = cells[0]
    place.write_result(cell, "validation", {"mlm_loss": 1.5}, 2.5, {})

    def with_evals(name: str = "validation", **changes: object) -> Cell:
        settings = dataclasses.replace(cell.config.evals["validation"], **changes)
        config = dataclasses.replace(cell.config, evals=cell.config.evals | {name: settings})
        return dataclasses.replace(cell, config=config)

    assert place.read_result(with_evals(every=7, batch_size=3), "validation")
    assert place.read_result(with_evals("more", rate=0.4), "validation")
    asked = {"validation": {"kind": "suite", "name": "nsp", "ask": {}}}
    others = [with_evals(rate=0.4), dataclasses.replace(cell, evaluations=asked)]
    assert [place.read_result(other, "validation") for other in others] == [None, None]
    assert len({hash_evaluation(one, "validation") for one in [cell, *others, cells[1]]}) == 4


@pytest.mark.fault(24)
def test_state_follows_from_the_files(place, cells):
    cell = cells[0]

    def read_name() -> str:
        return place.read_state(cell).name

    assert read_name() == "waiting"
    place.cell(cell.id).mkdir(parents=True)
    (place.cell(cell.id) / "metrics.jsonl").write_text('{"step": 7, "time": 3.5}\n')
    assert (place.read_state(cell).step, place.read_state(cell).seconds) == (7, 3.5)
    place.write_failure(cell.id, "training", "ValueError: no")
    assert (read_name(), place.read_state(cell).error) == ("failed", "training: ValueError: no")
    with folder_locks.hold_lock(place.cell(cell.id), WORK):
        assert read_name() == "running"
    place.clear_failure(cell.id, "evaluation validation")
    assert read_name() == "failed"
    place.clear_failure(cell.id, "training")
    assert read_name() == "waiting"
    place.write_trained(cell.id, 12, 3.0, "done")
    assert (read_name(), place.read_state(cell).missing) == ("waiting", ("validation",))
    place.write_result(cell, "validation", {}, 1.0, {})
    assert (read_name(), place.read_state(cell).step) == ("done", 12)
    place.write_trained(cell.id, 5, 3.0, "diverged", "not finite")
    assert (read_name(), place.read_state(cell).error) == ("diverged", "not finite")


@pytest.mark.fault(16)
def test_damaged_files_are_named(place, cells):
    place.write_result(cells[0], "validation", {}, 1.0, {"a.sum": np.ones(2)})
    trained = place.cell(cells[0].id) / "trained.json"
    arrays = place.arrays_path(cells[0].id, "validation")
    for content in ("{", "", "[]", '{"step": "seven"}', '{"step": 7}'):
        trained.write_text(content)
        with pytest.raises(DataError, match=r"trained\.json") as error:
            place.read_trained(cells[0].id)
        assert "restore it, or remove the cell's folder" in error.value.hint
    for damage in (b"", b"PK", b"\x80\x04N."):  # the last is a pickle
        arrays.write_bytes(damage)
        with pytest.raises(DataError, match="holds no arrays of numbers"):
            place.read_arrays(cells[0], "validation")
    place.study.write_text(place.study.read_text().replace('"name"', '"nam"', 1))
    with pytest.raises(DataError, match=r"study\.json: .*required field `name`"):
        place.read_study()


@pytest.mark.parametrize("end", [[], ['{"ste'], ['{"step": 3}'], ["", "[]", '{"step": 3}', '{"s']])
def test_last_metrics_are_those_of_whole_lines(tmp_path, end):
    place = StudyFolder(tmp_path)
    place.cell("a").mkdir(parents=True)
    for before in (0, 1, 200):  # many do not fit into one read
        lines = [f'{{"step": {step}, "x": "{"y" * 500}"}}' for step in range(5, 5 + before)]
        (place.cell("a") / "metrics.jsonl").write_text("\n".join(lines + end))
        wanted = 3 if '{"step": 3}' in end else 4 + before if before else None
        assert place.read_last_metrics("a").get("step") == wanted


@pytest.mark.fault(1)
def test_file_is_replaced_and_never_rewritten(place, cells):
    """So a kill leaves the old file, or the new one."""
    before = place.study.stat().st_ino
    write_study(place.workdir, make_study(), cells)
    assert place.study.stat().st_ino != before

"""A disk that is really full, at any moment of a command: said as it is, nothing finished is lost,
and it goes on.
"""

import ctypes
import functools
import gc
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import cli
from bert_jax.checkpoints import saving
from bert_jax.checkpoints.manifest import list_steps
from bert_jax.data import encode, prepare
from bert_jax.evaluation import inference
from bert_jax.studies import reuse
from bert_jax.studies.folder import StudyFolder
from bert_jax.system import disk
from bert_jax.training import runs
from tests import fault_points, outcomes, texts
from tests.checkpoints import interrupts

pytestmark = [
    pytest.mark.usefixtures("one_device"),
    # What Orbax leaves behind when a save of its fails: coroutines and futures of a loop that is
    # closed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
KNOBS = ("steps=12", "batch_size=8", "model.hidden=16", "checkpoints.every=4", "logging.every=2")
KNOBS += ("evals.validation.every=4", "logging.trackers=tensorboard")
Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path) -> Iterator[Mount]:
    """Make a small disk in a folder of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = tmp_path / "disk"
    folder.mkdir()

    def make(size: str) -> Path:
        options = f"size={size}".encode()
        if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options):
            pytest.skip(f"no file system may be mounted here: {os.strerror(ctypes.get_errno())}")
        return folder

    yield make
    libc.umount2(os.fsencode(folder), 2)  # also while something still holds it


def fill_once(folder: Path) -> None:
    if not (folder / "filler").exists():
        fault_points.fill(folder)


def arm(patch: pytest.MonkeyPatch, point: str, folder: Path) -> None:
    """Let a disk fill up when a point, or a place inside a save, is first passed."""
    name, step = point.split(":")
    if name in interrupts.PLACES:
        fill = functools.partial(fill_once, folder)
        interrupts.interrupt_save(name, int(step), fill, patch.setattr)
        return

    def fill_at(reached: str, number: int) -> None:
        if f"{reached}:{number}" == point:
            fill_once(folder)

    for module in (runs, inference):
        fault_points.plant(module, fill_at, patch.setattr)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Run a command that finds the disk full; returns the line that says so."""
    assert cli.execute([str(word) for word in words]) == 4
    *before, error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: disk full: "), error
    assert " needs " in error
    assert " free in " in error
    assert hint.startswith("hint: "), hint
    assert not [line for line in before if line.startswith("error") or "Traceback" in line]
    return error


def train(base: Path, workdir: Path) -> list[str]:
    knobs = [f"--config.{knob}" for knob in KNOBS]
    return ["train", f"--config={base}", f"--workdir={workdir}", *knobs]


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory) -> Path:
    """The run that has room."""
    workdir = tmp_path_factory.mktemp("whole") / "run"
    with texts.one_device():
        assert cli.execute(train(base, workdir)) == 0
    return workdir


@pytest.mark.fault(4)
@pytest.mark.parametrize("point", ["arrays:8", "step:1", "files:8", "evaluation:0"])
@pytest.mark.slow
def test_train_with_a_disk_that_fills_up(point, base, whole, mount, monkeypatch, capsys):
    folder = mount("6m")
    arm(monkeypatch, point, folder)
    workdir = folder / "run"
    refused(capsys, *train(base, workdir))
    before = list_steps(workdir / "checkpoints")
    assert before == ([4] if point.endswith(":8") else [])
    (folder / "filler").write_bytes(b"")
    assert cli.execute(train(base, workdir)) == 0
    outcomes.assert_same(workdir, whole, 12)
    gc.collect()  # what Orbax has left behind


@pytest.mark.fault(4)
@pytest.mark.parametrize("place", ["begun", "arrays", "files", "hashed"])
def test_save_that_fills_the_disk_is_one_error(place, mount):
    """The next save says so, or the end of the run."""
    folder = mount("5m")
    noise = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    state = jax.device_put({"params": {"w": noise}, "n": np.int32(0)})
    made = saving.Checkpoints(folder / "checkpoints", keep=3, keep_best=False)
    made.save(1, state, {})
    made.wait()

    def save() -> None:
        made.save(2, state, {})
        if place == "arrays":
            made.close()
        else:
            made.wait()

    with pytest.MonkeyPatch.context() as patch:
        arm(patch, f"{place}:2", folder)
        with pytest.raises(disk.DiskFull, match=r"a checkpoint needs 1,848,580 bytes and .* are"):
            save()
    made.close()
    assert list_steps(made.folder) == [1]
    (folder / "filler").unlink()
    made = saving.Checkpoints(folder / "checkpoints", keep=3, keep_best=False)
    made.restore(state)
    made.save(3, state, {})
    made.close()
    assert list_steps(made.folder) == [1, 3]
    gc.collect()  # what Orbax has left behind


@pytest.mark.fault(4)
@pytest.mark.parametrize(
    ("module", "step"), [(encode, "read_into_parts"), (prepare, "write_array")]
)
def test_prepare_with_a_cache_that_fills_up(module, step, tmp_path, base, mount, capsys):
    folder = mount("4m")
    words = ["prepare", f"--config={base}", f"--config.corpus.cache={folder}"]
    real = getattr(module, step)

    def fill_first(*arguments):
        fault_points.fill(folder)
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, step, fill_first)
        refused(capsys, *words)
    (folder / "filler").unlink()
    assert cli.execute(words) == 0
    made = Path(capsys.readouterr().out.strip())
    assert cli.execute([*words[:2], f"--config.corpus.cache={tmp_path / 'other'}"]) == 0
    wanted = Path(capsys.readouterr().out.strip())
    for file in (path for path in wanted.rglob("*") if path.is_file()):
        assert (made / file.relative_to(wanted)).read_bytes() == file.read_bytes(), file


@pytest.mark.fault(4)
def test_evaluate_keeps_the_earlier_result(saved_run, mount, capsys):
    folder = mount("1m")
    output = folder / "out.json"
    output.write_text("before")
    fault_points.fill(folder)
    words = ["evaluate", f"--checkpoint={saved_run}", f"--output={output}"]
    assert f"{output} needs " in refused(capsys, *words)
    assert [p.name for p in folder.iterdir()] == ["out.json", "filler"][::-1]
    assert output.read_text() == "before"
    (folder / "filler").unlink()
    assert cli.execute(words) == 0
    assert "pretrain" in json.loads(output.read_text())


@pytest.mark.fault(4)
def test_copy_that_fills_the_disk_names_the_cell(tmp_path, mount):
    """What shutil raises has neither a number nor a file name."""
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "weights").write_bytes(bytes(300_000))
    place = StudyFolder(mount("200k"))
    with pytest.raises(disk.DiskFull, match=f"disk full: {place.cell('cell')} needs more than "):
        reuse.copy_cells(place, {"cell": tmp_path / "cell"})


@pytest.mark.fault(4)
def test_export_leaves_nothing_where_there_is_no_room(saved_run, mount, capsys):
    folder = mount("200k")
    words = ["export", f"--checkpoint={saved_run}", f"--output={folder / 'out'}"]
    with (folder / "filler").open("wb") as file:
        file.write(bytes(150_000))
    assert f"{folder / 'out'} needs " in refused(capsys, *words)
    assert [p.name for p in folder.iterdir()] == ["filler"]
    (folder / "filler").unlink()
    assert cli.execute(words) == 0
    assert (folder / "out/model.safetensors").is_file()

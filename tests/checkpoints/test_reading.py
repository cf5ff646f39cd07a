"""What is read was verified, and no more than that: damage is named, and an older step is read."""

import os
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.checkpoints import manifest, reading
from bert_jax.errors import CheckpointError
from tests.checkpoints.states import flip_bit, list_bits, make_state, open_folder, restore_state


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """Steps 10, 20 and 30, the best first, to be copied and spoiled."""
    folder = tmp_path_factory.mktemp("sound") / "checkpoints"
    made = open_folder(folder, keep=3)
    for step, metric in ((10, 1.0), (20, 3.0), (30, 2.0)):
        made.save(step, make_state(step), {"seen": step}, metric)
    made.close()
    return folder


@pytest.fixture
def folder(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "checkpoints"))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def list_files(step: Path, *groups: str) -> list[Path]:
    """List the files of some groups that have something to spoil."""
    files = [path for group in groups for path in sorted((step / group).rglob("*"))]
    return [path for path in files if path.is_file() and path.stat().st_size]


@pytest.mark.fault(5)
@pytest.mark.parametrize("spoil", [flip_bit, cut, Path.unlink])
def test_spoiled_file_is_named_and_falls_back(spoil, sound, tmp_path, capsys):
    files = list_files(sound / "30", "params", "rest", "meta")
    assert len(files) > 20, "arrays, their metadata and meta"
    for number, original in enumerate([*files, sound / "30" / manifest.MANIFEST]):
        folder = Path(shutil.copytree(sound, tmp_path / str(number)))
        path = folder / original.relative_to(sound)
        spoil(path)
        assert reading.choose_together(folder, None) == 20
        said = capsys.readouterr().err
        assert said.startswith(f"warning: checkpoint corrupt: {path} "), said
        assert said.endswith("; falling back to step 20\n")
        with pytest.raises(CheckpointError, match=r"^checkpoint corrupt: .*/30/") as error:
            reading.choose_together(folder, 30)
        assert error.value.code == 4


@pytest.mark.fault(5)
def test_damaged_model_is_never_returned(tmp_path, capsys):
    """Large files are verified while Orbax reads, which may then raise several errors."""
    whole = make_state(1)
    names = [f"layer_{number}" for number in range(9)]
    random = np.random.default_rng(0)
    whole["params"] |= {name: random.random((500, 1000), np.float32) for name in names}
    made = open_folder(tmp_path, keep=2)
    for step, metric in ((1, 2.0), (2, 1.0)):
        made.save(step, whole, {}, metric)
    made.close()
    large = [p for p in list_files(tmp_path / "2", "params") if p.stat().st_size >= manifest.LARGE]
    for path in large:
        for place in range(10**6, path.stat().st_size, 10**6):
            flip_bit(path, place)
    params, meta = reading.read_model(tmp_path)
    assert meta["step"] == 1
    assert list_bits(params) == list_bits(whole["params"])
    said = capsys.readouterr().err
    assert said.startswith(f"warning: checkpoint corrupt: {large[0]} (its sha256 differs); falling")
    assert said.count("\n") == 1
    with pytest.raises(CheckpointError, match=r"^checkpoint corrupt: .*/2/"):
        reading.read_model(tmp_path, 2)


@pytest.mark.fault(1)
def test_unfinished_saves_are_no_steps(folder, capsys):
    (folder / "50.orbax-checkpoint-tmp").mkdir()
    (folder / "notes").mkdir()
    os.utime(folder / "30", (1, 1))
    assert restore_state(folder)[2] == 30
    assert capsys.readouterr().err == ""
    (folder / "40").mkdir()
    assert restore_state(folder)[2] == 30
    assert f"warning: checkpoint corrupt: {folder}/40/manifest.json" in capsys.readouterr().err


@pytest.mark.fault(7)
def test_restore_refuses_other_arrays(sound):
    like = make_state()
    like["params"]["embeddings"]["token"] = jnp.zeros((17, 8))
    said = r"30/params does not fit: .*token is float32\[16, 8\] in .* and float32\[17, 8\]"
    with pytest.raises(CheckpointError, match=said) as error:
        reading.read_state(sound, like)
    assert error.value.hint.startswith("model, tokenizer and optimizer must be")


def test_read_model_neither_reads_nor_hashes_the_rest(folder, capsys):
    """Adam's moments are two thirds of a checkpoint."""
    shutil.rmtree(folder / "10" / "rest")
    params, meta = reading.read_model(folder)
    assert jax.tree.structure(params) == jax.tree.structure(make_state()["params"])
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(params))
    assert list_bits(params) == list_bits(make_state(10)["params"])
    assert meta == {"step": 10, "seen": 10}
    assert capsys.readouterr().err == ""
    for path in list_files(folder / "30", "params", "rest"):
        path.unlink()
    assert reading.read_meta(folder) == ({"step": 30, "seen": 30}, 30)


@pytest.mark.fault(5)
def test_changed_manifest_loses_its_rank(folder, capsys):
    path = folder / "10" / manifest.MANIFEST
    flip_bit(path, path.read_bytes().index(b'"metric": ') + 10)
    assert manifest.list_metrics(folder.parent) == [(30, 2.0), (20, 3.0)]
    assert reading.read_model(folder)[1]["step"] == 30
    assert capsys.readouterr().err.startswith(f"warning: checkpoint corrupt: {path} (")


@pytest.mark.fault(5)
@pytest.mark.parametrize("content", ["[]", "3", '{"x": 3}', "[" * 200, "{", '{"digest": 3}'])
def test_manifest_of_anything_else_is_corrupt(content, folder):
    (folder / "30" / manifest.MANIFEST).write_text(content)
    with pytest.raises(CheckpointError, match=r"^checkpoint corrupt: .*manifest\.json \("):
        restore_state(folder, 30)

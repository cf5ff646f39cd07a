"""What is read was verified, and no more than that: damage is named, and an older step is read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import cli
from bert_jax.checkpoints import manifest, reading, steps
from bert_jax.errors import CheckpointError
from tests import saved, texts
from tests.checkpoints.states import (
    flip_bit,
    list_bits,
    make_state,
    open_folder,
    restore_state,
    save_steps,
)

GROUPS = ("params", "rest", "meta")


@pytest.fixture(scope="session")
def sound(tmp_path_factory) -> Path:
    """Steps 10 and 20, to be copied and spoiled."""
    return save_steps(tmp_path_factory.mktemp("sound") / "checkpoints", 10, 20)


@pytest.fixture
def folder(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "checkpoints"))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


SPOILS = [flip_bit, cut, empty, Path.unlink]


def list_files(step: Path, groups: tuple[str, ...] = GROUPS) -> list[Path]:
    """List the files of some groups that have something to spoil, and the manifest."""
    files = [path for group in groups for path in sorted((step / group).rglob("*"))]
    return [path for path in files if path.is_file() and path.stat().st_size] + [
        step / manifest.NAME
    ]


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.fault(5)
def test_spoiled_file_is_named_and_falls_back(spoil, sound, tmp_path, capsys):
    assert len(list_files(sound / "20")) > 20, "arrays, their metadata, meta and manifest"
    for number, original in enumerate(list_files(sound / "20")):
        folder = Path(shutil.copytree(sound, tmp_path / str(number)))
        path = folder / original.relative_to(sound)
        spoil(path)
        assert reading.choose_together(folder, None) == 10
        said = capsys.readouterr().err
        assert said.startswith(f"warning: checkpoint corrupt: {path} "), said
        assert said.endswith("; falling back to step 10\n")
        with pytest.raises(CheckpointError, match=r"^checkpoint corrupt: .*/20/") as error:
            reading.choose_together(folder, 20)
        assert error.value.code == 4
        assert error.value.hint


@pytest.mark.fault(5)
def test_restore_falls_back_to_the_older_step(folder, capsys):
    flip_bit(folder / "20" / "rest" / "manifest.ocdbt")
    state, meta, step = restore_state(folder)
    assert (meta["seen"], step) == (10, 10)
    assert list_bits(state) == list_bits(make_state(10))
    assert "falling back to step 10" in capsys.readouterr().err


@pytest.mark.fault(5)
def test_restore_without_a_sound_step_is_an_error(folder):
    for step in (10, 20):
        flip_bit(folder / f"{step}/meta/metadata")
    with pytest.raises(CheckpointError, match=r"^checkpoint corrupt: .*20/meta/metadata"):
        restore_state(folder)


def test_a_step_that_is_not_there_is_an_error(folder):
    with pytest.raises(CheckpointError, match="no finished checkpoint of step 15") as error:
        restore_state(folder, 15)
    assert error.value.hint == "steps there: 10, 20"


@pytest.mark.fault(5)
def test_unfinished_saves_are_no_steps(folder, capsys):
    (folder / "40.orbax-checkpoint-tmp").mkdir()
    (folder / "notes").mkdir()
    assert restore_state(folder)[2] == 20
    assert capsys.readouterr().err == ""
    (folder / "30").mkdir()
    assert restore_state(folder)[2] == 20
    assert f"warning: checkpoint corrupt: {folder}/30/manifest.json" in capsys.readouterr().err


def test_the_newest_step_does_not_depend_on_clocks(folder):
    for number, path in enumerate(sorted(folder.rglob("*"), reverse=True)):
        os.utime(path, (10**9 + number, 10**9 + number))
    os.utime(folder / "20", (1, 1))
    assert restore_state(folder)[2] == 20


def change_shape(state: dict) -> None:
    state["params"]["embeddings"]["token"] = jnp.zeros((17, 8))


def add_array(state: dict) -> None:
    state["params"]["extra"] = jnp.zeros(2)


def drop_array(state: dict) -> None:
    del state["params"]["embeddings"]


def change_key(state: dict) -> None:
    state["key"] = jnp.zeros(3, jnp.uint32)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (change_shape, r"embeddings/token is float32\[16, 8\] in .* and float32\[17, 8\] in this"),
        (add_array, "extra is absent in the checkpoint"),
        (drop_array, "embeddings/token is float32.* and absent in this run"),
        (change_key, "key is uint32"),
    ],
)
def test_restore_refuses_other_arrays(change, named, sound):
    like = make_state()
    change(like)
    with pytest.raises(CheckpointError, match=f"20/(params|rest) does not fit: {named}") as error:
        reading.read_state(sound, like)
    assert error.value.hint.startswith("model, tokenizer and optimizer must be")


@pytest.mark.fault(18)
@pytest.mark.parametrize("name", ["params/../../../secret", "params/link"])
def test_names_in_a_manifest_stay_inside_the_step(name, folder, tmp_path):
    (tmp_path / "secret").write_text("x")
    (folder / "20" / "params" / "link").symlink_to(tmp_path / "secret")
    entry = manifest.read_manifest(folder / "20")
    entry["files"][name] = {"bytes": 1, "sha256": "0"}
    manifest._write(folder / "20", entry)
    with pytest.raises(CheckpointError, match="outside its folder"):
        restore_state(folder, 20)


@pytest.mark.parametrize(
    "change",
    [{"files": []}, {"files": {"params/a": {"bytes": 10**4000}}}, {"metric": "x"}, {"step": -1}],
)
def test_a_manifest_of_other_types_is_corrupt(change, folder):
    manifest._write(folder / "20", manifest.read_manifest(folder / "20") | change)
    with pytest.raises(CheckpointError, match=r"^checkpoint corrupt: .*manifest\.json \("):
        restore_state(folder, 20)


# --- models ---------------------------------------------------------------------------------------


def test_read_model_neither_reads_nor_hashes_the_rest(folder, monkeypatch, capsys):
    """Adam's moments are two thirds of a checkpoint."""
    hashed = []
    hash_file = manifest._hash_file
    monkeypatch.setattr(manifest, "_hash_file", lambda path: hashed.append(path) or hash_file(path))
    shutil.rmtree(folder / "20" / "rest")
    params, meta = reading.read_model(folder)
    assert jax.tree.structure(params) == jax.tree.structure(make_state()["params"])
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(params))
    assert list_bits(params) == list_bits(make_state(20)["params"])
    assert meta == {"step": 20, "seen": 20}
    expected = list_files(folder / "20", ("params", "meta"))[:-1]
    assert {*expected} <= {*hashed}
    assert {path.relative_to(folder / "20").parts[0] for path in hashed} == {"params", "meta"}
    assert capsys.readouterr().err == ""
    assert restore_state(folder)[2] == 10, "a run that goes on needs all of it"


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.fault(5)
def test_read_model_falls_back_from_the_best_step(spoil, tmp_path, capsys):
    made = open_folder(tmp_path / "made", keep=3)
    for step, metric in ((10, 1.0), (20, 3.0), (30, 2.0)):
        made.save(step, make_state(step), {}, metric)
    made.close()
    assert reading.read_model(tmp_path / "made")[1]["step"] == 10
    for number, path in enumerate(list_files(tmp_path / "made" / "10", ("params", "meta"))):
        folder = Path(shutil.copytree(tmp_path / "made", tmp_path / str(number)))
        spoil(folder / path.relative_to(tmp_path / "made"))
        params, meta = reading.read_model(folder)
        assert meta["step"] == 30, path
        assert list_bits(params) == list_bits(make_state(30)["params"])
        said = capsys.readouterr().err
        assert said.startswith(f"warning: checkpoint corrupt: {folder}/10/"), said
        assert said.endswith("; falling back to step 30\n")


def test_read_model_of_a_step_and_of_nothing(folder):
    assert reading.read_model(folder, 10)[1]["step"] == 10
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        reading.read_model(folder / "missing")


def test_read_meta_reads_no_arrays(folder):
    for path in list_files(folder / "20", ("params", "rest"))[:-1]:
        path.unlink()
    assert reading.read_meta(folder) == ({"step": 20, "seen": 20}, 20)


# --- ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "order"),
    [
        ({1: 2.0, 2: 1.0, 3: 3.0}, [2, 1, 3]),
        ({1: 1.0, 2: 1.0, 3: None, 4: None}, [2, 1, 4, 3]),
        ({1: -1.0, 2: 0.0, 3: None}, [1, 2, 3]),
    ],
)
def test_sort_best_first_takes_the_lowest_metric(metrics, order):
    assert steps.sort_best_first(metrics) == order


# Of a manifest: a mark, a blank, a key, a number, the name and digest of a file, its own digest.
PLACES: dict[str, Callable[[bytes], int]] = {
    "mark": lambda data: data.index(b"{"),
    "newline": lambda data: data.index(b"\n"),
    "key": lambda data: data.index(b"metric") + 2,
    "number": lambda data: data.index(b'"metric": ') + 10,
    "file": lambda data: data.index(b"metadata"),
    "digest of a file": lambda data: data.index(b'"sha256": "') + 11,
    "digest": lambda data: data.rindex(b'"') - 1,
}


@pytest.fixture(scope="module")
def ranked(base, tmp_path_factory) -> Path:
    """A run whose best step is 10 and whose next best is 30, to be copied."""
    config = texts.configure(base, batch_size=8, model__hidden=16)
    folder = tmp_path_factory.mktemp("ranked") / "run"
    return saved.run(folder, config, {10: 1.0, 20: 3.0, 30: 2.0})


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.fault(5)
def test_a_changed_manifest_loses_its_rank(place, ranked, tmp_path, capsys):
    run = Path(shutil.copytree(ranked, tmp_path / "run"))
    path = run / "checkpoints" / "10" / manifest.NAME
    flip_bit(path, PLACES[place](path.read_bytes()))
    assert steps.list_metrics(run) == [(30, 2.0), (20, 3.0)]
    assert reading.read_model(run / "checkpoints")[1]["step"] == 30
    assert capsys.readouterr().err.startswith(f"warning: checkpoint corrupt: {path} (")


@pytest.mark.parametrize(
    "command",
    ["evaluate", "predict", "export", "inspect", pytest.param("train", marks=pytest.mark.slow)],
)
@pytest.mark.fault(5)
def test_every_command_names_a_corrupt_best_step(command, ranked, base, tmp_path, capsys):
    run = Path(shutil.copytree(ranked, tmp_path / "run"))
    path = run / "checkpoints" / "10" / manifest.NAME
    flip_bit(path)
    (tmp_path / "in.txt").write_text("the cat [MASK] a small dog.\n")
    words = {
        "evaluate": [f"--model={run}"],
        "predict": ["fill-mask", f"--model={run}", f"--input={tmp_path / 'in.txt'}"],
        "export": [f"--model={run}", f"--output={tmp_path / 'out'}"],
        "inspect": [
            *("attention", f"--model={run}", "--text=the cat"),
            f"--output={tmp_path / 'a.html'}",
        ],
        "train": [
            *(f"--config={base}", f"--workdir={tmp_path / 'w'}", f"--config.init_from={run}"),
            *("--config.model.hidden=16", "--config.batch_size=8", "--config.steps=1"),
            "--config.optim.warmup_steps=0",
        ],
    }
    with texts.one_device():
        assert cli.execute([command, *words[command]]) == 0
    said = capsys.readouterr().err
    assert f"warning: checkpoint corrupt: {path} (" in said
    assert "; falling back to step 30\n" in said

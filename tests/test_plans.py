"""Plans on disk: built once, rebuilt when damaged, removed when old, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax.data.batches import pairs
from bert_jax.errors import DataError
from bert_jax.system import disk
from tests.corpora import same, source


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The copies whose plans are built while a test runs, once for each shard."""
    copies: list[int] = []
    plan = pairs.plan

    def counted(
        shard: Any, mode: str, settings: Any, length: int, seed: int, copy: int, index: int = 0
    ) -> np.ndarray:
        copies.append(copy)
        return plan(shard, mode, settings, length, seed, copy, index)

    monkeypatch.setattr(pairs, "plan", counted)
    return copies


def test_a_plan_is_built_once(tmp_path: Path, built: list[int]) -> None:
    first = source(tmp_path).batch(60)
    assert built == sorted(built)
    assert len(built) == 3 * (first["copies"].max() + 1)
    built.clear()
    assert same(source(tmp_path).batch(60), first)
    assert built == []


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "delete", "longer"])
def test_a_damaged_plan_is_built_again(tmp_path: Path, built: list[int], damage: str) -> None:
    first = source(tmp_path).batch(0)
    (file,) = (tmp_path / "plans").glob("*-0.plan")
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 4
    changed = {"truncate": content[:-5], "empty": b"", "longer": content + b"0"}.get(
        damage, content
    )
    file.write_bytes(changed)
    if damage == "delete":
        file.unlink()
    built.clear()
    assert same(source(tmp_path).batch(0), first)
    assert built == [0, 0, 0]
    built.clear()
    assert same(source(tmp_path).batch(0), first)
    assert built == []


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "delete"])
def test_damaged_counts_are_made_again(tmp_path: Path, built: list[int], damage: str) -> None:
    first = source(tmp_path).batch(60)
    (file,) = (tmp_path / "plans").glob("*.counts")
    content = bytearray(file.read_bytes())
    content[9] ^= 1
    file.write_bytes({"truncate": content[:-8], "empty": b""}.get(damage, content))
    if damage == "delete":
        file.unlink()
    built.clear()
    assert same(source(tmp_path).batch(60), first)
    assert built


def test_old_dynamic_plans_go_and_their_counts_stay(tmp_path: Path, built: list[int]) -> None:
    s = source(tmp_path, batch_size=64)
    step = sum(s.count(epoch) for epoch in range(9)) // 64
    later = s.batch(step)
    newest = int(later["copies"].max())
    left = {int(p.stem.split("-")[1]) for p in (tmp_path / "plans").glob("*.plan")}
    assert left == {newest - 2, newest - 1, newest}
    built.clear()
    fresh = source(tmp_path, batch_size=64)
    assert fresh.count(2) == s.count(2)
    assert same(fresh.batch(step), later)
    assert built == []
    assert same(
        fresh.batch(0), source(tmp_path / "again", batch_size=64).batch(0)
    )  # gone, and made again
    assert len(list((tmp_path / "plans").glob("*.plan"))) == 3


def test_static_plans_stay(tmp_path: Path, built: list[int]) -> None:
    s = source(tmp_path, masking__dupe_factor=5)
    for epoch in range(5):
        s.count(epoch)
    assert len(list((tmp_path / "plans").glob("*.plan"))) == 5
    built.clear()
    s.batch(3000)
    assert built == []


def test_one_plan_without_pairs(tmp_path: Path, built: list[int]) -> None:
    s = source(tmp_path, pairs="none")
    batch = s.batch(10**6)
    assert built == [0, 0, 0]
    assert (batch["copies"] >= 10**6 * 8 // s.count(0)).all()  # but masks are new in each epoch


def test_a_plan_that_comes_out_different_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source(tmp_path).batch(0)
    next((tmp_path / "plans").glob("*.plan")).unlink()
    plan = pairs.plan
    monkeypatch.setattr(pairs, "plan", lambda *args: plan(*args)[1:])
    with pytest.raises(DataError, match="copy 0 comes out different"):
        source(tmp_path).batch(0)


def test_a_folder_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [source(tmp_path / "a").batch(step) for step in (0, 60)]
    s = source(tmp_path / "b")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert all(same(s.batch(step), batch) for step, batch in zip((0, 60), expected, strict=True))
    assert not list((tmp_path / "b").iterdir())


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(
        disk.DiskFull, match=r"disk full: .*\.plan needs more than .* are free"
    ) as caught:
        source(tmp_path).batch(0)
    assert caught.value.code == 4
    assert not list((tmp_path / "plans").glob("*.tmp"))


def test_no_temporary_files_are_left(tmp_path: Path) -> None:
    source(tmp_path).batch(0)
    plans_folder = tmp_path / "plans"
    old = plans_folder / f"{next(plans_folder.glob('*.plan')).stem}.dead.tmp"
    old.write_bytes(b"half")
    os.utime(old, (0, 0))
    source(tmp_path).batch(60)
    assert not list(plans_folder.glob("*.tmp"))

"""A run whose files were spoiled, opened by everything that opens runs: what is wrong is said,
never passed over.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import pytest

from bert_jax import cli
from bert_jax.checkpoints import manager, manifest
from tests import saved, texts

METRICS = {10: 1.0, 20: 3.0, 30: 2.0}  # step 10 is the best, step 30 the next
BEST, NEXT = 10, 30


@pytest.fixture(scope="module")
def made(base, tmp_path_factory) -> Path:
    """A run with a best step that is not its latest; to be copied, not changed."""
    config = texts.configure(base, batch_size=8, model__hidden=16)
    return saved.run(tmp_path_factory.mktemp("saved") / "run", config, METRICS)


@pytest.fixture
def run(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def flip(path: Path) -> None:
    flip_at(path, path.stat().st_size // 2)


def flip_at(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.fault(6, 7, 48)
@pytest.mark.parametrize("spoil", [flip, truncate, empty])
def test_read_names_every_spoiled_file_of_the_best_step_and_takes_the_next_best(spoil, run, capsys):
    best = run / "checkpoints" / str(BEST)
    assert manager.read(run)[1]["step"] == BEST
    files = [path for path in sorted(best.rglob("*")) if path.is_file()]
    assert {best / manifest.NAME, best / "meta/metadata", best / "params/manifest.ocdbt"} < set(
        files
    )
    for path in files:
        before = path.read_bytes()
        if not before:
            continue
        spoil(path)
        assert manager.read(run)[1]["step"] == NEXT, path
        said = capsys.readouterr().err
        assert said.startswith(f"warning: checkpoint corrupt: {path} ("), said
        assert said.endswith(f"; falling back to step {NEXT}\n")
        path.write_bytes(before)
    assert manager.read(run)[1]["step"] == BEST
    assert capsys.readouterr().err == ""


def byte_classes(data: bytes) -> dict[str, int]:
    """A place of each kind of byte that a manifest has: of its names, numbers, digests, marks and
    blanks.
    """
    kinds: dict[str, Callable[[bytes], int]] = {
        "mark": lambda d: d.index(b"{"),
        "blank": lambda d: d.index(b" "),
        "newline": lambda d: d.index(b"\n"),
        "key": lambda d: d.index(b"metric") + 2,
        "quote": lambda d: d.index(b'"'),
        "number": lambda d: d.index(b'"metric": ') + 10,
        "file name": lambda d: d.index(b"metadata"),
        "file digest": lambda d: d.index(b'"sha256": "') + 11,
        "own digest": lambda d: d.rindex(b'"') - 1,
        "last": lambda d: len(d) - 1,
    }
    return {kind: find(data) for kind, find in kinds.items()}


@pytest.mark.fault(48)
def test_choose_takes_no_manifest_of_the_best_step_with_any_byte_changed(run, capsys):
    path = run / "checkpoints" / str(BEST) / manifest.NAME
    whole = path.read_bytes()
    for kind, place in byte_classes(whole).items():
        flip_at(path, place)
        assert manifest.choose(path.parents[1], None, set(), best_first=True) == NEXT, kind
        said = capsys.readouterr().err
        assert said.startswith(f"warning: checkpoint corrupt: {path} ("), kind
        path.write_bytes(whole)


@pytest.mark.fault(48)
@pytest.mark.parametrize(
    "command",
    [
        *("evaluate", "predict", "export", "inspect"),
        pytest.param("init_from", marks=pytest.mark.slow),
    ],
)
def test_every_command_that_opens_a_run_says_that_its_best_step_is_corrupt(
    command, run, base, tmp_path, capsys
):
    path = run / "checkpoints" / str(BEST) / manifest.NAME
    flip(path)
    (tmp_path / "in.txt").write_text("the cat [MASK] a small dog.\n")
    words = {
        "evaluate": ["evaluate", f"--checkpoint={run}"],
        "predict": ["predict", "fill-mask", f"--model={run}", f"--input={tmp_path / 'in.txt'}"],
        "export": ["export", f"--checkpoint={run}", f"--output={tmp_path / 'out'}"],
        "inspect": [
            "inspect",
            "attention",
            f"--model={run}",
            "--text=the cat",
            f"--output={tmp_path / 'a.html'}",
        ],
        "init_from": [
            *(
                "train",
                f"--config={base}",
                f"--workdir={tmp_path / 'w'}",
                f"--config.init_from={run}",
            ),
            *("--config.model.hidden=16", "--config.batch_size=8", "--config.steps=1"),
            "--config.optim.warmup_steps=0",
        ],
    }
    with texts.one_device():
        assert cli.execute(words[command]) == 0
    said = capsys.readouterr().err
    assert f"warning: checkpoint corrupt: {path} (" in said
    assert f"; falling back to step {NEXT}\n" in said


@pytest.mark.fault(48)
def test_save_says_that_a_step_it_deletes_had_a_corrupt_manifest(run, capsys):
    """The best step of a run may be spoiled while it trains, and be gone before it is opened."""
    flip(run / "checkpoints" / str(BEST) / manifest.NAME)
    made = manager.Checkpoints(run / "checkpoints", keep=1, keep_best=True)
    made.save(40, {"params": {}, "n": jnp.int32(0)}, {}, 5.0)
    made.close()
    assert manifest.finished(run / "checkpoints") == [NEXT, 40]
    assert (
        f"warning: checkpoint corrupt: {run}/checkpoints/{BEST}/{manifest.NAME}"
        in capsys.readouterr().err
    )

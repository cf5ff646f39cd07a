"""What holds for each training row on one device: its numbers, alone and fused.

A row of the table is a training row, a test a column; test_devices.py has the columns of two
devices. `make test` has the numbers of ALONE; all other places of the table are slow. A fixture
computes a column: it finds all rows that this session tests.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jax import monitoring

from tests import texts
from tests.net import golden
from tests.net.columns import FROZEN, choose, differences, rows
from tests.net.commands import Result
from tests.net.rows import ROWS, command
from tests.net.train_rows import Trained, read_numbers, run_command, train, write_folder

ALONE = ("predict_more", "causal", "accumulation", "bfloat16_products", "lamb", "classify")
WIDER = {"choice": [2]}  # lines before the first batch with longer texts, which have a program
COMPILED = "/jax/core/compile/backend_compile_duration"  # jax's event of a program that is ready
STUDY = """
from bert_jax.config import load_file
from bert_jax.studies.definition import Study, axis


def get_study(scale):
    config, knob, *values = scale.split(";")
    rates = axis(knob, [float(value) for value in values])
    return Study("Alike?", load_file(config), axes=(rates,), seeds=(0,), evaluations={})
"""


@contextlib.contextmanager
def note_programs(metrics: Path) -> Iterator[list[int]]:
    """Yield how many lines a file has whenever a program is ready, one number for each."""
    found: list[int] = []

    def note(event: str, *_: Any, **__: Any) -> None:
        if event == COMPILED:
            found.append(metrics.read_text().count("\n") if metrics.is_file() else 0)

    monitoring.register_event_duration_secs_listener(note)
    yield found
    monitoring.unregister_event_duration_listener(note)


@pytest.fixture(scope="module")
def trained(folder: Path, request: pytest.FixtureRequest) -> dict[str, tuple[Trained, list[int]]]:
    """Train rows on one device, in this process; note their programs."""
    found = {}
    with contextlib.chdir(folder), texts.one_device():
        for row in choose(request, "trained"):
            workdir = folder / "runs" / row
            with note_programs(workdir / "metrics.jsonl") as compiled:
                result = Result(*run_command(command(row, f"runs/{row}")))
            found[row] = Trained(result, workdir), compiled
    return found


@rows(ALONE)
def test_row_gives_the_frozen_numbers(trained, name):
    """With the flags of the tests, which round a little otherwise."""
    row, _ = trained[name]
    assert differences(name, row.read_numbers()) == []


@pytest.fixture(scope="module")
def as_users(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Trained]:
    place = tmp_path_factory.mktemp("users") / "rows"
    write_folder(place)
    return train(place, choose(request, "as_users"), users_flags=True)


@rows(())
def test_row_is_the_same_with_the_flags_of_users(as_users, name):
    assert differences(name, as_users[name].read_numbers()) == []


@rows(ALONE)
def test_row_compiles_nothing_after_two_updates(trained, name):
    """The first line of metrics.jsonl is written between the second update and the third.

    What is ready within a line of an evaluation counts as a program of that evaluation.
    """
    row, compiled = trained[name]
    assert row.result.code == 0, row.result.stderr
    lines = (row.workdir / "metrics.jsonl").read_text().splitlines()
    evaluated = {number for number, line in enumerate(lines) if '"eval/' in line}
    late = {count for count in compiled if count > 0}
    assert 0 in compiled
    late -= {count for number in evaluated for count in (number - 1, number, number + 1)}
    assert sorted(late) == WIDER.get(name, [])


def fuse(name: str) -> list[str]:
    """Return the command of a study that trains a row together with one of another rate.

    The masking rates of `nsp` need different numbers of slots. Other rows differ in learning rate,
    as do those of training/test_runs.py.
    """
    row, own = ROWS[name], "optim.learning_rate"
    rates = "masking.rate;0.15;0.2" if name == "nsp" else f"{own};{row.knobs.get(own, 2e-3)};5e-4"
    knobs = [word for word in command(name, "")[3:] if own not in word]  # the axis sets it
    words = ["study", "run", f"fused:{row.config};{rates}", f"--workdir=fused/{name}"]
    return [*words, *knobs, "--fuse=2", "--jobs=1"]


@pytest.fixture(scope="module")
def fused(folder: Path, request: pytest.FixtureRequest) -> dict[str, Result]:
    with contextlib.chdir(folder):
        Path("fused").mkdir()
        Path("fused/study.py").write_text(STUDY)
        return {row: Result(*run_command(fuse(row))) for row in choose(request, "fused")}


@rows(("nsp",))
def test_row_fused_is_the_row_alone(fused, folder, name):
    """Its worker trains both at the first try; a group that fails is divided, and tried again."""
    assert fused[name].code == 0, fused[name].stderr
    (log,) = (folder / "fused" / name / "logs").iterdir()
    assert re.findall(r"training (\d+) runs|(diverged)", log.read_text()) == [("2", "")]
    cells = [read_numbers(path) for path in (folder / "fused" / name / "cells").iterdir()]
    same = [differences(name, cell) == [] for cell in cells]
    assert sorted(same) == [False, True]  # the other has its own rate


def test_a_difference_is_found():
    """A number, a missing name and a new one are each told apart, and 1 from true."""
    frozen = {"a": [1.0, 2.0], "b": [0.5]}
    assert golden.find_differences(frozen, frozen, 2e-5) == []
    found = {"a": [1.0, 2.0001], "c": [0.5]}
    assert golden.find_differences(frozen, found, 2e-5) == [
        "/a[1]: 2.0 became 2.0001",
        "/b: missing",
        "/c: not frozen",
    ]
    assert golden.find_differences([1, True], [True, True], 2e-5) == ["[0]: 1 became True"]
    for number, limit in (("learning_rate", 2e-5), ("grad_norm", 5e-3), ("loss", 2e-3)):
        values = FROZEN["bfloat16"][f"train/{number}"]
        for share, count in ((0.9, 0), (1.1, sum(map(bool, values)))):
            off = {f"train/{number}": [value * (1 + share * limit) for value in values]}
            assert len(differences("bfloat16", FROZEN["bfloat16"] | off)) == count
    hits = {"train/mlm_accuracy": [v + 0.03 for v in FROZEN["bfloat16"]["train/mlm_accuracy"]]}
    assert len(differences("bfloat16", FROZEN["bfloat16"] | hits)) == 12

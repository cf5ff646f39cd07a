"""What holds for each training row: its numbers, on any devices, after a kill, fused, exported.

A row of the table is a training row, a test a column. `make test` has the numbers of ALONE on one
device, and of FEW on two devices with the other columns; all other places of the table are slow. A
fixture computes columns: it finds all rows that this session tests in one process.
"""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_jax
from tests import outcomes
from tests.marks import mark_slow
from tests.net import golden
from tests.net.answer_rows import TEXTS
from tests.net.commands import Result, make_environment, run_commands
from tests.net.rows import ROWS, command
from tests.net.train_rows import Numbers, Trained, read_numbers, train, write_folder

FROZEN = golden.read("training")
LAYOUTS = ("parallel.data=2", "parallel.fsdp=2", "parallel.step=pmap")
# On two devices, where other columns begin with what a row has trained.
FEW = {
    "nsp": LAYOUTS[0],
    "packing": LAYOUTS[1],
    "spans": LAYOUTS[2],
    "replaced_generator": LAYOUTS[0],
}
ALONE = ("predict_more", "causal", "accumulation", "bfloat16_products", "lamb", "classify")


def rows(quick: tuple[str, ...]) -> pytest.MarkDecorator:
    """Give a test every row; those that are not quick are slow."""
    return pytest.mark.parametrize("name", mark_slow(ROWS, quick))


def choose(request: pytest.FixtureRequest, fixture: str) -> list[str]:
    """Return the rows of this file's tests of this session that use a fixture."""
    own = [item for item in request.session.items if item.path == request.path]
    return sorted({i.callspec.params["name"] for i in own if fixture in i.fixturenames})


def spell(name: str) -> str:
    """Return the row on two devices, as `rows.command` reads it."""
    return f"{name}:{FEW.get(name, LAYOUTS[0])}"


def differences(name: str, found: Numbers) -> list[str]:
    """Return what differs from the row's frozen numbers."""
    return golden.find_differences(FROZEN[name], found, ROWS[name].tolerance)


# --- one device -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(folder: Path, request: pytest.FixtureRequest) -> dict[tuple[str, str], Result]:
    """Train rows on one device, alone and fused, in one process: results by column and row."""
    commands = {("trained", row): command(row, f"runs/{row}") for row in choose(request, "trained")}
    commands |= {("fused", row): sweep(row) for row in choose(request, "fused")}
    results = run_commands(folder, [*commands.values()], make_environment(folder))
    return dict(zip(commands, results, strict=True))


@pytest.fixture(scope="module")
def trained(folder: Path, alone: dict[tuple[str, str], Result]) -> dict[str, Trained]:
    found = {row: result for (column, row), result in alone.items() if column == "trained"}
    return {row: Trained(result, folder / "runs" / row) for row, result in found.items()}


@rows(ALONE)
def test_row_gives_the_frozen_numbers(trained, name):
    """With the flags of the tests, which round a little otherwise."""
    assert differences(name, trained[name].read_numbers()) == []


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
    """A program is compiled for the first update or for an evaluation.

    The first line of metrics.jsonl is written between the second update and the third.
    """
    row = trained[name]
    assert row.result.code == 0, row.result.stderr
    lines = (row.workdir / "metrics.jsonl").read_text().splitlines()
    evaluated = {number for number, line in enumerate(lines) if '"eval/' in line}
    late = {count for count in row.result.compiled if count > 0}
    assert 0 in row.result.compiled
    assert [count for count in late if not evaluated & {count - 1, count, count + 1}] == []


def sweep(name: str) -> list[str]:
    """Return the command that trains a row together with one of another rate.

    The masking rates of `nsp` need different numbers of slots. Other rows differ in learning rate,
    as do those of training/test_runs.py.
    """
    words = command(name, f"sweeps/{name}")
    rate = "2e-3"
    for word in [*words]:
        if word.startswith("--config.optim.learning_rate="):
            words.remove(word)  # the axis sets it
            rate = word.rpartition("=")[2]
    axis = f"optim.learning_rate={rate},5e-4"
    if name == "nsp":
        axis = "masking.rate=0.15,0.2"
    return ["study", "sweep", *words[1:], f"--axis={axis}", "--seeds=1", "--fuse=2", "--jobs=1"]


@pytest.fixture(scope="module")
def fused(alone: dict[tuple[str, str], Result]) -> dict[str, Result]:
    return {row: result for (column, row), result in alone.items() if column == "fused"}


@rows(("nsp",))
def test_row_fused_is_the_row_alone(fused, folder, name):
    assert (fused[name].code, "diverged" in fused[name].stderr) == (0, False), fused[name].stderr
    cells = [read_numbers(path) for path in (folder / "sweeps" / name / "cells").iterdir()]
    same = [differences(name, cell) == [] for cell in cells]
    assert sorted(same) == [False, True]  # the other has its own rate


def test_a_difference_is_found():
    """A number, a missing name and a new one are each told apart."""
    frozen = {"a": [1.0, 2.0], "b": [0.5]}
    assert golden.find_differences(frozen, frozen, 2e-5) == []
    found = {"a": [1.0, 2.0001], "c": [0.5]}
    assert golden.find_differences(frozen, found, 2e-5) == [
        "/a[1]: 2.0 became 2.0001",
        "/b: missing",
        "/c: not frozen",
    ]
    rates = FROZEN["bfloat16"]["train/learning_rate"]
    off = FROZEN["bfloat16"] | {"train/learning_rate": [rate + 1e-7 for rate in rates]}
    assert len(differences("bfloat16", off)) == len(rates)


# --- two devices ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(folder: Path, request: pytest.FixtureRequest) -> dict[tuple[str, str], Result]:
    """Kill, train, resume, export and import on two devices, in one process.

    Results are by column and row, and for the first column by row and layout.
    """
    items = [i for i in request.session.items if i.path == request.path and hasattr(i, "callspec")]
    names = [
        f"{item.callspec.params['name']}:{item.callspec.params['layout']}"
        for item in items
        if "layout" in item.callspec.params
    ]
    names += [spell(row) for row in choose(request, "on_two_devices") if f"{row}:" not in names]
    commands = {("trained", n): command(n, f"runs/{n}") for n in dict.fromkeys(names)}
    saving = {
        row: command(f"{spell(row)}:checkpoints.every=4", f"killed/{row}")
        for row in choose(request, "resumed")
    }
    commands |= {("resumed", row): words for row, words in saving.items()}
    for row in choose(request, "exchanged"):
        commands |= list_exchange(row)
    environment = make_environment(folder, devices=2)
    results = run_commands(folder, [*commands.values()], environment, kill=[*saving.values()])
    return dict(zip(commands, results, strict=True))


@pytest.fixture(scope="module")
def on_two_devices(folder: Path, ended: dict[tuple[str, str], Result]) -> dict[str, Trained]:
    found = {row: result for (column, row), result in ended.items() if column == "trained"}
    return {row: Trained(result, folder / "runs" / row) for row, result in found.items()}


@pytest.mark.parametrize(
    ("name", "layout"), mark_slow(itertools.product(ROWS, LAYOUTS), FEW.items())
)
def test_row_is_the_same_on_two_devices(on_two_devices, name, layout):
    assert differences(name, on_two_devices[f"{name}:{layout}"].read_numbers()) == []


@pytest.fixture(scope="module")
def resumed(ended: dict[tuple[str, str], Result]) -> dict[str, Result]:
    return {row: result for (column, row), result in ended.items() if column == "resumed"}


@rows((*FEW,))
def test_row_killed_in_a_save_resumes_its_bits(on_two_devices, resumed, folder, name):
    assert resumed[name].code == 0, resumed[name].stderr
    assert re.search(f"resuming killed/{name} at step [48]\n", resumed[name].stderr)
    whole = on_two_devices[spell(name)].workdir
    assert outcomes.by_step(folder / "killed" / name) == outcomes.by_step(whole)


# --- next to others -------------------------------------------------------------------------------


@rows((*FEW,))
def test_padded_neighbour_changes_nothing(on_two_devices, name):
    """A text has the same vectors next to a longer one, behind which it is padded."""
    row = on_two_devices[spell(name)]
    assert row.result.code == 0, row.result.stderr
    model = bert_jax.load(row.workdir)
    text, longer = TEXTS
    (alone,), (beside, _) = model.hidden_states([text]), model.hidden_states([text, longer])
    np.testing.assert_allclose(beside, alone, rtol=2e-5, atol=2e-5)


# --- another project's format ---------------------------------------------------------------------


EXCHANGE = ("export", "import", "evaluate the run", "evaluate the import")


def list_exchange(name: str) -> dict[tuple[str, str], list[str]]:
    """Return commands that export a row, import that, and evaluate both on the row's text."""
    config, *knobs = command(name, "")[1:]
    read = re.compile(r"--config\.(corpus|evals|examples|pairs|sequence_length)\b")
    run, exported, imported = f"--model=runs/{spell(name)}", f"exported/{name}", f"imported/{name}"
    data = [config, *filter(read.match, knobs)]
    commands = [
        ["export", run, f"--output={exported}"],
        ["import", f"--model={exported}", f"--output={imported}"],
        ["evaluate", run, f"--output=runs/{name}.json"],
        ["evaluate", f"--model={imported}", f"--output={imported}.json", *data],
    ]
    return {(column, name): words for column, words in zip(EXCHANGE, commands, strict=True)}


@pytest.fixture(scope="module")
def exchanged(
    on_two_devices: dict[str, Trained], ended: dict[tuple[str, str], Result]
) -> dict[str, list[Result]]:
    names = {name for column, name in ended if column in EXCHANGE}
    return {name: [ended[column, name] for column in EXCHANGE] for name in names}


@rows((*FEW,))
def test_row_is_exported_whole_or_refused(exchanged, folder, name):
    """The export, evaluated on the row's text, has the row's numbers."""
    results = exchanged[name]
    refused = golden.read("refused_exports").get(name)
    if refused:  # the number of the command, and words of its message
        number, words = refused
        assert (results[number].code, words in results[number].stderr) == (2, True)
        return
    assert [result.code for result in results] == [0] * 4, results
    places = [folder / kind / f"{name}.json" for kind in ("runs", "imported")]
    scores: list[Any] = [json.loads(place.read_text()) for place in places]
    assert golden.find_differences(*scores, 2e-5) == []

"""What holds for each training row on two devices: its numbers, after a kill, exported.

See test_matrix.py. `make test` has the rows of FEW; all other places of the table are slow.
"""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from tests import outcomes
from tests.marks import mark_slow
from tests.net import golden
from tests.net.answer_rows import TEXTS
from tests.net.columns import choose, differences, rows
from tests.net.commands import Result, make_environment, run_commands
from tests.net.rows import ROWS, command
from tests.net.train_rows import Trained

LAYOUTS = ("parallel.data=2", "parallel.fsdp=2", "parallel.step=pmap")
FEW = {
    "nsp": LAYOUTS[0],
    "packing": LAYOUTS[1],
    "spans": LAYOUTS[2],
    "replaced_generator": LAYOUTS[0],
}
EXCHANGE = ("export", "import", "evaluate")
EVALUATED = "eval/validation/"


def spell(name: str) -> str:
    """Return the row on two devices, as `rows.command` reads it."""
    return f"{name}:{FEW.get(name, LAYOUTS[0])}"


@pytest.fixture(scope="module")
def ended(folder: Path, request: pytest.FixtureRequest) -> dict[tuple[str, str], Result]:
    """Kill, train, resume, export and import on two devices, in one process.

    Results are by column and row, and for the first column by row and layout.
    """
    items = [i for i in request.session.items if i.path == request.path]
    laid_out = [i.callspec.params for i in items if "layout" in i.callspec.params]
    names = [f"{params['name']}:{params['layout']}" for params in laid_out]
    names += [spell(row) for row in choose(request, "on_two_devices")]
    commands = {("trained", n): command(n, f"runs/{n}") for n in dict.fromkeys(names)}
    saving = {
        row: command(f"{spell(row)}:checkpoints.every=4", f"killed/{row}")
        for row in choose(request, test_row_killed_in_a_save_resumes_its_bits.__name__)
    }
    commands |= {("resumed", row): words for row, words in saving.items()}
    for row in choose(request, test_row_is_exported_whole_or_refused.__name__):
        commands |= list_exchange(row)
    environment = make_environment(devices=2)
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


@rows((*FEW,))
def test_row_killed_in_a_save_resumes_its_bits(on_two_devices, ended, folder, name):
    resumed = ended["resumed", name]
    assert resumed.code == 0, resumed.stderr
    assert re.search(f"resuming killed/{name} at step [48]\n", resumed.stderr)
    killed, whole = folder / "killed" / name, on_two_devices[spell(name)].workdir
    assert outcomes.by_step(killed) == outcomes.by_step(whole)
    last = max(outcomes.by_step(whole))
    outcomes.assert_same_arrays(*(outcomes.state(run, last)[0] for run in (killed, whole)))


@rows(("nsp", "packing", "replaced_generator"))  # the encoder of `spans` is that of `nsp`
def test_padded_neighbour_changes_nothing(on_two_devices, name):
    """A text has the same vectors next to a longer one, behind which it is padded."""
    row = on_two_devices[spell(name)]
    assert row.result.code == 0, row.result.stderr
    model = bert_jax.load(row.workdir)
    text, longer = TEXTS
    (alone,), (beside, _) = model.hidden_states([text]), model.hidden_states([text, longer])
    np.testing.assert_allclose(beside, alone, rtol=2e-5, atol=2e-5)


def list_exchange(name: str) -> dict[tuple[str, str], list[str]]:
    """Return commands that export a row, import that, and evaluate it on the row's data."""
    config, *knobs = command(name, "")[1:]
    read = re.compile(r"--config\.(corpus|evals|examples|pairs|sequence_length|task)\b")
    exported, imported = f"exported/{name}", f"imported/{name}"
    commands = [
        ["export", f"--model=runs/{spell(name)}", f"--output={exported}"],
        ["import", f"--model={exported}", f"--output={imported}"],
        ["evaluate", f"--model={imported}", config, *filter(read.match, knobs)],
    ]
    return {(column, name): words for column, words in zip(EXCHANGE, commands, strict=True)}


@rows((*FEW,))
def test_row_is_exported_whole_or_refused(on_two_devices, ended, name):
    """The import, evaluated on the row's data, has the numbers of the step that was exported."""
    results = {column: ended[column, name] for column in EXCHANGE}
    refused = golden.read("refused_exports").get(name, {})
    for column, (code, words) in refused.items():
        result = results[column]
        assert (result.code, words in result.stderr) == (code, True), result.stderr
    if refused:
        return
    assert [result.code for result in results.values()] == [0] * 3, results
    step = json.loads(results["export"].stdout)["step"]
    line = outcomes.by_step(on_two_devices[spell(name)].workdir)[step]
    logged = {n.removeprefix(EVALUATED): line[n] for n in line if n.startswith(EVALUATED)}
    if name == "hybrid":  # its export is a masked model, which does not read from the left
        logged = {n: value for n, value in logged.items() if not n.startswith("causal_lm_")}
    (scores,) = json.loads(results["evaluate"].stdout).values()
    assert golden.find_differences(logged, scores, ROWS[name].tolerance) == []

"""Branches: what begins at a checkpoint of another run is the run from step 0, to the bit."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bert_jax import cli, train
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.training import branch
from bert_jax.training.step import compute_inputs
from tests import outcomes, texts
from tests.texts import configure

FORK, SHORT, LONG = 13, 20, 30
KNOBS = {
    "batch_size": 8,
    "sequence_length": 16,
    "model__hidden": 16,
    "optim__schedule": "wsd",
    "logging__every": 5,  # a line averages over the fork
    "checkpoints__every": 10,
    "checkpoints__keep": 1,
    "checkpoints__best": "",
    "evals__validation__every": 15,
}


def config(base: Path, evaluated: bool = False, **changes: Any) -> knobs.Config:
    made = configure(base, **(KNOBS | changes))
    return made if evaluated else dataclasses.replace(made, evals={})


def run(made: knobs.Config, workdir: Path) -> Path:
    with texts.one_device():
        train.run(made, workdir, command=[])
    return workdir


@pytest.fixture(scope="module")
def trunk(base, tmp_path_factory) -> Path:
    made = config(base, steps=SHORT, checkpoints__at=FORK)
    return run(made, tmp_path_factory.mktemp("trunk") / "run")


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory) -> Path:
    """The run that a branch spares: of the branch's config, from step 0."""
    made = config(base, steps=LONG, checkpoints__at=FORK)
    return run(made, tmp_path_factory.mktemp("whole") / "run")


def lines(workdir: Path) -> list[dict[str, Any]]:
    return outcomes.metrics(workdir)


def same_arrays(workdir: Path, whole: Path, step: int) -> tuple[dict, dict]:
    """All arrays of a step are the same to the bit; returns what else was saved."""
    (ours, meta), (theirs, wanted) = (outcomes.state(w, step) for w in (workdir, whole))
    assert ours.keys() == theirs.keys()
    assert [n for n in ours if ours[n].tobytes() != theirs[n].tobytes()] == []
    return meta, wanted


def assert_branch_of(workdir: Path, whole: Path) -> None:
    """The branch ended as the run from step 0 did, and has its lines from the fork on."""
    first, *later = lines(workdir)
    assert first.keys() == {"step", "branch_from"}
    assert later == [line for line in lines(whole) if line["step"] > FORK]
    meta, wanted = same_arrays(workdir, whole, LONG)
    assert meta["config"].pop("branch_from") == first["branch_from"]
    assert wanted["config"].pop("branch_from") == ""
    for name in outcomes.WALL:
        del meta[name], wanted[name]
    assert meta == wanted


def test_a_branch_is_the_unbranched_run_to_the_bit(base, trunk, whole, tmp_path, capfd):
    """Up to the fork the trunk is; after it the branch, whose record names no path."""
    before = [[line for line in lines(w) if line["step"] <= FORK] for w in (trunk, whole)]
    assert before[0] == before[1] != []
    same_arrays(trunk, whole, FORK)

    made = config(base, steps=LONG, branch_from=f"{trunk}@{FORK}", checkpoints__at=FORK)
    capfd.readouterr()
    run(made, tmp_path / "run")
    assert f"branching off {trunk} at step {FORK}" in capfd.readouterr().err
    assert_branch_of(tmp_path / "run", whole)
    recorded = json.loads((tmp_path / "run/config.json").read_text())["branch_from"]
    assert re.fullmatch(rf"[0-9a-f]{{12}}@{FORK}", recorded)
    said = f"branch of the run {recorded[:12]} from step {FORK} on"
    assert said in (tmp_path / "run/report.html").read_text()
    assert "branch of" not in (whole / "report.html").read_text()


@pytest.mark.slow
def test_a_branch_resumes_without_its_trunk(base, tmp_path, capfd):
    """Evaluated, ranked, and stopped twice; once before it has saved anything."""
    often = {"evaluated": True, "checkpoints__best": "mlm_loss", "checkpoints__at": FORK}
    trunk = run(config(base, steps=SHORT, **often), tmp_path / "trunk")
    whole = run(config(base, steps=LONG, **often), tmp_path / "whole")
    made = config(base, steps=LONG, branch_from=f"{trunk}@{FORK}", **often)
    run(made, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints")  # its lines are there, and are written again
    run(made, tmp_path / "run")
    assert_branch_of(tmp_path / "run", whole)

    often["checkpoints__every"] = 7
    made = config(base, steps=LONG, branch_from=f"{trunk}@{FORK}", checkpoints__keep=9, **often)
    run(made, tmp_path / "other")
    for step in (28, LONG):
        shutil.rmtree(tmp_path / f"other/checkpoints/{step}")
    trunk.rename(tmp_path / "elsewhere")
    capfd.readouterr()
    run(made, tmp_path / "other")
    assert f"resuming {tmp_path / 'other'} at step 21" in capfd.readouterr().err
    same_arrays(tmp_path / "other", whole, LONG)
    assert lines(tmp_path / "other") == lines(tmp_path / "run")
    with pytest.raises(ConfigError, match=rf"branch_from: '[0-9a-f]{{12}}@{FORK}' -> ''"):
        run(config(base, steps=LONG, **often), tmp_path / "other")


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"optim__schedule": "linear"}, r"learning_rate differs at step 7, 0\.005 there and"),
        ({"steps": 14}, r"learning_rate differs at step 13, 0\.005 there and 0\.00333"),
        ({"masking__rate": 0.3}, "the number of prediction slots a row, .* differs at step 1"),
        ({"masking__replace": "(1,0,0)"}, r"replace\[0\] differs at step 1, 0\.8 there and 1\.0"),
        ({"seed": 7}, "seed differs at step 1, 0 there and 7 here"),
        ({"objectives__mlm__weight": 2}, r"weights\.mlm differs at step 1, 1\.0 there and 2\.0"),
        ({"model__dropout": 0.2}, r"model\.\w+dropout differs at step 1, 0\.1 there and 0\.2 here"),
        (
            {"masking__phases": "((0.2,0.1,'step'),(0.9,0.15,'step'))"},
            r"quotas\.whole\[\d+\] differs at step 7, 2 there and 1 here",
        ),
        (
            {"masking__draw": "uniform", "masking__draw_high": 0.15},
            "quotas.whole differs at step 1, a table there and absent here",
        ),
        ({"batch_size": 16}, "batch_size differs at step 1, 8 there and 16 here"),
    ],
)
def test_a_number_that_differs_before_the_fork_is_named(changes, refused, base, trunk):
    made = config(base, **({"steps": LONG, "branch_from": f"{trunk}@{FORK}"} | changes))
    with pytest.raises(ConfigError, match=rf"{FORK} is no trunk of this run: {refused}") as error:
        branch.check(made)
    assert error.value.code == 2
    late = re.search(r"at step (\d+)", str(error.value))
    assert late
    last = int(late[1]) - 1
    assert f"at step {last} or before" in error.value.hint or (
        not last and "change it" in error.value.hint
    )


def test_a_rate_is_compared_at_each_step_before_the_fork(base, trunk, monkeypatch):
    """As a schedule of the masking rate would change it, with as many slots."""
    made, real = config(base, steps=LONG, branch_from=f"{trunk}@{FORK}"), compute_inputs

    def from_step_ten_on(config: knobs.Config, index: int) -> Any:
        inputs = real(config, index)
        if config.steps == LONG and index >= 9:
            whole = inputs.quotas.whole.copy()
            whole[14] += 1
            inputs = inputs._replace(quotas=inputs.quotas._replace(whole=whole))
        return inputs

    branch.check(made)
    monkeypatch.setattr(branch, "compute_inputs", from_step_ten_on)
    with pytest.raises(
        ConfigError, match=r"quotas\.whole\[14\] differs at step 10, 2 there and 3 here"
    ):
        branch.check(made)


def test_other_data_makes_another_trunk(base, trunk, tmp_path):
    """The same text elsewhere is the same; other text is refused, though every knob is the same."""
    made = config(base, steps=LONG, branch_from=f"{trunk}@{FORK}")
    there = Path(made.corpus.path)
    shutil.copytree(there, tmp_path / "corpus")
    meta = outcomes.state(trunk, FORK)[1]
    data = {name: meta[name] for name in branch.FINGERPRINTS}
    moved = dataclasses.replace(
        made, corpus=dataclasses.replace(made.corpus, path=str(tmp_path / "corpus"))
    )
    assert branch.recorded(moved, data).branch_from == branch.recorded(made, data).branch_from
    other = data | {"corpus": "0" * 64}
    assert branch.recorded(made, other).branch_from != branch.recorded(made, data).branch_from
    texts.write(tmp_path / "corpus", documents=121)
    with pytest.raises(ConfigError, match="is no trunk of this run: the corpus differs at step 1"):
        run(moved, tmp_path / "run")


def test_the_identity_of_a_trunk_is_what_its_updates_depend_on(base):
    made, data = config(base, steps=LONG), dict.fromkeys(branch.FINGERPRINTS, "x")

    def digest(**changes: Any) -> str:
        return branch.digest(config(base, **({"steps": LONG} | changes)), FORK, data)

    known = branch.digest(made, FORK, data)
    spared = {"steps": SHORT, "checkpoints__every": 3, "branch_from": "a@5"}
    later = {"optim__decay_fraction": 0.4, "optim__final_fraction": 0.1}
    assert {digest(**{key: value}) for key, value in (spared | later).items()} == {known}
    assert branch.digest(made, FORK - 1, data) != known
    acting = {"seed": 1, "optim__clip_norm": 2.0, "optim__learning_rate": 1e-3, "steps": 14}
    assert len({digest(**{key: value}) for key, value in acting.items()} - {known}) == len(acting)


def test_a_trunk_that_is_missing_or_damaged_is_one_line(base, trunk, tmp_path, capsys):
    words = [
        "train",
        f"--config={base}",
        *(f"--config.{k.replace('__', '.')}={v}" for k, v in KNOBS.items()),
    ]
    words += [f"--config.steps={LONG}", f"--workdir={tmp_path / 'run'}"]

    def said(where: Path, step: int = FORK, *more: str) -> str:
        code = cli.execute([*words, f"--config.branch_from={where}@{step}", *more])
        found = capsys.readouterr()
        errors = [line for line in found.err.splitlines() if line.startswith("error")]
        return f"{code} {' '.join(errors)}" if code else found.out

    assert said(tmp_path / "nowhere").startswith("4 error: no finished checkpoint of step 13 in")
    assert said(trunk, 12).startswith("4 error: no finished checkpoint of step 12 in")
    assert said(trunk, FORK, "--dry-run", "--config.seed=1").startswith("2 error: ")
    plan = said(trunk, FORK, "--dry-run")
    assert f"branch          of {trunk} at step {FORK}: {LONG - FORK} updates to make" in plan
    shutil.copytree(trunk, tmp_path / "damaged")
    saved = tmp_path / f"damaged/checkpoints/{FORK}"
    file = max((p for p in saved.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1])
    for more in ((), ("--dry-run",)):
        assert said(tmp_path / "damaged", FORK, *more).startswith("4 error: checkpoint corrupt: ")

"""Branches: what begins at a checkpoint of another run is the run from step 0, to the bit."""

import json
import re
import shutil
from pathlib import Path

import pytest

from bert_jax import train
from bert_jax.checkpoints import manifest
from bert_jax.config import knobs, to_dict
from bert_jax.errors import ConfigError
from bert_jax.training import branch
from tests import outcomes, texts

FORK, SHORT, LONG = 13, 20, 30
KNOBS = {"batch_size": 8, "sequence_length": 16, "model__hidden": 16, "optim__schedule": "wsd"}
KNOBS |= {"checkpoints__every": 10, "checkpoints__at": FORK, "evals__validation__every": 10}
KNOBS |= {"logging__every": 5}  # a line averages over the fork


def make_config(base: Path, trunk: Path | None = None, **changes) -> knobs.Config:
    fork = {} if trunk is None else {"branch_from": f"{trunk}@{FORK}"}
    return texts.configure(base, **(KNOBS | {"steps": LONG} | fork | changes))


def run(config: knobs.Config, workdir: Path) -> Path:
    with texts.one_device():
        train.run(config, workdir, command=[])
    return workdir


@pytest.fixture(scope="module")
def trunk(base, tmp_path_factory) -> Path:
    return run(make_config(base, steps=SHORT), tmp_path_factory.mktemp("trunk") / "run")


def compare_arrays(workdir: Path, whole: Path, step: int) -> tuple[dict, dict]:
    """Compare all arrays of a step to the bit; return what else was saved."""
    (ours, meta), (theirs, wanted) = (outcomes.state(w, step) for w in (workdir, whole))
    outcomes.assert_same_arrays(ours, theirs)
    return meta, wanted


@pytest.mark.fault(1)
def test_branch_is_the_unbranched_run_to_the_bit(base, trunk, tmp_path, capfd):
    """Its record names no path, and it resumes without its trunk."""
    whole = run(make_config(base), tmp_path / "whole")
    compare_arrays(trunk, whole, FORK)
    moved = Path(shutil.copytree(trunk, tmp_path / "moved"))
    config = make_config(base, moved)
    workdir = run(config, tmp_path / "run")
    assert f"branching off {moved} at step {FORK}" in capfd.readouterr().err
    assert outcomes.read_lines(workdir)[0]["time"] == 0
    first, *later = outcomes.metrics(workdir)
    recorded = first.pop("branch_from")
    assert re.fullmatch(rf"[0-9a-f]{{12}}@{FORK}", recorded)
    assert first == {"step": FORK}
    assert later == [line for line in outcomes.metrics(whole) if line["step"] > FORK]
    assert json.loads((workdir / "config.json").read_text())["branch_from"] == recorded
    meta, wanted = compare_arrays(workdir, whole, LONG)
    assert meta["config"].pop("branch_from") == recorded
    assert wanted["config"].pop("branch_from") == ""
    for name in outcomes.WALL:
        del meta[name], wanted[name]
    assert meta == wanted

    shutil.rmtree(moved)
    shutil.rmtree(workdir / "checkpoints" / str(LONG))
    run(config, workdir)
    assert f"resuming {workdir} at step 20" in capfd.readouterr().err
    compare_arrays(workdir, whole, LONG)


@pytest.mark.fault(2)
def test_branch_refuses_a_fork_that_owes_an_evaluation(base, trunk, tmp_path):
    """Its best value would lack this evaluation for good; other evaluations are not its own."""
    owing = Path(shutil.copytree(trunk, tmp_path / "owing"))
    fork = owing / "checkpoints" / str(FORK)
    manifest.write_evaluations(fork, None, {"owed": ["other"]})
    branch.check_trunk(make_config(base, owing))
    manifest.write_evaluations(fork, None, {"owed": ["other", "validation"]})
    with pytest.raises(ConfigError, match=r"left out its evaluations \(validation\)"):
        branch.check_trunk(make_config(base, owing))


def test_branch_ranks_anew_by_another_measure(base):
    config = make_config(base)
    meta = {"config": to_dict(config), "best": 1.0, "misses": 2, "ledger": {}}
    assert branch.carry_record(config, meta) == {"best": 1.0, "misses": 2, "ledger": {}}
    other = make_config(base, evals__validation__rate=0.4)
    assert branch.carry_record(other, meta) == {"best": None, "misses": 0, "ledger": {}}


def test_digest_is_what_the_first_updates_depend_on(base):
    """The same text elsewhere is the same, and other text another, though every knob is the same.

    What a branch refuses is held by tests/net/transcripts/train_changes.txt.
    """

    def make_digest(corpus: str = "x", **changes) -> str:
        data = dict.fromkeys(branch.FINGERPRINTS, "x") | {"corpus": corpus}
        return branch.hash_updates(make_config(base, **changes), FORK, data)

    known = make_digest()
    assert make_digest("y") != known
    others = {"steps": SHORT, "checkpoints__every": 3, "branch_from": "a@5", "corpus__path": "b"}
    others |= {"optim__decay_fraction": 0.4, "optim__final_fraction": 0.1}
    for knob, value in others.items():
        assert make_digest(**{knob: value}) == known, knob
    acting = {"seed": 1, "optim__clip_norm": 2.0, "optim__learning_rate": 1e-3, "steps": 14}
    assert len({make_digest(**{knob: value}) for knob, value in acting.items()} - {known}) == 4

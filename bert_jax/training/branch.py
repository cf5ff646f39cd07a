"""Branches: runs that begin at a checkpoint of another run, their trunk.

A branch is, to the bit, the run that its config makes from step 0, without making the updates
before the fork again. So each number that those updates take must be the same in both configs; what
differs acts later, as the length does under `optim.schedule=wsd`.

A branch records what its trunk is, never where: a digest of all that the updates before the fork
depend on. It follows from the branch's own config and data, so a branch resumes without its trunk.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints import reading
from bert_jax.config import (
    costs,
    differences,
    flat,
    free_on_resume,
    is_traced,
    knobs,
    to_dict,
    usual,
)
from bert_jax.config import recorded as read_config
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.system import jsons
from bert_jax.training.step import State, compute_inputs

FINGERPRINTS = ("corpus", "tokenizer", "batches")
META = {"step": range(2**63), "config": dict} | dict.fromkeys(FINGERPRINTS, str)
# Knobs that say where data is: fingerprints say what it is.
PLACES = (
    *("corpus.path", "corpus.tfds_dir", "corpus.revision", "tokenizer.path"),
    *("task.source", "task.files", "task.tfds_dir"),
)
LENGTHS = ("steps", "epochs")  # they act through the schedules of numbers
# What a run keeps beside its state and a branch goes on with; lines and seconds are its own.
CARRIED = ("ledger", "best", "misses", "window")


def recorded(config: knobs.Config, fingerprints: Mapping[str, str]) -> knobs.Config:
    """Return the config of a run as it is recorded: with the digest of the trunk, not its path."""
    step = config.trunk[1]
    if not step:
        return config
    return dataclasses.replace(config, branch_from=f"{digest(config, step, fingerprints)}@{step}")


def digest(config: knobs.Config, steps: int, fingerprints: Mapping[str, str]) -> str:
    """Return a hash of all that the first updates of a run depend on, but for the devices."""
    known = usual()
    fixed = {path: value for path, value in _fixed(config).items() if known.get(path, ...) != value}
    data = [fingerprints[name] for name in FINGERPRINTS]
    text = json.dumps([steps, fixed, costs.own_slots(config), data], sort_keys=True)
    found = hashlib.sha256(text.encode())
    before: dict[int, bytes] = {}
    last: dict[int, Any] = {}
    for index in range(steps):
        for place, leaf in enumerate(jax.tree.leaves(compute_inputs(config, index))):
            if leaf is last.get(place):
                continue
            last[place], number = leaf, np.asarray(leaf).tobytes()
            if number != before.get(place):  # most never change
                found.update(f"{index} {place} ".encode() + number)
                before[place] = number
    return found.hexdigest()[:12]


def start(
    config: knobs.Config, fingerprints: Mapping[str, str], run: Path, like: Any
) -> tuple[State, dict[str, Any]]:
    """Return the state at the fork, placed as in `like`, and the record to go on with."""
    step = config.trunk[1]
    _check(config, fingerprints, run, _read_meta(run, step))
    restored = reading.read_state(run / "checkpoints", like, step)
    assert restored is not None
    state, meta, _ = restored
    return state, {name: meta[name] for name in CARRIED if name in meta}


def check(config: knobs.Config) -> None:
    """Refuse a branch whose trunk is missing, damaged or another run; data is not compared."""
    run, step = config.trunk
    reading.choose_together(Path(run) / "checkpoints", step)  # the arrays are sound too
    _check(config, {}, Path(run), _read_meta(Path(run), step))


def _read_meta(run: Path, step: int) -> dict[str, Any]:
    found = reading.read_meta(run / "checkpoints", step)
    assert found is not None
    if problem := jsons.wrong(found[0], META):
        raise CheckpointError(f"{run / 'checkpoints' / str(step)}: of a trunk's meta, {problem}")
    return found[0]


def _check(
    config: knobs.Config, fingerprints: Mapping[str, str], run: Path, meta: dict[str, Any]
) -> None:
    """Refuse a trunk that is not what the run would be up to the fork, by the first difference."""
    there, step = read_config(meta["config"]), config.trunk[1]

    def refuse(what: str, old: Any, new: Any, at: int = 1) -> None:
        raise ConfigError(
            f"{run}@{step} is no trunk of this run: {what} differs at step {at}, "
            f"{old} there and {new} here",
            f"a branch may begin at step {at - 1} or before"
            if at > 1
            else "change it back, or train without branch_from",
        )

    for path, (old, new) in differences(_fixed(there), _fixed(config)).items():
        refuse(path, repr(old), repr(new))
    for name, value in fingerprints.items():
        if meta[name] != value:
            refuse(f"the {name}", meta[name][:12], value[:12])
    slots = costs.own_slots(there), costs.own_slots(config)
    if slots[0] != slots[1]:
        refuse("the number of prediction slots a row, by the largest rate of the run,", *slots)
    for index in range(step):
        theirs, ours = (compute_inputs(c, index) for c in (there, config))
        if different := _different(theirs, ours):
            refuse(*different, index + 1)


def _different(theirs: Any, ours: Any) -> tuple[str, str, str] | None:
    """Return the first number of two step inputs that differs: its name and both values."""
    there, here = (jax.tree.leaves(inputs) for inputs in (theirs, ours))
    if len(there) == len(here) and all(map(_same, there, here)):
        return None
    old, new = _named(theirs), _named(ours)
    for name in old | new:
        a, b = (np.asarray(side.get(name, "absent")) for side in (old, new))
        if a.shape != b.shape:  # of a rate that is drawn, and one that is not
            return name, "a table" if a.ndim else str(a), "a table" if b.ndim else str(b)
        if not _same(a, b):
            place = tuple(np.argwhere(a != b)[0].tolist())
            return f"{name}{list(place) or ''}", str(a[place]), str(b[place])
    raise AssertionError("step inputs of different kinds have the same leaves")


def _named(inputs: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(inputs)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _same(a: Any, b: Any) -> bool:
    return a is b or np.array_equal(a, b)


def _fixed(config: knobs.Config) -> dict[str, Any]:
    """Return the knobs by path that neither a step input nor a fingerprint stands for."""
    return {
        path: value
        for path, value in flat(to_dict(config)).items()
        if path not in (*PLACES, *LENGTHS, "branch_from")
        and not is_traced(path)
        and not free_on_resume(path)
    }

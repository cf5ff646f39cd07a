"""Read checkpoints: verify their files, then read only the parameters, or the whole state."""

import logging
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from bert_jax.checkpoints.manifest import choose_step, read_record
from bert_jax.errors import CheckpointError

PyTree = Any
Meta = dict[str, Any]

# Orbax logs how long it waits, and the errors that it raises, with tracebacks.
logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)

# If several arrays cannot be read or written, Orbax raises the first error. The others come later
# from threads of tensorstore: with tracebacks, behind the line that says what to do.
usual_hook = sys.unraisablehook


def ignore_closed_loop(unraisable: "sys.UnraisableHookArgs") -> None:
    """Ignore an array of Orbax that arrives after its event loop was closed; report the rest."""
    if str(unraisable.exc_value) != "Event loop is closed":
        usual_hook(unraisable)


sys.unraisablehook = ignore_closed_loop


def read_model(folder: Path, step: int | None = None) -> tuple[PyTree, Meta]:
    """Read the parameters, as numpy arrays, and the JSON record (meta) of a step.

    The step is `step`, or the best sound step, or the latest if no step has a metric. The arrays of
    the optimizer are neither read nor verified.
    """

    def read(source: Path) -> PyTree:
        params = source / "params"
        return _read_arrays(params, _read_shapes(params))

    found = choose_step(folder, step, ("params", "meta"), best_first=True, read=read)
    if found is None:
        raise CheckpointError(
            f"no checkpoint in {folder.absolute()}",
            "give the folder of a run, or of one of its steps",
        )
    chosen, params = found
    return params, read_record(folder.absolute() / str(chosen))


def read_meta(folder: Path, step: int | None = None) -> tuple[Meta, int] | None:
    """Read the JSON record (meta) of the newest sound step, or of `step`; return (meta, step).

    The files of the arrays are not verified.
    """
    chosen = choose_together(folder, step, ("meta",))
    return None if chosen is None else (read_record(folder / str(chosen)), chosen)


def read_state(
    folder: Path, like: dict[str, PyTree], step: int | None = None
) -> tuple[dict[str, PyTree], Meta, int] | None:
    """Read the newest sound state, or the state of `step`, with the shardings of `like`.

    Returns (state, JSON record, step), or None if no step was saved.
    """
    chosen = choose_together(folder, step)
    if chosen is None:
        return None
    source = folder.absolute() / str(chosen)
    groups = split_state(like)
    for name, tree in groups.items():
        _refuse_other_arrays(tree, source / name)
        groups[name] = _read_arrays(source / name, tree)
    return {**groups.pop("rest", {}), **groups}, read_record(source), chosen


def split_state(state: dict[str, PyTree]) -> dict[str, PyTree]:
    """Split a state into `params` and `rest`, which are saved in separate files."""
    rest = {key: value for key, value in state.items() if key != "params"}
    return {"params": state["params"], **({"rest": rest} if rest else {})}


def choose_together(
    folder: Path, step: int | None, groups: tuple[str, ...] = ("params", "rest", "meta")
) -> int | None:
    """Choose a sound step on process 0, and tell the other processes which it is.

    So the files are hashed once, and all processes read the same step.
    """
    nothing = -1
    refused = -2
    number = nothing
    error = CheckpointError("process 0 found no sound checkpoint")
    if jax.process_index() == 0:
        try:
            found = choose_step(folder, step, groups)
            number = nothing if found is None else found[0]
        except CheckpointError as problem:
            number = refused
            error = problem
    if jax.process_count() > 1:
        number = int(multihost_utils.broadcast_one_to_all(np.int32(number)))
    if number == refused:
        raise error
    return None if number == nothing else number


def _read_shapes(folder: Path) -> PyTree:
    """Return the saved tree with the shape and dtype of each array, without its numbers."""
    saved = ocp.PyTreeCheckpointHandler().metadata(folder).tree
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), saved)


def _read_arrays(folder: Path, like: PyTree) -> PyTree:
    """Read a saved tree of arrays, with the shapes and shardings of the tree `like`.

    An array without a sharding in `like` becomes a numpy array.
    """
    placed = ocp.checkpoint_utils.construct_restore_args(like)
    request = ocp.args.PyTreeRestore(item=like, restore_args=placed)
    return ocp.PyTreeCheckpointHandler().restore(folder, args=request)


def _refuse_other_arrays(like: PyTree, folder: Path) -> None:
    """Refuse a checkpoint whose arrays differ from the run's; name the first that differs."""

    def describe(tree: PyTree) -> dict[str, str]:
        return {
            jax.tree_util.keystr(path, simple=True, separator="/"): f"{x.dtype}{[*x.shape]}"
            for path, x in jax.tree_util.tree_leaves_with_path(tree)
        }

    ours = describe(like)
    theirs = describe(_read_shapes(folder))
    for name in ours | theirs:
        here = ours.get(name, "absent")
        there = theirs.get(name, "absent")
        if here != there:
            raise CheckpointError(
                f"{folder} does not fit: {name} is {there} in the checkpoint "
                f"and {here} in this run",
                "model, tokenizer and optimizer must be those it was trained with",
            )

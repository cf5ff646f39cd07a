"""The arrays of a checkpoint: states as named arrays, saved and loaded by Orbax."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.errors import CheckpointError

PyTree = Any
LATE = "Event loop is closed"  # asyncio's error for a callback to a loop that has ended
WRITE_ERRORS = (OSError, ValueError, RuntimeError)  # of Orbax and TensorStore, for a failed write


# --- Orbax ---------------------------------------------------------------------------------------


def _is_not_raised(record: logging.LogRecord) -> bool:
    """Filter out tracebacks that Orbax logs for errors it also raises: ours has them as cause."""
    return not (record.exc_info and "orbax" in record.pathname)


@functools.cache
def silence_late_writes() -> None:
    """Suppress the errors that TensorStore prints of writes that end after their save has failed.

    The failed save's event loop is closed by then, which each of them reports with a traceback.
    """
    previous = sys.unraisablehook

    def hook(event: Any) -> None:
        late = isinstance(event.exc_value, RuntimeError) and str(event.exc_value) == LATE
        if not (late and event.object is None):
            previous(event)

    sys.unraisablehook = hook


def checkpointer() -> ocp.AsyncCheckpointer:
    """Build Orbax's checkpointer for the items of a step: params, rest and meta."""
    silence_late_writes()
    logging.getLogger("absl").addFilter(_is_not_raised)
    arrays = {item: ocp.PyTreeCheckpointHandler() for item in ("params", "rest")}
    return ocp.AsyncCheckpointer(
        ocp.CompositeCheckpointHandler(**arrays, meta=ocp.JsonCheckpointHandler())
    )


def close(orbax: ocp.AsyncCheckpointer) -> None:
    """Close Orbax's threads; an error of its last save was raised as one of ours."""
    with contextlib.suppress(*WRITE_ERRORS):
        orbax.close()


def load(
    orbax: ocp.AsyncCheckpointer, folder: Path, targets: dict[str, dict[str, Any]]
) -> tuple[dict, dict]:
    """Load arrays, placed as in `targets` or numpy where it has no sharding, and meta."""

    def place(leaf: Any) -> ocp.RestoreArgs:
        sharding = getattr(leaf, "sharding", None)
        if sharding is None:
            return ocp.RestoreArgs(restore_type=np.ndarray, dtype=leaf.dtype)
        return ocp.ArrayRestoreArgs(sharding=sharding, global_shape=leaf.shape, dtype=leaf.dtype)

    restores: dict[str, Any] = {
        item: ocp.args.PyTreeRestore(
            item={n: jax.ShapeDtypeStruct(x.shape, x.dtype) for n, x in named.items()},
            restore_args={n: place(x) for n, x in named.items()},
        )
        for item, named in targets.items()
    }
    try:
        request = ocp.args.Composite(**restores, meta=ocp.args.JsonRestore())
        restored = orbax.restore(folder, request)
    except (OSError, ValueError, KeyError) as error:  # although it was verified
        raise CheckpointError(
            f"{folder} cannot be read: {error}", "was it written by another version?"
        ) from error
    return {item: restored[item] for item in targets}, restored["meta"]


# --- named arrays --------------------------------------------------------------------------------


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Return leaves by name, the parts of their path joined with '/'."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)

    def part(key: Any) -> str:
        return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))

    named = {"/".join(map(part, path)): leaf for path, leaf in leaves}
    assert len(named) == len(leaves), "two leaves share a name"
    return named


def split(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Separate parameters from the rest, so that they can be read without knowing the rest."""
    rest = {key: value for key, value in state.items() if key != "params"}
    items = {"params": named_leaves(state["params"]), "rest": named_leaves(rest)}
    return {item: named for item, named in items.items() if named}


def describe(named: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the shape and dtype of each array, as a manifest records them."""
    return {n: {"shape": list(x.shape), "dtype": jnp.dtype(x.dtype).name} for n, x in named.items()}


def compare(
    targets: dict[str, dict[str, Any]], saved: dict[str, dict[str, Any]], folder: Path
) -> None:
    """Refuse a checkpoint with other arrays than the run's, naming the first that differs."""
    for item in ("params", "rest"):
        ours, theirs = describe(targets.get(item, {})), saved.get(item, {})
        for name in [*ours, *theirs]:
            pair = ours.get(name), theirs.get(name)
            if pair[0] != pair[1]:
                run, checkpoint = (f"{d['dtype']}{d['shape']}" if d else "absent" for d in pair)
                raise CheckpointError(
                    f"{folder} does not fit: {name} is {checkpoint} in the checkpoint "
                    f"and {run} in this run",
                    "model, tokenizer and optimizer must be those it was trained with",
                )

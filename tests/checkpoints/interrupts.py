"""Places inside a save where tests kill the process, or fill the disk."""

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

from orbax.checkpoint._src.checkpointers import async_checkpointer
from orbax.checkpoint._src.path import deleter
from orbax.checkpoint._src.serialization import jax_array_handlers

from bert_jax.checkpoints import manifest, saving
from bert_jax.system import disk

PLACES: dict[str, tuple[Any, str, str]] = {  # place -> a function, and when: before or after it
    "begun": (saving.Manager, "save", "before"),
    "arrays": (jax_array_handlers, "_async_serialize_replica_slices", "before"),
    "files": (manifest, "write_manifest", "before"),
    "hashed": (disk, "write", "before"),
    "manifest": (manifest, "write_manifest", "after"),
    "renaming": (async_checkpointer, "_on_commit_callback", "before"),
    "renamed": (async_checkpointer, "_on_commit_callback", "after"),
    "deleting": (deleter.StandardCheckpointDeleter, "delete", "before"),
    "deleted": (deleter.StandardCheckpointDeleter, "delete", "after"),
}


def interrupt_save(
    place: str, step: int, act: Callable[[], None], patch: Callable[..., None] = setattr
) -> None:
    """Call `act` at a place inside the save of a step."""
    owner, name, when = PLACES[place]
    function, save = getattr(owner, name), saving.Checkpoints.save
    saved = [-1]

    @functools.wraps(save)
    def noting(self: Any, number: int, *args: Any, **kwargs: Any) -> None:
        self.wait()  # the save before may be under way, and would be interrupted in its place
        saved.append(number)
        save(self, number, *args, **kwargs)

    @functools.wraps(function)
    def acting(*args: Any, **kwargs: Any) -> Any:
        if saved[-1] == step and when == "before":
            act()
        value = function(*args, **kwargs)
        if saved[-1] == step and when == "after":
            act()
        return value

    patch(saving.Checkpoints, "save", noting)
    patch(owner, name, acting)


def kill() -> None:
    """Kill the process."""
    os.kill(os.getpid(), signal.SIGKILL)

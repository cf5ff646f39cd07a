"""Who works in a folder: a lock that the system frees however its holder ends. No jax, so that asking is quick."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import ConfigError
from bert_jax.system import disk, jsons, opening

NAME = "run.lock"
TRIES, PAUSE = 5, 0.05  # somebody who asks whether a lock is held has it for a moment

_held: set[int] = (
    set()
)  # descriptors of locks; a forked worker drops them, or it would hold the lock of a dead parent


def check_place(folder: Path) -> None:
    """Refuse a workdir that is something other than a folder, or lies below it; nothing is made."""
    opening.local(folder, "workdir")
    there = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if os.path.lexists(there) and not there.is_dir():
        raise ConfigError(
            f"cannot write in workdir {folder}: {there} is no folder",
            "give a folder you may write in",
        )


def check_writable(folder: Path) -> None:
    """Makes a folder, and proves that files can be made in it, before anything costly starts."""
    check_place(folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable-") as probe:
            probe.write(b"x")
            probe.flush()
    except OSError as error:
        if disk.is_full(error):
            raise disk.full(folder) from error
        hint = "give a folder you may write in"
        raise ConfigError(f"cannot write in workdir {folder}: {error.strerror}", hint) from error


@contextlib.contextmanager
def hold(folder: Path, name: str = NAME) -> Iterator[None]:
    """Holds a folder until the block ends; a ConfigError names who holds it already."""
    check_writable(folder)
    path = Path(folder) / name
    if os.path.lexists(path):
        opening.check(path, ConfigError, "delete it: no run made it")
    with disk.room(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _lock(descriptor, TRIES):
            raise ConfigError(
                f"another run uses {folder}: {holder(path)}",
                "wait for it, stop it, or give another --workdir",
            )
        _held.add(descriptor)
        started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        who = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
        os.ftruncate(descriptor, 0)
        with disk.room(path):
            os.pwrite(descriptor, json.dumps(who).encode(), 0)
        yield
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def held(folder: Path, name: str = NAME) -> bool:
    """Whether somebody holds a folder now; nothing is made where nobody ever did."""
    path = Path(folder) / name
    if not path.exists():
        return False
    with opening.regular(path, ConfigError, "delete it: no run made it") as file:
        try:
            fcntl.flock(
                file, fcntl.LOCK_SH | fcntl.LOCK_NB
            )  # shared: two who ask do not see each other
        except BlockingIOError:
            return True
    return False


def holder(path: Path) -> str:
    """Who holds a lock, as its file says."""
    try:
        who = jsons.read(path, ConfigError, {"host": str, "pid": int, "started": str})
    except ConfigError:  # read between its locking and its writing
        return "its holder has not yet said who it is"
    return f"host {who['host']}, pid {who['pid']}, started {who['started']}"


def _lock(descriptor: int, tries: int) -> bool:
    for attempt in range(tries):
        if attempt:
            time.sleep(PAUSE)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _drop_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_drop_in_child)

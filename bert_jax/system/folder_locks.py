"""Locks on folders and files, which the system frees however their holder ends.

Imports no jax, so that asking who holds a lock is quick.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.errors import ConfigError
from bert_jax.system import disk, jsons, opening

NAME = "run.lock"
TRIES, PAUSE = 5, 0.05  # `held` takes a lock for a moment, which must not refuse a holder

# Descriptors of locks: a forked worker closes them, or it would hold the lock of a dead parent.
_descriptors: set[int] = set()


def check_place(folder: Path) -> None:
    """Refuse a workdir that is no folder, or lies below a path that is none; create nothing."""
    opening.local(folder, "workdir")
    nearest = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if os.path.lexists(nearest) and not nearest.is_dir():
        raise ConfigError(
            f"cannot write in workdir {folder}: {nearest} is no folder",
            "give a folder you may write in",
        )


def check_writable(folder: Path) -> None:
    """Create a folder and prove that files can be created in it, before anything costly starts."""
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
    """Lock a folder until the block ends; raise a ConfigError that names its present holder."""
    check_writable(folder)
    path = Path(folder) / name
    if os.path.lexists(path):
        opening.check(path, ConfigError, "delete it: no run made it")
    with disk.reporting_full_disk(path):
        descriptor = _open(path)
    with _registered(descriptor):
        if not _lock(descriptor, TRIES):
            raise ConfigError(
                f"another run uses {folder}: {holder(path)}",
                "wait for it, stop it, or give another --workdir",
            )
        started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        record = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
        os.ftruncate(descriptor, 0)
        with disk.reporting_full_disk(path):
            os.pwrite(descriptor, json.dumps(record).encode(), 0)
        yield


@contextlib.contextmanager
def wait(path: Path, tell: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Lock a file until the block ends; if another process holds it, call `tell` and wait."""
    descriptor = _open(path)
    with _registered(descriptor):
        if not _lock(descriptor, 1):
            tell()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def held(folder: Path, name: str = NAME) -> bool:
    """Tell whether a process holds a folder now; create nothing where none ever did."""
    path = Path(folder) / name
    if not path.exists():
        return False
    with opening.regular(path, ConfigError, "delete it: no run made it") as file:
        try:
            # Shared, so that two processes that ask do not see each other.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def holder(path: Path) -> str:
    """Return who holds a lock, as its file says."""
    try:
        record = jsons.read(path, ConfigError, {"host": str, "pid": int, "started": str})
    except ConfigError:  # read between its locking and its writing
        return "its holder has not yet said who it is"
    return f"host {record['host']}, pid {record['pid']}, started {record['started']}"


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # as the user's umask has it


@contextlib.contextmanager
def _registered(descriptor: int) -> Iterator[None]:
    """Close a descriptor at the end of the block, and in forked workers."""
    _descriptors.add(descriptor)
    try:
        yield
    finally:
        _descriptors.discard(descriptor)
        os.close(descriptor)


def _lock(descriptor: int, tries: int) -> bool:
    for attempt in range(tries):
        if attempt:
            time.sleep(PAUSE)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _drop_in_child() -> None:
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(after_in_child=_drop_in_child)

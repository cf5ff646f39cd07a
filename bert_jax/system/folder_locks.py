"""Locks on folders and files, which the system frees even if their holder is killed."""

import contextlib
import datetime
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from bert_jax.errors import ConfigError
from bert_jax.system import disk, opening

NAME = "run.lock"
PATIENCE = 0.2  # seconds: `is_held` takes a lock for a moment, which must not refuse a holder
WRITABLE = "give a folder you may write in"


def check_place(folder: Path) -> None:
    """Refuse a workdir if the path, or a path above it, is not a folder; create nothing."""
    opening.check_local(folder, "workdir")
    nearest = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if os.path.lexists(nearest) and not nearest.is_dir():
        raise ConfigError(f"cannot write in workdir {folder}: {nearest} is no folder", WRITABLE)


def check_writable(folder: Path) -> None:
    """Create a folder; refuse it if no file can be created in it.

    This is called before anything costly starts.
    """
    check_place(folder)
    try:
        with disk.reporting_full_disk(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable-") as probe:
                probe.write(b"x")
                probe.flush()
    except OSError as error:
        raise ConfigError(
            f"cannot write in workdir {folder}: {error.strerror}", WRITABLE
        ) from error


@contextlib.contextmanager
def hold_lock(folder: Path, name: str = NAME) -> Iterator[None]:
    """Lock a folder until the block ends; if it is locked already, the error names the holder."""
    check_writable(folder)
    path = Path(folder) / name
    try:
        with disk.reporting_full_disk(path):
            held = _make_lock(path).acquire(timeout=PATIENCE)
    except Timeout as error:
        raise ConfigError(
            f"another run uses {folder}: {describe_holder(path)}",
            "wait for it, stop it, or give another --workdir",
        ) from error
    with held:
        started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        record = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
        with disk.reporting_full_disk(path):
            path.write_text(json.dumps(record))
        yield


@contextlib.contextmanager
def wait_for_lock(path: Path, tell: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Lock a file until the block ends; if it is locked already, call `tell` and wait."""
    lock = _make_lock(path)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        tell()
        held = lock.acquire()
    with held:
        yield


def is_held(folder: Path, name: str = NAME) -> bool:
    """Tell whether a process holds the lock of a folder now; create nothing."""
    path = Path(folder) / name
    if not path.exists():
        return False
    try:
        with _make_lock(path).acquire(timeout=PATIENCE):
            return False
    except Timeout:
        return True
    except OSError:  # a folder of others, which may only be read
        return False


def describe_holder(path: Path) -> str:
    """Describe the process that holds a lock, as the lock's file states it."""
    try:
        record = json.loads(path.read_text())
        return f"host {record['host']}, pid {record['pid']}, started {record['started']}"
    except (OSError, ValueError, KeyError, TypeError):  # read between its locking and its writing
        return "its holder has not yet said who it is"


def _make_lock(path: Path) -> FileLock:
    """Make a lock that the system frees when its process ends.

    The lock is never a lock file that stays behind after a kill.
    """
    return FileLock(path, thread_local=False, fallback_to_soft=False)

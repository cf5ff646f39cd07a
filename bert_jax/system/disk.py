"""Files that are there whole or not at all, and what is said where a disk has no room for them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import CheckpointError

FULL = (errno.ENOSPC, errno.EDQUOT)
SAID = (
    "No space left",
    "quota exceeded",
    "requested and",
)  # by libraries whose errors have no number; the last by numpy
HINT = (
    "free some space, then run the same command again: it goes on, and what is finished is intact"
)


class DiskFull(CheckpointError):
    """No room for what is to be written."""


def is_full(error: BaseException | None) -> bool:
    """Tell whether an error, or what caused it, is a disk without room."""
    while error is not None:
        said = isinstance(error, DiskFull) or any(words in str(error) for words in SAID)
        if said or getattr(error, "errno", None) in FULL:
            return True
        error = error.__cause__
    return False


def full(place: Path | str, needed: int | None = None, what: str = "") -> DiskFull:
    """Return the error of a full disk: what was to be written, the bytes it needs and those that are free.

    Args:
      place: the file or folder that was to be written.
      needed: bytes, where they are known; otherwise more than are free.
      what: is written; the name of the place where nothing is given.
    """
    folder = Path(place).absolute()
    while not folder.is_dir():
        folder = folder.parent
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    subject = what or str(place)
    if room.f_files and not room.f_favail:
        said = (
            f"{subject} needs one more file and 0 of {room.f_files:,} (inodes) are free in {folder}"
        )
        return DiskFull(
            f"disk full: {said}, besides {free:,} bytes", f"delete files there, or {HINT}"
        )
    amount = (
        f"{needed:,} bytes" if needed is not None and needed > free else f"more than {free:,} bytes"
    )
    return DiskFull(f"disk full: {subject} needs {amount} and {free:,} are free in {folder}", HINT)


def check_space(folder: Path, needed: int, what: str) -> None:
    """Refuse to start a write that cannot fit."""
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize < needed or (room.f_files and not room.f_favail):
        raise full(folder, needed, what)


@contextlib.contextmanager
def room(place: Path | str, needed: int | None = None, what: str = "") -> Iterator[None]:
    """Turn a write that finds no room into the user's error; any other error passes."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise full(error.filename or place, needed, what) from error
        raise


def write(path: Path, content: str | bytes) -> None:
    """Replace a file in one move: a reader, or a kill, finds the old one or the new one."""
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with room(path, len(data)):
        try:
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # a rename may reach the disk before the data does
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

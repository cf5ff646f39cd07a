"""Atomic writes, outputs that users name, and the error of a full disk."""

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from io import BufferedWriter
from pathlib import Path

from bert_jax.errors import CheckpointError, ConfigError, UserError

NUMBERS = (errno.ENOSPC, errno.EDQUOT)
# What libraries say whose errors have no number; numpy says the last.
MESSAGES = ("No space left", "quota exceeded", "requested and")
HINT = (
    "free some space, then run the same command again: it goes on, and what is finished is intact"
)
ELSEWHERE = "choose another --output"


class DiskFull(CheckpointError):
    """The disk has no space left for a write."""


def is_full(error: BaseException | None) -> bool:
    """Tell whether an error, or its cause, says that a disk is full."""
    while error is not None:
        if isinstance(error, DiskFull) or getattr(error, "errno", None) in NUMBERS:
            return True
        if any(words in str(error) for words in MESSAGES):
            return True
        error = error.__cause__
    return False


def make_full_error(place: Path | str, needed: int | None = None, what: str = "") -> DiskFull:
    """Make the error of a full disk.

    Args:
      place: the file or folder that was written.
      needed: the bytes that the write needs; None if unknown.
      what: what was to be written, for the message; by default `place`.
    """
    folder = Path(place).absolute()
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    amount = f"more than {free:,}"
    if needed is not None and needed > free:
        amount = f"{needed:,}"
    return DiskFull(
        f"disk full: {what or place} needs {amount} bytes and {free:,} are free in {folder}", HINT
    )


@contextlib.contextmanager
def reporting_full_disk(place: Path | str, needed: int | None = None) -> Iterator[None]:
    """Turn an error of a full disk in the block into DiskFull; let other errors pass."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise make_full_error(place, needed) from error
        raise


@contextlib.contextmanager
def explain_output_errors(path: Path, kind: type[UserError], hint: str) -> Iterator[None]:
    """Turn an OSError in the block into an error of class `kind` that names the output `path`.

    A full disk raises DiskFull instead.
    """
    try:
        with reporting_full_disk(path):
            yield
    except OSError as error:
        raise kind(f"cannot write '{path}': {error.strerror}", hint) from error


@contextlib.contextmanager
def replace_file(path: Path, needed: int | None = None) -> Iterator[BufferedWriter]:
    """Yield a temporary file, which replaces `path` when the block ends without an error.

    The replacement is one rename: a reader finds the old file or the new one, even after a kill.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with reporting_full_disk(path, needed):
            with draft.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())  # a rename may reach the disk before the data does
            draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write(path: Path, content: str | bytes) -> None:
    """Write a file; an existing file is replaced in one rename."""
    data = content.encode() if isinstance(content, str) else content
    with replace_file(path, len(data)) as file:
        file.write(data)


def check_output(path: Path) -> None:
    """Refuse an output file that cannot be written; make its folder.

    This is called before anything costly starts.
    """
    with explain_output_errors(path, ConfigError, ELSEWHERE):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise ConfigError(f"cannot write '{path}': it is a folder, not a file", ELSEWHERE)
        if path.is_fifo():
            return  # opening waits for the pipe's reader, and closing ends the reader
        existed = path.exists()
        path.open("ab").close()
        if not existed:
            path.resolve().unlink()  # a link that leads to no file yet stays


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that a user named.

    An existing file is replaced in one rename. If the path is a link, its target is replaced, and
    the link stays. Devices such as /dev/null are written into, because a rename would put a file in
    their place, for every program of the machine. /dev/shm is a folder of ordinary files.
    """
    check_output(path)
    data = content.encode() if isinstance(content, str) else content
    with explain_output_errors(path, ConfigError, ELSEWHERE):
        is_stream = path.is_relative_to("/dev") and not path.is_relative_to("/dev/shm")
        if is_stream or (path.exists() and not path.is_file()):
            sys.stdout.flush()  # earlier lines come first
            with path.open("ab") as file:
                file.write(data)
        else:
            write(path.resolve(), data)

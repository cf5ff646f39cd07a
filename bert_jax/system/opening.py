"""Opens what a path names: regular files and nothing else, for a pipe would block for ever and a device never end.

Every file of a user's or of somebody else's is opened here. The caller says which error it is where it cannot be.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from io import BufferedReader
from pathlib import Path

from bert_jax.errors import ConfigError, UserError

HINT = "give the path of a file itself: neither pipes nor devices are read"
STORE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # gs://bucket, which pathlib makes gs:/bucket
OTHERS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
PIECE = 1 << 16  # bytes
QUICK = (
    os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
)  # never waits for the other end of a pipe


def check(path: Path | str, kind: type[UserError], hint: str = "") -> None:
    """Refuse a path that is not a regular file, for libraries that open by name."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in a name
        raise kind(f"{path} {_said(Path(path), error)}", hint or HINT) from error
    if not stat.S_ISREG(mode):
        raise kind(f"{path} is {_kind(mode)}, not a file", hint or HINT)


def regular(path: Path | str, kind: type[UserError], hint: str = "") -> BufferedReader:
    """Open a regular file for reading its bytes; refuse anything else at once, by its name."""
    check(path, kind, hint)
    try:
        descriptor = os.open(path, QUICK)
    except OSError as error:
        raise kind(
            f"{path} {_said(Path(path), error)}", hint or "may you read this file?"
        ) from error
    if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):  # changed since it was looked at
        os.close(descriptor)
        raise kind(f"{path} is {_kind(mode)}, not a file", hint or HINT)
    return os.fdopen(descriptor, "rb")


def read(path: Path | str, kind: type[UserError], limit: int, hint: str = "") -> bytes:
    """Read the bytes of a regular file that has at most `limit` of them."""
    with regular(path, kind, hint) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            data = (
                b"" if size > limit else file.read(size)
            )  # no more: a read makes room for all it asks for
            while (
                size <= limit and len(data) <= limit and (more := file.read(PIECE))
            ):  # grown, or of no stated size
                data += more
        except OSError as error:
            raise kind(
                f"{path} {_said(Path(path), error)}", hint or "is its disk sound?"
            ) from error
    if max(size, len(data)) > limit:
        raise kind(
            f"{path} has {max(size, len(data)):,} bytes, and at most {limit:,} are read",
            hint or "is it damaged?",
        )
    return data


def inside(root: Path, file: Path, kind: type[UserError]) -> Path:
    """Return a file of a folder if it ends in that folder, or in the blobs of the hub cache that the folder is of.

    A hub snapshot consists of links to ../../blobs/HASH, so links are followed and their ends compared. Any other link
    out of the folder would let whoever packed it choose which of the user's files is read.
    """
    try:
        home = Path(os.path.realpath(root, strict=True))
        target = Path(os.path.realpath(file, strict=True))
    except OSError as error:
        raise kind(
            f"{file} {_said(file, error)}", "is it there in full, and may you read it?"
        ) from error
    blobs = [parent.parent / "blobs" for parent in home.parents if parent.name == "snapshots"]
    if not any(target.is_relative_to(allowed) for allowed in (home, *blobs)):
        raise kind(
            f"{file} is a link to {target}, outside its folder", "give the path of the file itself"
        )
    return file


def local(path: Path | str, what: str) -> None:
    """Refuse a path that is no path of this machine's: in an object store, or of bytes that are no text."""
    text = os.fspath(path)
    if not text:
        return
    if (found := STORE.match(text)) and not os.path.exists(text):
        raise ConfigError(
            f"{what} = {text} is in an object store ({found[1]}), which is no file system",
            "mount the bucket as a folder (gcsfuse, mount-s3, rclone mount) and give that, or copy from there",
        )
    try:
        os.path.abspath(text).encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(os.path.abspath(text)).decode(errors="backslashreplace")
        raise ConfigError(
            f"{what} = {shown} is not UTF-8", "rename it: checkpoints and reports name it"
        ) from error


def _kind(mode: int) -> str:
    return next((name for is_it, name in OTHERS if is_it(mode)), "no file")


def _said(path: Path, error: Exception) -> str:
    """Say in a few words what the system has against a path."""
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.ENOENT:
        return (
            f"is a link to {os.readlink(path)}, which does not exist"
            if path.is_symlink()
            else "does not exist"
        )
    if code == errno.ELOOP:
        return "is a link that leads back to itself"
    return f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"

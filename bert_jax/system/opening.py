"""Opening of users' files: regular files only, for a pipe could block and a device never end.

Every file that the package did not write itself is opened here. The caller says which kind of error
it is if that fails.
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
# Opening never waits for the other end of a pipe.
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def check(path: Path | str, kind: type[UserError], hint: str = "") -> None:
    """Refuse a path that is not a regular file, for libraries that open by name."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in a name
        raise kind(f"{path} {_reason(Path(path), error)}", hint or HINT) from error
    if not stat.S_ISREG(mode):
        raise kind(f"{path} is {name_kind(mode)}, not a file", hint or HINT)


def regular(path: Path | str, kind: type[UserError], hint: str = "") -> BufferedReader:
    """Open a regular file for reading its bytes; refuse anything else at once, by its name."""
    check(path, kind, hint)
    try:
        descriptor = os.open(path, FLAGS)
    except OSError as error:
        reason = _reason(Path(path), error)
        raise kind(f"{path} {reason}", hint or "may you read this file?") from error
    if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):  # changed since it was checked
        os.close(descriptor)
        raise kind(f"{path} is {name_kind(mode)}, not a file", hint or HINT)
    return os.fdopen(descriptor, "rb")


def read(path: Path | str, kind: type[UserError], limit: int, hint: str = "") -> bytes:
    """Read the bytes of a regular file that has at most `limit` of them."""
    data = b""
    with regular(path, kind, hint) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if size <= limit:
                data = file.read(size)  # not `limit`: a read allocates all that it asks for
                # The file may have grown, or state no size, as those of /proc do.
                while len(data) <= limit and (more := file.read(PIECE)):
                    data += more
        except OSError as error:
            reason = _reason(Path(path), error)
            raise kind(f"{path} {reason}", hint or "is its disk sound?") from error
    if (size := max(size, len(data))) > limit:
        problem = f"{path} has {size:,} bytes, and at most {limit:,} are read"
        raise kind(problem, hint or "is it damaged?")
    return data


def inside(root: Path, file: Path, kind: type[UserError]) -> Path:
    """Return a file of a folder if its links end in that folder, or in the blobs of its hub cache.

    A hub snapshot consists of links to ../../blobs/HASH, so links are followed and their ends
    compared. Any other link out of the folder would let whoever packed it choose which of the
    user's files is read.
    """
    try:
        home = Path(os.path.realpath(root, strict=True))
        target = Path(os.path.realpath(file, strict=True))
    except OSError as error:
        reason = _reason(file, error)
        raise kind(f"{file} {reason}", "is it there in full, and may you read it?") from error
    blobs = [parent.parent / "blobs" for parent in home.parents if parent.name == "snapshots"]
    if not any(target.is_relative_to(allowed) for allowed in (home, *blobs)):
        raise kind(
            f"{file} is a link to {target}, outside its folder", "give the path of the file itself"
        )
    return file


def local(path: Path | str, what: str) -> None:
    """Refuse a path in an object store, or of bytes that are not UTF-8."""
    text = os.fspath(path)
    if not text:
        return
    if (scheme := STORE.match(text)) and not os.path.exists(text):
        raise ConfigError(
            f"{what} = {text} is in an object store ({scheme[1]}), which is no file system",
            "mount the bucket as a folder (gcsfuse, mount-s3, rclone mount) and give that, "
            "or copy from there",
        )
    try:
        os.path.abspath(text).encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(os.path.abspath(text)).decode(errors="backslashreplace")
        raise ConfigError(
            f"{what} = {shown} is not UTF-8", "rename it: checkpoints and reports name it"
        ) from error


def name_kind(mode: int) -> str:
    """Say what a path is that is no regular file."""
    return next((name for is_it, name in OTHERS if is_it(mode)), "no file")


def _reason(path: Path, error: Exception) -> str:
    """Return in a few words why a path cannot be opened."""
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.ENOENT and path.is_symlink():
        return f"is a link to {os.readlink(path)}, which does not exist"
    if code == errno.ENOENT:
        return "does not exist"
    if code == errno.ELOOP:
        return "is a link that leads back to itself"
    return f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"

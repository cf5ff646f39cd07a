"""What tests compile, kept in .pytest_cache for the next session.

jax finds a program by its text, its flags, the processor and the versions, so an old one is never
taken for a changed one. `make clean` removes them.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

import zstandard

KEPT = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
MOST_BYTES = 2**28  # of one kind; the oldest go first


def open_folder(kind: str) -> tempfile.TemporaryDirectory:
    """Makes jax's cache of one session, which begins with the kept programs of that kind.

    It belongs to the session alone, so that a kill leaves nothing damaged for a later one.
    """
    folder = tempfile.TemporaryDirectory(prefix=f"bert_jax_{kind}")
    for program in (KEPT / kind).glob("*-cache"):
        copy = Path(folder.name, program.name)
        with contextlib.suppress(FileNotFoundError):  # another session has removed it
            shutil.copyfile(program, copy)
            # jax wants this file of each program where it locks the folder.
            copy.with_name(program.name.removesuffix("cache") + "atime").write_bytes(bytes(8))
    return folder


def keep_programs(folder: Path, kind: str) -> None:
    """Adds the new programs of a session's folder to those that are kept, each whole or not."""
    kept = KEPT / kind
    # A checkout that cannot be written keeps nothing. Other sessions may remove a program, too.
    with contextlib.suppress(OSError):
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as parts:
            for program in folder.glob("*-cache"):
                if not (kept / program.name).exists() and is_whole(program):
                    part = shutil.copy(program, parts)
                    Path(part).replace(kept / program.name)
        remove_oldest(kept)


def is_whole(program: Path) -> bool:
    """Whether no kill has cut the file of a program, which jax packs."""
    try:
        zstandard.decompress(program.read_bytes())
    except zstandard.ZstdError:
        return False
    return True


def remove_oldest(kept: Path) -> None:
    """Removes programs until the others are small enough together."""
    programs = sorted(kept.iterdir(), key=lambda program: program.stat().st_mtime)
    size = sum(program.stat().st_size for program in programs)
    for program in programs:
        if size <= MOST_BYTES:
            break
        size -= program.stat().st_size
        program.unlink(missing_ok=True)

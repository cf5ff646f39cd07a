"""What tests compile, kept in .pytest_cache for the next session.

jax finds a program by its text, its flags and the versions, so an old one is never taken for a
changed one. `make clean` removes them.
"""

import os
import shutil
import tempfile
from pathlib import Path

import zstandard

KEPT = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
MOST_BYTES = 2**30  # more is forgotten


def open_folder(kind: str) -> tempfile.TemporaryDirectory:
    """Makes jax's cache of one session, which begins with the kept programs of that kind.

    It belongs to the session alone, so that a kill leaves nothing damaged for a later one.
    """
    folder = tempfile.TemporaryDirectory(prefix=f"bert_jax_{kind}")
    for program in (KEPT / kind).glob("*-cache"):
        copy = Path(folder.name, program.name)
        shutil.copyfile(program, copy)
        # jax wants this file of each program where it locks the folder.
        copy.with_name(program.name.removesuffix("cache") + "atime").write_bytes(bytes(8))
    return folder


def keep_programs(folder: Path, kind: str) -> None:
    """Adds the new programs of a session's folder to those that are kept, each whole or not."""
    kept = KEPT / kind
    kept.mkdir(parents=True, exist_ok=True)
    for program in folder.glob("*-cache"):
        if (kept / program.name).exists():
            continue
        try:
            zstandard.decompress(program.read_bytes())
        except zstandard.ZstdError:  # a process was killed while it wrote this one
            continue
        part = kept / f"{program.name}.{os.getpid()}"
        shutil.copyfile(program, part)
        part.replace(kept / program.name)
    if sum(program.stat().st_size for program in kept.iterdir()) > MOST_BYTES:
        shutil.rmtree(kept)

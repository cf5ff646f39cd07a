"""The manifest of a step: size and sha256 of its files, and the metric that ranks it.

    20/params/ rest/ meta/   the parameters, the other arrays, plain JSON, all written by Orbax
    20/manifest.json         what those files are, and the metric

Groups of files, such as `params`, are verified apart: a reader of the parameters reads no others.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.errors import CheckpointError
from bert_jax.system import disk, jsons, opening
from bert_jax.system.jsons import Maybe

NAME = "manifest.json"
SIZE = range(2**63)
SCHEMA = {
    "digest": str,  # sha256 of the rest of the manifest
    "step": SIZE,
    "metric": Maybe(float),
    "files": {str: {"bytes": SIZE, "sha256": str}},
}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a step; refuse a manifest that was changed."""
    path = folder / NAME
    try:
        manifest = jsons.parse(opening.read(path, CheckpointError, jsons.LIMIT), SCHEMA)
    except jsons.Malformed as error:
        raise CheckpointError(f"{path} ({error})") from error
    if manifest.pop("digest") != _hash_manifest(manifest):
        raise CheckpointError(f"{path} (its digest differs)")
    return manifest


def write_manifest(folder: Path, step: int, metric: float | None) -> None:
    """Flush and hash every file of a step, then write the manifest."""
    files = {}
    for path in sorted(folder.glob("*/**/*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            name = path.relative_to(folder).as_posix()
            files[name] = {"bytes": path.stat().st_size, "sha256": _hash_file(path)}
    _write(folder, {"step": step, "metric": metric, "files": files})


def write_metric(folder: Path, metric: float) -> None:
    """Replace the metric of a step."""
    _write(folder, {**read_manifest(folder), "metric": metric})


def find_problem(folder: Path, groups: tuple[str, ...], most: int = sys.maxsize) -> str:
    """Return the first file of the groups that is not as it was written, and why; else "".

    Files of more than `most` bytes are not hashed.
    """
    try:
        files = read_manifest(folder)["files"]
    except CheckpointError as error:
        return str(error)
    names = [name for name in files if name.split("/")[0] in groups]
    with ThreadPoolExecutor(4) as pool:  # hashing releases Python's lock
        problems = pool.map(lambda name: _check_file(folder, name, files[name], most), names)
        return next(filter(None, problems), "")


def _check_file(folder: Path, name: str, expected: dict[str, Any], most: int) -> str:
    path = folder / name
    try:
        size = path.stat().st_size
        opening.inside(folder, path, CheckpointError)
        if size != expected["bytes"]:
            return f"{path} ({size} bytes, {expected['bytes']} were written)"
        if size <= most and _hash_file(path) != expected["sha256"]:
            return f"{path} (its sha256 differs)"
        return ""
    except OSError as error:
        return f"{path} ({error.strerror})"
    except CheckpointError as error:  # a link that leads elsewhere, or not a regular file
        return str(error)


def _write(folder: Path, manifest: dict[str, Any]) -> None:
    whole = {**manifest, "digest": _hash_manifest(manifest)}
    disk.write(folder / NAME, json.dumps(whole, indent=1))


def _hash_manifest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _hash_file(path: Path) -> str:
    with opening.regular(path, CheckpointError) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

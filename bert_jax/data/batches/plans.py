"""Plans of a split on disk: built once, checked and memory-mapped.

A family of plans is one split under one setting; its copies are numbered. Beside the shards,
`plans/` holds `FAMILY-COPY.plan`, the records of all shards of a copy, and `FAMILY.counts`: for
every copy built so far, its examples in each shard and the checksum of its records. Copies that are
read in one epoch only, those of dynamic masks, are removed when newer ones are built; their counts
stay, so finding the epoch of a step never needs an old plan again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from bert_jax.config import knobs
from bert_jax.data.batches import pairs
from bert_jax.errors import DataError
from bert_jax.system import disk, folder_locks

if TYPE_CHECKING:
    from bert_jax.data.text.shards import Shard

_VERSION = 1  # of the construction and of the files: increase it when either changes
_KEPT = 3  # copies of dynamic masks: the current, the next, and the previous one
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class Plans:
    """Plans of a split, by copy."""

    def __init__(
        self,
        folder: Path,
        fingerprint: str,
        split: str,
        shards: Sequence[Shard],
        mode: str,
        settings: knobs.Examples,
        sequence_length: int,
        seed: int,
        static: bool,
    ):
        random = pairs.is_paired(mode)  # without pairs all copies are the same
        self._arguments = (mode, settings, sequence_length, seed if random else 0)
        self._shards, self._static, self._random = shards, static, random
        self._folder = Path(folder) / "plans"
        self._dtype = pairs.record(mode)
        shape: dict[str, Any] = {
            "version": _VERSION,
            "corpus": fingerprint,
            "split": split,
            "mode": mode,
            "sequence_length": sequence_length,
        }
        if random:
            shape |= {"examples": dataclasses.asdict(settings), "seed": seed}
        self.family = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:24]
        # [copies, shards + 1]: examples of each shard, then the checksum.
        self._table = np.zeros((0, len(shards) + 1), np.int64)
        self._open: dict[int, np.ndarray] = {}
        self._lock = threading.RLock()

    def counts(self, copy: int) -> np.ndarray:
        """Return the number of examples of each shard in a copy."""
        copy = self.distinct(copy)
        return self.table(copy + 1)[copy]

    def distinct(self, copy: int) -> int:
        """Return the first copy that equals this one."""
        return copy if self._random else 0

    def table(self, copies: int) -> np.ndarray:
        """Return the examples of each shard in every known copy, at least `copies` of them.

        Missing plans are built in turn.
        """
        with self._lock:
            if len(self._table) < copies:
                self._read_table()
            if len(self._table) < copies:
                with self._locked():
                    self._read_table()
                    while len(self._table) < copies:
                        copy = len(self._table)
                        self._keep(copy, self._build(copy))
            return self._table[:, :-1]

    def records(self, copy: int) -> np.ndarray:
        """Return the examples of a copy, shard after shard."""
        copy = self.distinct(copy)
        with self._lock:
            if copy not in self._open:
                self.table(copy + 1)  # builds it, unless some process has
            if copy not in self._open:
                records = self._load(copy)
                if records is None:
                    with self._locked():
                        records = self._load(copy)  # another process may have built it by now
                        records = self._build(copy) if records is None else records
                self._keep(copy, records)
            return self._open[copy]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def _keep(self, copy: int, records: np.ndarray) -> None:
        self._open[copy] = records
        for old in list(self._open)[:-_KEPT]:
            del self._open[old]

    # --- files ------------------------------------------------------------------------------------

    def _path(self, copy: int) -> Path:
        return self._folder / f"{self.family}-{copy}.plan"

    def _read_table(self) -> None:
        """Read the counts that other processes have written; a damaged file counts as none."""
        try:
            words = np.fromfile(self._folder / f"{self.family}.counts", "<i8")
        except OSError:
            return
        width = self._table.shape[1]
        intact = len(words) > 1 and words[0] == zlib.crc32(words[1:].tobytes())
        if intact and (len(words) - 1) % width == 0:
            table = words[1:].reshape(-1, width)
            self._table = table if len(table) > len(self._table) else self._table

    def _load(self, copy: int) -> np.ndarray | None:
        """Map a plan from disk; return None where it is missing, cut or damaged."""
        *counts, checksum = self._table[copy].tolist()
        try:
            size = self._path(copy).stat().st_size
            if size != sum(counts) * self._dtype.itemsize:
                return None
            if not size:
                return np.zeros(0, self._dtype)
            mapped = np.asarray(np.memmap(self._path(copy), np.uint8, "r"))
        except OSError:
            return None
        return mapped.view(self._dtype) if zlib.crc32(mapped.data) == checksum else None

    def _build(self, copy: int) -> np.ndarray:
        """Make the plan of a copy, store it and add it to the table; the caller holds the lock."""
        row, checksum = [], 0
        with self._writing(self._path(copy)) as file:
            for index, shard in enumerate(self._shards):
                part = pairs.plan(shard, *self._arguments, copy, index)
                file.write(part.tobytes())
                row.append(len(part))
                checksum = zlib.crc32(part.tobytes(), checksum)
            if sum(row) >= 2**31:
                raise DataError(
                    f"{sum(row)} examples in one epoch do not fit 31 bits",
                    "prepare the corpus in parts",
                )
            new = np.array([*row, checksum], np.int64)
            if copy < len(self._table) and not np.array_equal(new, self._table[copy]):
                raise DataError(
                    f"{self._path(copy)}: copy {copy} comes out different from when it was first "
                    "built",
                    "runs that used it cannot be continued here; for new ones, delete "
                    f"{self._folder}",
                )
            records = None
            if isinstance(file, io.BytesIO):
                records = np.frombuffer(file.getvalue(), self._dtype)
        if copy == len(self._table):
            self._table = np.concatenate([self._table, new[None]])
            body = self._table.astype("<i8").tobytes()
            with self._writing(self._folder / f"{self.family}.counts") as file:
                file.write(np.int64(zlib.crc32(body)).astype("<i8").tobytes() + body)
        if records is None:
            self._evict()
            records = self._load(copy)
            if records is None:
                message = f"{self._path(copy)} is not what was just written to it"
                raise DataError(message, "check the disk")
        return records

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[IO[bytes]]:
        """Open a file that appears under its name when it is complete.

        Where the folder is read-only, as that of a corpus another user prepared, the file is in
        memory: each process then plans for itself.
        """
        hint = "plans are kept there"
        with disk.output(path, DataError, hint), contextlib.ExitStack() as stack:
            file: IO[bytes] = io.BytesIO()
            try:
                path.parent.mkdir(exist_ok=True)
                file = stack.enter_context(disk.replacing(path))
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
            yield file

    def _evict(self) -> None:
        """Remove all but the last copies of dynamic masks, and drafts of killed processes."""
        plans = [] if self._static else self._folder.glob(f"{self.family}-*.plan")
        old = sorted((_modified(path), path) for path in plans)[:-_KEPT]
        drafts = [(_modified(path), path) for path in self._folder.glob(f"*{self.family}*.tmp")]
        hour_ago = time.time() - 3600
        for _, path in old + [draft for draft in drafts if draft[0] < hour_ago]:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep processes from doing the same work at once; the result would be the same."""
        with contextlib.ExitStack() as stack:
            # The folder may be read-only, or its file system without locks.
            with contextlib.suppress(OSError):
                self._folder.mkdir(exist_ok=True)
                stack.enter_context(folder_locks.wait(self._folder / f"{self.family}.lock"))
            yield


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process was faster
        return 0.0

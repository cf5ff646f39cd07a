"""TensorBoard events of a run, written without a thread of their own.

`tensorboardX.SummaryWriter` writes in a thread of its own. That thread dies of a full disk, and
once ten events wait for it, whoever adds another waits for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import CheckpointError
from bert_jax.system import disk
from bert_jax.training.trackers import Place

HINT = "the events lie in the folder `tensorboard` of the run"
AGAIN = "free some space, then run the same command again: it goes on from the last checkpoint"


def check() -> None:
    """Accept any run: all that it needs is a folder."""


def begin(place: Place) -> Events:
    """Begin a file of events at the step that the run goes on from."""
    return Events(place.workdir / "tensorboard", place.start)


class Events:
    """A file of scalars from a step on; TensorBoard hides later steps of earlier files.

    It is a file of the run: an error of writing it ends the run, as one of metrics.jsonl does.
    """

    def __init__(self, folder: Path, start: int):
        # Here: loads protobuf, which only runs with events should pay for.
        from tensorboardX.proto.event_pb2 import SessionLog

        self._folder = folder
        with self._disk_errors():
            folder.mkdir(parents=True, exist_ok=True)
            # Names have whole seconds: without the suffix a quick restart overwrites a file.
            name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.from-{start}"
            # Unbuffered: a file that cannot be flushed cannot be closed.
            self._file = (folder / name).open("wb", buffering=0)
            self._write(file_version="brain.Event:2")
            begun = SessionLog(status=SessionLog.START)
            self._write(step=start + 1 if start else 0, session_log=begun)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write the scalars of one step."""
        from tensorboardX.summary import scalar

        with self._disk_errors():
            for name, value in values.items():
                self._write(step=step, summary=scalar(name, value))

    def close(self, finished: bool) -> None:
        """Close the file."""
        self._file.close()

    def _disk_errors(self) -> contextlib.AbstractContextManager[None]:
        return disk.output(self._folder, CheckpointError, AGAIN)

    def _write(self, **fields: Any) -> None:
        """Write one event as a TFRecord: size, event, and a checksum of each."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c

        data = Event(wall_time=time.time(), **fields).SerializeToString()
        size = struct.pack("<Q", len(data))
        sums = [struct.pack("<I", masked_crc32c(part)) for part in (size, data)]
        record = b"".join((size, sums[0], data, sums[1]))
        if self._file.write(record) < len(record):  # only a part of it fits on the disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)

"""TensorBoard events of a run, written by the thread that has them.

`tensorboardX.SummaryWriter` writes in a thread of its own. That thread dies of a full disk, and
once ten events wait for it, whoever adds one waits for ever.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Events:
    """One file of scalars; TensorBoard hides what earlier files have after the step it starts from."""

    def __init__(self, folder: Path, start: int):
        from tensorboardX.proto.event_pb2 import (
            SessionLog,
        )  # protobuf and all: where it is asked for

        folder.mkdir(parents=True, exist_ok=True)
        # Names carry whole seconds: without the suffix a quick restart writes over the earlier file.
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.from-{start}"
        self._file = (folder / name).open(
            "wb", buffering=0
        )  # a file that cannot be flushed cannot be closed
        self._write(file_version="brain.Event:2")
        self._write(step=start + 1 if start else 0, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write the scalars of one step."""
        from tensorboardX.summary import scalar

        for name, value in values.items():
            self._write(step=step, summary=scalar(name, value))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, **fields: Any) -> None:
        """Write one event in TensorFlow's format of records."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c

        data = Event(wall_time=time.time(), **fields).SerializeToString()
        size = struct.pack("<Q", len(data))
        sums = [struct.pack("<I", masked_crc32c(part)) for part in (size, data)]
        record = b"".join((size, sums[0], data, sums[1]))
        if self._file.write(record) < len(record):  # as it is where only a part of it fits
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)

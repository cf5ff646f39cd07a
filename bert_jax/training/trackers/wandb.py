"""Weights & Biases; WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY and the like say who, where and how.

With WANDB_MODE=offline the run stays in its folder, and `wandb sync RUN/wandb/offline-run-*` sends
it later. Each resume adds a folder there; all of them are the same run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path

import wandb
from google.protobuf.message import DecodeError
from wandb.proto import wandb_internal_pb2

from bert_jax.training.trackers import Place, sending

logger = logging.getLogger(__name__)

HINT = "`wandb login` once; without a network, WANDB_MODE=offline keeps the run in its folder"
BLOCK = 1 << 15  # bytes of a file of LevelDB's format: records, each in one piece or several
RECENT = 1 << 22  # bytes at the end of a file, in which its last step is looked for
WHOLE, FIRST, _, LAST = range(1, 5)  # pieces


def check() -> None:
    """Refuse to go on without an account, unless it works offline; a terminal is asked."""
    if wandb.setup().settings.mode in ("online", "run") and not wandb.login():
        raise ValueError("no API key is known")


def begin(place: Place) -> sending.Sender:
    """Begin or continue the tracked run."""
    return sending.begin("wandb", place, lambda run: Client(place, run))


class Client:
    """A run of Weights & Biases."""

    def __init__(self, place: Place, run: str):
        self.run = run or secrets.token_hex(4)
        files = sorted(place.workdir.glob(f"wandb/offline-run-*-{self.run}/run-*.wandb"))
        settings = wandb.Settings(
            console="off",  # the terminal stays ours
            silent=True,
            reinit="create_new",  # runs that train together are tracked side by side
            finish_timeout=sending.PATIENCE,
        )
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "bert_jax"),
            id=self.run,
            resume="allow",
            name=place.workdir.resolve().name,
            dir=place.workdir,
            config=dict(place.config),
            settings=settings,
        )
        if self._run.offline:
            self.held, where = max(map(last_step, files), default=None), self._run.dir
        else:
            self.held, where = self._run.starting_step - 1, self._run.url
        logger.info(f"wandb: run {self.run}, {where}")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand over a row."""
        self._run.log(dict(values), step=step, commit=True)

    def finish(self, finished: bool) -> None:
        """Wait until everything is sent."""
        self._run.finish(exit_code=0 if finished else 1)


def last_step(file: Path) -> int:
    """Return the last step in the file of an offline run, 0 if there is none.

    A kill takes what was not written yet, which may be the rows of many seconds.
    """
    with file.open("rb") as opened:
        start = max(0, file.stat().st_size - RECENT) // BLOCK * BLOCK
        opened.seek(start)
        data = opened.read()
    step, record, at = 0, b"", 0 if start else 7  # bytes of the header
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:  # what is left of a block holds no piece
            at += BLOCK - at % BLOCK
            continue
        size, piece = struct.unpack_from("<HB", data, at + 4)
        record = (b"" if piece in (WHOLE, FIRST) else record) + data[at + 7 : at + 7 + size]
        at += 7 + size
        if piece in (WHOLE, LAST) and at <= len(data):
            with contextlib.suppress(DecodeError):
                parsed = wandb_internal_pb2.Record.FromString(record)
                step = max(step, parsed.history.step.num)
    return step

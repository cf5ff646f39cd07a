"""Fault injection for tests: `BERT_JAX_FAULT=point:step:action` makes one named point fail.

Actions: kill (SIGKILL), term, usr1, raise, full (OSError "no space left"), sleep=SECONDS, and
fill=FOLDER (takes all the space left there). A step of `*` is any step.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import time
from pathlib import Path

from bert_jax.errors import ConfigError

VARIABLE = "BERT_JAX_FAULT"
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "usr1": signal.SIGUSR1}


def point(name: str, step: int = -1) -> None:
    """Fail as $BERT_JAX_FAULT says if it names this point and step; otherwise do nothing."""
    armed = _armed()
    if armed is None or armed[0] != name or armed[1] not in (None, step):
        return
    action = armed[2]
    if action in SIGNALS:
        os.kill(os.getpid(), SIGNALS[action])
    elif action == "raise":
        raise RuntimeError(f"fault injected at {name}, step {step}")
    elif action == "full":
        raise OSError(errno.ENOSPC, "No space left on device (injected)")
    elif action.startswith("fill="):
        fill(Path(action.partition("=")[2]))
    else:
        time.sleep(float(action.partition("=")[2]))


def fill(folder: Path) -> Path:
    """Write a file that takes every byte left in a small file system; return its path."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler


@functools.cache
def _armed() -> tuple[str, int | None, str] | None:
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        name, step, action = text.split(":")
        if action.startswith("sleep="):
            float(action.partition("=")[2])
        elif not action.startswith("fill=") and action not in (*SIGNALS, "raise", "full"):
            raise ValueError(action)
        return name, None if step == "*" else int(step), action
    except ValueError as error:
        actions = f"{', '.join(SIGNALS)}, raise, full, sleep=SECONDS, fill=FOLDER"
        hint = f"point:step:action, with action one of {actions}"
        raise ConfigError(f"${VARIABLE} = {text!r} cannot be read", hint) from error

"""Supervision of a process of a distributed run: a lost peer becomes one line and an exit code.

jax ends a process whose peers are lost from C++: a trace, an abort, a core file. With
`parallel.distributed` the command therefore starts itself once more. The child, in a session of its
own, trains; the parent passes signals on and reports how the child ended. What C++ writes goes to a
file that is kept after a crash (with --debug, to standard error).
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from bert_jax.errors import PeerLost, Stopped
from bert_jax.system import signals

if TYPE_CHECKING:
    import subprocess

# Passed to a child: pid of the supervisor, descriptors of standard error and of the pipe.
VARIABLE = "BERT_JAX_SUPERVISOR"
FORWARDED = (*signals.SIGNALS, signal.SIGHUP)
# Seconds from a child's exit code to its end: jax waits 300 for peers that may never come.
GRACE = 15.0
PAUSE = 0.05
TAIL = 1 << 20  # bytes kept of what C++ wrote
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
LOST = re.compile("distributed service|coordination service|heartbeat", re.IGNORECASE)
HINT = "the same command continues"
START = (
    "start as many as JAX_NUM_PROCESSES says, and process 0 where JAX_COORDINATOR_ADDRESS points"
)

_pipe: int | None = None  # where a supervised process announces its exit code


def begin() -> None:
    """Set up the child of a supervisor; do nothing in a process without one.

    The process ends with its supervisor, leaves no core file, and writes Python's messages, but not
    those of C++, to the user's standard error.
    """
    global _pipe
    variable = os.environ.pop(VARIABLE, "")
    if not variable:
        return
    parent, stderr, _pipe = map(int, variable.split(":"))
    for descriptor in (stderr, _pipe):
        os.set_inheritable(descriptor, False)
    if sys.platform == "linux":
        import ctypes  # here, and the two below: every command imports this module

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call above
        os._exit(Stopped.code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    stream = open(stderr, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115  # for good
    vars(sys).update(stderr=stream, __stderr__=stream)


def supervised() -> bool:
    """Tell whether this process has a supervisor."""
    return _pipe is not None


def announce(code: int) -> None:
    """Tell the supervisor, if there is one, the exit code this process is about to end with."""
    if _pipe is not None:
        with contextlib.suppress(BrokenPipeError):
            os.write(_pipe, bytes([code]))


def run(command: list[str], workdir: Path, debug: bool) -> int:
    """Run a command as a supervised child and return its exit code.

    Raises Stopped where a signal ended the child.
    """
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as log:
        announced, pipe = os.pipe()
        stderr = os.dup(2)
        sys.stdout.flush()
        process = subprocess.Popen(
            command,
            env={**os.environ, VARIABLE: f"{os.getpid()}:{stderr}:{pipe}"},
            stderr=None if debug else log,
            pass_fds=(stderr, pipe),
            start_new_session=True,
        )
        os.close(stderr)
        os.close(pipe)
        with Relay(process) as relay:
            code = _wait(process, announced)
        os.close(announced)
        if code >= 0:
            return code
        log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
        raise _ended(signal.Signals(-code), relay, log.read(), workdir)


class Relay(signals.Handler):
    """A relay of signals to a child, each kind once; a repeated one ends it. See `signals`."""

    def __init__(self, process: subprocess.Popen):
        # An ignored signal stays ignored, as nohup sets it.
        super().__init__(n for n in FORWARDED if signal.getsignal(n) != signal.SIG_IGN)
        self.process = process
        self.second: int | None = None  # the signal that ended the child at once

    def handle(self, number: int, _: FrameType | None) -> None:
        """Pass a signal on; kill the child at the same signal again."""
        again = self.again(number)
        if again:
            self.second = number
            self.process.kill()
        elif again is not None:
            self.process.send_signal(number)


def _wait(process: subprocess.Popen, announced: int) -> int:
    """Wait for a child; return its announced exit code, or the negative signal that ended it."""
    os.set_blocking(announced, False)
    code, deadline = None, float("inf")
    while process.poll() is None:
        if code is None and (code := _announced(announced)):
            deadline = time.monotonic() + GRACE
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(PAUSE)
    code = _announced(announced) if code is None else code
    return process.returncode if code is None else code


def _announced(descriptor: int) -> int | None:
    with contextlib.suppress(BlockingIOError):
        if code := os.read(descriptor, 1):
            return code[0]
    return None


def _ended(number: signal.Signals, relay: Relay, written: bytes, workdir: Path) -> Stopped:
    """Return the error for a child that a signal ended."""
    if relay.second is not None:
        return Stopped(f"second {signal.Signals(relay.second).name}: stopped without saving", HINT)
    if number in relay.since:
        return Stopped("interrupted", HINT)
    hint = f"{HINT}; one that uses too much memory ends so" if number == signal.SIGKILL else HINT
    if written and workdir.is_dir():
        log = workdir / f"crash-{os.uname().nodename}-{os.getpid()}.log"
        with contextlib.suppress(OSError):
            log.write_bytes(written)
            hint += f"; what jax wrote last is in {log}"
    output = written.decode(errors="replace")
    if "RegisterTask" in output:  # jax's call to join
        return Stopped("the other processes of this run did not come in time", f"{START}; {hint}")
    if LOST.search(output):
        return PeerLost(hint)
    return Stopped(f"the training process was ended by {number.name}", hint)

"""One run a workdir: a second one is told who holds it, and it is freed however its holder ends."""

import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from bert_jax.errors import ConfigError
from bert_jax.system import folder_locks

HOLD = """
import os, sys, time
from pathlib import Path
from bert_jax.system import folder_locks
with folder_locks.hold_lock(Path(sys.argv[1])):
    if os.fork() == 0:  # a worker that outlives its parent
        time.sleep(1)
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.fault(9)
def test_hold_names_the_holder_and_frees_the_dead(tmp_path):
    """A worker that the dead one leaves behind keeps nothing."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        assert folder_locks.is_held(tmp_path)
        with pytest.raises(ConfigError) as error, folder_locks.hold_lock(tmp_path):
            pass
        for said in (str(tmp_path), f"pid {holder.pid},", socket.gethostname(), "started 20"):
            assert said in str(error.value)
        assert (error.value.code, bool(error.value.hint)) == (2, True)
    finally:
        holder.kill()
        holder.wait()
    with folder_locks.hold_lock(tmp_path):
        pass
    holder.communicate()  # waits for the worker


def test_hold_is_free_after_its_block_or_an_error(tmp_path):
    """To ask whether it is held makes no folder."""
    folder = tmp_path / "run"
    assert not folder_locks.is_held(folder)
    assert not folder.exists()
    for _ in range(2):
        with pytest.raises(KeyError), folder_locks.hold_lock(folder):
            raise KeyError
    with folder_locks.hold_lock(folder):
        assert folder_locks.is_held(folder)
        assert not folder_locks.is_held(folder, "another.lock")
        assert f'"pid": {os.getpid()}' in (folder / folder_locks.NAME).read_text()
        (folder / folder_locks.NAME).write_text("")
        with pytest.raises(ConfigError, match="not yet said"), folder_locks.hold_lock(folder):
            pass
    assert not folder_locks.is_held(folder)


def test_wait_tells_once_and_goes_on(tmp_path):
    file, events = tmp_path / "x.lock", []

    def second() -> None:
        with folder_locks.wait_for_lock(file, lambda: events.append("waits")):
            events.append("second")

    with folder_locks.wait_for_lock(file, lambda: events.append("never")):
        thread = threading.Thread(target=second)
        thread.start()
        while "waits" not in events:
            time.sleep(0.01)
        events.append("first")
    thread.join()
    assert events == ["waits", "first", "second"]


def test_check_writable_leaves_nothing_behind(tmp_path):
    """Transcripts of train and study hold what it refuses."""
    folder_locks.check_writable(tmp_path / "a/b")
    assert list((tmp_path / "a/b").iterdir()) == []

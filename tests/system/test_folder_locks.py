"""One run a workdir: a second one is told who holds it, and it is freed however its holder ends."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from bert_jax.errors import ConfigError
from bert_jax.system import folder_locks
from bert_jax.training import stop as stops


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


HOLD = """
    import os, sys, time
    from bert_jax.training import stop as stops
    with stops.run_lock(sys.argv[1]):
        if len(sys.argv) > 2 and os.fork() == 0:  # a worker that outlives its parent
            time.sleep(3)
            os._exit(0)
        print("held", flush=True)
        time.sleep(60)
"""


@pytest.mark.fault(9)
def test_a_second_run_is_told_who_holds_the_workdir(tmp_path):
    holder = start(HOLD, tmp_path)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError) as error, stops.run_lock(tmp_path):
            pass
        assert error.value.code == 2
        assert error.value.hint
        for said in (str(tmp_path), f"pid {holder.pid},", socket.gethostname(), "started 20"):
            assert said in str(error.value)
    finally:
        holder.kill()
        holder.communicate()
    with stops.run_lock(tmp_path):  # a dead holder's is free at once
        pass


def test_waiting_for_a_lock_tells_once_and_goes_on(tmp_path):
    file, events = tmp_path / "x.lock", []

    def second() -> None:
        with folder_locks.wait(file, lambda: events.append("waits")):
            events.append("second")

    with folder_locks.wait(file, lambda: events.append("never")):
        thread = threading.Thread(target=second)
        thread.start()
        while "waits" not in events:
            time.sleep(0.01)
        events.append("first")
    thread.join()
    assert events == ["waits", "first", "second"]


def test_asking_who_holds_a_folder_disturbs_nobody(tmp_path):
    assert not folder_locks.held(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with folder_locks.hold(tmp_path):
        assert folder_locks.held(tmp_path)
        assert not folder_locks.held(tmp_path, "another.lock")
    assert not folder_locks.held(tmp_path)
    with (tmp_path / folder_locks.NAME).open() as asking:
        fcntl.flock(asking, fcntl.LOCK_EX)  # as `held` does, for longer
        with pytest.raises(ConfigError, match="another run uses"), folder_locks.hold(tmp_path):
            pass
        threading.Timer(0.1, fcntl.flock, (asking, fcntl.LOCK_UN)).start()
        with folder_locks.hold(tmp_path):  # it waits a moment
            pass


@pytest.mark.fault(9)
def test_a_worker_left_behind_does_not_keep_the_lock(tmp_path):
    holder = start(HOLD, tmp_path, "fork")
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    with stops.run_lock(tmp_path):
        pass
    holder.communicate()


def test_lock_is_free_after_its_block_or_an_error(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyError), stops.run_lock(tmp_path):
            raise KeyError
    with stops.run_lock(tmp_path):
        text = (tmp_path / folder_locks.NAME).read_text()
        (tmp_path / folder_locks.NAME).write_text("")
        with pytest.raises(ConfigError, match="not yet said"), stops.run_lock(tmp_path):
            pass
    assert f'"pid": {os.getpid()}' in text


@pytest.mark.parametrize("below", ["", "deeper/still"])
@pytest.mark.fault(22)
def test_a_file_in_the_place_of_the_workdir(below, tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(ConfigError, match="cannot write in workdir") as error:
        folder_locks.check_writable(tmp_path / "run" / below)
    assert error.value.code == 2


@pytest.mark.fault(22)
def test_a_workdir_where_nothing_can_be_made():
    """/proc takes no files, from root either."""
    with pytest.raises(ConfigError, match="cannot write in workdir"):
        folder_locks.check_writable(Path("/proc/self"))


def test_a_folder_without_write_permission(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="Permission denied"):
        folder_locks.check_writable(tmp_path)
    tmp_path.chmod(0o700)


def test_writable_leaves_nothing_behind(tmp_path):
    folder_locks.check_writable(tmp_path / "a/b")
    assert list((tmp_path / "a/b").iterdir()) == []

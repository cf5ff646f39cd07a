"""One run a workdir, freed however it ends; stop signals that save, and a second one that does not
wait.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from bert_jax.errors import ConfigError
from bert_jax.system import folder_locks, signals
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


@pytest.mark.fault(34)
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
        fcntl.flock(asking, fcntl.LOCK_SH)  # as `held` does, for longer
        with pytest.raises(ConfigError, match="another run uses"), folder_locks.hold(tmp_path):
            pass
        threading.Timer(0.1, fcntl.flock, (asking, fcntl.LOCK_UN)).start()
        with folder_locks.hold(tmp_path):  # it is tried more than once
            pass


@pytest.mark.fault(34)
def test_a_worker_left_behind_does_not_keep_the_lock(tmp_path):
    holder = start(HOLD, tmp_path, "fork")
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    with stops.run_lock(tmp_path):
        pass
    holder.communicate()


def test_the_lock_is_free_after_its_block_and_after_an_error(tmp_path):
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
@pytest.mark.fault(33)
def test_a_file_in_the_place_of_the_workdir(below, tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(ConfigError, match="cannot write in workdir") as error:
        folder_locks.check_writable(tmp_path / "run" / below)
    assert error.value.code == 2


@pytest.mark.fault(33)
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


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_a_signal_raises_the_flag_and_handlers_are_restored(number, capfd):
    before = [signal.getsignal(n) for n in signals.SIGNALS]
    with stops.StopFlag() as flag:
        assert not flag.should_stop(1)
        os.kill(os.getpid(), number)
        assert flag.should_stop(2)
        assert flag.signal == number
    assert [signal.getsignal(n) for n in signals.SIGNALS] == before
    assert signal.Signals(number).name in capfd.readouterr().err


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_before_there_is_anything_to_save_a_signal_interrupts(number):
    with pytest.raises(KeyboardInterrupt, match=signal.Signals(number).name), stops.StopFlag():
        os.kill(os.getpid(), number)


@pytest.mark.fault(3)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_the_same_signal_again_exits_at_once(name):
    script = """
        import sys, time
        from bert_jax.training import stop as stops
        with stops.StopFlag() as flag:
            flag.should_stop(0)  # from here on a signal asks for a stop, and no longer interrupts
            print("ready", flush=True)
            while not flag.should_stop(0):
                time.sleep(0.01)
            print("buffered", end="")
            print("stopping", file=sys.stderr, flush=True)
            time.sleep(60)
    """
    child = start(script)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.Signals[name])
    while child.stderr.readline() != "stopping\n":
        assert child.poll() is None
    begun = time.monotonic()
    for same in (name, "SIGUSR2", "SIGINT"):  # at once the same, or another one: says nothing new
        child.send_signal(signal.Signals[same])
    time.sleep(signals.SAME)
    assert child.poll() is None
    child.send_signal(signal.Signals[name])
    out, err = child.communicate(timeout=10)
    assert child.returncode == 75
    assert time.monotonic() - begun < 5
    assert out == "buffered"
    assert f"second {name}" in err
    assert err.count("stopping without saving") == 1


def test_signals_that_come_together_are_one_request(capfd):
    """As a scheduler sends them, to the process and to its parent, who passes them on."""
    with stops.StopFlag() as flag:
        flag.should_stop(1)
        for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert flag.signal == signal.SIGUSR2
    assert "second" not in capfd.readouterr().err


SEVERAL = """
    import os, signal, sys, time
    import jax
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[1]))
    from bert_jax.training import stop as stops
    with stops.StopFlag() as flag:
        for step in range(1, 2000):
            if step == 5 and sys.argv[1] == "1":
                os.kill(os.getpid(), signal.Signals[sys.argv[3]])
            time.sleep(0.005)
            if flag.should_stop(step):
                break
    print(step, flush=True)
"""


@pytest.mark.fault(4)
@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGUSR1", marks=pytest.mark.slow)])
def test_one_of_two_processes_is_told_and_both_stop_at_the_same_step(name):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    children = [start(SEVERAL, number, address, name) for number in (0, 1)]
    results = [child.communicate(timeout=100) for child in children]
    assert [child.returncode for child in children] == [0, 0], results
    stops = [int(out) for out, _ in results]
    assert stops[0] == stops[1]
    assert 5 <= stops[0] < 1999

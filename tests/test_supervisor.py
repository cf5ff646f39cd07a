"""The supervisor of a distributed run's process, with children that play one: how each end is told
to the user.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import jax
import pytest

from bert_jax import cli, config
from bert_jax.checkpoints import saving
from bert_jax.errors import ConfigError, PeerLost, Stopped, UserError
from bert_jax.system import signals, supervisor
from bert_jax.training import processes
from tests.texts import ROOT

BEGIN = """
    import os, resource, signal, sys, time
    sys.path.insert(0, {root!r})
    from bert_jax.system import supervisor
    supervisor.begin()
"""
ABORT = """
    os.write(2, b"F1122 client.h:80] The JAX distributed service detected fatal errors.\\n")
    os.write(2, b"*** Check failure stack trace: ***\\n")
    os.abort()
"""


def child(body: str) -> list[str]:
    """A command that begins as a supervised process does."""
    program = textwrap.dedent(BEGIN.format(root=str(ROOT))) + textwrap.dedent(body)
    return [sys.executable, "-S", "-c", program]


def play(body: str, workdir: Path, debug: bool = False) -> int:
    return supervisor.run(child(body), workdir, debug)


def test_supervisor_passes_output_and_exit_code_through_in_order(tmp_path):
    """Lines of both streams stand in the order in which they were written; a child that knows no
    supervisor works.
    """
    body = """
        for n in range(3):
            print("out", n, flush=True)
            print("err", n, file=sys.stderr)
        supervisor.announce(3)
        sys.exit(3)
    """
    driver = "import sys; from pathlib import Path; from bert_jax.system import supervisor\n"
    driver += "sys.exit(supervisor.run(sys.argv[2:], Path(sys.argv[1]), False))"
    command = [sys.executable, "-c", driver, str(tmp_path), *child(body)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )
    assert done.returncode == 3
    assert done.stdout.split("\n") == [
        f"{stream} {n}" for n in range(3) for stream in ("out", "err")
    ] + [""]
    assert supervisor.run([sys.executable, "-S", "-c", "raise SystemExit(5)"], tmp_path, False) == 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault(38, 46)
def test_abort_of_a_child_is_one_line_and_75_and_its_trace_a_file(tmp_path, capfd):
    said = (
        "assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0; "
        "assert os.getsid(0) == os.getpid()\n"
    )
    said += "print('ok', flush=True)\n"
    before = resource.getrlimit(resource.RLIMIT_CORE)
    with pytest.raises(PeerLost) as lost:
        play(textwrap.dedent(said) + textwrap.dedent(ABORT), tmp_path)
    assert resource.getrlimit(resource.RLIMIT_CORE) == before
    assert lost.value.code == 75
    assert str(lost.value) == "another process of this run has ended, or the link to it is cut"
    (log,) = tmp_path.iterdir()
    assert "stack trace" in log.read_text()
    assert lost.value.hint == f"the same command continues; what jax wrote last is in {log}"
    assert capfd.readouterr() == ("ok\n", "")


def test_debug_shows_what_jax_writes(tmp_path, capfd):
    with pytest.raises(Stopped, match="ended by SIGABRT"):
        play(ABORT, tmp_path, debug=True)
    assert "stack trace" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_child_that_never_met_its_peers_says_so(tmp_path):
    joining = ABORT.replace("fatal errors.", "fatal errors. RPC: RegisterTask")
    with pytest.raises(Stopped, match="did not come in time") as error:
        play(joining, tmp_path)
    assert "JAX_COORDINATOR_ADDRESS" in error.value.hint


@pytest.mark.parametrize("code", [0, 2, 75])
def test_an_end_of_our_own_stands_although_jax_aborts_after_it(code, tmp_path):
    """All has been said and saved, and only then is a peer found missing."""
    assert play(f"supervisor.announce({code})\n" + textwrap.dedent(ABORT), tmp_path) == code
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault(46)
def test_a_child_that_failed_does_not_wait_long_for_its_peers(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE", 0.2)
    begun = time.monotonic()
    assert play("supervisor.announce(4); time.sleep(60)", tmp_path) == 4
    assert time.monotonic() - begun < 20
    assert (
        play("supervisor.announce(0); time.sleep(1)", tmp_path) == 0
    )  # one that is done waits for those who are not


@pytest.mark.fault(46)
def test_killed_child_is_resumable(tmp_path):
    with pytest.raises(Stopped, match="ended by SIGKILL") as error:
        play("os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    assert "too much memory" in error.value.hint


COUNT = """
    seen = []
    def count(number, _):
        seen.append(signal.Signals(number).name)
        if number == signal.SIGTERM:
            print(*seen, flush=True)
            sys.exit(7)
    for name in ("SIGUSR1", "SIGUSR2", "SIGTERM"):
        signal.signal(signal.Signals[name], count)
    open({ready!r}, "w").close()
    time.sleep(60)
"""


def send(process: int, ready: Path, *signals: tuple[float, int]) -> threading.Thread:
    """Sends signals to a process, each so long after the one before, once its child is ready."""

    def work() -> None:
        while not ready.exists():
            time.sleep(0.01)
        for pause, number in signals:
            time.sleep(pause)
            os.kill(process, number)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_signals_are_passed_on_and_equal_ones_within_a_second_once(tmp_path, capfd):
    ready = tmp_path / "ready"
    twice = [
        (0.1, signal.SIGUSR1),
        (0.1, signal.SIGUSR1),
        (0.1, signal.SIGUSR2),
        (0.1, signal.SIGTERM),
    ]
    before = [signal.getsignal(number) for number in supervisor.FORWARDED]
    sender = send(os.getpid(), ready, *twice)
    assert play(COUNT.format(ready=str(ready)), tmp_path) == 7
    sender.join()
    assert capfd.readouterr().out == "SIGUSR1 SIGUSR2 SIGTERM\n"
    assert [signal.getsignal(number) for number in supervisor.FORWARDED] == before


@pytest.mark.fault(3)
def test_a_second_urgent_signal_later_ends_the_child_at_once(tmp_path):
    ready = tmp_path / "ready"
    deaf = (
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(ready)!r}, 'w').close(); "
        f"time.sleep(60)"
    )
    begun = time.monotonic()
    sender = send(os.getpid(), ready, (0, signal.SIGTERM), (signals.SAME + 0.1, signal.SIGTERM))
    with pytest.raises(Stopped, match="second SIGTERM: stopped without saving"):
        play(deaf, tmp_path)
    sender.join()
    assert time.monotonic() - begun < 20


def test_signal_that_ends_a_child_before_it_listens_is_an_interruption(tmp_path):
    ready = tmp_path / "ready"
    sender = send(os.getpid(), ready, (0, signal.SIGTERM))
    with pytest.raises(Stopped, match="interrupted"):
        play(f"open({str(ready)!r}, 'w').close(); time.sleep(60)", tmp_path)
    sender.join()


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ready = tmp_path / "ready"
        sender = send(os.getpid(), ready, (0, signal.SIGHUP))
        assert play(f"open({str(ready)!r}, 'w').close(); time.sleep(0.5)", tmp_path) == 0
        sender.join()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.fault(46)
@pytest.mark.skipif(
    sys.platform != "linux", reason="the kernel of Linux ends a child with its parent"
)
def test_the_child_of_a_killed_supervisor_ends(tmp_path):
    driver = "import sys; from pathlib import Path; from bert_jax.system import supervisor\n"
    driver += "supervisor.run(sys.argv[2:], Path(sys.argv[1]), False)"
    command = [
        sys.executable,
        "-c",
        driver,
        str(tmp_path),
        *child("print(os.getpid(), flush=True); time.sleep(60)"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.stdout.read()  # ends when nobody holds it open
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_child_that_comes_late_finds_its_supervisor_gone():
    """It ends before it imports anything else."""
    variables = {**os.environ, supervisor.VARIABLE: "1:2:2"}
    done = subprocess.run(child("print('alive')"), env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (75, "")


# --- the command line and jax ---------------------------------------------------------------------


def test_distributed_training_starts_itself_again_and_ends_as_its_child_does(
    tmp_path, monkeypatch, capsys
):
    asked = []
    monkeypatch.setattr(supervisor, "run", lambda *given: asked.append(given) or 5)
    words = [
        "train",
        "--config=configs/tiny.py",
        f"--workdir={tmp_path}",
        "--config.parallel.distributed=true",
    ]
    assert cli.execute(["--debug", *words]) == 5
    assert asked == [([sys.executable, "-m", "bert_jax.cli", *words, "--debug"], tmp_path, True)]

    def lost(*_: object) -> int:
        raise PeerLost

    monkeypatch.setattr(supervisor, "run", lost)
    assert cli.execute(words) == 75
    err = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in err] == ["error", "hint"]


def test_error_of_the_network_between_processes_is_a_lost_peer(monkeypatch):
    """An error of the device, or in a run of one process, stays what it is."""
    said = (
        "UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] "
        "Connection closed by peer"
    )
    for text, count, expected in (
        (said, 2, PeerLost),
        ("UNAVAILABLE: Socket closed", 2, PeerLost),
        ("INTERNAL: NCCL operation ncclAllReduce failed: remote process exited", 2, PeerLost),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes", 2, jax.errors.JaxRuntimeError),
        (said, 1, jax.errors.JaxRuntimeError),
    ):
        monkeypatch.setattr(jax, "process_count", lambda count=count: count)
        with pytest.raises(expected), processes.translate_peer_loss():
            raise jax.errors.JaxRuntimeError(text)


@pytest.mark.fault(46)
@pytest.mark.parametrize("processes", [1, 2])
def test_save_whose_other_half_never_comes_is_a_lost_peer(processes, tmp_path, monkeypatch):
    checkpoints = saving.Checkpoints(tmp_path, keep=1, keep_best=False)
    late = TimeoutError("Timed out while waiting for async_write_complete barrier.")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    for raised, code in ((late, 4 if processes == 1 else 75), (full, 4)):
        with pytest.raises(UserError) as error, checkpoints._explain_failure():
            raise raised
        assert error.value.code == code


@pytest.mark.parametrize("variables", [{}, {"JAX_NUM_PROCESSES": "two"}])
def test_processes_that_nobody_names_are_an_error_of_usage(variables, monkeypatch):
    """Where there is no cluster that jax knows, or a number is none."""

    def initialize(**_: object) -> None:
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    tree = config.default()
    config.override(tree, "parallel.distributed", "true")
    with pytest.raises(ConfigError, match="no processes to join") as error:
        processes.start_processes(config.resolve(tree).parallel)
    assert "JAX_COORDINATOR_ADDRESS" in error.value.hint


@pytest.mark.fault(38, 46)
def test_heartbeat_is_a_minute(monkeypatch):
    """All others must have ended two minutes after a process is lost."""
    asked: dict = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: asked.update(given))
    tree = config.default()
    config.override(tree, "parallel.distributed", "true")
    processes.start_processes(config.resolve(tree).parallel)
    assert asked["heartbeat_timeout_seconds"] + supervisor.GRACE < 120

"""Stop signals that save, and a second one that does not wait."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from bert_jax.system import signals
from bert_jax.training import stop as stops


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_signal_raises_the_flag_until_the_block_ends(number, capfd):
    before = [signal.getsignal(n) for n in signals.SIGNALS]
    with stops.StopFlag() as flag:
        assert not flag.should_stop(1)
        os.kill(os.getpid(), number)
        assert flag.should_stop(2)
        assert flag.signal == number
    assert [signal.getsignal(n) for n in signals.SIGNALS] == before
    assert signal.Signals(number).name in capfd.readouterr().err


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_signal_interrupts_before_there_is_a_step(number):
    with pytest.raises(KeyboardInterrupt, match=signal.Signals(number).name), stops.StopFlag():
        os.kill(os.getpid(), number)


@pytest.mark.fault(2)
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


@pytest.mark.fault(3)
@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGUSR1", marks=pytest.mark.slow)])
def test_both_processes_stop_at_the_same_step(name):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    children = [start(SEVERAL, number, address, name) for number in (0, 1)]
    results = [child.communicate(timeout=100) for child in children]
    assert [child.returncode for child in children] == [0, 0], results
    stops = [int(out) for out, _ in results]
    assert stops[0] == stops[1]
    assert 5 <= stops[0] < 1999

"""Stop signals that save, and a second one that does not wait."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.system import signals
from bert_jax.training.stop import Interrupted, StopFlag
from tests import clusters

WAIT = """
import sys, time
from bert_jax.system import log
from bert_jax.training.stop import StopFlag
with StopFlag() as flag:
    flag.should_stop()  # from here on a signal asks for a stop, and no longer interrupts
    print("ready", flush=True)
    while not flag.should_stop():
        time.sleep(0.01)
    log.log_line("saving")
    print("stopping", flush=True)
    print("buffered", end="")
    time.sleep(60)
"""
SEVERAL = """
import os, signal, sys, time
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[1]))
from bert_jax.training.stop import Interrupted, StopFlag, hold_run_lock
with StopFlag() as flag, hold_run_lock(sys.argv[4]):
    for number in range(1, 2000):
        if number == 5 and sys.argv[1] == "1":
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.005)
        if sys.argv[3] == "step":
            if flag.should_stop():
                break
        else:
            try:
                flag.check_batch(number, 2000)
            except Interrupted:
                break
print(number, flush=True)
"""


def start(script: str, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_signal_raises_the_flag_until_the_block_ends(number, capfd):
    before = [signal.getsignal(n) for n in signals.SIGNALS]
    with StopFlag() as flag:
        assert not flag.should_stop()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # at once: a scheduler signals parent and child
        assert flag.should_stop()
        assert flag.signal == number
        with pytest.raises(Interrupted), flag.interrupting():
            pass
    assert [signal.getsignal(n) for n in signals.SIGNALS] == before
    (said,) = filter(None, capfd.readouterr().err.splitlines())
    assert said.startswith(f"{signal.Signals(number).name}: saving, then stopping")


def test_signal_interrupts_before_there_is_a_step():
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), StopFlag():
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.fault(2)
@pytest.mark.parametrize("reader_ended", [False, True])  # as `tee` does at Ctrl-C
def test_same_signal_again_exits_at_once(reader_ended):
    with start(WAIT) as child:
        assert child.stdout.readline() == "ready\n"
        if reader_ended:
            child.stderr.close()
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "stopping\n"
        for same in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT):  # say nothing new
            child.send_signal(same)
        time.sleep(signals.SAME)
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=10) == 75
        assert child.stdout.read() == "buffered"
        if not reader_ended:
            assert child.stderr.read().count("stopping without saving") == 1


@pytest.mark.fault(2, 3)
@pytest.mark.parametrize("place", ["step", "batch of an evaluation"])
def test_processes_stop_at_the_same_place(place, tmp_path):
    """Both have entered the lock of their run."""
    address = f"localhost:{clusters.free_ports(1)[0]}"
    children = [start(SEVERAL, number, address, place, tmp_path) for number in (0, 1)]
    results = [child.communicate(timeout=100) for child in children]
    assert [child.returncode for child in children] == [0, 0], results
    first, second = (int(out.split()[-1]) for out, _ in results)  # after lines of Gloo
    assert first == second
    assert 5 <= first < 1999

"""The allocator keeps memory that is freed, unless it is told otherwise."""

import os
import platform
import subprocess
import sys

import pytest

from bert_jax.system import machine
from bert_jax.system.allocator import retain_memory  # before tests are kept from it

# Page faults of taking and freeing 64 MB again; by default it costs them each time.
FAULTS = """
import resource
import numpy as np
from bert_jax.system import allocator
assert {call} == ''
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for i in range(4):
    before = faults()
    np.ones(8 * 2**20)
    last = faults() - before
print(last)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_retain_keeps_memory_unless_told_otherwise(monkeypatch):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    last = {}
    for call in ("allocator.find_obstacle()", "allocator.retain_memory()"):
        command = [sys.executable, "-c", FAULTS.format(call=call)]
        done = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
        last[call] = int(done.stdout)
    default, retained = last.values()
    assert retained < 10
    assert default > 10 * max(retained, 1)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    said = "$MALLOC_ARENA_MAX is set, and is left as it is"
    assert machine.describe_machine()["allocator"] == retain_memory() == said

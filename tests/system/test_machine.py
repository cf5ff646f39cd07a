"""Facts of the machine, and the allocator that keeps its memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data import corpus
from bert_jax.system import machine
from bert_jax.system.allocator import retain_memory  # before tests are kept from it
from bert_jax.system.durations import format_duration


@pytest.mark.parametrize("value", ["", "~/somewhere", "/tmp/elsewhere"])
def test_cache_folder_is_where_prepare_puts_things(monkeypatch, value):
    monkeypatch.setenv("BERT_JAX_DATA", value)
    assert machine.cache_folder() == corpus.find_cache(knobs.Corpus())


def test_versions_of_absent_packages_are_none():
    found = machine.list_versions(("numpy", "no-such-package"))
    assert found == {"numpy": np.__version__, "no-such-package": None}


def test_memory_is_cut_at_the_limit_of_a_container(monkeypatch, tmp_path):
    (tmp_path / "max").write_text("12345\n")
    monkeypatch.setattr(machine, "CGROUP_LIMITS", (tmp_path / "none", tmp_path / "max"))
    assert machine.count_memory() == 12345
    (tmp_path / "max").write_text("max\n")
    assert machine.count_memory() > 2**28


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


@pytest.mark.parametrize(
    ("seconds", "exact", "rough"),
    [
        (0.0352, "35.2 ms", "0 s"),
        (2.3149, "2.31 s", "2 s"),
        (59.7, "1 min 00 s", "60 s"),
        (187.0, "3 min 07 s", "3 min"),
        (7_500.0, "2 h 05 min", "2 h"),
        (4_000_000.0, "1,111 h 06 min", "1,111 h"),
    ],
)
def test_duration_has_two_units_and_an_estimate_one(seconds, exact, rough):
    assert format_duration(seconds) == exact
    assert format_duration(seconds, rough=True) == rough

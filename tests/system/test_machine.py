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
from bert_jax.system import allocator, machine
from bert_jax.system.allocator import retain  # before tests are kept from it
from bert_jax.system.durations import duration


@pytest.mark.parametrize("value", ["", "~/somewhere", "/tmp/elsewhere"])
def test_cache_folder_is_where_prepare_puts_things(monkeypatch, value):
    monkeypatch.setenv("BERT_JAX_DATA", value)
    assert machine.cache_folder() == corpus.find_cache(knobs.Corpus())


def test_versions_of_absent_packages_are_none():
    found = machine.versions(("numpy", "no-such-package"))
    assert found == {"numpy": np.__version__, "no-such-package": None}


def test_memory_is_cut_at_the_limit_of_a_container(monkeypatch, tmp_path):
    (tmp_path / "max").write_text("12345\n")
    monkeypatch.setattr(machine, "CGROUP_LIMITS", (tmp_path / "none", tmp_path / "max"))
    assert machine.memory() == 12345
    (tmp_path / "max").write_text("max\n")
    assert machine.memory() > 2**28


def test_machine_leaves_the_allocator_alone(monkeypatch):
    monkeypatch.setattr(allocator, "retain", lambda: pytest.fail("a description changes nothing"))
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    said = "$MALLOC_ARENA_MAX is set, and is left as it is"
    assert machine.machine()["allocator"] == retain() == said


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_retained_memory_is_not_faulted_in_again():
    """Taking and freeing 64 MB again costs no page faults, which by default it costs each time."""
    source = (
        "import resource, sys\nimport numpy as np\nfrom bert_jax.system import allocator\n"
        "if sys.argv[1] == 'retain':\n    assert allocator.retain() == ''\n"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for i in range(4):\n    before = faults()\n    np.ones(8 * 2**20)\n"
        "    last = faults() - before\n"
        "print(last)"
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    last = {}
    for mode in ("default", "retain"):
        command = [sys.executable, "-c", source, mode]
        done = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
        last[mode] = int(done.stdout)
    assert last["retain"] < 10
    assert last["default"] > 10 * max(last["retain"], 1)


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
    assert duration(seconds) == exact
    assert duration(seconds, rough=True) == rough

"""The logger of the package: lines on standard error, unless a program says otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = "import logging, bert_jax\nlogger = logging.getLogger('bert_jax')\n"
TAIL = """
from bert_jax.config import validation
child = logging.getLogger("bert_jax.some.module")
child.debug("hidden")
child.info("progress")
child.warning("trouble: 100 %s")
"""


@pytest.mark.parametrize(
    ("setting", "lines"),
    [
        ("", ["progress", "warning: trouble: 100 %s"]),
        ("logging.basicConfig()", ["progress", "warning: trouble: 100 %s"]),
        ("logger.setLevel(logging.WARNING)", ["warning: trouble: 100 %s"]),
        ("logger.setLevel(logging.CRITICAL)", []),
        (
            "logger.handlers.clear(); logger.propagate = True; "
            "logging.basicConfig(format='%(name)s')",
            ["bert_jax.some.module"] * 2,
        ),
    ],
)
def test_a_program_redirects_or_silences_the_lines(setting, lines):
    command = [sys.executable, "-c", f"{HEAD}{setting}\n{TAIL}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr.splitlines() == lines


def test_a_handler_that_was_there_first_is_kept():
    before = "import logging\nlogging.getLogger('bert_jax').addHandler(logging.NullHandler())\n"
    command = [sys.executable, "-c", f"{before}{HEAD}{TAIL}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""

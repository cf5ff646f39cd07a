"""The logger of the package: lines on standard error, unless a program says otherwise."""

import pytest

from tests.texts import run_python

PROGRAM = """
import logging
{before}
import bert_jax
logger = logging.getLogger('bert_jax')
{after}
child = logging.getLogger("bert_jax.some.module")
child.debug("hidden")
child.info("progress")
child.warning("trouble: 100 %s\\x1b")
"""


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("", "logging.basicConfig()", ["progress", r"warning: trouble: 100 %s\x1b"]),
        ("", "logger.setLevel(logging.WARNING)", [r"warning: trouble: 100 %s\x1b"]),
        ("logging.getLogger('bert_jax').addHandler(logging.NullHandler())", "", []),
    ],
)
def test_program_redirects_or_silences_the_lines(before, after, lines):
    done = run_python(PROGRAM.format(before=before, after=after))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == lines

"""The child of a worker that trains a cell with processes of other nodes.

A process that has joined others cannot evaluate alone afterwards, so a child joins them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from bert_jax.studies.engines.base import STOPPED

VARIABLE = "BERT_JAX_JOINED"


def is_child() -> bool:
    """Tell whether this process is such a child."""
    return VARIABLE in os.environ


def run_child(words: Sequence[str], stops: Sequence[int]) -> int:
    """Run the child and pass stop signals on; return its exit code.

    A child that a signal ended, as jax ends a process whose peers are lost, is resumable.
    """
    child = subprocess.Popen(words, env={**os.environ, VARIABLE: "1"})
    for number in stops:
        signal.signal(number, lambda number, _: child.send_signal(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child too
    code = child.wait()
    return code if code >= 0 else STOPPED

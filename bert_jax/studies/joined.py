"""The child of a worker that trains a cell with processes of other nodes.

A process that has joined others cannot evaluate alone afterwards, so a child joins them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

from bert_jax.studies.engines.base import STOPPED
from bert_jax.system import signals

VARIABLE = "BERT_JAX_JOINED"


def is_child() -> bool:
    """Tell whether this process is such a child."""
    return VARIABLE in os.environ


def run_child(words: Sequence[str], stops: Sequence[int]) -> int:
    """Run the child and pass stop signals on; return its exit code.

    A child that a signal ended, as jax ends a process whose peers are lost, is resumable.
    """
    child = subprocess.Popen(words, env={**os.environ, VARIABLE: "1"})
    with _Relay(child, stops):
        code = child.wait()
    return code if code >= 0 else STOPPED


class _Relay(signals.Handler):
    """A handler that passes stop signals on; once the child has ended, the worker heeds them."""

    def __init__(self, child: subprocess.Popen[bytes], stops: Sequence[int]) -> None:
        super().__init__((*stops, signal.SIGINT))
        self._child = child

    def handle(self, number: int, _: Any) -> None:
        """Pass a signal on, except for SIGINT: a terminal sends it to the child too."""
        if number != signal.SIGINT:
            self._child.send_signal(number)

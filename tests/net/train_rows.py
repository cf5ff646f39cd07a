"""Run what the net asks for in a folder of inputs, train its rows, and read their numbers."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax.cli import execute
from tests.net.commands import ROOT, Result, make_environment, run_commands
from tests.net.inputs import write_inputs
from tests.net.rows import BASE, MODELS, command

# Parts of the names of measured numbers.
VARYING = ("second", "wait", "memory", "mfu", "flops")
Numbers = dict[str, list[float]]


def write_folder(folder: Path) -> None:
    """Write everything that the rows read, with links to the frozen models and the checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    write_inputs(folder, ROOT)
    (folder / "base.py").write_text(BASE)
    (folder / "models").symlink_to(MODELS)


@contextlib.contextmanager
def inputs(folder: Path) -> Iterator[None]:
    """Write everything that the rows read into a new folder, and work there."""
    write_folder(folder)
    with contextlib.chdir(folder):
        yield


def run_command(words: list[str]) -> tuple[int, str, str]:
    """Run a command here; return its exit code and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = execute(words)
    return code, out.getvalue(), err.getvalue()


def print_here(words: list[str]) -> str:
    """Run a command here that succeeds; return what it prints on standard output."""
    code, out, err = run_command(words)
    assert code == 0, f"{' '.join(words)} ended with exit code {code}: {err}"
    return out


class Trained(NamedTuple):
    """How the training of a row ended, and where."""

    result: Result
    workdir: Path

    def read_numbers(self) -> Numbers:
        """Return each number of metrics.jsonl by name: a value for each time it was written."""
        assert self.result.code == 0, self.result.stderr
        return read_numbers(self.workdir)


def train(folder: Path, names: list[str], users_flags: bool = False) -> dict[str, Trained]:
    """Train rows in one process below a folder of `write_folder`."""
    commands = [command(name, f"runs/{name}") for name in names]
    results = run_commands(folder, commands, make_environment(users_flags))
    return {
        name: Trained(result, folder / "runs" / name)
        for name, result in zip(names, results, strict=True)
    }


def read_numbers(workdir: Path) -> Numbers:
    """Return each number of metrics.jsonl by name: a value for each time it was written."""
    found: Numbers = {}
    for line in (workdir / "metrics.jsonl").read_text().splitlines():
        for name, value in json.loads(line).items():
            if "/" in name and not any(part in name for part in VARYING):
                found.setdefault(name, []).append(value)
    return found

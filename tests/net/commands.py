"""Run command lines of bert-jax, one after another in one process: python -m tests.net.commands.

`run_commands` starts that process: tests compile with fewer optimizations than users do, and flags
of the compiler belong to a process. What a command prints goes to files, so that nothing is lost
where a process is killed.
"""

import contextlib
import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests import GARBAGE

ROOT = Path(__file__).resolve().parents[2]
OF_TESTS = ("JAX_", "XLA_", "BERT_JAX_", "PYTEST_")  # variables that change how programs compile
DEVICES = "--xla_force_host_platform_device_count"
HEAVY = ("jax", "flax", "optax", "orbax.checkpoint", "bert_jax.train")  # what commands import


class Result(NamedTuple):
    """The exit code of a command, and what it wrote."""

    code: int
    stdout: str
    stderr: str


def make_environment(
    users_flags: bool = False, devices: int = 1, **variables: str
) -> dict[str, str]:
    """Return the variables of a process: compiler flags of the tests or of a user, devices.

    With either flags, programs are in the cache of the tests, if the process that asks has one.
    """
    kept = dict(os.environ)
    for name in os.environ:
        if users_flags and name.startswith(OF_TESTS) and "CACHE" not in name:
            del kept[name]
    flags = kept.get("XLA_FLAGS", "")
    if devices > 1:
        flags = f"{flags} {DEVICES}={devices}".strip()
    kept |= {"XLA_FLAGS": flags} if flags else {}
    return kept | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | variables


def run_commands(
    folder: Path,
    commands: Sequence[list[str]],
    environment: dict[str, str],
    kill: Sequence[list[str]] = (),
) -> list[Result]:
    """Run commands in a folder, all in one process of their own.

    Before them others are started that save every few updates, each in a process that is killed in
    its second save.
    """
    outputs = folder / "outputs"
    outputs.mkdir(exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "tests.net.commands"],
        input=json.dumps([kill, commands]),
        text=True,
        env=environment,
        cwd=folder,
        check=True,
    )
    codes = json.loads((outputs / "codes.json").read_text())
    texts = [
        [(outputs / f"{number}.{stream}").read_text() for stream in ("stdout", "stderr")]
        for number in range(len(commands))
    ]
    return [Result(code, *text) for code, text in zip(codes, texts, strict=True)]


def _run(number: int, words: list[str]) -> int:
    """Run a command whose output goes to files."""
    import jax

    from bert_jax.cli import execute

    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        stream.flush()
        target = os.open(f"outputs/{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, stream.fileno())
        os.close(target)
    code = execute(words)
    jax.clear_caches()  # Linux gives a process 65,530 pieces of memory, and each program takes some
    return code


def _kill(words: list[str]) -> bool:
    """Run a command in a process of its own and kill that in its second save; tell whether it was.

    Orbax writes a save into a temporary folder, which gets the step's name when it is whole.
    """
    from bert_jax.cli import execute

    workdir = Path(next(w for w in words if w.startswith("--workdir="))[len("--workdir=") :])
    shutil.rmtree(workdir, ignore_errors=True)
    saves = workdir / "checkpoints"
    child = os.fork()
    if not child:
        os._exit(execute(words))
    status = None
    while status is None:
        names = os.listdir(saves) if saves.is_dir() else []
        if any(name.isdecimal() for name in names) and any("tmp" in name for name in names):
            os.kill(child, signal.SIGKILL)
        time.sleep(0.004)
        ended, code = os.waitpid(child, os.WNOHANG)
        status = code if ended else None
    return os.WIFSIGNALED(status)


def main() -> None:
    """Kill and run the commands of standard input, and write the exit codes of those that ended."""
    kill, commands = json.load(sys.stdin)
    gc.set_threshold(*GARBAGE)
    for name in HEAVY if kill else ():  # once for all processes
        importlib.import_module(name)
    gc.freeze()  # what has been imported stays
    for words in kill:
        if not any(_kill(words) for _ in range(3)):  # a save may end before it is seen
            sys.exit(f"was never seen to save: {words}")
    with contextlib.ExitStack() as stack:
        if "JAX_DISABLE_MOST_OPTIMIZATIONS" in os.environ:  # not with the flags of users
            from tests.texts import short_reports

            stack.enter_context(short_reports())
        codes = [_run(number, words) for number, words in enumerate(commands)]
        sys.stdout.flush()
        Path("outputs/codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main()

"""Run command lines of bert-jax, one after another in one process: python -m tests.net.commands.

`run_commands` starts that process: tests compile with fewer optimizations than users do, and flags
of the compiler belong to a process. What a command prints goes to files, so that nothing is lost
where a process is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
OF_TESTS = ("JAX_", "XLA_", "BERT_JAX_", "PYTEST_")  # variables that change how programs compile
CACHING = {  # rows that differ in numbers have one program, which is compiled once
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
DEVICES = "--xla_force_host_platform_device_count"


class Result(NamedTuple):
    """The exit code of a command, and what it wrote."""

    code: int
    stdout: str
    stderr: str


def make_environment(
    folder: Path, users_flags: bool = False, devices: int = 1, **variables: str
) -> dict[str, str]:
    """Return the variables of a process: compiler flags of the tests or of a user, devices."""
    kept = dict(os.environ)
    if users_flags:
        kept = {name: value for name, value in kept.items() if not name.startswith(OF_TESTS)}
        kept |= {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled")} | CACHING
    flags = kept.get("XLA_FLAGS", "")
    if devices > 1:
        flags = f"{flags} {DEVICES}={devices}".strip()
    kept |= {"XLA_FLAGS": flags} if flags else {}
    return kept | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | variables


def run_commands(
    folder: Path, commands: list[list[str]], environment: dict[str, str]
) -> list[Result]:
    """Run commands in a folder, all in one process of their own."""
    outputs = folder / "outputs"
    outputs.mkdir(exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "tests.net.commands"],
        input=json.dumps(commands),
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


def main() -> None:
    """Run the commands of standard input, a JSON list, and write their exit codes."""
    from bert_jax.cli import execute

    codes = []
    for number, words in enumerate(json.load(sys.stdin)):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            name = "stdout" if stream is sys.stdout else "stderr"
            target = os.open(f"outputs/{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(target, stream.fileno())
            os.close(target)
        codes.append(execute(words))
    sys.stdout.flush()
    Path("outputs/codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main()

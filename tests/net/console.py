"""Play transcripts: text files of commands, what they print, and their exit codes.

A transcript has lines of four kinds:

    # A remark, or an empty line.
    $ cp -r runs/tiny runs/cut                     a line for the shell, which must succeed
    $ echo hello | bert-jax predict nsp --model=x  a command of the project, called in this process
    {"is_next": 0.5}                               what it prints on standard output
    ! error: no checkpoint at x                    what it prints on standard error
    exit 4                                         its exit code, which ends the block

Before `| bert-jax` stands a shell line whose output is the standard input. A shell line behind
` | ` reads standard output. Variables such as NAME=value may stand before `bert-jax`.
"""

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from bert_jax.cli import execute

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"\$ (?:(?P<source>[^|]*) \| )?(?P<call>(?:\w+=\S* )*bert-jax\b.*)")
FILTER = " | "
EXIT = re.compile(r"exit \S+")
SIZE = r"(?:[kKMGT]i?B|bytes|B)\b"
# What differs between machines, versions and moments -> the name that stands for it. In order.
VARYING = (
    (r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[+-]\d\d:\d\d)?", "<time>"),
    (r"(?<![.\w])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}\b", "<hash>"),
    (r"\bpid \d+", "pid <pid>"),
    (r"\d+ were written", "<size> were written"),
    (r"\b\d+ ((?:processes )?at a time|cores|groups run at the same time)", r"<some> \1"),
    (rf"\b\d[\d,]*\.\d+ {SIZE}", "<size>"),
    (r"(?<![\w.])\d[\d,.]*(e[+-]\d+)? (\w+/s)\b", r"<speed> \2"),
    (r"(?<![\w.])\d+(\.\d+)? (s|seconds|minutes|min|h|hours)\b", r"<time> \2"),
    (r"(?<![\w.])-?\d+\.\d{3,}(e[+-]?\d+)?\b|(?<![\w.])-?\d+(\.\d+)?e-\d+\b", "<number>"),
)
# Progress that a slow machine prints more often: none, the first line, the last line of a block.
RUNNING = re.compile(
    r"! (?:[\w ,]* of \d+ cells; about .* left|[\w ,]*\d+ running\b.* of \d+ cells.*)"
)
TRAINING = re.compile(r"! step \d+/\d+  loss .*")
COUNTING = re.compile(r"! .* (\d+)/(\d+)")


class Recorder(io.TextIOBase):
    """A stream that appends lines with a mark to a list that it shares with another stream."""

    def __init__(self, parts: list[tuple[str, str]], mark: str):
        self.parts, self.mark = parts, mark

    def write(self, text: str) -> int:
        """Append a text."""
        self.parts.append((self.mark, text))
        return len(text)

    def writable(self) -> bool:
        """Tell that the stream takes text."""
        return True


def play(transcript: str, folder: Path) -> str:
    """Run every command of a transcript in a folder; return it with what is printed now."""
    lines: list[str] = []
    skipping = False  # the lines of an earlier output
    variables = {"COLUMNS": "80", "HOME": str(folder), "BERT_JAX_DATA": str(folder / "data")}
    with contextlib.chdir(folder), mock.patch.dict(os.environ, variables):
        for line in transcript.splitlines():
            if skipping:
                skipping = not EXIT.fullmatch(line)
                continue
            lines.append(line)
            if found := COMMAND.fullmatch(line):
                lines += _run(found["source"], found["call"], folder)
                skipping = True
            elif line.startswith("$ "):
                _shell(line.removeprefix("$ "))
    return "\n".join(lines) + "\n"


def _run(source: str | None, call: str, folder: Path) -> list[str]:
    """Call a command; return the lines that it prints and its exit code."""
    call, *filters = call.split(FILTER)
    words = shlex.split(call)
    begin = words.index("bert-jax")
    variables = dict(word.split("=", 1) for word in words[:begin])
    parts: list[tuple[str, str]] = []
    with (
        mock.patch.dict(os.environ, variables),
        _give_input(_shell(source) if source else b""),
        contextlib.redirect_stdout(Recorder(parts, "")),
        contextlib.redirect_stderr(Recorder(parts, "! ")),
    ):
        code = execute(words[begin + 1 :])
    if filters:
        printed = "".join(text for mark, text in parts if not mark).encode()
        kept = _shell(FILTER.join(filters), printed).decode()
        parts = [(mark, text) for mark, text in parts if mark] + [("", kept)]
    lines = [normalise(line, folder) for line in _join(parts)]
    return [*_drop_progress(lines), f"exit {code}"]


def _drop_progress(lines: list[str]) -> Iterator[str]:
    """Yield lines without progress whose number depends on the machine's speed."""
    trained = False
    for line in lines:
        count = COUNTING.fullmatch(line)
        if RUNNING.fullmatch(line) or (count and count[1] != count[2]):
            continue
        if TRAINING.fullmatch(line):
            if trained:
                continue
            trained = True
        yield line


@contextlib.contextmanager
def _give_input(content: bytes) -> Iterator[None]:
    """Make bytes the standard input of this process, by descriptor and by name."""
    kept = os.dup(0)
    with tempfile.TemporaryFile() as file, open(file.fileno(), closefd=False) as text:
        file.write(content)
        file.seek(0)
        os.dup2(file.fileno(), 0)
        try:
            with mock.patch.object(sys, "stdin", text):
                yield
        finally:
            os.dup2(kept, 0)
            os.close(kept)


def _shell(line: str, given: bytes = b"") -> bytes:
    """Run a line in bash; return what it prints. A process in the background may go on."""
    done = subprocess.run(["bash", "-c", line], input=given, stdout=subprocess.PIPE, check=True)
    return done.stdout


def _join(parts: list[tuple[str, str]]) -> Iterator[str]:
    """Yield marked lines; pieces of a line are written one after another to the same stream."""
    rest = {"": "", "! ": ""}
    for mark, text in parts:
        *whole, rest[mark] = (rest[mark] + text).split("\n")
        yield from (f"{mark}{line}".rstrip() for line in whole)
    yield from (f"{mark}{line}".rstrip() for mark, line in rest.items() if line)


def normalise(line: str, folder: Path) -> str:
    """Replace what differs between machines, versions and moments by names."""
    places = {str(folder): "<folder>", sys.executable: "<python>", str(ROOT): "<checkout>"}
    for text, name in places.items():
        line = line.replace(text, name)
    line = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "<host>", line)
    for pattern, name in VARYING:
        line = re.sub(pattern, name, line)
    return line


def collapse(transcript: str) -> list[str]:
    """Return the lines of a transcript as they are compared.

    Python versions break the lines of a help text differently, name the value of a flag with two
    names once or twice, and quote choices or not: each help is one line without blanks and quotes.
    """
    lines: list[str] = []
    helps = False
    for line in transcript.splitlines():
        if line.startswith("$ "):
            helps = "--help" in line
            lines += [line, ""] if helps else [line]
        elif helps and not EXIT.fullmatch(line):
            lines[-1] += re.sub(r"\s+", "", line)
        else:
            helps = False
            lines.append(line)
    return [
        re.sub(r"--model(PATH)?,--checkpointPATH", "--model,--checkpointPATH", x) for x in lines
    ]

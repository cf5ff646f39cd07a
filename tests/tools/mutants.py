"""Plant small faults in the package, one at a time, and find a test that notices each.

    python tests/tools/mutants.py [TEST...] [--room=ROOM] [--seed=N] [--count=N]

A fault is a part of the syntax tree that becomes another, and --seed draws --count of them. Each is
planted in a copy of what is committed. There the quick tests of the fault's file run, then those of
its room, then tests/net, or only the tests that are given, until one fails. The same command goes
on where it was stopped: see --output, which has a row for each fault. A survivor that no test can
notice belongs into `equivalent.csv`, with the reason.

Nothing is changed in f-strings and assertions, nor what is given to a call that signals processes
or deletes files: a fault may not harm the machine that it is tried on.
"""

import argparse
import ast
import csv
import functools
import hashlib
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parents[2]
PYTEST = [*("-m", "pytest", "-x", "-rfE", "-m", "not slow", "-p"), "no:cacheprovider"]
LIMIT = 1800  # seconds of the tests of a fault
FIELDS = ("id", "file", "line", "kind", "before", "after", "verdict", "test")
HARMFUL = {"kill", "killpg", "rmtree", "unlink", "remove", "setrlimit"}
PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn))
PAIRS += ((ast.Is, ast.IsNot),)
SWAPPED = dict(PAIRS) | {two: one for one, two in PAIRS}

# --- faults ---------------------------------------------------------------------------------------


class Mutant(NamedTuple):
    """A fault, how a table shows it, and the text of its file with the fault in it."""

    id: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    planted: bytes


def list_changes(tree: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield each fault of a file: its kind, and the node that becomes another."""
    spared: set[ast.AST] = set()
    for node in ast.walk(tree):
        called = getattr(node, "func", None)
        name = getattr(called, "attr", getattr(called, "id", ""))
        if isinstance(node, (ast.JoinedStr, ast.Assert)) or name in HARMFUL:
            spared.update(ast.walk(node))
        if node in spared:
            continue
        match node:
            case ast.Compare(left, [operator], others):
                yield "comparison", node, ast.Compare(left, [SWAPPED[type(operator)]()], others)
            case ast.UnaryOp(ast.Not(), operand):
                yield "not", node, operand
            case ast.Constant(bool() as value):
                yield "constant", node, ast.Constant(not value)
            case ast.Constant(int() | float() as value):
                yield "constant", node, ast.Constant(value + 1)
            case ast.Raise():
                yield "raise", node, ast.Pass()
            case ast.If(test, [*_, ast.Return()]):
                yield "return early", test, ast.Constant(True)


def plant(file: str, source: bytes, kind: str, node: ast.AST, new: ast.AST) -> Mutant:
    """Plant a fault in the text of a file."""
    starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
    start = starts[node.lineno - 1] + node.col_offset
    stop = starts[node.end_lineno - 1] + node.end_col_offset
    planted = source[:start] + ast.unparse(new).encode() + source[stop:]
    shown = file, node.lineno, kind, ast.unparse(node), ast.unparse(new)
    return Mutant(hashlib.sha256(repr(shown).encode()).hexdigest()[:8], *shown, planted)


def find_room(file: str) -> str:
    """Return the folder of tests for a file of the package."""
    return file.split("/")[1] if file.count("/") > 1 else "cli"


def choose(root: Path, count: int, seed: int, room: str = "") -> list[Mutant]:
    """Draw mutants of the package, or of one room: of all kinds alike, and one a line."""
    kinds: dict[str, list[tuple]] = {}
    for path in sorted((root / "bert_jax").rglob("*.py")):
        file, source = path.relative_to(root).as_posix(), path.read_bytes()
        if room in ("", find_room(file)):
            for kind, *nodes in list_changes(ast.parse(source)):
                kinds.setdefault(kind, []).append((file, source, kind, *nodes))
    draw, taken = random.Random(seed), dict[tuple[str, int], tuple]()
    orders = [draw.sample(own, len(own)) for _, own in sorted(kinds.items())]
    for change in filter(None, itertools.chain(*itertools.zip_longest(*orders))):
        taken.setdefault((change[0], change[3].lineno), change)
    return [plant(*change) for change in itertools.islice(taken.values(), count)]


# --- trials ---------------------------------------------------------------------------------------


class Copy:
    """A copy of what is committed, in a temporary folder, in which faults are tried."""

    def __init__(self, space: Path, tests: list[str]):
        self.tests, self.root, self.output = tests, space / "copy", space / "output"
        # No bytecode is written, which could be taken for that of another text.
        own = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": self.root, "HOME": space}
        own |= {"TMPDIR": space / "tmp", "MUTANTS_COMPILED": space / "compiled"}
        self.variables = {name: str(value) for name, value in own.items()}
        (space / "tmp").mkdir()
        subprocess.run(["git", "clone", "--quiet", ROOT, self.root], check=True)
        if (ROOT.parent / "shared").is_dir():
            (space / "shared").symlink_to(ROOT.parent / "shared")
        self.is_clean = functools.cache(lambda test: self.run_pytest([test])[0] == "survived")

    def judge(self, mutant: Mutant) -> tuple[str, str]:
        """Return what becomes of a mutant, and the test that fails."""
        file, verdict = self.root / mutant.file, "no tests"
        for tests in [self.tests] if self.tests else list_tests(mutant):
            source = file.read_bytes()
            file.write_bytes(mutant.planted)
            verdict, test = self.run_pytest(tests)
            file.write_bytes(source)
            if verdict == "killed" and not self.is_clean(test):
                verdict = "fails without a fault"
            if verdict != "survived":
                return verdict, test
        return verdict, ""

    def run_pytest(self, tests: list[str]) -> tuple[str, str]:
        """Run tests until one fails; return what that says of a fault, and the test."""
        command, variables = [sys.executable, *PYTEST, *tests], os.environ | self.variables
        with self.output.open("w") as out:
            to = {"stdout": out, "stderr": out, "env": variables, "cwd": self.root}
            try:
                code = subprocess.run(command, check=False, timeout=LIMIT, **to).returncode
            except subprocess.TimeoutExpired:
                return "timeout", ""
            finally:
                self.end_processes()
        if code in (0, 5):  # 5: all its tests are slow
            return "survived", ""
        said = self.output.read_text()
        failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", said, re.MULTILINE)
        return "killed", failed[1] if failed else f"exit code {code}"

    def end_processes(self) -> None:
        """Kill what runs in this copy; processes of studies outlive the test that began them."""
        mark = self.variables["MUTANTS_COMPILED"]
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("MUTANTS_COMPILED") == mark:
                process.kill()


def list_tests(mutant: Mutant) -> Iterator[list[str]]:
    """Yield the tests of a mutant's file, those of its room, and the net."""
    room = find_room(mutant.file)
    file = f"tests/{room}/test_{Path(mutant.file).stem}.py"
    yield from ([test] for test in (file, f"tests/{room}", "tests/net") if (ROOT / test).exists())


def read_ids(path: Path) -> set[str]:
    """Return the first column of a table, which may not be there yet."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split(",")[0] for line in lines}


def main() -> None:
    """Try the mutants that have no row yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", metavar="TEST")
    parser.add_argument("--room", default="", help="only faults of one room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "mutants.csv")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and end what runs
    options = parser.parse_intermixed_args()  # words may follow flags
    options.output.parent.mkdir(parents=True, exist_ok=True)
    done = read_ids(options.output) | read_ids(Path(__file__).with_name("equivalent.csv"))
    chosen = choose(ROOT, options.count, options.seed, options.room)
    left = [mutant for mutant in chosen if mutant.id not in done]
    with tempfile.TemporaryDirectory(prefix="mut") as space, options.output.open("a") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not file.tell():
            writer.writerow(FIELDS)
        copy = Copy(Path(space), options.tests)
        for mutant in left:
            row = (*mutant[:-1], *copy.judge(mutant))
            writer.writerow(row)
            file.flush()
            print(f"{mutant.file}:{mutant.line}: {' '.join(row[-2:])}", flush=True)


if __name__ == "__main__":
    main()

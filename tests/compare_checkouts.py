"""Compare two checkouts of the project: the same commands must leave the same results, to the bit.

    python tests/compare_checkouts.py OLD NEW [--only=NAME,...] [--ignore=REGEX]

Both checkouts run the scenarios of `scenarios.py`, tiny runs from text to checkpoint and what is
done with them, on this machine with the compiler flags of a user, each checkout in a folder of its
own: WORKDIR/old and WORKDIR/new. A line for each scenario has the seconds that each checkout took.
What a scenario left behind is compared: checkpoints, metrics, standard output, JSON, tables, pages,
prepared data and exported weights. Only times, speeds, memory, commits and the paths of the folders
are left out. Below a scenario that is DIFFERENT stands what differs and how much; one that fails in
either checkout is different too. The exit code is 1 where anything differs, else 0.

--ignore passes over values whose `FILE: NAME` it matches, such as a knob that NEW has on purpose.
--keep keeps what both wrote; there, `stderr_0.log` is what the first command of a scenario said.

Checkouts are used by their commands and files alone, and what they write is read by libraries
alone: nothing of the package is imported here, so that its modules may move.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.scenarios import SCENARIOS, Command, Scenario, write_inputs

Values = dict[str, Any]  # name -> number, text, bytes or array

# --- running --------------------------------------------------------------------------------------

FOREIGN = ("JAX_", "XLA_", "BERT_JAX_", "PYTHON", "OMP_", "MALLOC_")  # may change results
COMMAND = "from bert_jax.cli import main; main()"  # what the console script bert-jax does
LIMIT = 1_800  # seconds of a command


class Failed(Exception):
    """A command did not end as it should."""


class Side:
    """One checkout, and the folder that its commands run in."""

    def __init__(self, checkout: Path, folder: Path):
        self.checkout, self.folder = checkout.resolve(), folder.resolve()
        self.folder.mkdir(parents=True)
        write_inputs(self.folder, self.checkout)
        self.normal = {str(self.folder): "FOLDER", str(self.checkout): "CHECKOUT"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self.environment = kept | {
            "PYTHONPATH": str(self.checkout),
            "JAX_PLATFORMS": "cpu",
            "BERT_JAX_DATA": str(self.folder / "data"),
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        found = self.python("import bert_jax; print(bert_jax.__file__)").stdout.strip()
        if not Path(found or "/").is_relative_to(self.checkout):
            sys.exit(f"error: {checkout} has no package bert_jax: {found or 'none'} is imported")

    def python(self, code: str, *words: str, stdin: str = "", **variables: str) -> Any:
        """Run Python code in the folder, with the checkout's package."""
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=self.folder,
            env=self.environment | variables,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )

    def run(self, name: str, scenario: Scenario, before: list[Future]) -> float:
        """Run the commands of a scenario when others are done; return the seconds they took."""
        if failed := [one for one in before if one.exception()]:
            raise Failed(f"{self.folder.name}: not run, as {len(failed)} it needs failed")
        began = time.perf_counter()
        for number, command in enumerate(scenario.commands):
            self.command(name, number, command)
        return time.perf_counter() - began

    def command(self, name: str, number: int, command: Command) -> None:
        """Run one command, and keep what it says."""
        words = command.words.split()
        try:
            done = self.python(COMMAND, *words, stdin=command.stdin, **command.variables)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.folder.name}: still runs: {command.words}") from error
        place = self.folder / name
        place.mkdir(exist_ok=True)
        (place / f"stdout_{number}.txt").write_text(done.stdout)
        (place / f"stderr_{number}.log").write_text(done.stderr)
        if done.returncode != command.code:
            said = f"exit code {done.returncode}, not {command.code}: bert-jax {command.words}"
            raise Failed(f"{self.folder.name}: {said}\n{done.stderr[-2000:]}")


# --- reading --------------------------------------------------------------------------------------

TEXT = {".json", ".jsonl", ".csv", ".md", ".txt", ".html", ".tsv"}
PASSED_OVER = re.compile(  # pages of times; times and numbers of files; what Orbax keeps for itself
    r".*/(report\.html|verified\.json|file-hashes\.json|commit_success\.txt)"
    r"|.*/checkpoints/\d+/(manifest\.json|.*/(d|_\w+|ocdbt\.\w+|array_metadatas)/.*)"
)
VOLATILE = re.compile(  # ends of names: times, speeds, memory; which process and checkout it was
    r"time|(\w+_)?seconds|begun|ended|pid|tokens_per_second|model_flops_per_second|mfu|data_wait"
    r"|(host|device)_memory_bytes|git_commit"
)
VOLATILE_TEXT = re.compile(  # of summary.md: commit, date and duration; of an export: its commit
    r"^- (commit .*|\d{4}-\d\d-\d\d|.* of training and .* of evaluation in all)\n"
    r"|commit ([0-9a-f]{7,}\+?|unknown)",
    re.MULTILINE,
)


def read(folder: Path, normal: dict[str, str]) -> dict[str, Values]:
    """Return what is compared below a folder, by file; `normal` replaces paths in texts."""
    found: dict[str, Values] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder.parent).as_posix()
        if PASSED_OVER.fullmatch(name) or not path.is_file():
            continue
        if path.name == "manifest.ocdbt":
            found[path.parent.relative_to(folder.parent).as_posix()] = orbax_arrays(path.parent)
        elif path.suffix in TEXT or path.name == "metadata":
            found[name] = text_values(path, normal)
        elif path.suffix == ".npy":
            found[name] = {"array": np.load(path)}
        elif path.suffix == ".npz":
            found[name] = dict(np.load(path))
        elif path.suffix == ".safetensors":
            found[name] = {"bytes": path.read_bytes()}
    return found


def orbax_arrays(folder: Path) -> Values:
    """Return the arrays of one item of a checkpoint by name."""
    store = {"driver": "ocdbt", "base": f"file://{folder}/"}
    keys = [key.decode() for key in tensorstore.KvStore.open(store).result().list().result()]
    found = {}
    for name in (key.removesuffix("/.zarray") for key in keys if key.endswith("/.zarray")):
        spec = {"driver": "zarr", "kvstore": {**store, "path": f"{name}/"}}
        found[name] = np.asarray(tensorstore.open(spec).result().read().result())
    return found


def text_values(path: Path, normal: dict[str, str]) -> Values:
    """Return the values of JSON, JSON lines, a table, or lines of text."""
    text = VOLATILE_TEXT.sub("", path.read_text())
    for place, name in normal.items():
        text = text.replace(place, name)
    if path.suffix == ".csv":
        return flat(list(csv.DictReader(text.splitlines())))
    try:
        return flat(json.loads(text))
    except ValueError:
        return flat([_json_or_text(line) for line in text.splitlines()])


def _json_or_text(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def flat(value: Any, name: str = "") -> Values:
    """Return the leaves of nested lists and objects by path, without those that are volatile."""
    if not value or not isinstance(value, (dict, list)):
        return {name: value}
    found: Values = {}
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(key, int):
            found |= flat(one, f"{name}[{key}]")
        elif not VOLATILE.fullmatch(key.rpartition("/")[2]):
            found |= flat(one, f"{name}.{key}" if name else key)
    return found


# --- comparing ------------------------------------------------------------------------------------

MISSING = "(missing)"
SHOWN = 5  # differences of a file


def differences(old: dict[str, Values], new: dict[str, Values], ignore: str = "") -> Iterator[str]:
    """Yield lines about what differs between two checkouts, in each file the largest first."""
    if not old or not new:
        yield "nothing to compare"
    ignored = re.compile(ignore or r"(?!)")
    for name in sorted(old.keys() | new.keys()):
        mine, theirs = old.get(name, {}), new.get(name, {})
        found = []
        for key in {**mine, **theirs}:
            gap = difference(mine.get(key, MISSING), theirs.get(key, MISSING))
            if gap and not ignored.search(f"{name}: {key}"):
                found.append((gap[0], f"{key}: {gap[1]}"))
        if found and not (mine and theirs):
            yield f"{name}: only in {'old' if mine else 'new'}"
        elif found:
            yield f"{name}: {len(found)} of {len({**mine, **theirs})} values differ"
            yield from (f"  {said}" for _, said in sorted(found, reverse=True)[:SHOWN])


def difference(old: Any, new: Any) -> tuple[float, str] | None:
    """Return the relative size of a difference and its description, None if there is none."""
    if not (_is_numeric(old) and _is_numeric(new)):
        same = type(old) is type(new) and old == new
        return None if same else (np.inf, f"{_shown(old)} -> {_shown(new)}")
    a, b = np.asarray(old), np.asarray(new)
    if a.dtype != b.dtype or a.shape != b.shape:
        return np.inf, f"{a.dtype} {_shown(a.shape)} -> {b.dtype} {_shown(b.shape)}"
    if a.tobytes() == b.tobytes():
        return None
    values = f"{_shown(old)} -> {_shown(new)}, " if a.ndim == 0 else ""
    a, b = a.astype(np.float64), b.astype(np.float64)
    gap, largest = np.abs(a - b).max(), max(np.abs(a).max(), np.abs(b).max())
    share = gap / largest if gap else 0.0  # 0 and -0 differ in a bit
    said = f"{values}largest difference {gap:.3g}, {share:.3g} of the largest value"
    return (np.inf if np.isnan(share) else share), said


def _is_numeric(value: Any) -> bool:
    """Whether a value is a number, or an array of numbers."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "SUO"
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Return a value in few characters."""
    text = f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- the command ----------------------------------------------------------------------------------


def chosen(only: str) -> dict[str, Scenario]:
    """Return the scenarios that are named and those they need, in the order of the table."""
    wanted = set(only.split(",")) if only else set(SCENARIOS)
    if unknown := wanted - SCENARIOS.keys():
        raise SystemExit(f"error: no scenario {', '.join(unknown)}\nhint: {', '.join(SCENARIOS)}")
    for name in reversed(SCENARIOS):  # what a scenario needs stands before it
        wanted |= set(SCENARIOS[name].needs if name in wanted else ())
    return {name: scenario for name, scenario in SCENARIOS.items() if name in wanted}


def compare(sides: list[Side], scenarios: dict[str, Scenario], jobs: int, ignore: str = "") -> bool:
    """Run scenarios on both sides and print a line for each; return whether nothing differs."""
    started: dict[str, list[Future]] = {}
    same = True
    pool = ThreadPoolExecutor(jobs)  # begins in this order: nothing waits for what has not begun
    try:
        for name, scenario in scenarios.items():
            started[name] = []
            for number, side in enumerate(sides):
                needs = [started[need][number] for need in scenario.needs]
                started[name].append(pool.submit(side.run, name, scenario, needs))
        for name, both in started.items():
            errors = [str(error) for one in both if (error := one.exception())]
            if errors:
                said, lines = "failed", "\n".join(errors).splitlines()
            else:
                said = "  ".join(f"{one.result():.1f} s" for one in both)
                found = [read(side.folder / name, side.normal) for side in sides]
                lines = list(differences(*found, ignore))
            print(f"{'DIFFERENT' if lines else 'same'}  {name:12}  {said}")
            print("".join(f"    {line}\n" for line in lines), end="", flush=True)
            same = same and not lines
    finally:
        pool.shutdown(cancel_futures=True)
    return same


def main() -> None:
    """Compare the checkouts of the command line."""
    parser = argparse.ArgumentParser(description="Compare what two checkouts make of commands.")
    add = parser.add_argument
    add("old", type=Path, metavar="OLD")
    add("new", type=Path, metavar="NEW")
    add("--only", default="", metavar="NAME,...", help=", ".join(SCENARIOS))
    add("--ignore", default="", metavar="REGEX", help="values to pass over, as FILE: NAME")
    add("--workdir", type=Path, metavar="DIR", help="new or empty (a temporary folder)")
    add("--keep", action="store_true", help="keep what the checkouts wrote")
    add("--jobs", type=int, default=2, metavar="N", help="commands at a time (%(default)s)")
    args = parser.parse_args()
    scenarios = chosen(args.only)
    if args.workdir and args.workdir.exists() and any(args.workdir.iterdir()):
        sys.exit(f"error: {args.workdir} is not empty")
    workdir = args.workdir or Path(tempfile.mkdtemp(prefix="compare_checkouts_"))
    try:
        sides = [Side(args.old, workdir / "old"), Side(args.new, workdir / "new")]
        same = compare(sides, scenarios, args.jobs, args.ignore)
    finally:
        if args.keep:
            print(f"kept in {workdir}")
        else:
            shutil.rmtree(workdir)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()

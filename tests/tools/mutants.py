"""Plant small faults in the package, one at a time, and find the tests that notice.

    python tests/tools/mutants.py list
    python tests/tools/mutants.py map --suite=old [TEST...]
    python tests/tools/mutants.py run --suite=old [--only=ROOM] [--limit=N]
    python tests/tools/mutants.py table

`list` names the mutants of a seed, which `planting.py` finds by syntax, and the bugs of `bugs.csv`.
`map` runs a suite under coverage and keeps which test runs which line. `run` plants each mutant in
a copy of the checkout, and runs at most --most tests of its lines there: half of them are short,
half run little else than its file. Where these are few, other tests of their files come after them,
since tests share what one has compiled. The first that fails is the one that kills, if it passes
in a clean copy. The same command goes on where it was stopped: see FOLDER/results.csv. `table`
writes FOLDER/mutants.csv and prints kill rates. A survivor that no test can notice belongs into
`equivalent.csv`, with the reason.

--suite=net is tests/net, --suite=old all other tests; slow ones are in neither.
"""

import argparse
import collections
import contextlib
import csv
import functools
import hashlib
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.tools import contexts, planting
from tests.tools.planting import Mutant

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.csv")
SUITES = {
    # On a full disk coverage cannot write, and ends a process of pytest.
    "old": ["tests", "--ignore=tests/net", "-k", "not full_disk"],
    "net": ["tests/net"],
}
PYTEST = ["-m", "pytest", "-p", "tests.tools.contexts", "-p", "no:cacheprovider"]
MATRIX = ("tests/net/test_devices", "tests/net/test_matrix")
START = 8.0  # seconds that a fixture of MATRIX needs before it trains
FIELDS = ("id", "suite", "verdict", "test", "seconds")
KILLED = ("killed", "timeout")
COVERAGE = """[run]
source = {copy}/bert_jax
data_file = {data}
context = ${{MUTANTS_CONTEXT-}}
parallel = true
relative_files = true
core = ctrace
patch = _exit
disable_warnings = no-data-collected, module-not-measured, already-imported
"""

# --- copies ---------------------------------------------------------------------------------------


class Copy:
    """A copy of the checkout in a temporary folder, with what is not committed."""

    def __init__(self, space: Path):
        self.space, self.root, self.clock = space, space / "copy", int(time.time()) - 10**6
        (space / "home").mkdir(parents=True)
        subprocess.run(["git", "clone", "--quiet", ROOT, self.root], check=True)
        changed = ["git", "ls-files", "-z", "--modified", "--others", "--exclude-standard"]
        listed = subprocess.run(changed, cwd=ROOT, check=True, capture_output=True, text=True)
        for name in filter(None, listed.stdout.split("\0")):
            (self.root / name).unlink(missing_ok=True)
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        if (ROOT.parent / "shared").is_dir():
            (space / "shared").symlink_to(ROOT.parent / "shared")

    def write(self, file: str, source: bytes) -> None:
        """Write a file with a time of its own, so that no bytecode of another text fits it."""
        self.clock += 1
        (self.root / file).write_bytes(source)
        os.utime(self.root / file, (self.clock, self.clock))

    def run_pytest(self, *words: str, limit: float, **more: str) -> tuple[int, list[dict]]:
        """Return pytest's exit code, and the events of `contexts.py`.

        The code is below 0 where pytest crashed, or its group was killed after `limit` seconds.
        """
        log, scratch = self.space / "log", self.space / "t"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        log.write_text("")
        own = {"PYTHONPATH": self.root, "TMPDIR": scratch, "HOME": self.space / "home"}
        # Modules that a mutant does not change are compiled once for all mutants.
        own["PYTHONDONTWRITEBYTECODE"] = ""
        with (self.space / "output").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *PYTEST, *words],
                cwd=self.root,
                env={**os.environ, **own, contexts.LOG: log, **more},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(limit)
            finally:  # also what tests have left behind
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                self.end_processes()
                process.wait()
        return process.returncode, [json.loads(line) for line in log.read_text().splitlines()]

    def end_processes(self) -> None:
        """Kill what has our log in its environment: processes of studies leave their group."""
        mark = f"{contexts.LOG}={self.space / 'log'}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


# --- maps -----------------------------------------------------------------------------------------


def digest_package() -> str:
    """Return what changes with any file of the package."""
    files = sorted((ROOT / planting.PACKAGE).rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def make_map(options: argparse.Namespace) -> None:
    """Run a suite under coverage; keep the lines of each test, and what it costs."""
    folder = options.folder / options.suite
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tests = [*(options.tests or SUITES[options.suite]), "-m", "not slow", "--timeout=1200"]
    with tempfile.TemporaryDirectory(prefix="mut") as space:
        copy, settings = Copy(Path(space)), Path(space) / "coveragerc"
        settings.write_text(COVERAGE.format(copy=copy.root, data=folder / "data"))
        words = [*tests, f"-n{options.jobs}", "--dist=loadfile", "--no-loadscope-reorder"]
        measured = {"COVERAGE_PROCESS_START": str(settings)}
        code, events = copy.run_pytest(*words, limit=86_400, **measured)
        shutil.copy(Path(space) / "output", folder / "output")
        combine = [sys.executable, "-m", "coverage", "combine", "-q", f"--rcfile={settings}"]
        subprocess.run(combine, cwd=copy.root, check=True)
    known = {**read_costs(events), "package": digest_package()}
    (folder / "tests.json").write_text(json.dumps(known, indent=0))
    print(f"pytest ended with {code}: see {folder / 'output'}; {len(known['tests'])} tests passed")
    sys.exit(None if known["tests"] else 1)


def read_costs(events: Iterable[dict]) -> dict[str, dict]:
    """Return the seconds and shared fixtures of tests that passed, and the seconds of fixtures."""
    seconds, failed = collections.Counter[str](), set[str]()
    used, fixtures = collections.defaultdict[str, set[str]](set), dict[str, float]()
    for event in events:
        test = event["test"]
        used[test].update(event.get("fixtures", ()))
        if event["event"] == "fixture":
            [name] = event["fixtures"]
            fixtures[name] = max(fixtures.get(name, 0), event["seconds"])
        elif event["event"] == "end":
            seconds[test] += event["seconds"]
            failed |= {test} if event["outcome"] != "passed" else set()
    passed = [test for test in used if test not in failed]
    return {"tests": {t: [seconds[t], sorted(used[t])] for t in passed}, "fixtures": fixtures}


class Map:
    """Which tests run which lines, and what they cost."""

    def __init__(self, folder: Path):
        from coverage import CoverageData

        known = json.loads((folder / "tests.json").read_text())
        if known["package"] != digest_package():
            sys.exit(f"error: the package has changed since {folder} was made; make the map again")
        self.tests, self.fixtures = known["tests"], known["fixtures"]
        self.users = collections.defaultdict[str, set[str]](set)  # of a context
        for name, (_, fixtures) in self.tests.items():
            for context in (name, *fixtures):
                self.users[context].add(name)
        data = CoverageData(str(folder / "data"))
        data.read()
        self.files = sorted(data.measured_files())
        self.lines = functools.cache(data.contexts_by_lineno)

    @functools.cached_property
    def sizes(self) -> collections.Counter[str]:
        """The number of lines that each context runs."""
        found = (self.lines(file).values() for file in self.files)
        return collections.Counter(context for lines in found for line in lines for context in line)

    def running(self, places: Iterable[tuple[str, int]]) -> set[str]:
        """Return the tests that run one of some lines."""
        found = {context for file, line in places for context in self.lines(file).get(line, ())}
        return set[str]().union(*(self.users.get(context, ()) for context in found))

    def covering(self, mutant: Mutant) -> set[str]:
        """Return the tests that run a mutant's lines, or use the names that these define."""
        source, names, places = (ROOT / mutant.file).read_bytes(), set[str](), set()
        for edit in mutant.edits:
            first = source.count(b"\n", 0, edit.start) + 1
            lines, own = planting.executed_lines(source, first)
            names |= own
            places |= {(mutant.file, line) for line in lines}
        return (self.using(names) if names else set()) or self.running(places)

    def using(self, names: set[str]) -> set[str]:
        """Return the tests that run a line on which one of some names stands."""
        word = re.compile(rf"\b({'|'.join(sorted(names))})\b")
        return self.running(
            (file, number)
            for file in self.files
            for number, text in enumerate((ROOT / file).read_text().splitlines(), 1)
            if word.search(text)
        )

    def cost(self, names: Iterable[str]) -> float:
        """Return the seconds of tests, with the fixtures that they share.

        A fixture of MATRIX makes only what the chosen tests ask for.
        """
        users = collections.Counter(fixture for name in names for fixture in self.tests[name][1])
        total = sum(self.tests[name][0] for name in names)
        for fixture, count in users.items():
            seconds = self.fixtures.get(fixture, 0)
            if seconds > START and any(name in fixture for name in MATRIX):
                seconds = START + seconds * count / len(self.users[fixture])
            total += seconds
        return total

    def choose(self, mutant: Mutant, most: int, seconds: float) -> list[str]:
        """Return at most so many tests of a mutant, which take at most so long, by file."""
        covering, own = self.covering(mutant), collections.Counter[str]()
        for contexts_of_line in self.lines(mutant.file).values():
            own.update(contexts_of_line)

        def closeness(name: str) -> float:
            """Return the largest share of the file in what a test or one of its fixtures runs."""
            contexts = (name, *self.tests[name][1])
            return max(own[context] / max(self.sizes[context], 1) for context in contexts)

        short = alternate(covering, lambda name: self.cost([name]))
        close = alternate(covering, lambda name: -closeness(name))
        files = {name.split("::")[0] for name in covering}
        beside = [name for name in self.tests if name.split("::")[0] in files]
        ordered = [name for pair in zip(short, close, strict=True) for name in pair]
        ordered += alternate(beside, lambda name: self.cost([name]))
        taken: list[str] = []
        for name in dict.fromkeys(ordered):
            if len(taken) < most and (not taken or self.cost([*taken, name]) <= seconds):
                taken.append(name)
        groups = collections.defaultdict[str, list[str]](list)
        for name in sorted(taken, key=lambda name: self.cost([name])):
            groups[name.split("::")[0]].append(name)
        return [name for group in sorted(groups.values(), key=self.cost) for name in group]


def alternate(names: Iterable[str], order: Callable[[str], float]) -> list[str]:
    """Sort tests, but let the second case of a function come after the first of all others."""
    turns, ranks = collections.Counter[str](), {}
    for name in sorted(names, key=lambda name: (order(name), name)):
        turns[name.split("[")[0]] += 1
        ranks[name] = turns[name.split("[")[0]]
    return sorted(ranks, key=lambda name: (ranks[name], order(name), name))


# --- running --------------------------------------------------------------------------------------


class Trial:
    """Copies of the checkout, in which mutants are tried."""

    def __init__(self, space: Path, known: Map, options: argparse.Namespace):
        self.known, self.options, self.free = known, options, queue.Queue[Copy]()
        self.copies = [Copy(space / str(number)) for number in range(options.jobs)]
        for copy in self.copies:
            self.free.put(copy)
        self.is_clean = functools.cache(lambda test: self.attempt([test]) == (0, ""))

    def judge(self, mutant: Mutant) -> dict[str, Any]:
        """Return the row of a mutant."""
        started, suite = time.monotonic(), self.options.suite
        if mutant.test and suite == "old":
            verdict, test = "killed", mutant.test
        else:
            tests = self.known.choose(mutant, self.options.most, self.options.seconds)
            verdict, test = self.find_killer(mutant, tests)
        row = (mutant.id, suite, verdict, test, round(time.monotonic() - started, 1))
        return dict(zip(FIELDS, row, strict=True))

    def find_killer(self, mutant: Mutant, tests: list[str]) -> tuple[str, str]:
        """Return what becomes of a mutant, and the test that kills it."""
        while tests:
            code, failed = self.attempt(tests, mutant)
            if code < 0:
                return "timeout", failed
            if not failed:
                return "survived" if code == 0 else f"error {code}", ""
            if failed not in tests or self.is_clean(failed):
                return "killed", failed
            tests = [test for test in tests if test != failed]  # it fails alone, without a mutant
        return "not covered", ""

    def attempt(self, tests: list[str], mutant: Mutant | None = None) -> tuple[int, str]:
        """Run tests in a copy; return the exit code, and the first one that fails or hangs."""
        copy, limit = self.free.get(), 60 + 3 * self.known.cost(tests)
        source = (ROOT / mutant.file).read_bytes() if mutant else b""
        try:
            if mutant:
                copy.write(mutant.file, mutant.plant(source))
            words = ["-x", "-p", "no:xdist", "--timeout=0", *tests]
            code, events = copy.run_pytest(*words, limit=limit)
        finally:
            if mutant:
                copy.write(mutant.file, source)
            self.free.put(copy)
        failed = [event["test"] for event in events if event.get("outcome") == "failed"]
        begun = [event["test"] for event in events if event["event"] == "begin"]
        if code < 0:
            failed += begun[-1:]
        if code not in (0, 5) and not failed + begun:
            failed = ["conftest.py"]
        return code, (failed or [""])[0]


def run_mutants(options: argparse.Namespace) -> None:
    """Try the mutants that have no result yet, each in one of --jobs copies."""
    known, path = Map(options.folder / options.suite), options.folder / "results.csv"
    done = {row["id"] for row in read_rows(path) if row["suite"] == options.suite}
    left = [m for m in choose(options) if m.id not in done and options.only in ("", m.room)]
    if options.suite == "net":  # first what the other tests kill, so that --limit takes a sample
        killed = {row["id"] for row in read_rows(path) if row["verdict"] in KILLED}
        random.Random(options.seed).shuffle(left)
        left.sort(key=lambda mutant: mutant.id not in killed)
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    left = left[: options.limit]
    with tempfile.TemporaryDirectory(prefix="mut") as space, path.open("a") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        trial, pool = Trial(Path(space), known, options), ThreadPoolExecutor(options.jobs)
        try:
            for mutant, row in zip(left, pool.map(trial.judge, left), strict=True):
                writer.writerow(row)
                file.flush()
                print(f"{mutant.file}:{mutant.line}: {row['verdict']} {row['test']}", flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in trial.copies:
                copy.end_processes()
            pool.shutdown()


def choose(options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants of a seed, and the bugs written by hand."""
    return planting.choose(ROOT, options.count, options.seed) + planting.read_bugs(ROOT)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table, none where it is not there."""
    with path.open(newline="") if path.exists() else contextlib.nullcontext([]) as file:
        return list(csv.DictReader(file))


# --- the table ------------------------------------------------------------------------------------


def list_mutants(options: argparse.Namespace) -> None:
    """Print a line for each mutant."""
    for m in choose(options):
        print(f"{m.id}\t{m.file}:{m.line}\t{m.kind}\t{m.before} → {m.after}")


def write_table(options: argparse.Namespace) -> None:
    """Write a row for each mutant, and print the kill rates of rooms."""
    found = {(row["id"], row["suite"]): row for row in read_rows(options.folder / "results.csv")}
    equivalent = {row["id"] for row in read_rows(EQUIVALENT)}
    rows = []
    for mutant in choose(options):
        row = {name: getattr(mutant, name) for name in Mutant._fields[:7]}
        for suite in SUITES:
            result = found.get((mutant.id, suite), {"verdict": "", "test": ""})
            verdict = "equivalent" if mutant.id in equivalent else result["verdict"]
            row |= {suite: verdict, f"{suite}_test": result["test"]}
        rows.append(row)
    with (options.folder / "mutants.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("| room | mutants | equivalent | killed: old | net | covered: old | net | old's by net |")
    print("|---|" + "---:|" * 7)
    for room in [*sorted({row["room"] for row in rows}), "all"]:
        print(f"| {room} |", *count([row for row in rows if room in (row["room"], "all")]))


def count(rows: list[dict[str, str]]) -> list[str]:
    """Return the numbers of a room in the table."""
    numbers = [len(rows), sum(row["old"] == "equivalent" for row in rows)]
    numbers += [sum(row[suite] in KILLED for row in rows) for suite in SUITES]
    numbers += [sum(row[suite] in (*KILLED, "survived") for row in rows) for suite in SUITES]
    both = [row["net"] in KILLED for row in rows if row["old"] in KILLED and row["net"]]
    share = f"{sum(both)} of {len(both)}" + (f", {sum(both) / len(both):.0%}" if both else "")
    return [f"{number} |" for number in (*numbers, share)]


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("tests", nargs="*", help="of map, instead of the whole suite")
    parser.add_argument("--suite", choices=SUITES, default="old")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300, help="mutants planted by syntax")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "mutants")
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest at a time")
    parser.add_argument("--only", default="", metavar="ROOM", help="run: mutants of one room")
    parser.add_argument("--limit", type=int, help="run: at most so many mutants")
    parser.add_argument("--most", type=int, default=20, help="run: tests of a mutant")
    parser.add_argument("--seconds", type=float, default=120, help="run: that these may take")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    options = parser.parse_intermixed_args()  # words may follow flags
    options.folder = options.folder.resolve()
    COMMANDS[options.command](options)


COMMANDS = {"list": list_mutants, "map": make_map, "run": run_mutants, "table": write_table}

if __name__ == "__main__":
    main()

"""Compare two checkouts of the project: the same commands must leave the same results, to the bit.

    python tests/tools/compare_checkouts.py OLD NEW [--only=NAME,...] [--ignore=REGEX]

Both checkouts train the rows of `net/rows.py` and do the further jobs below, on this machine with
the compiler flags of a user, each checkout in a folder of its own: WORKDIR/old and WORKDIR/new. A
line for each job has the seconds that each checkout took. What a job left behind is compared:
checkpoints, metrics, standard output, JSON, tables, pages and exported weights. Only times, speeds,
memory, commits and the paths of the folders are left out. Below a job that is DIFFERENT stands what
differs and how much; one that fails in either checkout is different too. The exit code is 1 where
anything differs, else 0.

--ignore passes over values whose `FILE: NAME` it matches, such as a knob that NEW has on purpose.
--keep keeps what both wrote; there, `outputs/0.stderr` is what the first command of a job said.

Checkouts are used by their commands and files alone, and what they write is read by libraries
alone: nothing of the package is imported here, so that its modules may move.
"""

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorstore

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.net.commands import make_environment, run_commands
from tests.net.rows import ROWS, command
from tests.net.train_rows import write_folder

Values = dict[str, Any]  # name -> number, text, bytes or array

# --- running --------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A row to train in runs/NAME, further commands about it, and how they run."""

    row: str
    further: tuple[str, ...] = ()
    devices: int = 1
    kill: bool = False  # whether the training is killed in a save first


SWEEP = "study sweep --config=base.py --axis masking.rate=0.15,0.4 --seeds=2 --jobs=1"
FURTHER = {
    "nsp": (
        "evaluate --model=runs/nsp --suite=pretrain,nsp,cross_rate,pll --limit=40",
        "predict fill-mask --model=runs/nsp --input=lines.txt",
        "predict embed --model=runs/nsp --input=lines.txt --normalize",
        "predict generate --model=runs/nsp --input=lines.txt --max-tokens=4 --steps=2",
        "inspect attention --model=runs/nsp --input=lines.txt --output=runs/nsp/attention.html",
        "export --model=runs/nsp --output=runs/nsp/exported",
        "import --model=runs/nsp/exported --output=runs/nsp/imported",
    ),
    "causal": ("predict generate --model=runs/causal --input=lines.txt --max-tokens=8",),
    "classify": (
        "evaluate --model=runs/classify --suite=glue --source=files:tasks",
        "predict classify --model=runs/classify --input=lines.txt",
    ),
    "tag": ("predict tag --model=runs/tag --input=lines.txt",),
}
JOBS = {name: Job(name, FURTHER.get(name, ())) for name in ROWS} | {
    "killed": Job("nsp:checkpoints.every=4", kill=True),
    "pmap": Job("nsp:parallel.step=pmap", devices=4),
    "mesh": Job("nsp:parallel.fsdp=2", devices=4),
    "study": Job("nsp", (f"{SWEEP} --workdir=runs/study/study",)),
    "fused": Job("nsp", (f"{SWEEP} --workdir=runs/fused/study --fuse=4",)),
}


class Side:
    """One checkout, and the folder that its commands run in."""

    def __init__(self, checkout: Path, folder: Path):
        self.checkout, self.folder = checkout.resolve(), folder.resolve()
        if not (self.checkout / "bert_jax").is_dir():
            sys.exit(f"error: {checkout} has no package bert_jax")
        write_folder(self.folder)
        (self.folder / "checkout").unlink()
        (self.folder / "checkout").symlink_to(self.checkout)
        self.normal = {str(self.folder): "FOLDER", str(self.checkout): "CHECKOUT"}

    def run(self, name: str) -> tuple[float, str]:
        """Run the commands of a job; return the seconds they took, and how the job failed."""
        job, began = JOBS[name], time.perf_counter()
        train = command(job.row, f"runs/{name}")
        commands = [train, *(words.split() for words in job.further)]
        own = {"PYTHONPATH": str(self.checkout), "BERT_JAX_DATA": str(self.folder / "data")}
        environment = make_environment(self.folder, True, job.devices, **own)
        try:
            results = run_commands(self.folder, commands, environment, [train] * job.kill)
        except (subprocess.SubprocessError, OSError) as error:
            return time.perf_counter() - began, f"{self.folder.name}: {error}"
        failed = [
            f"{self.folder.name}: exit code {result.code}: {' '.join(words)}\n{result.stderr}"
            for words, result in zip(commands, results, strict=True)
            if result.code
        ]
        (self.folder / "outputs").rename(self.folder / "runs" / name / "outputs")
        return time.perf_counter() - began, "\n".join(failed)


# --- reading --------------------------------------------------------------------------------------

TEXT = {".stdout", ".json", ".jsonl", ".csv", ".md", ".txt", ".html", ".tsv"}
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
    return flat(parse_json(text, [parse_json(line, line) for line in text.splitlines()]))


def parse_json(text: str, otherwise: Any) -> Any:
    """Return the value of JSON, or another one for any other text."""
    try:
        return json.loads(text)
    except ValueError:
        return otherwise


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
    """Yield lines about what differs between two checkouts, file by file."""
    if not old or not new:
        yield "nothing to compare"
    ignored = re.compile(ignore or r"(?!)")
    for name in sorted(old.keys() | new.keys()):
        if not (name in old and name in new):
            yield f"{name}: only in {'old' if name in old else 'new'}"
            continue
        found = []
        for key in {**old[name], **new[name]}:
            values = old[name].get(key, MISSING), new[name].get(key, MISSING)
            if to_bits(values[0]) != to_bits(values[1]) and not ignored.search(f"{name}: {key}"):
                found.append(f"  {key}: {describe(*values)}")
        if found:
            yield f"{name}: {len(found)} of {len({**old[name], **new[name]})} values differ"
            yield from found[:SHOWN]


def to_bits(value: Any) -> tuple[Any, ...]:
    """Return what is equal for two values of one type that are the same to the bit."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    return type(value), repr(value)


def describe(old: Any, new: Any) -> str:
    """Describe how two values differ: arrays by their largest difference."""
    arrays = [value for value in (old, new) if isinstance(value, np.ndarray)]
    kinds = {(array.shape, array.dtype.str) for array in arrays}
    if len(arrays) < 2 or len(kinds) > 1 or old.dtype.kind in "SU":
        return " -> ".join(repr(value)[:80] for value in (old, new))
    a, b = (array.astype(np.float64) for array in arrays)
    gap, largest = np.abs(a - b).max(), np.abs(a).max()
    return f"{a.shape}, largest difference {gap:.3g}, largest value {largest:.3g}"


# --- the command ----------------------------------------------------------------------------------


def compare(sides: list[Side], names: list[str], ignore: str = "") -> bool:
    """Do jobs on both sides and print a line for each; return whether nothing differs."""
    same = True
    with ThreadPoolExecutor(len(sides)) as pool:
        for name in names:
            done = list(pool.map(lambda side, name=name: side.run(name), sides))
            lines = "\n".join(failed for _, failed in done if failed).splitlines()
            if not lines:
                found = [read(side.folder / "runs" / name, side.normal) for side in sides]
                lines = list(differences(*found, ignore))
            seconds = "  ".join(f"{taken:.1f} s" for taken, _ in done)
            print(f"{'DIFFERENT' if lines else 'same'}  {name:12}  {seconds}")
            print("".join(f"    {line}\n" for line in lines), end="", flush=True)
            same = same and not lines
    return same


def main() -> None:
    """Compare the checkouts of the command line."""
    parser = argparse.ArgumentParser(description="Compare what two checkouts make of commands.")
    add = parser.add_argument
    add("old", type=Path, metavar="OLD")
    add("new", type=Path, metavar="NEW")
    add("--only", default=",".join(JOBS), metavar="NAME,...", help="of %(default)s")
    add("--ignore", default="", metavar="REGEX", help="values to pass over, as FILE: NAME")
    add("--keep", action="store_true", help="keep what the checkouts wrote")
    args = parser.parse_args()
    names = args.only.split(",")
    if unknown := set(names) - JOBS.keys():
        sys.exit(f"error: no job {', '.join(unknown)}\nhint: {', '.join(JOBS)}")
    workdir = Path(tempfile.mkdtemp(prefix="compare_checkouts_"))
    try:
        sides = [Side(args.old, workdir / "old"), Side(args.new, workdir / "new")]
        same = compare(sides, names, args.ignore)
    finally:
        if args.keep:
            print(f"kept in {workdir}")
        else:
            shutil.rmtree(workdir)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()

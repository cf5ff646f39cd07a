"""Compare two checkouts of the project: the same commands must leave the same results, to the bit.

    python tests/tools/compare_checkouts.py OLD NEW [--only=NAME,...] [--ignore=REGEX]

Both checkouts train the rows of `net/rows.py` and do the further jobs below, on this machine with
the compiler flags of a user, each checkout in a folder of its own. What a job left behind is
compared: checkpoints, metrics, standard output, JSON, tables, pages and exported weights. Only
times, speeds, memory, commits and the paths of the folders are left out. Below a job that is
DIFFERENT stands what differs; one that fails in either checkout is different too. The exit code is
1 where anything differs, else 0.

--ignore passes over values whose `FILE: VALUE` it matches, such as a knob that NEW has on purpose.

Checkouts are used by their commands and files alone, and what they write is read by libraries
alone: nothing of the package is imported here, so that its modules may move.
"""

import argparse
import csv
import difflib
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorstore

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.net.commands import make_environment, run_commands
from tests.net.rows import ROWS, command
from tests.net.train_rows import write_folder

Lines = dict[str, list[str]]  # file -> its values, each in a line of its own

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

    def run(self, name: str) -> list[str]:
        """Run the commands of a job; return how those that failed did."""
        job = JOBS[name]
        train = command(job.row, f"runs/{name}")
        commands = [train, *(words.split() for words in job.further)]
        own = {"PYTHONPATH": str(self.checkout), "BERT_JAX_DATA": str(self.folder / "data")}
        environment = make_environment(True, job.devices, **own)
        try:
            results = run_commands(self.folder, commands, environment, [train] * job.kill)
        except (subprocess.SubprocessError, OSError) as error:
            return [f"{self.folder.name}: {error}"]
        (self.folder / "outputs").rename(self.folder / "runs" / name / "outputs")
        return [
            f"{self.folder.name}: exit code {result.code}: {' '.join(words)}\n{result.stderr}"
            for words, result in zip(commands, results, strict=True)
            if result.code
        ]


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


def read(folder: Path, normal: dict[str, str]) -> Lines:
    """Return what is compared below a folder; `normal` replaces paths in texts."""
    found: Lines = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder.parent).as_posix()
        if PASSED_OVER.fullmatch(name) or not path.is_file():
            continue
        if path.name == "manifest.ocdbt":
            arrays = read_orbax(path.parent)
            found[path.parent.relative_to(folder.parent).as_posix()] = digest_arrays(arrays)
        elif path.suffix in TEXT or path.name == "metadata":
            found[name] = read_text(path, normal)
        elif path.suffix == ".npy":
            found[name] = digest_arrays({"array": np.load(path)})
        elif path.suffix == ".npz":
            found[name] = digest_arrays(dict(np.load(path)))
        elif path.suffix == ".safetensors":
            found[name] = [hashlib.sha256(path.read_bytes()).hexdigest()]
    return found


def read_orbax(folder: Path) -> dict[str, np.ndarray]:
    """Return the arrays of one item of a checkpoint by name."""
    store = {"driver": "ocdbt", "base": f"file://{folder}/"}
    keys = [key.decode() for key in tensorstore.KvStore.open(store).result().list().result()]
    found = {}
    for name in (key.removesuffix("/.zarray") for key in keys if key.endswith("/.zarray")):
        spec = {"driver": "zarr", "kvstore": {**store, "path": f"{name}/"}}
        found[name] = np.asarray(tensorstore.open(spec).result().read().result())
    return found


def digest_arrays(arrays: dict[str, np.ndarray]) -> list[str]:
    """Return a line for each array, with its type, its shape and a hash of its bits."""
    return [
        f"{name}: {array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
        for name, array in sorted(arrays.items())
    ]


def read_text(path: Path, normal: dict[str, str]) -> list[str]:
    """Return the values of JSON, JSON lines or a table, or the lines of a text."""
    text = VOLATILE_TEXT.sub("", path.read_text())
    for place, name in normal.items():
        text = text.replace(place, name)
    if path.suffix == ".csv":
        text = json.dumps(list(csv.DictReader(text.splitlines())))
    lines = [spread_json(line) for line in spread_json(text).splitlines()]
    return "\n".join(lines).splitlines()


def spread_json(text: str) -> str:
    """Return JSON with a line for each value that is not volatile, and any other text as it is."""

    def keep(pairs: dict[str, object]) -> dict[str, object]:
        return {n: one for n, one in pairs.items() if not VOLATILE.fullmatch(n.rpartition("/")[2])}

    try:
        value = json.loads(text, object_hook=keep)
        return json.dumps(value, indent=0, separators=("", ": "))
    except ValueError:
        return text


# --- comparing ------------------------------------------------------------------------------------

SHOWN = 10  # values of a file that differ


def differences(old: Lines, new: Lines, ignore: str = "") -> Iterator[str]:
    """Yield lines about what differs between two checkouts, file by file."""
    if not old or not new:
        yield "nothing to compare"
    ignored = re.compile(ignore or r"(?!)")
    for name in sorted(old.keys() | new.keys()):
        if not (name in old and name in new):
            yield f"{name}: only in {'old' if name in old else 'new'}"
            continue
        lines = list(difflib.unified_diff(old[name], new[name], n=0, lineterm=""))[2:]
        found = [line for line in lines if not line.startswith("@@")]
        found = [line for line in found if not ignored.search(f"{name}: {line[1:]}")]
        if found:
            yield f"{name}: {len(found)} values of old (-) and new (+) differ"
            yield from (f"  {line[:160]}" for line in found[:SHOWN])


# --- the command ----------------------------------------------------------------------------------


def compare(sides: list[Side], names: list[str], ignore: str = "") -> bool:
    """Do jobs on both sides and print a line for each; return whether nothing differs."""
    same = True
    with ThreadPoolExecutor(len(sides)) as pool:
        for name in names:
            failed = pool.map(lambda side, name=name: side.run(name), sides)
            lines = [line for failures in failed for line in failures]
            if not lines:
                found = [read(side.folder / "runs" / name, side.normal) for side in sides]
                lines = list(differences(*found, ignore))
            print(f"{'DIFFERENT' if lines else 'same'}  {name}")
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
    add("--ignore", default="", metavar="REGEX", help="values to pass over, as FILE: VALUE")
    args = parser.parse_args()
    names = args.only.split(",")
    if unknown := set(names) - JOBS.keys():
        sys.exit(f"error: no job {', '.join(unknown)}\nhint: {', '.join(JOBS)}")
    with tempfile.TemporaryDirectory(prefix="compare_checkouts_") as workdir:
        sides = [Side(args.old, Path(workdir, "old")), Side(args.new, Path(workdir, "new"))]
        same = compare(sides, names, args.ignore)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()

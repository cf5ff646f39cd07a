"""Make text to prepare at scale, and measure what `bert-jax prepare` takes for it.

    python experiments/scale/text.py make FOLDER --gigabytes=4
    python experiments/scale/text.py measure FOLDER --workers=2

`make` writes copies of the documents in ../shared/data/pretrain_text as parquet files, 1,000 rows a
group as on the hub. In each copy about one word in a hundred has two letters exchanged, at places
that depend on copy and document alone: so no copy is a duplicate, and new words keep coming, as in
text that was never copied. `measure` prepares them with configs/pretrain.py, and
prints CPU seconds and the peak memory of all processes together, by step.
"""

import argparse
import contextlib
import dataclasses
import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ROOT.parent / "shared" / "data" / "pretrain_text"
SPACING = 600  # bytes between exchanged letters
GROUP = 1_000  # rows of a row group
FILES = 8  # of each kind
LETTERS = np.zeros(256, bool)
LETTERS[[*range(ord("a"), ord("z") + 1)]] = True


def make(folder: Path, gigabytes: float) -> None:
    """Write so much text as parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = {name: list(_documents(name)) for name in ("books", "others")}
    size = sum(len(text) for texts in documents.values() for text in texts)
    copies = round(gigabytes * 1e9 / size)
    for kind, texts in documents.items():
        for number in range(FILES):
            mine = range(number * copies // FILES, (number + 1) * copies // FILES)
            rows = (edited(text, copy, i) for copy in mine for i, text in enumerate(texts))
            _write(folder / f"{kind}-{number:05d}-of-{FILES:05d}.parquet", rows)
    print(f"{copies} copies of {size:,} bytes in {folder}")


def _documents(kind: str) -> Iterator[bytes]:
    for file in sorted(TEXTS.glob("*.gz")):
        if (file.name == "books.jsonl.gz") == (kind == "books"):
            with gzip.open(file) as lines:
                yield from (json.loads(line)["text"].encode() for line in lines)


def edited(text: bytes, copy: int, document: int) -> str:
    """Return a document with some pairs of small letters exchanged."""
    letters = np.frombuffer(text, np.uint8).copy()
    draw = np.random.default_rng([copy, document])
    at = np.unique(draw.integers(0, len(letters) - 1, 4 + len(letters) // SPACING) // 2 * 2)
    at = at[LETTERS[letters[at]] & LETTERS[letters[at + 1]]]
    letters[at], letters[at + 1] = letters[at + 1], letters[at]
    return letters.tobytes().decode()


def _write(file: Path, rows: Iterator[str]) -> None:
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(file, schema, compression="zstd", compression_level=1) as writer:
        held: list[str] = []
        for row in rows:
            held.append(row)
            if len(held) == GROUP:
                writer.write_table(pa.table({"text": held}, schema), row_group_size=GROUP)
                held = []
        if held:
            writer.write_table(pa.table({"text": held}, schema), row_group_size=GROUP)


# --- measuring ------------------------------------------------------------------------------------


STEPS = ("read", "encode", "join")


def measure(folder: Path, workers: int) -> None:
    """Prepare the text of a folder into folder/cache; print CPU seconds and peaks of memory."""
    cache = folder / "cache"
    command = [sys.executable, "-m", "bert_jax.cli", "prepare"]
    knobs = {"source": "files", "path": f"{folder}/*.parquet", "cache": cache, "workers": workers}
    command += [f"--config={ROOT}/configs/pretrain.py:base"]
    command += [f"--config.corpus.{name}={value}" for name, value in knobs.items()]
    begun = time.monotonic()
    process = psutil.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
    usage: dict[str, Usage] = {}
    name = STEPS[0]
    before: dict[int, float] = {}
    while process.poll() is None:
        time.sleep(0.25)
        name = _find_step(cache, name)
        step = usage.setdefault(name, Usage())
        seconds, memory = _family(process)
        spent = {pid: value - before.get(pid, 0.0) for pid, value in seconds.items()}
        step.parent += spent.pop(process.pid, 0.0)
        step.workers += sum(spent.values())
        step.clock = time.monotonic() - begun
        step.together = max(step.together, sum(memory.values()))
        step.largest = max(step.largest, *memory.values(), 0)
        before |= seconds
    for name, step in usage.items():
        print(
            f"{name:<7}CPU s of workers {step.workers:>8.1f}, of their parent {step.parent:>7.1f}; "
            f"{step.clock:>7.1f} s by the clock so far; most memory "
            f"{step.together >> 20:>6,} MiB, of one process {step.largest >> 20:>6,} MiB"
        )
    print(f"exit code {process.returncode}")


@dataclasses.dataclass
class Usage:
    """What a step takes; that of reading has the vocabulary, which the parent trains."""

    workers: float = 0.0  # seconds of CPU
    parent: float = 0.0
    clock: float = 0.0  # seconds at its end
    together: int = 0  # most bytes of all processes at a time
    largest: int = 0  # most bytes of one process


def _find_step(cache: Path, before: str) -> str:
    """Tell by the files how far the preparation is; they are removed again at its end."""
    found = {"join": "*.work/result/train", "encode": "*.work/tokenizer"}
    now = next((step for step, name in found.items() if any(cache.glob(name))), "read")
    return max(before, now, key=STEPS.index)


def _family(root: psutil.Process) -> tuple[dict[int, float], dict[int, int]]:
    """Return CPU seconds and proportional memory in bytes of a process and all it has started."""
    seconds, memory = {}, {}
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds[process.pid] = times.user + times.system
                memory[process.pid] = process.memory_full_info().pss
    return seconds, memory


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("make", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if args.what == "make":
        make(args.folder, args.gigabytes)
    else:
        measure(args.folder, args.workers)

"""Compare two checkouts of the project: the same commands must give the same results, to the bit.

    python tests/compare_checkouts.py OLD NEW [--only=NAME,...] [--workdir=DIR] [--keep] [--jobs=2]

Each checkout runs every scenario of SCENARIOS, tiny runs from text to checkpoint and what is done with them, in a
folder of its own (WORKDIR/old, WORKDIR/new) with the compiler flags of a user. Then all that a scenario left behind is
compared: checkpoints, metrics, JSON and text on standard output and in files, exported weights. Only times, speeds,
memory, commits and the two folders' own paths are left out. A line is printed for each scenario, with the seconds
that each checkout took; below one that is DIFFERENT stands what differs, and by how much. The exit code is 1 if
anything differs, else 0.

Checkouts are used by their commands and by configs/ and experiments/ alone, and what they write is read by libraries
alone: nothing of the package is imported here, so that its modules may move. What an option does and what a file holds
is read in the checkout; a scenario that fails in either checkout counts as different.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore

# --- scenarios ------------------------------------------------------------------------------------

PRETRAIN = """
import runpy


def get_config():
    config = runpy.run_path("checkout/configs/tiny.py")["get_config"]()
    config.corpus.source = "files"
    config.corpus.path = "texts"
    config.corpus.workers = 1
    config.corpus.validation_fraction = 0.2
    config.tokenizer.vocab_size = 400
    config.model.hidden = 32
    config.model.dropout = config.model.attention_dropout = 0.1
    config.objectives.nsp.weight = None
    config.steps = 24
    config.batch_size = 16
    config.sequence_length = 32
    config.optim.learning_rate = 5e-3
    config.optim.warmup_steps = 5
    config.logging.every = 2
    config.logging.tensorboard = False
    config.logging.samples = 0
    config.checkpoints.every = 12
    config.evals.validation.every = 12
    return config
"""

STUDY = """
import runpy


def get_study():
    of = runpy.run_path("checkout/experiments/masking_rate/study.py")
    base = of["load_file"]("pretrain.py")
    return of["Study"](
        question="Which rate?",
        base=base,
        axes=(of["axis"]("masking.rate", (0.15, 0.4)),),
        seeds=(0, 1),
        evaluations={"validation": of["Suite"]("pretrain")},
        comparisons=(of["Comparison"]("masking.rate", "15 %", ("validation/mlm_loss",)),),
    )
"""


@dataclass(frozen=True)
class Command:
    """Words of a command line, its exit code, what it reads, and variables of its environment."""

    words: str
    code: int = 0
    stdin: str = ""
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """Commands in order, and the scenarios whose results they read."""

    commands: tuple[Command, ...]
    needs: tuple[str, ...] = ()


FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
STOPPED = {"BERT_JAX_FAULT": "step:15:term"}
TEXTS = "the cat [MASK] a small dog in the garden.\nevery [MASK] hears the quiet river [MASK] the sea.\n"
PAIRS = '{"text": "the cat sees every child.", "text_pair": "my old friend likes the cat."}\n' * 2
QUESTIONS = '{"question": "what does the cat see?", "context": "the cat sees every child near the sea."}\n'
RECIPE = "init_from=nsp,epochs=2,batch_size=8,optim.learning_rate=2e-3,sequence_length=48,logging.every=2"
TASKS = {  # kind -> task, folder, more knobs
    "classify": ("sst2", "labelled", ""),
    "regress": ("stsb", "labelled", ""),
    "tag": ("conll2003", "labelled/ner", ",task.stride=16"),
    "span": ("squad", "labelled/squad", ",task.stride=16,task.question_tokens=12"),
    "choice": ("copa", "labelled/copa", ""),
}


def pretrain(name: str, *knobs: str, **settings: Any) -> Command:
    """Return the command that trains pretrain.py with some knobs changed."""
    changes = " ".join(f"--config.{knob}" for knob in knobs)
    return Command(f"train --config=pretrain.py --workdir={name} {changes}", **settings)


def finetune(kind: str) -> Scenario:
    """Return the scenario that fine-tunes a model on a task of this kind, and scores it."""
    task, folder, more = TASKS[kind]
    config = f"checkout/configs/finetune.py:{task},{RECIPE},task.source=files:{folder},logging.tensorboard=false{more}"
    return Scenario(
        (Command(f"train --config={config} --workdir={kind}"), Command(f"evaluate --checkpoint={kind}")), ("nsp",)
    )


SCENARIOS = {
    "prepare": Scenario((Command("prepare --config=pretrain.py --config.corpus.cache=prepare"),)),
    "nsp": Scenario((pretrain("nsp", "logging.samples=12"),)),
    "sop": Scenario((pretrain("sop", "pairs=sop"),)),
    "causal": Scenario(
        (
            pretrain(
                "causal",
                "pairs=none",
                "objectives.causal_lm.weight=1",
                "model.causal=true",
                "checkpoints.best=causal_lm_loss",
            ),
            Command("predict generate --model=causal --max-tokens=8", stdin=TEXTS.replace("[MASK]", "sees")),
        )
    ),
    "packing": Scenario((pretrain("packing", "packing=4", "sequence_length=64", "examples.short_probability=1"),)),
    "span_masks": Scenario((pretrain("span_masks", "masking.unit=span", "pairs=none"),)),
    "pmi_masks": Scenario((pretrain("pmi_masks", "masking.unit=pmi", "masking.pmi_count=3"),)),
    "static_masks": Scenario((pretrain("static_masks", "masking.dupe_factor=2", "masking.unit=word"),)),
    "schedule": Scenario(
        (pretrain("schedule", "masking.schedule=linear", "masking.rate=0.4", "masking.final_rate=0.1"),)
    ),
    "accumulation": Scenario((pretrain("accumulation", "optim.accumulation=4"),)),
    "resume": Scenario((pretrain("resume", code=75, variables=STOPPED), pretrain("resume"))),
    "pmap": Scenario((pretrain("pmap", "parallel.step=pmap", variables=FOUR),)),
    "mesh": Scenario((pretrain("mesh", "parallel.fsdp=2", "parallel.tensor=2", variables=FOUR),)),
    "study": Scenario((Command("study run study --workdir=study --jobs=1"),)),
    **{kind: finetune(kind) for kind in TASKS},
    "evaluate": Scenario(
        (
            Command("evaluate --checkpoint=nsp --suite=pretrain,nsp,cross_rate,pll --output=evaluate/suites.json"),
            Command("evaluate --checkpoint=nsp --suite=blimp --source=files:blimp"),
            Command("evaluate --checkpoint=nsp --suite=sts --source=files:labelled"),
            Command("evaluate --checkpoint=nsp --suite=probe --task=sst2 --source=files:labelled"),
            Command("evaluate --checkpoint=classify --suite=glue --source=files:labelled"),
        ),
        ("nsp", "classify"),
    ),
    "predict": Scenario(
        (
            Command("predict fill-mask --model=nsp --top-k=3", stdin=TEXTS),
            Command("predict nsp --model=nsp", stdin=PAIRS),
            Command("predict embed --model=nsp --normalize", stdin=TEXTS),
            Command("predict classify --model=classify", stdin=TEXTS),
            Command("predict tag --model=tag", stdin=TEXTS),
            Command("predict answer --model=span --top-k=2", stdin=QUESTIONS),
        ),
        ("nsp", "classify", "tag", "span"),
    ),
    "exchange": Scenario(
        (
            Command("export --checkpoint=nsp --output=exchange/exported"),
            Command("import --model=exchange/exported --output=exchange/imported"),
            Command("evaluate --checkpoint=exchange/imported --config=pretrain.py"),
        ),
        ("nsp",),
    ),
}

SUBJECTS = ("the cat", "a small dog", "my old friend", "the quiet river", "every child", "that green bird")
VERBS = ("sees", "follows", "likes", "finds", "remembers", "hears")
PLACES = ("in the garden", "near the sea", "under a tree", "on the long road", "behind the house")


def sentence(chance: random.Random, subject: str = "") -> str:
    """Return a sentence: some words recur together, others are rare names."""
    name = "".join(chance.choice(("ba", "ko", "mi", "ru", "ten", "sal")) for _ in range(chance.randint(2, 4)))
    words = (subject or chance.choice(SUBJECTS), chance.choice(VERBS), chance.choice((*SUBJECTS, name)))
    return f"{' '.join(words)} {chance.choice(PLACES)}."


def write_inputs(folder: Path, checkout: Path) -> None:
    """Write text, labelled data, configs and a study; `checkout` is a link to the checkout."""
    chance = random.Random(0)
    documents = []
    for _ in range(150):
        subject = chance.choice(SUBJECTS)
        documents.append("\n".join(sentence(chance, subject) for _ in range(chance.randint(3, 8))))
    blimp = [
        {"sentence_good": s, "sentence_bad": " ".join(s.split()[::-1])} for s in (sentence(chance) for _ in range(8))
    ]
    files = {
        "pretrain.py": PRETRAIN,
        "study/study.py": STUDY,
        "texts/corpus.txt": "\n\n".join(documents) + "\n",
        "blimp/order.jsonl": "".join(json.dumps(row) + "\n" for row in blimp),
        **labelled("labelled", chance),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "checkout").symlink_to(checkout)


def labelled(folder: str, chance: random.Random) -> dict[str, str]:
    """Return the files of a task of each kind, in the layout of its benchmark."""
    found = {}
    for train, count in (("train", 48), ("dev", 16)):
        tables = {"SST-2": ["sentence\tlabel"], "STS-B": ["sentence1\tsentence2\tscore"], "ner": [], "copa": []}
        questions = []
        for number in range(count):
            subject, place = chance.choice(SUBJECTS), chance.choice(PLACES)
            text = sentence(chance, subject)
            tables["SST-2"].append(f"{text}\t{SUBJECTS.index(subject) % 2}")
            tables["STS-B"].append(f"{text}\t{sentence(chance, subject)}\t{chance.randint(0, 50) / 10}")
            tags = ["B-PER" if word in subject.split() else "O" for word in text.split()]
            tables["ner"] += [f"{word} {tag}" for word, tag in zip(text.split(), tags, strict=True)] + [""]
            row = {"idx": number, "premise": text, "asks_for": "effect", "label": number % 2}
            options = [sentence(chance, subject), sentence(chance, place)][:: 1 - 2 * (number % 2)]
            tables["copa"].append(json.dumps(row | {"choice1": options[0], "choice2": options[1]}))
            context = f"{sentence(chance)} {text}"
            answer = {"text": subject, "answer_start": context.index(subject)}
            questions.append(
                {"id": str(number), "question": f"who is {place}?", "context": context, "answers": [answer]}
            )
        paragraphs = [{"context": one["context"], "qas": [one]} for one in questions]
        found[f"{folder}/squad/{train}-v1.1.json"] = json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]})
        names = {"SST-2": f"SST-2/{train}.tsv", "STS-B": f"STS-B/{train}.tsv"}
        names |= {"ner": f"ner/{'eng.train' if train == 'train' else 'eng.testa'}"}
        names |= {"copa": f"copa/{'train' if train == 'train' else 'val'}.jsonl"}
        found |= {f"{folder}/{names[name]}": "\n".join(lines) + "\n" for name, lines in tables.items()}
    return found


# --- running --------------------------------------------------------------------------------------

OF_TESTS = ("JAX_", "XLA_", "BERT_JAX_", "PYTHON", "OMP_", "MPL", "MALLOC_")  # what could change a result


class Failed(Exception):
    """A command ended with another exit code than it should."""


class Side:
    """One checkout, and the folder its commands run in."""

    def __init__(self, checkout: Path, folder: Path):
        self.checkout, self.folder = checkout.resolve(), folder
        folder.mkdir(parents=True)
        write_inputs(folder, self.checkout)
        self.normal = {str(folder): "FOLDER", str(self.checkout): "CHECKOUT"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_TESTS)}
        self.environment = kept | {
            "PYTHONPATH": str(self.checkout),
            "JAX_PLATFORMS": "cpu",
            "BERT_JAX_DATA": str(folder / "data"),
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        where = self.python("import bert_jax; print(bert_jax.__file__)", ()).stdout.strip()
        if not Path(where or "/").is_relative_to(self.checkout):
            sys.exit(f"error: {self.checkout} holds no package bert_jax (found {where or 'none'})")

    def python(self, code: str, words: Sequence[str], stdin: str = "", **variables: str) -> subprocess.CompletedProcess:
        """Run code of the checkout in the folder."""
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=self.folder,
            env=self.environment | variables,
            input=stdin,
            capture_output=True,
            text=True,
        )

    def run(self, name: str, scenario: Scenario, before: list[Future]) -> float:
        """Run the commands of a scenario once those before it are done; return the seconds they took."""
        for one in before:
            one.result()
        began = time.perf_counter()
        for number, command in enumerate(scenario.commands):
            words = command.words.split()
            done = self.python("from bert_jax.cli import main; main()", words, command.stdin, **command.variables)
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / f"stdout_{number}.txt").write_text(done.stdout)
            if done.returncode != command.code:
                said = f"exit code {done.returncode}, not {command.code}, of: bert-jax {command.words}"
                raise Failed(f"{self.checkout}: {said}\n{done.stderr[-2000:]}")
        return time.perf_counter() - began


# --- reading --------------------------------------------------------------------------------------

READ = {".json", ".jsonl", ".csv", ".md", ".txt", ".html", ".tsv", ".safetensors", ".npy", ".bin"}
PASSED_OVER = re.compile(  # times and pictures of them; locks; what Orbax and file systems keep for themselves
    r".*(report\.html|verified\.json|commit_success\.txt)|.*/checkpoints/[^/]*/manifest\.json"
    r"|.*/checkpoints/.*/(d|_\w+|ocdbt\.\w+|array_metadatas)(/.*)?"
)
VOLATILE = re.compile(  # last part of a name: a time, a speed, memory, or what only says which checkout it was
    r"time|(\w+_)?seconds|ended|begun|pid|tokens_per_second|mfu|data_wait|model_flops_per_second"
    r"|(host|device)_memory_bytes|git_commit"
)
VOLATILE_TEXT = re.compile(r"^- (commit .*|\d{4}-\d\d-\d\d|.* of training and .* of evaluation in all)\n", re.MULTILINE)
Values = dict[str, Any]  # name -> number, text, bytes or array


def read(folder: Path, normal: dict[str, str]) -> dict[str, Values]:
    """Return all that is compared below a folder, by file; in texts, keys of `normal` become its values."""
    found: dict[str, Values] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder.parent).as_posix()
        if path.name == "manifest.ocdbt" and not path.parent.name.startswith("ocdbt"):
            found[name.rpartition("/")[0]] = arrays(path.parent)
        elif path.name == "metadata" and path.is_file():
            found[name] = flat(json.loads(path.read_text()))
        elif path.suffix in READ and path.is_file() and not PASSED_OVER.fullmatch(name):
            found[name] = values(path)
    return {name: {key: replaced(one, normal) for key, one in some.items()} for name, some in found.items()}


def arrays(folder: Path) -> Values:
    """Return the arrays that Orbax wrote to a folder, by name."""
    base = {"driver": "ocdbt", "base": f"file://{folder}/"}
    keys = [key.decode() for key in tensorstore.KvStore.open(base).result().list().result()]
    names = [key.removesuffix("/.zarray") for key in keys if key.endswith("/.zarray")]
    opened = {name: tensorstore.open({"driver": "zarr", "kvstore": {**base, "path": f"{name}/"}}) for name in names}
    return {name: np.asarray(one.result().read().result()) for name, one in opened.items()}


def values(path: Path) -> Values:
    """Return what a file holds, by name."""
    if path.suffix in (".safetensors", ".npy", ".bin"):
        return {"bytes": path.read_bytes()}
    text = VOLATILE_TEXT.sub("", path.read_text())
    if path.suffix == ".csv":
        return flat(list(csv.DictReader(text.splitlines())))
    try:
        return flat(json.loads(text))
    except ValueError:  # no JSON, or lines of it
        return flat([json_or_text(line) for line in text.splitlines()])


def json_or_text(line: str) -> Any:
    """Return the value of a line of JSON, or the line."""
    try:
        return json.loads(line)
    except ValueError:
        return line


def flat(value: Any, name: str = "") -> Values:
    """Return the leaves of nested lists and objects by path, without volatile ones."""
    if isinstance(value, dict) and value:
        kept = {key: one for key, one in value.items() if not VOLATILE.fullmatch(key.rpartition("/")[2])}
        return {
            path: leaf for key, one in kept.items() for path, leaf in flat(one, f"{name}.{key}".lstrip(".")).items()
        }
    if isinstance(value, list) and value:
        return {path: leaf for i, one in enumerate(value) for path, leaf in flat(one, f"{name}[{i}]").items()}
    return {name: value}


def replaced(value: Any, normal: dict[str, str]) -> Any:
    """Return a value with the paths of its side replaced where it is a text."""
    for path, name in normal.items():
        value = value.replace(path, name) if isinstance(value, str) else value
    return value


# --- comparing ------------------------------------------------------------------------------------

SHOWN = 5  # differences of a file that are shown


def differences(old: dict[str, Values], new: dict[str, Values]) -> Iterator[str]:
    """Yield lines that say what differs between what two checkouts left."""
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield f"{name}: only in {'OLD' if name in old else 'NEW'}"
            continue
        mine, theirs = old[name], new[name]
        found = [difference(key, mine.get(key, MISSING), theirs.get(key, MISSING)) for key in {**mine, **theirs}]
        worst = sorted(filter(None, found), reverse=True)
        if worst:
            yield f"{name}: {len(worst)} of {len(found)} values differ"
            yield from (f"  {said}" for _, said in worst[:SHOWN])


MISSING = "(missing)"


def difference(key: str, old: Any, new: Any) -> tuple[float, str] | None:
    """Return how large a difference is and what it is, or None where there is none."""
    numbers = [isinstance(one, (int, float, np.ndarray)) and not isinstance(one, bool) for one in (old, new)]
    if not all(numbers):
        return None if type(old) is type(new) and old == new else (np.inf, f"{key}: {shown(old)} -> {shown(new)}")
    a, b = np.asarray(old), np.asarray(new)
    if a.dtype != b.dtype or a.shape != b.shape:
        return np.inf, f"{key}: {a.dtype} {a.shape} -> {b.dtype} {b.shape}"
    if a.tobytes() == b.tobytes():
        return None
    a, b = a.astype(np.float64), b.astype(np.float64)
    gap, scale = np.abs(a - b).max(), max(np.abs(a).max(), np.abs(b).max())
    size = gap / scale if gap else 0.0  # 0 and -0 differ in their bits alone
    size = np.inf if np.isnan(size) else size
    which = f"{shown(old)} -> {shown(new)}, " if a.ndim == 0 else ""
    return size, f"{key}: {which}largest difference {gap:.3g}, {size:.3g} of the largest value"


def shown(value: Any) -> str:
    """Return a value in few words."""
    text = f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- the command ----------------------------------------------------------------------------------


def chosen(only: str) -> dict[str, Scenario]:
    """Return the scenarios that are named, and those that they need, in the order of the table."""
    wanted = set(only.split(",")) if only else set(SCENARIOS)
    if unknown := wanted - SCENARIOS.keys():
        sys.exit(f"error: no scenario {', '.join(sorted(unknown))}\nhint: one of: {', '.join(SCENARIOS)}")
    for name in reversed(SCENARIOS):  # each needs earlier ones
        wanted |= set(SCENARIOS[name].needs) if name in wanted else set()
    return {name: scenario for name, scenario in SCENARIOS.items() if name in wanted}


def compare(old: Side, new: Side, scenarios: dict[str, Scenario], jobs: int) -> bool:
    """Run the scenarios on both sides and print a line for each; return whether nothing differs."""
    futures: dict[str, list[Future]] = {}
    same = True
    with ThreadPoolExecutor(jobs) as pool:  # it starts in this order, so nothing waits for what has not started
        for name, scenario in scenarios.items():
            needs = [[futures[need][i] for need in scenario.needs] for i in (0, 1)]
            futures[name] = [pool.submit(side.run, name, scenario, needs[i]) for i, side in enumerate((old, new))]
        for name, pair in futures.items():
            try:
                seconds = "  ".join(f"{one.result():.1f} s" for one in pair)
                lines = list(differences(*(read(side.folder / name, side.normal) for side in (old, new))))
            except Failed as error:
                seconds, lines = "", str(error).splitlines()
            print(f"{'DIFFERENT' if lines else 'same'}  {name}  {seconds}".rstrip(), flush=True)
            for line in lines:
                print(f"  {line}", flush=True)
            same = same and not lines
    return same


def main() -> None:
    """Compare the checkouts of the command line."""
    parser = argparse.ArgumentParser(description="Compare two checkouts: the same commands, the same results.")
    parser.add_argument("old", type=Path, metavar="OLD", help="a checkout")
    parser.add_argument("new", type=Path, metavar="NEW", help="another, or the same")
    parser.add_argument("--only", default="", metavar="NAME,...", help=f"of: {', '.join(SCENARIOS)}")
    parser.add_argument(
        "--workdir", type=Path, metavar="DIR", help="where both run; new, or empty (a temporary folder)"
    )
    parser.add_argument("--keep", action="store_true", help="keep what they wrote")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="commands at a time (%(default)s)")
    args = parser.parse_args()
    scenarios = chosen(args.only)
    if args.workdir and args.workdir.exists() and any(args.workdir.iterdir()):
        sys.exit(f"error: {args.workdir} is not empty")
    workdir = (args.workdir or Path(tempfile.mkdtemp(prefix="compare_checkouts"))).resolve()
    try:
        sides = [Side(checkout, workdir / name) for name, checkout in (("old", args.old), ("new", args.new))]
        same = compare(*sides, scenarios, args.jobs)
    finally:
        if args.keep:
            print(f"kept: {workdir}")
        else:
            shutil.rmtree(workdir, ignore_errors=True)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()

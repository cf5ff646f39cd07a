"""The small pipeline that faults are drawn over: text, labels, configs, a study, and commands.

Every stage is a command line of `bert-jax`. Some give an answer: numbers that must come out the
same, whatever happened before them.
"""

import csv
import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

PRETRAIN = """
from bert_jax.config import default


def get_config():
    config = default()
    config.corpus.source = "files"
    config.corpus.path = "{world}/texts"
    config.corpus.workers = 1
    config.corpus.validation_fraction = 0.2
    config.tokenizer.vocab_size = 120
    config.model.layers = 1
    config.model.hidden = 32
    config.model.heads = 2
    config.steps = 30
    config.batch_size = 8
    config.sequence_length = 32
    config.optim.warmup_steps = 5
    config.optim.learning_rate = 5e-3
    config.logging.every = 5
    config.checkpoints.every = 6
    config.evals.validation.every = 12
    return config
"""

FINETUNE = """
from bert_jax.config import load_file


def get_config():
    config = load_file("{configs}/finetune.py:classify,init_from={world}/runs/base")
    config.task.source = "files:{world}/rows.tsv"
    config.epochs = 4
    config.batch_size = 8
    config.optim.learning_rate = 1e-3
    return config
"""

STUDY = """
from bert_jax.config import load_file
from bert_jax.studies.definition import Comparison, Study, Suite, axis


def get_study(scale="cpu"):
    base = load_file("{world}/pretrain.py")
    base.steps = 12
    base.checkpoints.every = 4
    return Study(
        question="Does anything get lost?",
        base=base,
        axes=(axis("masking.rate", (0.15, 0.4)),),
        seeds=(0, 1),
        evaluations={{"validation": Suite("pretrain")}},
        comparisons=(Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),),
    )
"""

SUBJECTS = ("the cat", "a small dog", "my old friend", "the quiet river", "every child")
ANIMALS = SUBJECTS[:2]
VERBS = ("sees", "follows", "likes", "finds", "remembers", "hears")
PLACES = ("in the garden", "near the sea", "under a tree", "on the long road")


def _sentence(chance: random.Random, subject: str) -> str:
    return f"{subject} {chance.choice(VERBS)} {chance.choice(SUBJECTS)} {chance.choice(PLACES)}."


def make(world: Path) -> None:
    """Write the texts, labels, configs and study of an untouched world."""
    chance = random.Random(0)
    documents = []
    for _ in range(120):
        subject = chance.choice(SUBJECTS)
        documents.append("\n".join(_sentence(chance, subject) for _ in range(chance.randint(3, 8))))
    rows = ["text\tlabel"]
    for _ in range(60):
        subject = chance.choice(SUBJECTS)
        rows.append(f"{_sentence(chance, subject)}\t{'animal' if subject in ANIMALS else 'other'}")
    (world / "texts").mkdir(parents=True)
    (world / "study").mkdir()
    (world / "tmp").mkdir()
    (world / "texts" / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    (world / "rows.tsv").write_text("\n".join(rows) + "\n")
    for name, text in (
        ("pretrain.py", PRETRAIN),
        ("finetune.py", FINETUNE),
        ("study/study.py", STUDY),
    ):
        (world / name).write_text(text.format(world=world, configs=CONFIGS))


# --- answers --------------------------------------------------------------------------------------


def printed(_: Path, out: str) -> object:
    """Return the numbers that a command printed as JSON."""
    return json.loads(out)


def weights(world: Path, _: str) -> object:
    """Return the hash of the exported weights: equal to the bit, or not equal."""
    return hashlib.sha256((world / "exported" / "model.safetensors").read_bytes()).hexdigest()


def results(world: Path, _: str) -> object:
    """Return the metrics that a study found of each of its cells."""
    with (world / "runs" / "study" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    cells = {}
    for row in rows:
        metrics = {key: value for key, value in row.items() if key.startswith("validation/")}
        cells[row["masking.rate"], row["seed"]] = row["state"], row["step"], metrics
    return cells


# --- stages ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A command, what it makes, and the answer it gives.

    `codes` are the exit codes it may end with besides 0 where it has done its work already or a
    part of it failed: an export never writes over another, a study goes on without a failed cell.
    """

    name: str
    words: str
    makes: tuple[str, ...] = ()
    answer: Callable[[Path, str], object] | None = None
    resumable: bool = False
    codes: tuple[int, ...] = ()


STAGES = (
    Stage("prepare", "prepare --config=pretrain.py", ("data",), resumable=True),
    Stage(
        "train",
        "train --config=pretrain.py --workdir=runs/base",
        ("runs/base", "data"),
        resumable=True,
    ),
    Stage("evaluate", "evaluate --checkpoint=runs/base", answer=printed),
    Stage(
        "fine-tune",
        "train --config=finetune.py --workdir=runs/task",
        ("runs/task",),
        resumable=True,
    ),
    Stage("score", "evaluate --checkpoint=runs/task", answer=printed),
    Stage(
        "study",
        "study run study --workdir=runs/study",
        ("runs/study", "data"),
        results,
        resumable=True,
        codes=(1,),
    ),
    Stage(
        "export",
        "export --checkpoint=runs/base --output=exported",
        ("exported",),
        weights,
        codes=(2,),
    ),
    Stage("import", "import --model=exported --output=imported", ("imported",), codes=(2,)),
    Stage("compare", "evaluate --checkpoint=imported --config=pretrain.py", answer=printed),
)
READS = {  # the folders that a stage reads, in which damage is drawn
    "prepare": ("data",),
    "train": ("data", "runs/base"),
    "evaluate": ("data", "runs/base"),
    "fine-tune": ("runs/base", "runs/task"),
    "score": ("runs/task",),
    "study": ("data", "runs/study"),
    "export": ("runs/base",),
    "import": ("exported",),
    "compare": ("imported", "data"),
}

"""Small labelled texts made by a seeded grammar, and runs fine-tuned on them."""

import re
from pathlib import Path

import numpy as np

from bert_jax.config import default, knobs, put
from bert_jax.data.engines import SPECIALS
from tests.config.settings import set_and_resolve

TOPICS = {
    "hardware": "the screen is broken|the battery is hot|the fan is loud|the keyboard is stuck",
    "software": "the program stops|the update fails|the window freezes|the file will not open",
    "billing": "the invoice is wrong|I was charged twice|the refund is late|the price is not right",
}
MORE = ["again", "since monday", "please help", "for the third time", "and nobody answers"]


def write_classify(folder: Path) -> Path:
    """One TSV with a header: texts, and what each is about."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    lines = ["text\tlabel"]
    for topic in [*TOPICS] * 16:
        lines.append(f"{random.choice(TOPICS[topic].split('|'))} {random.choice(MORE)}\t{topic}")
    file = folder / "complaints.tsv"
    file.write_text("\n".join(lines) + "\n")
    return file


def vocabulary(folder: Path) -> Path:
    """A vocab.txt of the words of all texts."""
    folder.mkdir(parents=True, exist_ok=True)
    words = sorted(set(re.findall(r"\w+", f"{TOPICS} {MORE}".lower())))
    file = folder / "vocab.txt"
    file.write_text("\n".join([*SPECIALS, *words]))
    return file


def config(kind: str, source: str, folder: Path, **overrides: object) -> knobs.Config:
    """A run of a second or two of a very small model from nothing; keys use __ for the dots of a
    path.
    """
    tree = default()
    put(tree, ["objectives"], {kind: {"weight": None, "labels": ()}})
    base = {
        "task__source": source,
        "tokenizer__path": str(vocabulary(folder)),
        "pairs": "none",
        "model__size": "tiny",
        "model__layers": 2,
        "model__hidden": 32,
        "model__heads": 2,
        "model__init_stddev": 0.1,
        "model__dropout": 0.0,
        "model__attention_dropout": 0.0,
        "sequence_length": 32,
        "batch_size": 8,
        "epochs": 2,
        "optim__learning_rate": 3e-3,
        "optim__warmup_fraction": 0.1,
        "logging__every": 2,
        "logging__trackers": (),
        "checkpoints__epochs": 1,
        "checkpoints__best": "loss",
        "evals__validation__epochs": 1,
    }
    return set_and_resolve(tree, {**base, **overrides})

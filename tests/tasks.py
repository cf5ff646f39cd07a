"""Small labelled data of every kind, made by a seeded grammar, and runs fine-tuned on it."""

from pathlib import Path

import numpy as np

from bert_jax.config import default, knobs, put
from bert_jax.data.engines import SPECIALS
from tests import texts
from tests.config.settings import set_and_resolve

TOPICS = {
    "hardware": "the screen is broken|the battery is hot|the fan is loud|the keyboard is stuck",
    "software": "the program stops|the update fails|the window freezes|the file will not open",
    "billing": "the invoice is wrong|I was charged twice|the refund is late|the price is not right",
}
MORE = ["again", "since monday", "please help", "for the third time", "and nobody answers"]


def complaints(count: int) -> list[tuple[str, str]]:
    """Texts and what each is about."""
    random = np.random.default_rng(0)
    names = list(TOPICS)
    found = []
    for number in range(count):
        topic = names[number % len(names)]
        found.append((f"{random.choice(TOPICS[topic].split('|'))} {random.choice(MORE)}", topic))
    return found


def write_classify(folder: Path) -> Path:
    """One TSV with a header."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "complaints.tsv"
    lines = (f"{text}\t{topic}\n" for text, topic in complaints(48))
    file.write_text("text\tlabel\n" + "".join(lines))
    return file


def vocabulary(folder: Path) -> Path:
    """A vocab.txt of the words of all the texts here, and their letters."""
    lines = [text for text, _ in complaints(400)] + [
        " ".join(texts.document(np.random.default_rng(0), 40))
    ]
    words = sorted({word for line in lines for word in line.lower().replace(".", " .").split()})
    letters = [chr(c) for c in range(97, 123)]
    pieces = [*SPECIALS, *letters, *(f"##{c}" for c in letters), *words]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "vocab.txt"
    file.write_text("".join(f"{piece}\n" for piece in dict.fromkeys(pieces)))
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

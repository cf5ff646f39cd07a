"""The data, recipes and seeds that both sides of the comparison train with, in plain Python."""

import dataclasses

SEEDS = (0, 1, 2, 3, 4)
BATCH = 16
WARMUP = 0.1


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of one task; `train` and `dev` are files below the data folder."""

    kind: str
    train: str
    dev: str
    metric: str  # the development metric that is compared
    epochs: float
    rate: float = 1e-4
    length: int = 64
    columns: tuple[str, ...] = ()  # names of the columns that hold the texts
    label: str = ""
    labels: tuple[str, ...] = ()  # as the file writes them, in the order of the classes
    rows: int = 0  # train on the first so many; 0 is all
    no_answer: bool = False
    stride: int = 128  # tokens from the beginning of a window to that of the next


RECIPES = {
    "rte": Recipe(
        *("classify", "glue/RTE/train.tsv", "glue/RTE/dev.tsv", "accuracy", 0.5),
        columns=("sentence1", "sentence2"),
        label="label",
        labels=("entailment", "not_entailment"),
    ),
    "mrpc": Recipe(
        *("classify", "glue/MRPC/train.tsv", "glue/MRPC/dev.tsv", "f1", 0.5),
        columns=("#1 String", "#2 String"),
        label="Quality",
        labels=("0", "1"),
    ),
    "sst2": Recipe(
        *("classify", "glue/SST-2/train.tsv", "glue/SST-2/dev.tsv", "accuracy", 0.25),
        columns=("sentence",),
        label="label",
        labels=("0", "1"),
        rows=10_000,
    ),
    "stsb": Recipe(
        *("regress", "glue/STS-B/train.tsv", "glue/STS-B/dev.tsv", "spearman", 0.25),
        columns=("sentence1", "sentence2"),
        label="score",
    ),
    "wnut17": Recipe(
        *("tag", "ner_wnut17/wnut17train.conll", "ner_wnut17/emerging.dev.conll", "f1", 0.5),
        rate=2e-4,
        length=128,
        labels=(
            *("B-corporation", "B-creative-work", "B-group", "B-location", "B-person", "B-product"),
            *("I-corporation", "I-creative-work", "I-group", "I-location", "I-person", "I-product"),
            "O",
        ),
    ),
    "xquad": Recipe(
        *("span", "squad_xquad_en/train.json", "squad_xquad_en/dev.json", "f1", 0.5),
        rate=2e-4,
        length=256,
    ),
    "electronics": Recipe(
        "span",
        "squad2_subjqa/electronics_train.json.gz",
        "squad2_subjqa/electronics_dev.json.gz",
        *("f1", 0.5),
        rate=2e-4,
        length=256,
        rows=250,
        no_answer=True,
    ),
}


def updates(recipe: Recipe, rows: int) -> int:
    """Return the number of updates of a run: whole batches, which may span two epochs."""
    return int(recipe.epochs * rows // BATCH)


def padded_to(longest: int) -> int:
    """Return a batch's row length: its longest, rounded up to 16, 32, 48, 64, 96, 128, 160, ..."""
    step = 16 if longest <= 64 else 32
    return -(-longest // step) * step

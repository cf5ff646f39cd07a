"""The table of tasks that BERT was evaluated on: plain data that `list_knobs` turns into knobs.

`a|b` names whichever column or file exists, so that one row reads the files of the benchmark and
its TFDS copy alike. Labels have the order and the names of TFDS. `values` is how files write labels
and how servers expect them. Recipes are the paper's, or taken from its grid (batches of 16 and 32;
learning rates 5e-5, 3e-5 and 2e-5; 2 to 4 epochs).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from bert_jax.config.knobs import LABELLED, METRICS, Objective
from bert_jax.errors import ConfigError


class Submission(NamedTuple):
    """Format of the files that the server of a benchmark accepts."""

    files: dict[str, str]  # split -> name of its file
    # Of a tsv file; without columns the file is JSON, with an answer for each id.
    columns: tuple[str, ...] = ("index", "prediction")


@dataclasses.dataclass(frozen=True)
class Row:
    """A task of the table."""

    kind: str
    task: dict[str, Any]  # fields of knobs.Task
    labels: tuple[str, ...] = ()
    evals: tuple[tuple[str, str], ...] = (("validation", "validation"),)  # name, split
    best: str = ""  # metric that picks the best step; none if the only evaluation split is test
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    source_tfds: str = ""  # default of task.source
    submission: Submission | None = None
    skips_bad_rows: bool = False  # rows that cannot be used are left out and counted


def list_knobs(name: str) -> dict[str, Any]:
    """Return the knobs of a task, or of a custom task of a kind such as classify, by path."""
    row = TASKS.get(name)
    values: dict[str, Any] = {}
    if row is not None:
        values = {"task.name": name, "task.source": row.source_tfds}
    elif name in LABELLED:
        row = Row(name, {}, best=METRICS[name][0])
    else:
        raise ConfigError(f"no task {name!r}", f"one of: {', '.join([*TASKS, *LABELLED])}")
    values |= {f"task.{field}": value for field, value in row.task.items()}
    # It replaces the section: no other objective trains.
    values["objectives"] = {row.kind: dataclasses.asdict(Objective(labels=row.labels))}
    values |= {f"evals.{evaluation}.split": split for evaluation, split in row.evals}
    return values | {"checkpoints.best": row.best} | row.recipe


def _name_files(*names: str, folder: str = "") -> dict[str, str]:
    """Return the files of train, validation and test, in the usual folder."""
    files = {}
    for split, of_split in zip(("train", "validation", "test"), names, strict=False):
        files[split] = "|".join(folder + name for name in of_split.split("|"))
    return files


GLUE = {"batch_size": 32, "epochs": 3.0, "optim.learning_rate": 2e-5, "sequence_length": 128}
WORDS = GLUE | {"optim.learning_rate": 5e-5}
CONTEXTS = WORDS | {"sequence_length": 384}


def _glue(
    name: str,
    folder: str,
    labels: tuple[str, ...],
    metrics: tuple[str, ...] = ("accuracy",),
    best: str = "",
    test: str = "test.tsv",
    skips_bad_rows: bool = False,
    **task: Any,
) -> Row:
    """Build the row of a GLUE task whose submission file is named after its folder.

    Unless `best` says otherwise, the first metric picks the best step.
    """
    files = _name_files("train.tsv", "dev.tsv", test, folder=f"{folder}/")
    usual = {"id": NUMBERED, "label": "label", "files": files, "metrics": metrics}
    return Row(
        kind="classify" if labels else "regress",
        task=usual | task,
        labels=labels,
        best=best or metrics[0],
        recipe=GLUE,
        source_tfds=f"tfds:glue/{name}",
        submission=Submission({"test": f"{folder}.tsv"}),
        skips_bad_rows=skips_bad_rows,
    )


def _bio(*types: str) -> tuple[str, ...]:
    return ("O", *(f"{begin}-{name}" for name in types for begin in "BI"))


NUMBERED = "idx|index|"  # TFDS shuffles: the index that a server expects is in the row
BITS = ("0", "1")
SENTENCES: dict[str, Any] = {"text": "sentence1", "text_pair": "sentence2"}
ENTAILMENT = ("entailment", "not_entailment")
NLI = ("entailment", "neutral", "contradiction")
MNLI = {
    "text": "premise|sentence1",
    "text_pair": "hypothesis|sentence2",
    "label": "label|gold_label",
}
SQUAD = {"id": "id", "text": "question", "text_pair": "context", "label": "answers"}
SQUAD_SERVER = Submission({"validation": "predictions.json", "test": "predictions.json"}, ())
UPOS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"

TASKS: dict[str, Row] = {
    "cola": _glue(
        "cola",
        "CoLA",
        ("unacceptable", "acceptable"),
        ("mcc", "accuracy"),
        text="sentence",
        values=BITS,
        columns=("source", "label", "original", "sentence"),  # train and dev have no header
    ),
    "sst2": _glue("sst2", "SST-2", ("negative", "positive"), text="sentence", values=BITS),
    "mrpc": _glue(
        "mrpc",
        "MRPC",
        ("not_equivalent", "equivalent"),
        ("f1", "accuracy"),
        test="test.tsv|test_with_labels.tsv",
        text="sentence1|#1 String",
        text_pair="sentence2|#2 String",
        label="label|Quality",
        values=BITS,
    ),
    "stsb": _glue(
        "stsb",
        "STS-B",
        (),
        ("pearson", "spearman"),
        best="spearman",
        label="label|score",
        **SENTENCES,
    ),
    "qqp": _glue(
        "qqp",
        "QQP",
        ("not_duplicate", "duplicate"),
        ("f1", "accuracy"),
        skips_bad_rows=True,  # the published file has about twenty of 363,870
        text="question1",
        text_pair="question2",
        label="label|is_duplicate",
        values=BITS,
    ),
    "mnli": Row(
        kind="classify",
        task={
            **MNLI,
            "id": NUMBERED,
            "files": {
                "train": "MNLI/train.tsv",
                "validation_matched": "MNLI/dev_matched.tsv",
                "validation_mismatched": "MNLI/dev_mismatched.tsv",
                "test_matched": "MNLI/test_matched.tsv",
                "test_mismatched": "MNLI/test_mismatched.tsv",
            },
            "metrics": ("accuracy",),
        },
        labels=NLI,
        evals=(("validation", "validation_matched"), ("mismatched", "validation_mismatched")),
        best="accuracy",
        recipe=GLUE,
        source_tfds="tfds:glue/mnli",
        submission=Submission({"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"}),
    ),
    "mnli10k": Row(
        kind="classify",
        task={**MNLI, "files": _name_files("train.jsonl", "dev.jsonl", folder="MNLI-10k/")},
        labels=NLI,
        best="accuracy",
        recipe=GLUE,
    ),
    "qnli": _glue("qnli", "QNLI", ENTAILMENT, text="question", text_pair="sentence"),
    "rte": _glue("rte", "RTE", ENTAILMENT, **SENTENCES),
    "wnli": _glue("wnli", "WNLI", ("not_entailment", "entailment"), values=BITS, **SENTENCES),
    "ax": Row(  # the diagnostic set, for evaluating a model trained on MNLI
        kind="classify",
        task={
            "id": NUMBERED,
            "text": "premise|Premise|sentence1",
            "text_pair": "hypothesis|Hypothesis|sentence2",
            "label": "label|Label",
            "files": {"test": "diagnostic/diagnostic-full.tsv|diagnostic/diagnostic.tsv"},
            "metrics": ("mcc", "accuracy"),
        },
        labels=NLI,
        evals=(("validation", "test"),),
        recipe={"sequence_length": 128},
        source_tfds="tfds:glue/ax",
        submission=Submission({"test": "AX.tsv"}),
    ),
    "squad": Row(
        kind="span",
        task={
            **SQUAD,
            "files": _name_files("train-v1.1.json", "dev-v1.1.json"),
            "metrics": ("exact", "f1"),
        },
        best="f1",
        recipe=CONTEXTS,
        source_tfds="tfds:squad",
        submission=SQUAD_SERVER,
    ),
    "squad2": Row(
        kind="span",
        task={
            **SQUAD,
            "files": _name_files("train-v2.0.json", "dev-v2.0.json"),
            "no_answer": True,
        },
        best="best_f1",
        recipe=CONTEXTS | {"batch_size": 48, "epochs": 2.0},
        source_tfds="tfds:squad/v2.0",
        submission=SQUAD_SERVER,
    ),
    "conll2003": Row(
        kind="tag",
        task={
            "format": "conll",
            "text": "tokens|0",
            "label": "ner|-1",
            "files": _name_files(
                "eng.train|train.txt", "eng.testa|valid.txt", "eng.testb|test.txt"
            ),
        },
        labels=_bio("PER", "ORG", "LOC", "MISC"),
        best="f1",
        recipe=WORDS,
        source_tfds="tfds:conll2003",
    ),
    "wnut17": Row(
        kind="tag",
        task={
            "format": "conll",
            "text": "0",
            "label": "-1",
            "files": _name_files(
                "wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"
            ),
        },
        labels=_bio("corporation", "creative-work", "group", "location", "person", "product"),
        best="f1",
        recipe=WORDS,
    ),
    "ud_ewt": Row(
        kind="tag",
        task={
            "format": "conllu",
            "text": "form",
            "label": "upos",
            "files": _name_files(
                "en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu", "en_ewt-ud-test.conllu"
            ),
            "metrics": ("accuracy",),
        },
        labels=tuple(UPOS.split()),
        best="accuracy",
        recipe=WORDS,
    ),
    "swag": Row(
        kind="choice",
        task={
            "text": "sent1",
            "text_pair": "sent2",  # the beginning of every option
            "options": ("ending0", "ending1", "ending2", "ending3"),
            "files": _name_files("train.csv", "val.csv", "test.csv"),
        },
        best="accuracy",
        recipe=GLUE | {"batch_size": 16, "sequence_length": 512},
    ),
    "copa": Row(
        kind="choice",
        task={
            "id": "id|idx",
            "text": "premise",
            "text_pair": "asks_for|question",  # cause or effect
            "options": ("choice1", "choice2"),
            "files": _name_files("train.jsonl", "val.jsonl|copa_dev.jsonl", "test.jsonl"),
        },
        best="accuracy",
        recipe=GLUE | {"batch_size": 16, "epochs": 4.0},
    ),
    "trec": Row(
        kind="classify",
        task={"text": "text", "label": "coarse|label-coarse", "metrics": ("accuracy", "macro_f1")},
        labels=("DESC", "ENTY", "ABBR", "HUM", "NUM", "LOC"),
        evals=(("validation", "test"),),
        recipe=GLUE,
        source_tfds="tfds:trec",
    ),
    "movie_reviews": Row(
        kind="classify",
        task={"id": "id", "text": "text", "label": "label", "metrics": ("accuracy",)},
        labels=("neg", "pos"),
        evals=(("validation", "test"),),
        recipe=GLUE | {"batch_size": 16, "sequence_length": 512},
    ),
}

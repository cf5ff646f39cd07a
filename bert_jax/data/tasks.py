"""The table of tasks that BERT was evaluated on: plain data that `settings` turns into knobs.

`a|b` names whichever column or file exists, so that one row reads the files of the benchmark and
its TFDS copy alike. Labels have the order and the names of TFDS; `values` is how files write them
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
    best: str = ""  # metric that picks the best step; none where the only evaluation split is test
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    source_tfds: str = ""  # default of task.source
    submission: Submission | None = None


def settings(name: str) -> dict[str, Any]:
    """Return the knobs of a task, or of a custom task of a kind such as classify, by path."""
    row = TASKS.get(name) or (Row(name, {}, best=METRICS[name][0]) if name in LABELLED else None)
    if row is None:
        raise ConfigError(f"no task {name!r}", f"one of: {', '.join([*TASKS, *LABELLED])}")
    objective = dataclasses.asdict(Objective(labels=row.labels))
    values: dict[str, Any] = (
        {"task.name": name, "task.source": row.source_tfds} if name in TASKS else {}
    )
    values |= {f"task.{field}": value for field, value in row.task.items()}
    values["objectives"] = {row.kind: objective}  # replaces the section: no other objective trains
    values |= {f"evals.{evaluation}.split": split for evaluation, split in row.evals}
    return values | {"checkpoints.best": row.best} | row.recipe


def _files(folder: str, **names: str) -> dict[str, str]:
    """Return the file of each split, in the usual folder or without it."""
    return {
        split: "|".join(f"{folder}/{name}" for name in files.split("|"))
        for split, files in names.items()
    }


_TSV = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
_GLUE = {"batch_size": 32, "epochs": 3.0, "optim.learning_rate": 2e-5, "sequence_length": 128}
_WORDS = _GLUE | {"optim.learning_rate": 5e-5}
_LONG = _WORDS | {"sequence_length": 384}
# TFDS shuffles: the index that a server expects is in the row.
_NUMBERED = {"id": "idx|index|", "format": "auto"}


def _glue(name: str, folder: str, labels: tuple[str, ...], best: str, **task: Any) -> Row:
    """Build the row of a GLUE task whose submission file is named after its folder."""
    return Row(
        kind="classify" if labels else "regress",
        task=_NUMBERED | {"label": "label", "files": _files(folder, **_TSV)} | task,
        labels=labels,
        best=best,
        recipe=_GLUE,
        source_tfds=f"tfds:glue/{name}",
        submission=Submission({"test": f"{folder}.tsv"}),
    )


_SENTENCES = {"text": "sentence1", "text_pair": "sentence2"}
_BITS = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_MNLI = {
    "text": "premise|sentence1",
    "text_pair": "hypothesis|sentence2",
    "label": "label|gold_label",
}
_MNLI_FILES = _files(
    "MNLI",
    train="train.tsv",
    validation_matched="dev_matched.tsv",
    validation_mismatched="dev_mismatched.tsv",
    test_matched="test_matched.tsv",
    test_mismatched="test_mismatched.tsv",
)
_SQUAD = {"id": "id", "text": "question", "text_pair": "context", "label": "answers"}
_UPOS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"


def _bio(*types: str) -> tuple[str, ...]:
    return ("O", *(f"{begin}-{name}" for name in types for begin in "BI"))


TASKS: dict[str, Row] = {
    "cola": _glue(
        "cola",
        "CoLA",
        ("unacceptable", "acceptable"),
        "mcc",
        text="sentence",
        values=_BITS,
        columns=("source", "label", "original", "sentence"),  # train and dev have no header
        metrics=("mcc", "accuracy"),
    ),
    "sst2": _glue(
        "sst2",
        "SST-2",
        ("negative", "positive"),
        "accuracy",
        text="sentence",
        values=_BITS,
        metrics=("accuracy",),
    ),
    "mrpc": _glue(
        "mrpc",
        "MRPC",
        ("not_equivalent", "equivalent"),
        "f1",
        text="sentence1|#1 String",
        text_pair="sentence2|#2 String",
        label="label|Quality",
        values=_BITS,
        files=_files("MRPC", **{**_TSV, "test": "test.tsv|test_with_labels.tsv"}),
        metrics=("f1", "accuracy"),
    ),
    "stsb": _glue(
        "stsb",
        "STS-B",
        (),
        "spearman",
        label="label|score",
        metrics=("pearson", "spearman"),
        **_SENTENCES,
    ),
    "qqp": _glue(
        "qqp",
        "QQP",
        ("not_duplicate", "duplicate"),
        "f1",
        text="question1",
        text_pair="question2",
        label="label|is_duplicate",
        values=_BITS,
        on_bad_row="skip",  # the published file has about twenty broken or empty rows of 363,870
        metrics=("f1", "accuracy"),
    ),
    "mnli": Row(
        kind="classify",
        task=_NUMBERED | _MNLI | {"files": _MNLI_FILES, "metrics": ("accuracy",)},
        labels=_NLI,
        evals=(("validation", "validation_matched"), ("mismatched", "validation_mismatched")),
        best="accuracy",
        recipe=_GLUE,
        source_tfds="tfds:glue/mnli",
        submission=Submission({"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"}),
    ),
    "mnli10k": Row(
        kind="classify",
        task=_MNLI | {"files": _files("MNLI-10k", train="train.jsonl", validation="dev.jsonl")},
        labels=_NLI,
        best="accuracy",
        recipe=_GLUE,
    ),
    "qnli": _glue(
        "qnli",
        "QNLI",
        _ENTAILMENT,
        "accuracy",
        text="question",
        text_pair="sentence",
        metrics=("accuracy",),
    ),
    "rte": _glue("rte", "RTE", _ENTAILMENT, "accuracy", metrics=("accuracy",), **_SENTENCES),
    "wnli": _glue(
        "wnli",
        "WNLI",
        ("not_entailment", "entailment"),
        "accuracy",
        values=_BITS,
        metrics=("accuracy",),
        **_SENTENCES,
    ),
    "ax": Row(  # the diagnostic set, for evaluating a model trained on MNLI
        kind="classify",
        task=_NUMBERED
        | {"text": "premise|Premise|sentence1", "text_pair": "hypothesis|Hypothesis|sentence2"}
        | {"label": "label|Label", "metrics": ("mcc", "accuracy")}
        | {"files": _files("diagnostic", test="diagnostic-full.tsv|diagnostic.tsv")},
        labels=_NLI,
        evals=(("validation", "test"),),
        recipe={"sequence_length": 128},
        source_tfds="tfds:glue/ax",
        submission=Submission({"test": "AX.tsv"}),
    ),
    "squad": Row(
        kind="span",
        task=_SQUAD
        | {
            "files": {"train": "train-v1.1.json", "validation": "dev-v1.1.json"},
            "metrics": ("exact", "f1"),
        },
        best="f1",
        recipe=_LONG,
        source_tfds="tfds:squad",
        submission=Submission({"validation": "predictions.json", "test": "predictions.json"}, ()),
    ),
    "squad2": Row(
        kind="span",
        task=_SQUAD
        | {"files": {"train": "train-v2.0.json", "validation": "dev-v2.0.json"}, "no_answer": True},
        best="best_f1",
        recipe=_LONG | {"batch_size": 48, "epochs": 2.0},
        source_tfds="tfds:squad/v2.0",
        submission=Submission({"validation": "predictions.json", "test": "predictions.json"}, ()),
    ),
    "conll2003": Row(
        kind="tag",
        task={
            "format": "conll",
            "text": "tokens|0",
            "label": "ner|-1",
            "files": {
                "train": "eng.train|train.txt",
                "validation": "eng.testa|valid.txt",
                "test": "eng.testb|test.txt",
            },
        },
        labels=_bio("PER", "ORG", "LOC", "MISC"),
        best="f1",
        recipe=_WORDS,
        source_tfds="tfds:conll2003",
    ),
    "wnut17": Row(
        kind="tag",
        task={
            "format": "conll",
            "text": "0",
            "label": "-1",
            "files": {
                "train": "wnut17train.conll",
                "validation": "emerging.dev.conll",
                "test": "emerging.test.annotated",
            },
        },
        labels=_bio("corporation", "creative-work", "group", "location", "person", "product"),
        best="f1",
        recipe=_WORDS,
    ),
    "ud_ewt": Row(
        kind="tag",
        task={
            "format": "conllu",
            "text": "form",
            "label": "upos",
            "files": {
                "train": "en_ewt-ud-train.conllu",
                "validation": "en_ewt-ud-dev.conllu",
                "test": "en_ewt-ud-test.conllu",
            },
            "metrics": ("accuracy",),
        },
        labels=tuple(_UPOS.split()),
        best="accuracy",
        recipe=_WORDS,
    ),
    "swag": Row(
        kind="choice",
        task={
            "text": "sent1",
            "text_pair": "sent2",  # the beginning of every option
            "options": ("ending0", "ending1", "ending2", "ending3"),
            "files": {"train": "train.csv", "validation": "val.csv", "test": "test.csv"},
        },
        best="accuracy",
        recipe=_GLUE | {"batch_size": 16, "sequence_length": 512},
    ),
    "copa": Row(
        kind="choice",
        task={
            "id": "id|idx",
            "text": "premise",
            "text_pair": "asks_for|question",  # cause or effect
            "options": ("choice1", "choice2"),
            "files": {
                "train": "train.jsonl",
                "validation": "val.jsonl|copa_dev.jsonl",
                "test": "test.jsonl",
            },
        },
        best="accuracy",
        recipe=_GLUE | {"batch_size": 16, "epochs": 4.0},
    ),
    "trec": Row(
        kind="classify",
        task={"text": "text", "label": "coarse|label-coarse", "metrics": ("accuracy", "macro_f1")},
        labels=("DESC", "ENTY", "ABBR", "HUM", "NUM", "LOC"),
        evals=(("validation", "test"),),
        recipe=_GLUE,
        source_tfds="tfds:trec",
    ),
    "movie_reviews": Row(
        kind="classify",
        task={"id": "id", "text": "text", "label": "label", "metrics": ("accuracy",)},
        labels=("neg", "pos"),
        evals=(("validation", "test"),),
        recipe=_GLUE | {"batch_size": 16, "sequence_length": 512},
    ),
}

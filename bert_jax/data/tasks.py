"""The table of tasks that BERT was evaluated on: plain data that `list_knobs` turns into knobs.

`a|b` names the column or file a, or b if a does not exist, so that one row reads the files of the
benchmark and its TFDS copy alike. Labels have the order and the names of TFDS. `values` is how
files write labels and how servers expect them. Recipes are the paper's, or taken from its grid
(batches of 16 and 32; learning rates 5e-5, 3e-5 and 2e-5; 2 to 4 epochs).
"""

import dataclasses
from typing import Any, NamedTuple

from bert_jax.config.knobs import LABELLED, METRICS, Objective, Task
from bert_jax.errors import ConfigError


class Submission(NamedTuple):
    """The format of the file that a benchmark's server accepts."""

    files: dict[str, str]  # split -> name of its file
    # Of a tsv file; without columns the file is JSON, with an answer for each id.
    columns: tuple[str, ...] = ("index", "prediction")


@dataclasses.dataclass(frozen=True)
class TaskRow:
    """A task with its knobs and its recipe, as a row of TASKS."""

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
    """Return {path: value} of the knobs that a task sets.

    `name` is a row of TASKS, or a kind such as classify, for a user's own task.
    """
    row = TASKS.get(name)
    values: dict[str, Any] = {}
    if row is not None:
        values = {"task.name": name, "task.source": row.source_tfds}
    elif name in LABELLED:
        row = TaskRow(name, {}, best=METRICS[name][0])
    else:
        raise ConfigError(f"no task {name!r}", f"one of: {', '.join([*TASKS, *LABELLED])}")
    values |= {f"task.{field}": value for field, value in row.task.items()}
    # It replaces the section: no other objective trains.
    values["objectives"] = {row.kind: dataclasses.asdict(Objective(labels=row.labels))}
    values |= {f"evals.{evaluation}.split": split for evaluation, split in row.evals}
    return values | {"checkpoints.best": row.best} | row.recipe


def _name_files(*names: str) -> dict[str, str]:
    """Return {split: file}, given the files of train, validation and test in this order."""
    return dict(zip(("train", "validation", "test"), names, strict=False))


def _bio(*types: str) -> tuple[str, ...]:
    return ("O", *(f"{begin}-{name}" for name in types for begin in "BI"))


GLUE = {"batch_size": 32, "epochs": 3.0, "optim.learning_rate": 2e-5, "sequence_length": 128}
SMALL = GLUE | {"batch_size": 16}
WORDS = GLUE | {"optim.learning_rate": 5e-5}
CONTEXTS = WORDS | {"sequence_length": 384}
NUMBERED = "idx|index|"  # TFDS shuffles: the index that a server expects is in the row
BITS = ("0", "1")
SENTENCES: dict[str, Any] = {"text": "sentence1", "text_pair": "sentence2"}
ENTAILMENT = ("entailment", "not_entailment")
NLI = ("entailment", "neutral", "contradiction")
MNLI: dict[str, Any] = {
    "text": "premise|sentence1",
    "text_pair": "hypothesis|sentence2",
    "label": "label|gold_label",
}
MNLI_FILES = {
    "train": "MNLI/train.tsv",
    "validation_matched": "MNLI/dev_matched.tsv",
    "validation_mismatched": "MNLI/dev_mismatched.tsv",
    "test_matched": "MNLI/test_matched.tsv",
    "test_mismatched": "MNLI/test_mismatched.tsv",
}
SQUAD: dict[str, Any] = {"id": "id", "text": "question", "text_pair": "context", "label": "answers"}
SQUAD_SERVER = Submission({"validation": "predictions.json", "test": "predictions.json"}, ())
UPOS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"
USUAL: dict[str, tuple[dict[str, Any], str]] = {  # the recipe of a kind, and what is best
    "classify": (GLUE, "accuracy"),
    "tag": (WORDS, "f1"),
    "span": (CONTEXTS, "f1"),
    "choice": (SMALL | {"sequence_length": 512}, "accuracy"),
}
KNOBS = {field.name for field in dataclasses.fields(Task)}
TESTED = (("validation", "test"),)  # evaluations of data without a validation split


def _glue(
    name: str,
    folder: str,
    labels: tuple[str, ...],
    metrics: tuple[str, ...] = ("accuracy",),
    best: str = "",
    test: str = "test.tsv",
    skips_bad_rows: bool = False,
    **task: Any,
) -> TaskRow:
    """Build the row of a GLUE task; its submission file is named after the task's folder.

    The metric that chooses the best step is `best`, by default the first of `metrics`.
    """
    tests = "|".join(f"{folder}/{file}" for file in test.split("|"))
    files = _name_files(f"{folder}/train.tsv", f"{folder}/dev.tsv", tests)
    usual = {"id": NUMBERED, "label": "label", "files": files, "metrics": metrics}
    return TaskRow(
        kind="classify" if labels else "regress",
        task=usual | task,
        labels=labels,
        best=best or metrics[0],
        recipe=GLUE,
        source_tfds=f"tfds:glue/{name}",
        submission=Submission({"test": f"{folder}.tsv"}),
        skips_bad_rows=skips_bad_rows,
    )


def _row(kind: str, labels: tuple[str, ...] = (), **fields: Any) -> TaskRow:
    """Build the row of a task that is not in GLUE, from fields of TaskRow and knobs of the task.

    The recipe, and the metric that picks the best step, are those of the task's kind unless they
    are given.
    """
    recipe, best = USUAL[kind]
    row = {"recipe": recipe, "best": best} | fields
    task = {name: row.pop(name) for name in fields if name in KNOBS}
    return TaskRow(kind, task, labels, **row)


TASKS: dict[str, TaskRow] = {
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
        "stsb", "STS-B", (), ("pearson", "spearman"), "spearman", label="label|score", **SENTENCES
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
    "mnli": _row(
        "classify",
        NLI,
        **MNLI,
        id=NUMBERED,
        files=MNLI_FILES,
        metrics=("accuracy",),
        evals=(("validation", "validation_matched"), ("mismatched", "validation_mismatched")),
        source_tfds="tfds:glue/mnli",
        submission=Submission({"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"}),
    ),
    "mnli10k": _row(
        "classify", NLI, **MNLI, files=_name_files("MNLI-10k/train.jsonl", "MNLI-10k/dev.jsonl")
    ),
    "qnli": _glue("qnli", "QNLI", ENTAILMENT, text="question", text_pair="sentence"),
    "rte": _glue("rte", "RTE", ENTAILMENT, **SENTENCES),
    "wnli": _glue("wnli", "WNLI", ("not_entailment", "entailment"), values=BITS, **SENTENCES),
    "ax": _row(  # the diagnostic set, for evaluating a model trained on MNLI
        "classify",
        NLI,
        recipe={"sequence_length": 128},
        best="",
        id=NUMBERED,
        text="premise|Premise|sentence1",
        text_pair="hypothesis|Hypothesis|sentence2",
        label="label|Label",
        files={"test": "diagnostic/diagnostic-full.tsv|diagnostic/diagnostic.tsv"},
        metrics=("mcc", "accuracy"),
        evals=TESTED,
        source_tfds="tfds:glue/ax",
        submission=Submission({"test": "AX.tsv"}),
    ),
    "squad": _row(
        "span",
        **SQUAD,
        files=_name_files("train-v1.1.json", "dev-v1.1.json"),
        metrics=("exact", "f1"),
        source_tfds="tfds:squad",
        submission=SQUAD_SERVER,
    ),
    "squad2": _row(
        "span",
        recipe=CONTEXTS | {"batch_size": 48, "epochs": 2.0},
        best="best_f1",
        **SQUAD,
        files=_name_files("train-v2.0.json", "dev-v2.0.json"),
        no_answer=True,
        source_tfds="tfds:squad/v2.0",
        submission=SQUAD_SERVER,
    ),
    "conll2003": _row(
        "tag",
        _bio("PER", "ORG", "LOC", "MISC"),
        format="conll",
        text="tokens|0",
        label="ner|-1",
        files=_name_files("eng.train|train.txt", "eng.testa|valid.txt", "eng.testb|test.txt"),
        source_tfds="tfds:conll2003",
    ),
    "wnut17": _row(
        "tag",
        _bio("corporation", "creative-work", "group", "location", "person", "product"),
        format="conll",
        text="0",
        label="-1",
        files=_name_files("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    ),
    "ud_ewt": _row(
        "tag",
        tuple(UPOS.split()),
        best="accuracy",
        format="conllu",
        text="form",
        label="upos",
        files=_name_files(*(f"en_ewt-ud-{split}.conllu" for split in ("train", "dev", "test"))),
        metrics=("accuracy",),
    ),
    "swag": _row(
        "choice",
        text="sent1",
        text_pair="sent2",  # the beginning of every option
        options=("ending0", "ending1", "ending2", "ending3"),
        files=_name_files("train.csv", "val.csv", "test.csv"),
    ),
    "copa": _row(
        "choice",
        recipe=SMALL | {"epochs": 4.0},
        id="id|idx",
        text="premise",
        text_pair="asks_for|question",  # cause or effect
        options=("choice1", "choice2"),
        files=_name_files("train.jsonl", "val.jsonl|copa_dev.jsonl", "test.jsonl"),
    ),
    "trec": _row(
        "classify",
        ("DESC", "ENTY", "ABBR", "HUM", "NUM", "LOC"),
        best="",
        text="text",
        label="coarse|label-coarse",
        metrics=("accuracy", "macro_f1"),
        evals=TESTED,
        source_tfds="tfds:trec",
    ),
    "movie_reviews": _row(
        "classify",
        ("neg", "pos"),
        recipe=SMALL | {"sequence_length": 512},
        best="",
        id="id",
        text="text",
        label="label",
        metrics=("accuracy",),
        evals=TESTED,
    ),
}

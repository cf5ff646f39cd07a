"""The table of suites: what commands, studies and the Python API know about each of them.

A suite has a row in SUITES and a file of its name. The file is imported when the suite runs. It
defines

    score(run, options) -> (numbers by metric, numbers of each example)

To add a suite, write its file, then its row here. The row names the `Options` that the suite reads.

    (options,) = suites.build_options(["blimp"], source="files:blimp", limit=100)
    result, of_examples = suites.score(runs.open_run("runs/demo"), options)
"""

import dataclasses
import importlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_jax.config import knobs
from bert_jax.data.tasks import TASKS
from bert_jax.errors import ConfigError, HeadError, need, suggest
from bert_jax.system.arguments import option

if TYPE_CHECKING:
    import numpy as np

    from bert_jax.interop import runs

Result = dict[str, Any]  # numbers by metric, or by part of the suite and then by metric
# A result, and of each example in the data's order METRIC.sum and METRIC.count, float64 [N], with
# the digest of the examples as `metrics.EXAMPLES`. So two checkpoints are compared by example.
Detailed = tuple[Result, "dict[str, np.ndarray]"]


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that a suite was given; options that it does not read have their defaults.

    A field is a setting of a study's `Suite` and an argument of `bert_jax.score`. A field that is
    declared by `option` is a flag of `evaluate` too.
    """

    suite: str  # name of the row
    batch_size: int = option(0, "rows a step; changes no result", "N")
    config: knobs.Config | None = None  # of --config
    changes: tuple[tuple[str, str], ...] = ()  # --config.KNOB=VALUE, to it or the checkpoint's own
    source: str = option(
        "",
        "texts or labelled data in place of the checkpoint's or the task's own: files:PATTERN or "
        "tfds:NAME; of cross_rate, nelbo and pll also a file or folder of text, on which models of "
        "any vocabulary compare; of babylm its FOLDER; labelled data: texts of at most "
        f"{knobs.TEXT:,} characters, in lines of at most {knobs.LINE:,} bytes",
        "SOURCE",
    )
    limit: int = option(
        0,
        "only the first N texts or passages, examples (probe: of each split), pairs of a paradigm, "
        "or rows of a file (babylm)",
        "N",
    )
    split: str = option("", "the part of a task's data", "NAME")
    words: int = option(
        0,
        "cross_rate, nelbo of a --source: most words of a passage, which is whole sentences (64)",
        "N",
    )
    draws: int = option(
        0, "nelbo: how often an example is read, each time with another number of masks (8)", "N"
    )
    within_word: bool = option(
        False, "pll, blimp: mask the later pieces of a token's word with it (PLL-word-l2r)"
    )
    task: str = option("", "sts, probe: a row of bert_jax/data/tasks.py", "NAME")
    submission: str = option(
        "",
        "tasks of GLUE, SQuAD: write the files that their servers take, for the test splits or "
        "that of --split",
        "DIR",
    )


class SuiteRow(NamedTuple):
    """Row of SUITES: what is known about a suite without importing its file."""

    reads: str  # names of its options, besides batch_size
    finds: str = ""  # patterns of its metrics; without them no study asks
    with_source: str = ""  # options that it reads only with a source
    without_source: str = ""  # options that it reads only without a source
    head: str = ""  # that the model must have, or several of which it must have one
    needs_source: str = ""  # an example of the source without which it scores nothing
    file: str = ""  # of this folder, if it has another name than the suite

    def list_read(self, source: bool) -> set[str]:
        """List the names of the options that the suite reads, with a source or without one."""
        more = self.with_source if source else self.without_source
        return {"batch_size", *self.reads.split(), *more.split()}


OF_LABELS = " ".join(dict.fromkeys(sum(knobs.METRICS.values(), ())))  # metrics of labelled tasks
# Further metrics of each task.
OF_TASKS = "examples loss accuracy_low accuracy_high majority_accuracy"
OF_UNITS = "nats_per_word* nats_per_character* words characters"  # of a source

LABELLED = "source limit changes split submission"  # options of named tasks
OF_CORPUS = "config changes source limit split"  # options where a config may name a task

SUITES: dict[str, SuiteRow] = {
    "pretrain": SuiteRow("config changes", "*"),
    "nsp": SuiteRow(
        "config changes source",
        "nsp_loss nsp_accuracy nsp_accuracy_low nsp_accuracy_high majority_accuracy examples",
        with_source="limit split",
        head="nsp",
    ),
    "cross_rate": SuiteRow(
        "source",
        "0.*/mlm_loss 0.*/mlm_accuracy 0.*/mlm_predictions 0.*/unigram_loss 0.*/unigram_accuracy "
        "0.*/word_accuracy 0.*/unknown_words 0.*/nats_per_word* 0.*/nats_per_character* 0.*/words "
        "0.*/characters",
        with_source="limit words",
        without_source="config changes",
        head="mlm",
    ),
    "nelbo": SuiteRow(
        "source draws",
        "nats_per_token perplexity standard_error tokens examples draws left_to_right/* "
        f"{OF_UNITS} unknown_words",
        with_source="limit words",
        without_source="config changes",
        head="mlm causal_lm",
    ),
    "pll": SuiteRow(
        "source limit within_word",
        "pseudo_perplexity* pll* perplexity log_likelihood texts tokens left_to_right/* "
        f"{OF_UNITS}",
        without_source="config changes",
        head="mlm causal_lm",
    ),
    "blimp": SuiteRow(
        "source limit within_word",
        "accuracy* pairs ties field/* term/* paradigm/* left_to_right/*",
        head="mlm causal_lm",
        needs_source="files:blimp, a folder of PARADIGM.jsonl files, or tfds:blimp",
    ),
    "babylm": SuiteRow(
        "source limit",
        "macro_average */accuracy */spearman */examples */ties */split/* */UID/* */field/* "
        "*/linguistics_term/* */context_type/* */context_contrast/* */target_contrast/* reading/* "
        "left_to_right/*",
        head="mlm causal_lm",
        needs_source="evaluation_data/full_eval",
    ),
    "sts": SuiteRow(f"{OF_CORPUS} task", "*/spearman */pearson pairs"),
    "probe": SuiteRow(
        f"{OF_CORPUS} task",
        " ".join(
            f"majority/{name} embeddings/*/{name} layer_*/{name}" for name in OF_LABELS.split()
        )
        + " train scored",
    ),
    "task": SuiteRow(f"{OF_CORPUS} submission", f"{OF_LABELS} {OF_TASKS}"),
    "glue": SuiteRow(LABELLED, file="task"),
    **{name: SuiteRow(LABELLED, head=task.kind, file="task") for name, task in TASKS.items()},
}


# --- running --------------------------------------------------------------------------------------


def build_options(names: Sequence[str], **options: Any) -> list[Options]:
    """Build the `Options` of each suite from shared options.

    An option that no suite reads is refused, and a missing source that a suite needs.
    """
    source = bool(options.get("source"))
    read = [find_row(name).list_read(source) for name in names]
    known = list_options()
    for name, value in options.items():
        if name not in known:
            problem = f"suite {', '.join(names)} has no option {name!r}"
            raise ConfigError(problem, suggest(name, known))
        if value and not any(name in one for one in read):
            flag = "--config.KNOB" if name == "changes" else f"--{name.replace('_', '-')}"
            problem = f"{flag} means nothing to {', '.join(names)}"
            if any(name in find_row(suite).list_read(not source) for suite in names):
                problem += " beside a --source" if source else " without a --source"
            raise ConfigError(problem, "leave it out")
    built = []
    for suite, own in zip(names, read, strict=True):
        example = find_row(suite).needs_source
        need(source or not example, f"suite {suite} needs --source", f"--source={example}")
        given = {name: value for name, value in options.items() if name in own}
        built.append(Options(suite, **given))
    return built


def find_row(name: str) -> SuiteRow:
    """Find the row of a suite; refuse a name that is not in the table."""
    if name not in SUITES:
        raise ConfigError(f"no suite {name!r}", suggest(name, SUITES))
    return SUITES[name]


def score(run: "runs.TrainedModel", options: Options) -> Detailed:
    """Score a model on a suite; return its metrics, and arrays of each example's sums and counts.

    The metrics are nested, such as {"accuracy": 0.8, "field": {"syntax": 0.7}}. The arrays are
    {"accuracy.sum": [N], "accuracy.count": [N]}, or {} if the suite has none.
    """
    row = SUITES[options.suite]
    check_heads(run, [options.suite])
    file = importlib.import_module(f"bert_jax.suites.{row.file or options.suite}")
    return file.score(run, options)


def check_heads(run: "runs.TrainedModel", names: Sequence[str]) -> None:
    """Refuse a model that lacks a head which one of several suites needs."""
    for name in names:
        if head := SUITES[name].head:
            need_head(run, head, name)


def need_head(run: "runs.TrainedModel", head: str, suite: str) -> None:
    """Refuse a model without the head that a suite needs."""
    if not has_head(run.config.objectives, head):
        have = ", ".join(run.config.objectives) or "no head at all"
        needed = " or ".join(head.split())
        raise HeadError(
            f"suite {suite} needs the {needed} head; {run.folder} has {have}",
            "evaluate another checkpoint",
        )


def has_head(heads: Collection[str], needed: str) -> bool:
    """Tell whether a model with `heads` has the needed head, or one of several."""
    return not needed or not set(needed.split()).isdisjoint(heads)


def list_options() -> dict[str, dataclasses.Field]:
    """Return the options of all suites, as {option: field of `Options`}."""
    _, *fields = dataclasses.fields(Options)
    return {field.name: field for field in fields}


def list_flags() -> dict[str, dataclasses.Field]:
    """Return the options of all suites that are flags of `evaluate`, as {option: field}."""
    return {name: field for name, field in list_options().items() if field.metadata}

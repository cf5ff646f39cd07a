"""The registry of suites: what commands, studies and the Python API know of each.

A suite is a row of SUITES and a file of its name, which is imported when the suite runs and has

    score(run, options) -> (numbers by metric, numbers of each example)

To add a suite, write its file, then its row here. An option is a field of `Options`, and with that
a flag of `evaluate` and a setting of a study's `Suite`; the row says which options a suite reads.

    (options,) = suites.build_suites(["blimp"], source="files:blimp", limit=100)
    result, of_examples = suites.score(runs.open_run("runs/demo"), options)
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_jax.config import changed, knobs, suggest
from bert_jax.data.tasks import TASKS
from bert_jax.errors import ConfigError, HeadError
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
    """The options of a suite; options that it does not read have their defaults."""

    suite: str  # name of the row
    config: knobs.Config | None = None  # of --config
    changes: tuple[tuple[str, str], ...] = ()  # --config.KNOB=VALUE, to it or the checkpoint's own
    batch_size: int = option(0, "rows a step; changes no result", "N")
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
        0, "nelbo: numbers of masked tokens that an example is read under (default: 8)", "N"
    )
    within_word: bool = option(
        False, "pll, blimp: mask the later pieces of a token's word with it (PLL-word-l2r)"
    )
    submission: str = option(
        "",
        "tasks of GLUE, SQuAD: write the files that their servers take, for the test splits or "
        "that of --split",
        "DIR",
    )
    task: str = option("", "sts, probe: a row of bert_jax/data/tasks.py", "NAME")


class SuiteRow(NamedTuple):
    """A suite as it is known before it runs."""

    reads: str  # names of options; +NAME is read only with a source, -NAME only without one
    finds: str = ""  # patterns of its metrics; without them no study asks
    head: str = ""  # that the model must have, if that does not depend on the checkpoint
    file: str = ""  # of this folder, if it has another name than the suite

    @property
    def metrics(self) -> tuple[str, ...]:
        """The patterns of the names of the suite's metrics."""
        return tuple(self.finds.split())

    def list_options(self, source: bool) -> set[str]:
        """List the options that are read with a source of texts, or without one."""
        idle = "-" if source else "+"
        read = (name for name in self.reads.split() if not name.startswith(idle))
        return {"batch_size", *(name.strip("+-") for name in read)}


OF_LABELS = " ".join(dict.fromkeys(sum(knobs.METRICS.values(), ())))  # metrics of labelled tasks
OF_TASKS = "examples loss accuracy_low accuracy_high majority_accuracy"  # besides, of each task
OF_UNITS = "nats_per_word* nats_per_character* words characters"  # of a source
CORPUS = "-config -changes source"  # of a suite that reads a corpus, or else a source
LABELLED = "changes source limit split"

SUITES: dict[str, SuiteRow] = {
    "pretrain": SuiteRow("config changes", "*"),
    "nsp": SuiteRow(
        "config changes source +limit +split",
        "nsp_loss nsp_accuracy nsp_accuracy_low nsp_accuracy_high majority_accuracy examples",
        head="nsp",
    ),
    "cross_rate": SuiteRow(
        f"{CORPUS} +limit +words",
        "0.*/mlm_loss 0.*/mlm_accuracy 0.*/mlm_predictions 0.*/unigram_loss 0.*/unigram_accuracy "
        "0.*/word_accuracy 0.*/unknown_words 0.*/nats_per_word* 0.*/nats_per_character* 0.*/words "
        "0.*/characters",
        head="mlm",
    ),
    "nelbo": SuiteRow(
        f"{CORPUS} +limit +words draws",
        "nats_per_token perplexity standard_error tokens examples draws left_to_right/* "
        f"{OF_UNITS} unknown_words",
    ),
    "pll": SuiteRow(
        f"{CORPUS} limit within_word",
        "pseudo_perplexity* pll* perplexity log_likelihood texts tokens left_to_right/* "
        f"{OF_UNITS}",
    ),
    "blimp": SuiteRow(
        "source limit within_word",
        "accuracy* pairs ties field/* term/* paradigm/* left_to_right/*",
    ),
    "babylm": SuiteRow(
        "source limit",
        "macro_average */accuracy */spearman */examples */ties */split/* */UID/* */field/* "
        "*/linguistics_term/* */context_type/* */context_contrast/* */target_contrast/* reading/* "
        "left_to_right/*",
    ),
    "sts": SuiteRow(f"config {LABELLED} task", "*/spearman */pearson pairs"),
    "probe": SuiteRow(
        f"config {LABELLED} task",
        " ".join(
            f"majority/{name} embeddings/*/{name} layer_*/{name}" for name in OF_LABELS.split()
        )
        + " train scored",
    ),
    "task": SuiteRow(f"config {LABELLED} submission", f"{OF_LABELS} {OF_TASKS}"),
    "glue": SuiteRow(f"{LABELLED} submission", file="task"),
    **{n: SuiteRow(f"{LABELLED} submission", head=t.kind, file="task") for n, t in TASKS.items()},
}


# --- running --------------------------------------------------------------------------------------


def build_suites(names: Sequence[str], **options: Any) -> list[Options]:
    """Build the options of several suites; refuse an option that none of the suites reads."""
    rows = [find_row(name) for name in names]
    source = bool(options.get("source"))
    read = [row.list_options(source) for row in rows]
    known = [field.name for field in dataclasses.fields(Options)]
    for name, value in options.items():
        if name not in known:
            problem = f"suite {', '.join(names)} has no option {name!r}"
            raise ConfigError(problem, suggest(name, known))
        if value and not any(name in one for one in read):
            flag = "--config.KNOB" if name == "changes" else f"--{name.replace('_', '-')}"
            problem = f"{flag} means nothing to {', '.join(names)}"
            if any(name in row.list_options(not source) for row in rows):
                problem += " beside a --source" if source else " without a --source"
            raise ConfigError(problem, "leave it out")
    return [
        Options(name, **{key: value for key, value in options.items() if key in own})
        for name, own in zip(names, read, strict=True)
    ]


def find_row(name: str) -> SuiteRow:
    """Find the row of a suite; refuse a name that is not in the table."""
    if name not in SUITES:
        raise ConfigError(f"no suite {name!r}", suggest(name, SUITES))
    return SUITES[name]


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Score a model on a suite: numbers by metric, and by example if the suite has these."""
    row = SUITES[options.suite]
    check_heads(run, [options.suite])
    file = importlib.import_module(f"bert_jax.suites.{row.file or options.suite}")
    return file.score(run, options)


def evaluate(
    run: runs.TrainedModel, suite: str, config: knobs.Config | None = None, **options: Any
) -> Result:
    """Score a run on a suite; `config` names another corpus, masks or sizes than the run's own."""
    if config is not None:
        config = changed(config, options.get("changes", ()))
    return score(run, build_suites([suite], config=config, **options)[0])[0]


def check_heads(run: runs.TrainedModel, names: Sequence[str]) -> None:
    """Refuse a model without a head that one of several suites needs."""
    for name in names:
        if head := SUITES[name].head:
            need_head(run, head, name)


def need_head(run: runs.TrainedModel, head: str, suite: str) -> None:
    """Refuse a model without the head that a suite needs."""
    if head not in run.config.objectives:
        have = ", ".join(run.config.objectives) or "no head at all"
        raise HeadError(
            f"suite {suite} needs the {head} head; {run.folder} has {have}",
            "evaluate another checkpoint",
        )


def list_flags() -> Mapping[str, dataclasses.Field]:
    """List the options that are flags, by name."""
    return {field.name: field for field in dataclasses.fields(Options) if field.metadata}

"""The registry of suites: what commands, studies and the Python API know of each.

A suite is a row of SUITES and a file of its name. The row has a class whose fields are the options
of the suite. The file has a function

    score(run, options) -> (numbers by metric, numbers of each example)

and is imported when the suite runs, so that this module needs no jax. To add a suite, write its
file, then its row here. A new option is a field of a class here, and becomes a flag of `evaluate`.

    options = suites.build(["blimp"], source="files:blimp", limit=100)[0]
    result, of_examples = suites.score(runs.open_run("runs/demo"), options)
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

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


# --- options --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that every suite has."""

    suite: str  # name of the row
    batch_size: int = option(0, "rows a step; changes no result", "N")

    # Options that have a meaning only without a source, or only with one.
    without_source: ClassVar[tuple[str, ...]] = ()
    with_source: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def list_fields(cls, source: bool) -> set[str]:
        """List the options that are read with a source of texts, or without one."""
        idle = cls.without_source if source else cls.with_source
        return {field.name for field in dataclasses.fields(cls)} - {"suite", *idle}


@dataclasses.dataclass(frozen=True)
class OfCorpus(Options):
    """The options of a suite that reads the checkpoint's own text, or a config's."""

    config: knobs.Config | None = None  # of --config
    changes: tuple[tuple[str, str], ...] = ()  # --config.KNOB=VALUE, to it or the checkpoint's own


@dataclasses.dataclass(frozen=True)
class OfSource(Options):
    """The options of a suite that reads texts or labelled data by name."""

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


@dataclasses.dataclass(frozen=True)
class Passages(OfCorpus, OfSource):
    """The options of `cross_rate`: a corpus, or passages of a source."""

    words: int = option(
        0,
        "cross_rate, nelbo of a --source: most words of a passage, which is whole sentences (64)",
        "N",
    )
    without_source = ("config", "changes")
    with_source = ("limit", "words")


@dataclasses.dataclass(frozen=True)
class Bound(Passages):
    """The options of `nelbo`."""

    draws: int = option(
        0,
        "nelbo: numbers of masked tokens that an example is read under (default: 8)",
        "N",
    )


@dataclasses.dataclass(frozen=True)
class Pairs(OfSource):
    """The options of `blimp`."""

    within_word: bool = option(
        False,
        "pll, blimp: mask the later pieces of a token's word with it (PLL-word-l2r)",
    )


@dataclasses.dataclass(frozen=True)
class Texts(OfCorpus, Pairs):
    """The options of `pll`."""


@dataclasses.dataclass(frozen=True)
class Submitted(OfSource):
    """The options of `babylm`."""

    submission: str = option(
        "",
        "tasks of GLUE, SQuAD: write the files that their servers take, for the test splits or "
        "that of --split; babylm: the predictions as its pipeline saves them",
        "DIR",
    )


@dataclasses.dataclass(frozen=True)
class Labelled(OfSource):
    """The options of a suite that reads labelled data."""

    changes: tuple[tuple[str, str], ...] = ()
    split: str = option("", "the part of a task's data", "NAME")


@dataclasses.dataclass(frozen=True)
class NextSentence(OfCorpus, Labelled):
    """The options of `nsp`: the pairs of a corpus, or labelled pairs of a source."""


@dataclasses.dataclass(frozen=True)
class Frozen(OfCorpus, Labelled):
    """The options of `sts` and `probe`, which measure the vectors of a model on any task."""

    task: str = option("", "sts, probe: a row of bert_jax/data/tasks.py", "NAME")


@dataclasses.dataclass(frozen=True)
class NamedTask(Labelled, Submitted):
    """The options of a task that its name says all of."""


@dataclasses.dataclass(frozen=True)
class OwnTask(OfCorpus, NamedTask):
    """The options of `task`: the checkpoint's own, or that of a config."""


# --- the table ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A suite as it is known before it runs."""

    options: type[Options]
    finds: str = ""  # patterns of its metrics, with blanks between; without them no study asks
    head: str = ""  # that the model must have, where that does not depend on the checkpoint
    file: str = ""  # of this folder, where it has another name than the suite

    @property
    def metrics(self) -> tuple[str, ...]:
        """The patterns of its metrics."""
        return tuple(self.finds.split())


OF_LABELS = " ".join(dict.fromkeys(sum(knobs.METRICS.values(), ())))  # metrics of labelled tasks
# What every labelled task reports besides.
OF_TASKS = "examples loss accuracy_low accuracy_high majority_accuracy"
# What suites find of a source by word and by character.
OF_UNITS = "nats_per_word* nats_per_character* words characters"

SUITES: dict[str, Row] = {
    "pretrain": Row(OfCorpus, "*"),
    "nsp": Row(
        NextSentence,
        "nsp_loss nsp_accuracy nsp_accuracy_low nsp_accuracy_high majority_accuracy examples",
        head="nsp",
    ),
    "cross_rate": Row(
        Passages,
        "0.*/mlm_loss 0.*/mlm_accuracy 0.*/mlm_predictions 0.*/unigram_loss 0.*/unigram_accuracy "
        "0.*/word_accuracy 0.*/unknown_words 0.*/nats_per_word* 0.*/nats_per_character* 0.*/words "
        "0.*/characters",
        head="mlm",
    ),
    "nelbo": Row(
        Bound,
        "nats_per_token perplexity standard_error tokens examples draws left_to_right/* "
        f"{OF_UNITS} unknown_words",
    ),
    "pll": Row(
        Texts,
        "pseudo_perplexity* pll* perplexity log_likelihood texts tokens left_to_right/* "
        f"{OF_UNITS}",
    ),
    "blimp": Row(Pairs, "accuracy* pairs ties field/* term/* paradigm/* left_to_right/*"),
    "babylm": Row(
        Submitted,
        "macro_average */accuracy */spearman */examples */ties */split/* */UID/* */field/* "
        "*/linguistics_term/* */context_type/* */context_contrast/* */target_contrast/* reading/* "
        "left_to_right/*",
    ),
    "sts": Row(Frozen, "*/spearman */pearson pairs"),
    "probe": Row(
        Frozen,
        " ".join(
            f"majority/{name} embeddings/*/{name} layer_*/{name}" for name in OF_LABELS.split()
        )
        + " train scored",
    ),
    "task": Row(OwnTask, f"{OF_LABELS} {OF_TASKS}"),
    "glue": Row(NamedTask, file="task"),
    **{name: Row(NamedTask, head=task.kind, file="task") for name, task in TASKS.items()},
}


# --- running --------------------------------------------------------------------------------------


def build(names: Sequence[str], **options: Any) -> list[Options]:
    """Build the options of several suites; refuse an option that none of the suites reads.

    A suite gets those of the options that it reads.
    """
    rows = [find_row(name) for name in names]
    source = bool(options.get("source"))
    read = set().union(*(row.options.list_fields(source) for row in rows))
    for name, value in options.items():
        if value and name not in read:
            flag = "--config.KNOB" if name == "changes" else f"--{name.replace('_', '-')}"
            problem = f"{flag} means nothing to {', '.join(names)}"
            if any(name in row.options.list_fields(not source) for row in rows):
                problem += " beside a --source" if source else " without a --source"
            raise ConfigError(problem, "leave it out")
    built = []
    for name, row in zip(names, rows, strict=True):
        own = row.options.list_fields(source) & options.keys()
        built.append(row.options(name, **{key: options[key] for key in own}))
    return built


def find_row(name: str) -> Row:
    """Find the row of a suite; refuse a name that is not in the table."""
    if name not in SUITES:
        raise ConfigError(f"no suite {name!r}", suggest(name, SUITES))
    return SUITES[name]


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Score a model on a suite: numbers by metric, and where the suite has them by example."""
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
    return score(run, build([suite], config=config, **options)[0])[0]


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


def list_options() -> Mapping[str, dataclasses.Field]:
    """List the options of all suites that are flags, by name."""
    fields = {f.name: f for row in SUITES.values() for f in dataclasses.fields(row.options)}
    return {name: field for name, field in fields.items() if field.metadata}

"""The options of suites: a class for each suite, or for several suites that read the same options.

A field is a setting of a study's `Suite` and an argument of `bert_jax.score`. A field declared by
`arguments.option` is a flag of `evaluate` too. The options of a suite inherit from `CorpusOptions`
if it reads the checkpoint's own corpus, and from `SourceOptions` if it reads texts that are named.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bert_jax.config import knobs
from bert_jax.system.arguments import option


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that every suite has."""

    suite: str  # name of the row
    batch_size: int = option(0, "rows a step; changes no result", "N")

    # Names of fields that do nothing without a source, or beside one.
    need_source: ClassVar[tuple[str, ...]] = ()
    exclude_source: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def list_names(cls) -> list[str]:
        """List the names of the suite's options."""
        return [field.name for field in dataclasses.fields(cls) if field.name != "suite"]

    @classmethod
    def list_read(cls, source: bool) -> set[str]:
        """List the names of the options that the suite reads, with a source or without one."""
        return {*cls.list_names()}.difference(cls.exclude_source if source else cls.need_source)


@dataclasses.dataclass(frozen=True)
class CorpusOptions(Options):
    """The options of a suite that reads the checkpoint's own corpus, or the corpus of a config."""

    config: knobs.Config | None = None  # of --config
    changes: tuple[tuple[str, str], ...] = ()  # --config.KNOB=VALUE, to it or the checkpoint's own


@dataclasses.dataclass(frozen=True)
class SourceOptions(Options):
    """The options of a suite that reads texts or labelled data from a source that is named."""

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


# --- texts ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PassageOptions(CorpusOptions, SourceOptions):
    """The options of `cross_rate`, on a corpus or on passages of a source."""

    words: int = option(
        0,
        "cross_rate, nelbo of a --source: most words of a passage, which is whole sentences (64)",
        "N",
    )
    need_source = ("limit", "words")
    exclude_source = ("config", "changes")


@dataclasses.dataclass(frozen=True)
class NelboOptions(PassageOptions):
    """The options of `nelbo`."""

    draws: int = option(
        0, "nelbo: numbers of masked tokens that an example is read under (default: 8)", "N"
    )


@dataclasses.dataclass(frozen=True)
class BlimpOptions(SourceOptions):
    """The options of `blimp`."""

    within_word: bool = option(
        False, "pll, blimp: mask the later pieces of a token's word with it (PLL-word-l2r)"
    )


@dataclasses.dataclass(frozen=True)
class PllOptions(CorpusOptions, BlimpOptions):
    """The options of `pll`."""

    exclude_source = ("config", "changes")


# --- labelled data --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LabelledOptions(SourceOptions):
    """The options of a suite that reads labelled data."""

    changes: tuple[tuple[str, str], ...] = ()
    split: str = option("", "the part of a task's data", "NAME")


@dataclasses.dataclass(frozen=True)
class NspOptions(CorpusOptions, LabelledOptions):
    """The options of `nsp`, on the pairs of a corpus or on labelled pairs of a source."""

    need_source = ("limit", "split")


@dataclasses.dataclass(frozen=True)
class NamedTaskOptions(LabelledOptions):
    """The options of the suites of named tasks (rows of `data/tasks.py`), and of `glue`."""

    submission: str = option(
        "",
        "tasks of GLUE, SQuAD: write the files that their servers take, for the test splits or "
        "that of --split",
        "DIR",
    )


@dataclasses.dataclass(frozen=True)
class TaskOptions(CorpusOptions, NamedTaskOptions):
    """The options of `task`: the checkpoint's own task, or the task of a config."""


@dataclasses.dataclass(frozen=True)
class FrozenOptions(CorpusOptions, LabelledOptions):
    """The options of `sts` and `probe`, which measure the vectors of a frozen model on a task."""

    task: str = option("", "sts, probe: a row of bert_jax/data/tasks.py", "NAME")

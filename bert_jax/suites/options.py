"""The options of suites; the row of a suite in `SUITES` says which of them the suite reads.

A field is a setting of a study's `Suite` and an argument of `bert_jax.score`. A field declared by
`arguments.option` is a flag of `evaluate` too.
"""

from __future__ import annotations

import dataclasses

from bert_jax.config import knobs
from bert_jax.system.arguments import option


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that a suite was given; options that it does not read have their defaults."""

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
        0, "nelbo: numbers of masked tokens that an example is read under (default: 8)", "N"
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

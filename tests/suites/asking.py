"""What a suite finds, held against what its row promises to comparisons of a study."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax import suites
from bert_jax.interop import runs


def score(run: runs.TrainedModel, suite: str, **asked: Any) -> suites.Detailed:
    """Score a run on a suite, in all and by example."""
    (options,) = suites.build_options([suite], **asked)
    return suites.score(run, options)


def ask(run: runs.TrainedModel, suite: str, **asked: Any) -> dict[str, Any]:
    """Score a run on a suite; each metric that it finds fits a pattern of the suite's row."""
    found, _ = score(run, suite, **asked)
    known = suites.SUITES[suite].metrics or ("*",)
    names = [*flatten_dict(found, sep="/")]
    assert [name for name in names if not any(fnmatch.fnmatchcase(name, p) for p in known)] == []
    return found


WORDS = ["cat", "dog", "friend", "river", "child", "bird", "garden", "sea", "tree", "road"]


def write_pairs(
    folder: Path, column: str, values: list[object]
) -> tuple[Path, list[tuple[str, str]]]:
    random = np.random.default_rng(3)
    pairs = [(" ".join(random.choice(WORDS, 2)), str(random.choice(WORDS))) for _ in values]
    rows = [f"{a}\t{b}\t{value}" for (a, b), value in zip(pairs, values, strict=True)]
    names = {"label": "text\ttext_pair", "score": "sentence1\tsentence2"}[column]
    file = folder / f"{column}.tsv"
    file.write_text("\n".join([f"{names}\t{column}", *rows]) + "\n")
    return file, pairs

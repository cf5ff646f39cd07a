"""Pseudo-log-likelihood and pseudo-perplexity of texts (Salazar et al., 2020)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

from bert_jax import runs
from bert_jax.data import order
from bert_jax.data.shards import Shard
from bert_jax.errors import DataError
from bert_jax.suites import corpus, lines
from bert_jax.suites.base import Ask, Progress, Result
from bert_jax.suites.rows import Scorer

SENTENCES = 200  # of the checkpoint's own validation split, unless --limit says otherwise
_ORDER = 0x504C4C  # keeps the order's hashes apart from those of other orders


def pll(run: runs.Run, ask: Ask) -> Result:
    """What texts have on average, and the inverse geometric mean of the probabilities of all tokens."""
    score = Scorer(run, ask, "pll")
    texts = _of_files(run, ask) if ask.source else _of_corpus(run, ask)
    scores = score(texts, Progress("pll: tokens"))
    total, count = math.fsum(float(one.sum()) for one in scores), sum(map(len, scores))
    name = "_word_l2r" if ask.within_word else ""
    return {
        "texts": len(texts),
        "tokens": count,
        f"pll{name}": total / len(texts),
        f"pseudo_perplexity{name}": math.exp(-total / count),
    }


def _of_files(run: runs.Run, ask: Ask) -> list[list[int]]:
    example = "files:texts.txt"
    texts = []
    for path in lines.find(ask.source, "pll", example):
        if ".jsonl" in path.suffixes or path.suffix == ".json":
            texts += [row["text"] for row in lines.objects(path, ["text"])]
        else:
            texts += [text for _, text in lines.read(path)]
    encoded = [ids for ids in run.tokenizer.encode_batch(texts[: ask.limit or None]) if ids]
    if not encoded:
        raise DataError(f"{ask.source} holds no text", f"a text a line, for example --source={example}")
    return encoded


def _of_corpus(run: runs.Run, ask: Ask) -> list[list[int]]:
    """Sentences of the validation split, drawn by a hash of their number."""
    shards: Sequence[Shard] = corpus.prepared(run, corpus.chosen(run, ask)).splits["validation"]
    ends = np.cumsum([len(shard.sentence_ends) for shard in shards])
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        raise DataError("the validation split is empty", "name texts: --source=files:texts.txt")
    wanted = min(ask.limit or SENTENCES, total)
    print(f"pll: {wanted:,} of {total:,} sentences of the validation split, the same ones each time", file=sys.stderr)
    found = []
    for number in order.permute(np.arange(wanted), total, order.key(_ORDER)).tolist():
        at = int(np.searchsorted(ends, number, side="right"))
        shard, index = shards[at], number - (int(ends[at - 1]) if at else 0)
        start = int(shard.sentence_ends[index - 1]) if index else 0
        found.append(np.asarray(shard.tokens[start : int(shard.sentence_ends[index])]).tolist())
    return found

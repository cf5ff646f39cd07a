"""Audit a prepared corpus: counts, lengths, and warnings of what would spoil training on it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_jax.data import hashing
from bert_jax.data.text.shards import Shard

BINS = 21  # lengths 1, 2-3, 4-7, ... by powers of two
# Shares above which `warnings` warns:
MANY = 0.2  # documents of one sentence; with more, most next sentences of NSP are random ones
REPEATED = 0.3  # tokens in sentences that occurred before in the shard, which a model memorises
UNKNOWN = 0.01  # [UNK] tokens; with more, the vocabulary does not fit the text


def lengths(shards: Iterable[Shard]) -> dict[str, Any]:
    """Count lengths, documents of one sentence and tokens in repeated sentences of a split."""
    histogram = {"document_tokens": np.zeros(BINS, int), "sentence_tokens": np.zeros(BINS, int)}
    single = repeated = 0
    for shard in shards:
        repeated += _repeated(shard)
        sentences = np.diff(shard.sentence_ends, prepend=shard.sentence_ends.dtype.type(0))
        documents = np.diff(
            shard.sentence_ends[shard.document_ends - 1].astype(np.int64), prepend=0
        )
        single += int((np.diff(shard.document_ends.astype(np.int64), prepend=0) == 1).sum())
        for name, values in (("document_tokens", documents), ("sentence_tokens", sentences)):
            bins = np.frexp(values.astype(np.float64))[1] - 1  # exact floor of the logarithm
            histogram[name] += np.bincount(np.minimum(bins, BINS - 1), minlength=BINS)
    return {name: values.tolist() for name, values in histogram.items()} | {
        "one_sentence_documents": single,
        "repeated_tokens": repeated,
    }


def _repeated(shard: Shard) -> int:
    """Count the tokens of sentences that also occur earlier in the shard, by 64-bit hashes."""
    ends = np.asarray(shard.sentence_ends, np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    if not len(ends):
        return 0
    hashes = np.empty(len(ends), np.uint64)
    for first in range(0, len(ends), 1 << 17):  # bounded memory
        block = slice(first, first + (1 << 17))
        begin, end = int(starts[block][0]), int(ends[block][-1])
        index = np.arange(begin, end) - np.repeat(starts[block], ends[block] - starts[block])
        tokens = np.asarray(shard.tokens[begin:end], np.uint64)
        mixed = hashing.mix_words(tokens + (index.astype(np.uint64) << np.uint64(32)))
        hashes[block] = np.add.reduceat(mixed, starts[block] - begin)
    _, first_seen = np.unique(hashes, return_index=True)
    repeated = np.ones(len(ends), bool)
    repeated[first_seen] = False
    return int((ends - starts)[repeated].sum())


def unigrams(shards: Iterable[Shard], size: int) -> np.ndarray:
    """Count how often each token occurs: int64 [V]."""
    counts = np.zeros(size, np.int64)
    for shard in shards:
        for start in range(0, len(shard.tokens), 1 << 22):
            counts += np.bincount(shard.tokens[start : start + (1 << 22)], minlength=size)
    return counts


def warnings(audit: dict[str, Any]) -> list[str]:
    """Return warnings of what in the audit would spoil training on the corpus."""
    texts = []
    train = audit["train"]
    if train["documents"] == 1:
        texts.append(
            "one training document: NSP has no other document for a random next; "
            "set --config.pairs=none"
        )
    single = train["one_sentence_documents"] / max(1, train["documents"])
    if train["documents"] > 1 and single > MANY:
        texts.append(
            f"{single:.0%} of training documents have one sentence: NSP finds no true next in "
            "them; separate documents by blank lines, or set --config.pairs=none"
        )
    repeated = train["repeated_tokens"] / max(1, train["tokens"])
    if repeated > REPEATED:
        texts.append(
            f"{repeated:.0%} of training tokens are in sentences that came before: the loss of "
            "such text says little; are lines repeated in the files?"
        )
    if not audit["validation"]["documents"] and audit["validation_fraction"]:
        texts.append("no validation documents: one document cannot be divided")
    for side in ("train", "validation"):
        share = audit[side]["unknown_share"]
        if share > UNKNOWN:
            texts.append(
                f"{share:.1%} of {side} tokens are [UNK]: does the tokenizer fit this text?"
            )
    for kind, description in (("bad_text", "bad bytes"), ("bad_rows", "malformed rows")):
        if audit.get(kind):
            texts.append(f"{audit[kind]} times {description}, first {audit['first'].get(kind, '')}")
    return texts


ROWS = (
    ("documents read", "documents"),
    ("  empty", "empty"),
    ("  dropped for bad text", "bad_documents"),
    ("  exact duplicates", "duplicates"),
    ("  near duplicates", "near_duplicates"),
    ("  cut as over-long", "cut_documents"),
    ("lines with bad text", "bad_lines"),
    ("over-long sentences cut", "cut_sentences"),
    ("sentences without tokens", "empty_sentences"),
    ("malformed rows skipped", "bad_rows"),
)


def table(audit: dict[str, Any]) -> str:
    """Format the audit as a table for people."""
    lines = [
        f"{'corpus':<26}{audit['source']:>14}",
        f"{'fingerprint':<26}{audit['fingerprint'][:16]:>18}",
    ]
    # Several docstrings make one document, and the rows count docstrings.
    unit = "docstrings" if audit["source"] == "docstrings" else "documents"
    lines += [
        f"{label.replace('documents', unit):<26}{audit.get(key, 0):>14,}" for label, key in ROWS
    ]
    decided = "one a line" if audit["one_sentence_lines"] else "found by sentencex"
    measured = audit["lines_with_several"]
    share = "" if measured is None else f", {measured:.0%} of sampled lines hold several"
    lines.append(f"sentences: {decided}{share}")
    lines.append(f"{'':<26}{'train':>14}{'validation':>14}")
    for key in ("documents", "one_sentence_documents", "sentences", "tokens"):
        train, validation = (audit[side][key] for side in ("train", "validation"))
        lines.append(f"{key.replace('_', ' '):<26}{train:>14,}{validation:>14,}")
    lines.append(
        f"{'[UNK] share':<26}"
        + "".join(f"{audit[s]['unknown_share']:>14.3%}" for s in ("train", "validation"))
    )
    lines.append(
        f"vocabulary {audit['vocab_size']:,}; unigram entropy {audit['unigram_entropy']:.3f} nats"
    )
    for key in ("document_tokens", "sentence_tokens"):
        counts = audit["train"][key]
        total = max(1, sum(counts))
        used = [i for i, count in enumerate(counts) if count]
        lines.append(f"{key.replace('_', ' ')} (train)")
        for i in range(used[0], used[-1] + 1) if used else ():
            bound = f"{2**i} to {2 ** (i + 1) - 1}" if i + 1 < BINS else f"from {2**i}"
            lines.append(f"  {bound:<24}{counts[i]:>14,}  {'#' * round(40 * counts[i] / total)}")
    return "\n".join([*lines, *(f"warning: {text}" for text in audit["warnings"])])


def entropy(counts: np.ndarray) -> float:
    """Return the entropy in nats of a vector of counts."""
    shares = counts[counts > 0] / max(1, counts.sum())
    return -math.fsum((shares * np.log(shares)).tolist()) + 0.0

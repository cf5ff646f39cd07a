"""Audit a prepared corpus: count its parts, and warn of what would spoil training on it."""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data import hashing
from bert_jax.data.corpus import SPLITS
from bert_jax.errors import DataError
from bert_jax.system import jsons

logger = logging.getLogger(__name__)

# Shares above which `find_problems` warns:
MANY = 0.2  # documents of one sentence; with more, most next sentences of NSP are random ones
REPEATED = 0.3  # tokens in sentences that occurred before in some megabytes of text
BAD = 0.001  # lines with U+FFFD, which stands for bytes that are no UTF-8
UNKNOWN = 0.01  # [UNK] tokens; with more, the vocabulary does not fit the text


def count_repeated(tokens: np.ndarray, lengths: np.ndarray) -> int:
    """Count the tokens in sentences that repeat an earlier sentence.

    Args:
      tokens: the tokens of all sentences, one sentence after the other [T].
      lengths: the number of tokens of each sentence [N], all above 0.
    """
    if not len(lengths):
        return 0
    starts = np.cumsum(lengths) - lengths
    # The hash of a sentence is the sum of hashes of its tokens, each with its place. [T] -> [N]
    places = np.arange(len(tokens)) - np.repeat(starts, lengths)
    mixed = hashing.mix_words(
        tokens.astype(np.uint64) + (places.astype(np.uint64) << np.uint64(32))
    )
    seen = np.unique(np.add.reduceat(mixed, starts), return_index=True)[1]
    return int(lengths.sum() - lengths[seen].sum())


def measure_entropy(counts: np.ndarray) -> float:
    """Return the entropy in nats of a vector of counts."""
    shares = counts[counts > 0] / max(1, counts.sum())
    return -float((shares * np.log(shares)).sum()) + 0.0


def find_problems(audit: dict[str, Any], pairs: str) -> list[str]:
    """Return a warning for each fact that would spoil training with a value of `pairs`."""
    texts = []
    train = audit["train"]
    single = train["one_sentence_documents"] / max(1, train["documents"])
    if pairs == "none":
        pass  # the first two concern pairs of sentences only
    elif train["documents"] == 1:
        texts.append(
            "one training document: NSP has no other document for a random next; "
            "set --config.pairs=none"
        )
    elif single > MANY:
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
    for side in SPLITS:
        share = audit[side]["unknown_share"]
        if share > UNKNOWN:
            texts.append(
                f"{share:.1%} of {side} tokens are [UNK]: does the tokenizer fit this text?"
            )
    if audit["bad_lines"] > BAD * audit["lines"]:
        texts.append(
            f"{audit['bad_lines']} lines with bytes that are no text, first in the document at "
            f"{audit['first_bad']}"
        )
    return texts


def warn_of_problems(folder: Path, pairs: str) -> None:
    """Log what spoils training on a prepared corpus, with this value of the knob `pairs`."""
    for text in find_problems(jsons.read(folder / "audit.json", DataError, dict), pairs):
        logger.warning(text)


def format_audit(audit: dict[str, Any]) -> str:
    """Format an audit as a table for people."""
    # Several paragraphs of docstrings make one document, and the rows count paragraphs.
    unit = "paragraphs" if audit["source"] == "docstrings" else "documents"
    decided = "one a line" if audit["one_sentence_lines"] else "found by sentencex"
    if audit["lines_with_several"] is not None:
        decided += f", {audit['lines_with_several']:.0%} of sampled lines hold several"
    lines = [
        f"corpus {audit['source']}, fingerprint {audit['fingerprint'][:16]}",
        f"{audit['documents']:,} {unit} read, {audit['empty']:,} empty, "
        f"{audit['duplicates']:,} exact duplicates",
        f"{audit['bad_lines']:,} lines with bad text, "
        f"{audit['empty_sentences']:,} sentences without tokens",
        f"sentences: {decided}",
        f"{'':<26}{'train':>14}{'validation':>14}",
    ]
    for key in ("documents", "one_sentence_documents", "sentences", "tokens"):
        train, validation = (audit[side][key] for side in SPLITS)
        lines.append(f"{key.replace('_', ' '):<26}{train:>14,}{validation:>14,}")
    train, validation = (audit[side]["unknown_share"] for side in SPLITS)
    lines.append(f"{'[UNK] share':<26}{train:>14.3%}{validation:>14.3%}")
    lines.append(
        f"vocabulary {audit['vocab_size']:,}; unigram entropy {audit['unigram_entropy']:.3f} nats"
    )
    return "\n".join(lines)

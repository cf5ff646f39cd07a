"""Train a vocabulary that depends only on the set of texts, not on threads or on the process."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bert_jax.config import knobs
from bert_jax.data.engines import PREFIX, SPECIALS, WORD_LENGTH, build_byte_level, build_wordpiece
from bert_jax.data.tokenizer import Tokenizer, replace_surrogates
from bert_jax.errors import DataError

COVERAGE = 0.99999  # share of the characters of the training text that the alphabet covers
LINE = 10_000  # characters that the trainer gets at once
HINT = "check config.corpus.path, or set config.tokenizer.path"


def train_vocabulary(
    texts: Iterable[str], settings: knobs.Tokenizer, folder: Path | None = None
) -> Tokenizer:
    """Train a vocabulary on texts; a temporary file in `folder` holds the normalised text.

    The library's trainer of WordPiece numbers characters in hash order, and breaks ties between
    merges by these numbers. So the result would differ between processes. Here every piece of one
    character gets its number beforehand: the alphabet by `initial_alphabet`, and its continuations
    as "special" tokens.
    """
    if settings.kind == "bpe":
        return _train_byte_pairs(texts, settings.vocab_size)
    rules = build_wordpiece(SPECIALS, lowercase=settings.lowercase)
    normalize = rules.normalizer.normalize_str
    # The text is normalised once, to count its characters, and read once more by the trainer.
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n", dir=folder) as spool:
        counts = np.zeros(0x110000, np.int64)  # of each code point
        for text in join_texts(texts):
            clean = normalize(replace_surrogates(text))
            codes = np.bincount(np.frombuffer(clean.encode("utf-32-le"), np.uint32))
            counts[: len(codes)] += codes
            spool.write(clean + "\n")
        letters = choose_alphabet(counts, (settings.vocab_size - len(SPECIALS)) // 2)
        if not letters:
            raise DataError("no text to train a vocabulary on", HINT)
        split = rules.pre_tokenizer.pre_tokenize_str
        joins = [c for c in letters if len(split(normalize(f"a{c}"))) == 1]
        trainer = trainers.WordPieceTrainer(
            vocab_size=settings.vocab_size,
            min_frequency=2,
            show_progress=False,
            special_tokens=[*SPECIALS, *(PREFIX + c for c in joins)],
            initial_alphabet=letters,
            limit_alphabet=len(letters),
            continuing_subword_prefix=PREFIX,
        )
        engine = tokenizers.Tokenizer(models.WordPiece(unk_token=SPECIALS[1]))
        engine.pre_tokenizer = rules.pre_tokenizer
        spool.seek(0)
        engine.train_from_iterator((line[:-1] for line in spool), trainer)
    ids = engine.get_vocab()
    limit = settings.max_word_length or WORD_LENGTH
    pieces = sorted(ids, key=ids.__getitem__)
    return Tokenizer(build_wordpiece(pieces, lowercase=settings.lowercase, max_word_length=limit))


def _train_byte_pairs(texts: Iterable[str], size: int) -> Tokenizer:
    """Train byte-level BPE of `size` pieces; its alphabet is all bytes."""
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    engine = build_byte_level(models.BPE(), add_prefix_space=True)
    engine.train_from_iterator(join_texts(texts), trainer)
    return Tokenizer(build_byte_level(engine.model))


def join_texts(texts: Iterable[str]) -> Iterator[str]:
    """Join short texts and cut long texts, so that the trainer needs little time and memory."""
    held: list[str] = []
    size = 0
    for text in texts:
        for start in range(0, len(text), LINE):
            part = text[start : start + LINE]
            if size + len(part) > LINE:
                yield " ".join(held)
                held = []
                size = 0
            held.append(part)
            size += len(part)
    if held:
        yield " ".join(held)


def choose_alphabet(counts: np.ndarray, limit: int) -> list[str]:
    """Return the most frequent characters that together cover COVERAGE of the text, sorted.

    At most `limit` characters are returned. `counts` has the count of each code point.
    """
    counts[[0x20, 0x0A]] = 0
    order = np.argsort(-counts, kind="stable")
    needed = int(np.searchsorted(np.cumsum(counts[order]), COVERAGE * counts.sum())) + 1
    kept = order[: min(needed, limit)]
    return sorted(chr(c) for c in kept if counts[c])

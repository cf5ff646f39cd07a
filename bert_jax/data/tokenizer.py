"""Tokenize text: WordPiece as google-research/bert defines it, byte-level BPE, or an expression.

tokenizer = load(Path("vocab.txt"))
tokenizer.encode_batch(["Fill the [MASK]."])                -> the pieces of "[", "mask" and "]"
tokenizer.encode_batch(["Fill the [MASK]."], escape=False)  -> the special token

Google's and Hugging Face's WordPiece give the same ids but for three things, all options here:
- `max_word_length`: a longer word is [UNK]; google's limit is 200 characters, Hugging Face's 100;
- `escape`: google's cuts a literal "[MASK]" into pieces, Hugging Face's makes it the special token;
- `characters`: google's goes by the Unicode tables of Python, Hugging Face's by its own, see
  `bert_jax.data.characters`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.config.data_knobs import VOCABULARIES
from bert_jax.data import bpe, bpe_files, engines, vocabulary
from bert_jax.data.characters import replace_surrogates
from bert_jax.data.training_text import alphabet, batches
from bert_jax.data.vocabulary import (
    GOOGLE,
    HUGGINGFACE,
    PREFIX,
    SPECIALS,
    WORD_LENGTH,
    Style,
)
from bert_jax.errors import ConfigError, DataError
from bert_jax.system import disk

# Files of a saved tokenizer, but for bpe: see `Tokenizer.files`.
FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_SPACING = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r" (?=[.,;:!?%)\]}…])", ""),
        (r"(?<=[(\[{]) ", ""),
        (r"(?<=\d\.) (?=\d)", ""),
        (r"(?<=\w) (['\u2019]) (?=(?:s|t|d|m|re|ve|ll)\b)", r"\1"),
        (r"(?<=\w) ([-/_]) (?=\w)", r"\1"),
        (r'" ([^"]*) "', r'"\1"'),
        (r"(?<=[\u3040-\u30ff\u3400-\u9fff]) (?=[\u3040-\u30ff\u3400-\u9fff])", ""),
    )
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")


class Tokenizer:
    """A vocabulary and the style in which text is split; ids come without [CLS] and [SEP]."""

    def __init__(self, vocab: list[str], style: Style, of_bytes: bpe.Bytes | None = None):
        """Build a tokenizer; `of_bytes` has what files say of one whose kind is bpe."""
        ids = {piece: i for i, piece in enumerate(vocab)}
        self.vocab = vocab
        self.style = style
        self.size = len(vocab)
        self.lowercase = style.lowercase
        self.max_word_length = style.max_word_length
        self.has_words = VOCABULARIES[style.kind] is None
        self.hash = _hash(vocab, style)
        self._rules = engines.rules(style)
        self._bytes = of_bytes
        # Two engines, because a tokenizers object, not a call, decides if "[MASK]" is plain text.
        if of_bytes:
            self.special, self.continuation = of_bytes.special, of_bytes.continuation
            self._text, self._markup = (of_bytes.engine(markup) for markup in (False, True))
        else:
            self.special = Special(*(ids[name] for name in SPECIALS))
            self.continuation = np.array([piece.startswith(PREFIX) for piece in vocab], bool)  # [V]
            self._text = engines.build(ids, style)
            self._markup = engines.build(ids, style, markup=True)

    @property
    def blank(self) -> str:
        """Return what a word needs before it where it is not the first of its text: bpe's blank."""
        return " " if self._bytes else ""

    @property
    def divides_at_blanks(self) -> bool:
        """Tell whether the ids of a text are those of its words, each with its `blank`."""
        return self._bytes.divides_at_blanks if self._bytes else self.has_words

    @property
    def mask(self) -> str:
        """Return the special token that a text has where something is to be predicted."""
        return self.vocab[self.special.mask]

    @functools.cached_property
    def shown(self) -> list[str]:
        """Return the pieces as people read them; of bpe as their text, with its blanks."""
        return list(map(bpe.written, self.vocab)) if self._bytes else self.vocab

    def words(self, counts: np.ndarray, documents: int) -> int:
        """Return the words of documents whose tokens have these counts [V].

        Of WordPiece, a word is what begins one and has a letter or a digit; of bpe, what stands
        between blanks.
        """
        begins = ~self.continuation
        if self._bytes:
            return int(counts[begins].sum()) + (0 if self._bytes.prefixes else documents)
        begins &= [any(map(str.isalnum, piece)) for piece in self.vocab]
        return int(counts[begins].sum())

    def encode_batch(self, texts: Sequence[str], escape: bool = True) -> list[list[int]]:
        """Return the ids of each text.

        A literal "[MASK]" is plain text, or with escape=False the special token.
        """
        engine = self._text if escape else self._markup
        usual, others = self._separate(texts)
        try:
            encodings = engine.encode_batch_fast(usual, add_special_tokens=False)
        except TypeError:  # tokenizers refuses a lone surrogate, which is no character
            usual = [replace_surrogates(text) for text in usual]
            encodings = engine.encode_batch_fast(usual, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        for i, text in others.items():
            words = [word for word, _ in self._split(text, escape)]
            ids[i] = self._words.encode(words, is_pretokenized=True, add_special_tokens=False).ids
        return ids

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each text, and the start and end of each token in characters.

        Characters that normalisation drops lie in no token, except for marks on a letter, such as
        accents, which belong to the letter's token. Nor does the blank before a word.
        """
        usual, others = self._separate(texts)
        usual = [_SURROGATE.sub("\ufffd", text) for text in usual]  # keeps the length
        encodings = self._text.encode_batch(usual, add_special_tokens=False)
        results = [(encoding.ids, encoding.offsets) for encoding in encodings]
        for i, text in others.items():
            split = list(self._split(text))
            words = [word for word, _ in split]
            encoding = self._words.encode(words, is_pretokenized=True, add_special_tokens=False)
            tokens = [
                split[word or 0][1][slice(*part)]
                for word, part in zip(encoding.word_ids, encoding.offsets, strict=True)
            ]
            results[i] = (encoding.ids, [(min(token), max(token) + 1) for token in tokens])
        found = [
            (ids, _with_marks(text, offsets))
            for text, (ids, offsets) in zip(texts, results, strict=True)
        ]
        if not self._bytes:
            return found
        pairs = zip(texts, found, strict=True)
        return [(ids, bpe.without_blanks(text, offsets)) for text, (ids, offsets) in pairs]

    def _separate(self, texts: Sequence[str]) -> tuple[list[str], dict[int, str]]:
        """Return the texts, "" for those that the library would split differently; and those."""
        if self._rules is None:
            return list(texts), {}
        usual = [self.lowercase_sigmas(text) for text in texts]
        others = {i: usual[i] for i in self._rules.apart(usual)}
        for i in others:
            usual[i] = ""
        return usual, others

    def lowercase_sigmas(self, text: str) -> str:
        """Lowercase the letters whose lower case depends on their neighbours; keep the length."""
        return text if self._rules is None else self._rules.lowercase_sigmas(text)

    def _split(self, text: str, escape: bool = True) -> Iterator[tuple[str, list[int]]]:
        """Yield the words of a settled text by google's rules, with the index of each character."""
        assert self._rules is not None  # _separate finds no such text otherwise
        for i, part in enumerate([text] if escape else _SPECIAL.split(text)):
            if i % 2:
                yield part, []
                continue
            for letters in self._rules.words(part):
                word = "".join(letter for letter, _ in letters)
                # No piece holds a surrogate or a NUL, and the library accepts only the latter.
                yield _SURROGATE.sub("\0", word), [index for _, index in letters]

    @functools.cached_property
    def _words(self) -> tokenizers.Tokenizer:
        """The engine for text that is split into words already; special tokens are words too."""
        engine = tokenizers.Tokenizer(self._text.model)
        engine.add_special_tokens(list(SPECIALS))
        return engine

    def decode(self, ids: Sequence[int]) -> str:
        """Return readable text that shows special tokens."""
        return self._markup.decode([int(i) for i in ids], skip_special_tokens=False)

    def joined(self, ids: Sequence[int]) -> str:
        """Return the words that pieces make, with blanks between them."""
        if self._bytes:
            return self.decode(ids).strip()
        return " ".join(self.vocab[int(i)] for i in ids).replace(f" {PREFIX}", "")

    def readable(self, ids: Sequence[int]) -> str:
        """Return text as people write it, as far as the ids tell: no blanks around punctuation."""
        if self._bytes:
            return bpe.readable(list(map(int, ids)), self.special, self._markup.decode)
        if not self.has_words:
            return "".join(self.vocab[int(i)] for i in ids)
        text = self.joined(ids).removeprefix(PREFIX)
        for pattern, replacement in _SPACING:
            text = pattern.sub(replacement, text)
        return text

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of the files that `save` writes."""
        return bpe.FILES if self._bytes else FILES

    def save(self, folder: Path, model_max_length: int | None = None) -> None:
        """Write `files`, which both Hugging Face's AutoTokenizer and `load` read."""
        folder.mkdir(parents=True, exist_ok=True)
        names = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
        config = vocabulary.tokenizer_config(self.style, model_max_length) | names
        contents = (
            self._bytes.contents(model_max_length)
            if self._bytes
            else (
                "".join(f"{piece}\n" for piece in self.vocab),
                self._state(),
                json.dumps(config, indent=2) + "\n",
                json.dumps(names, indent=2) + "\n",
            )
        )
        for name, text in zip(self.files, contents, strict=True):
            disk.write(folder / name, text)

    def _state(self) -> str:
        """Return tokenizer.json: the library's own with `characters`, which the library ignores."""
        if self._rules is None:
            return self._markup.to_str(pretty=True)
        state = json.loads(self._markup.to_str())
        state["normalizer"]["characters"] = self.style.characters
        return json.dumps(state, ensure_ascii=False, indent=2)


def load(
    path: Path,
    kind: str = "auto",
    lowercase: bool | None = None,
    max_word_length: int | None = None,
    characters: str = "auto",
) -> Tokenizer:
    """Read a vocab.txt, a tokenizer.json or a folder with either; arguments override the files."""
    file, state = vocabulary.find(Path(path))
    of_bytes = bpe_files.read(file, state) if state and bpe_files.holds(file, state) else None
    if kind != "auto" and (kind == "bpe") != (of_bytes is not None):
        raise ConfigError(
            f"tokenizer.kind = {kind}, and {file} is {'no' if kind == 'bpe' else 'a'} bpe "
            "vocabulary",
            "--config.tokenizer.kind=auto goes by the files",
        )
    vocab, stated = (
        (of_bytes.vocab, {"kind": "bpe", "rules": of_bytes.digest})
        if of_bytes
        else vocabulary.read(file, state)
    )
    overrides: dict[str, Any] = {"lowercase": lowercase, "max_word_length": max_word_length}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    if kind != "auto":
        stated["kind"] = kind
    if overrides and stated["kind"] != "wordpiece":
        options = " and ".join(f"{name} = {value}" for name, value in overrides.items())
        reason = "takes all bytes as they are" if of_bytes else "has no words"
        raise ConfigError(
            f"{options} does nothing to {path}: its kind is {stated['kind']}, which {reason}",
            "--config.tokenizer.max_word_length=None leaves it to the vocabulary",
        )
    if characters != "auto":
        overrides["characters"] = characters
    style = Style(**({"lowercase": not vocabulary.has_capitals(vocab)} | stated | overrides))
    if characters not in ("auto", style.characters):
        raise ConfigError(
            f"characters = {characters} does nothing to {path}: google's code always cleans its "
            "text, and never cuts it by an expression",
            "--config.tokenizer.characters=auto leaves it to the vocabulary",
        )
    return Tokenizer(vocab, style, of_bytes)


def _hash(vocab: list[str], style: Style) -> str:
    """Return a digest of vocabulary and style.

    Only what differs from the library's own WordPiece is hashed besides case and word length, so
    that older digests stay valid.
    """
    plain = Style(
        lowercase=style.lowercase, max_word_length=style.max_word_length, characters=HUGGINGFACE
    )
    odd = {k: v for k, v in dataclasses.asdict(style).items() if v != getattr(plain, k)}
    settings = [vocab, style.lowercase, style.max_word_length, *([odd] if odd else [])]
    return hashlib.sha256(json.dumps(settings, ensure_ascii=True).encode()).hexdigest()


def _with_marks(text: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Extend the offsets of each token to the end of the combining marks that follow it."""
    if not offsets or text.isascii() or not any(unicodedata.category(c) == "Mn" for c in text):
        return offsets
    limits = [start for start, _ in offsets[1:]] + [len(text)]
    extended = []
    for (start, end), limit in zip(offsets, limits, strict=True):
        while end < limit and unicodedata.category(text[end]) == "Mn":
            end += 1
        extended.append((start, end))
    return extended


# --- training -------------------------------------------------------------------------------------


def train(texts: Iterable[str], settings: knobs.Tokenizer, folder: Path | None = None) -> Tokenizer:
    """Learn a vocabulary, which depends on the texts alone: not on their order, threads or process.

    The trainer numbers characters in hash order, and breaks ties between merges by number. So
    every piece of one character is given its number: the alphabet by `initial_alphabet`, its
    continuations as "special" tokens. `folder` is for a temporary file with the normalised text.
    """
    if settings.kind == "bpe":
        of_bytes = bpe.train(texts, settings.vocab_size)
        return Tokenizer(of_bytes.vocab, Style(kind="bpe", rules=of_bytes.digest), of_bytes)
    style = Style(
        lowercase=settings.lowercase,
        max_word_length=settings.max_word_length or WORD_LENGTH,
        characters=GOOGLE if settings.characters == "auto" else settings.characters,
    )
    normalize = _normalize_function(style)
    # The text is normalised once, to count its characters, and read once more by the trainer.
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n", dir=folder) as spool:
        counts = np.zeros(0x110000, np.int64)
        for text in batches(texts):
            clean = normalize(replace_surrogates(text))
            codes = np.bincount(np.frombuffer(clean.encode("utf-32-le"), np.uint32))
            counts[: len(codes)] += codes
            spool.write(clean + "\n")
        letters = alphabet(counts, (settings.vocab_size - len(SPECIALS)) // 2)
        if not letters:
            raise DataError(
                "no text to train a vocabulary on",
                "check config.corpus.path, or set config.tokenizer.path",
            )
        split = pre_tokenizers.BertPreTokenizer()
        joins = [c for c in letters if len(split.pre_tokenize_str(normalize(f"a{c}"))) == 1]
        trainer = trainers.WordPieceTrainer(
            vocab_size=settings.vocab_size,
            min_frequency=2,
            show_progress=False,
            special_tokens=[*SPECIALS, *(PREFIX + c for c in joins)],
            initial_alphabet=letters,
            limit_alphabet=len(letters),
            continuing_subword_prefix=PREFIX,
        )
        engine = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        engine.pre_tokenizer = split
        spool.seek(0)
        engine.train_from_iterator((line[:-1] for line in spool), trainer)
    ids = engine.get_vocab()
    return Tokenizer(sorted(ids, key=ids.__getitem__), style)


def _normalize_function(style: Style) -> Callable[[str], str]:
    """Return a function that normalises text; words the library splits differently stand apart."""
    normalizer, rules = engines.normalizer(style), engines.rules(style)

    def normalize(text: str) -> str:
        text = text if rules is None else rules.lowercase_sigmas(text)
        if rules is None or not rules.apart([text]):
            return normalizer.normalize_str(text)
        return " ".join("".join(letter for letter, _ in word) for word in rules.words(text))

    return normalize

"""Tokenize text: WordPiece as google-research/bert defines it, or tokens that match an expression.

tokenizer = load(Path("vocab.txt"))
tokenizer.encode_batch(["Fill the [MASK]."])                -> the pieces of "[", "mask" and "]"
tokenizer.encode_batch(["Fill the [MASK]."], escape=False)  -> the special token

Google's and Hugging Face's tokenizers give the same ids but for three things, all options here:
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
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.config.data_knobs import VOCABULARIES
from bert_jax.data import vocabulary
from bert_jax.data.characters import Rules, google, replace_surrogates
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

# Files of a saved tokenizer.
FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
COVERAGE = 0.99999  # share of the characters of the training text that the alphabet covers
LINE = 10_000  # characters that the trainer gets at once
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

    def __init__(self, vocab: list[str], style: Style):
        ids = {piece: i for i, piece in enumerate(vocab)}
        self.vocab = vocab
        self.style = style
        self.size = len(vocab)
        self.lowercase = style.lowercase
        self.max_word_length = style.max_word_length
        self.has_words = VOCABULARIES[style.kind] is None
        self.special = Special(*(ids[name] for name in SPECIALS))
        self.continuation = np.array([piece.startswith(PREFIX) for piece in vocab], bool)  # [V]
        self.hash = _hash(vocab, style)
        self._rules = _rules(style)
        # Two engines, because a tokenizers object, not a call, decides if "[MASK]" is plain text.
        self._text = _engine(ids, style)
        self._markup = _engine(ids, style, markup=True)

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
        accents, which belong to the letter's token.
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
        return [
            (ids, _with_marks(text, offsets))
            for text, (ids, offsets) in zip(texts, results, strict=True)
        ]

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

    def readable(self, ids: Sequence[int]) -> str:
        """Return text as people write it, as far as the ids tell: no blanks around punctuation."""
        pieces = [self.vocab[int(i)] for i in ids]
        if not self.has_words:
            return "".join(pieces)
        text = " ".join(pieces).replace(f" {PREFIX}", "").removeprefix(PREFIX)
        for pattern, replacement in _SPACING:
            text = pattern.sub(replacement, text)
        return text

    def save(self, folder: Path, model_max_length: int | None = None) -> None:
        """Write `FILES`, which both Hugging Face's AutoTokenizer and `load` read."""
        folder.mkdir(parents=True, exist_ok=True)
        names = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
        config = vocabulary.tokenizer_config(self.style, model_max_length) | names
        contents = (
            "".join(f"{piece}\n" for piece in self.vocab),
            self._state(),
            json.dumps(config, indent=2) + "\n",
            json.dumps(names, indent=2) + "\n",
        )
        for name, text in zip(FILES, contents, strict=True):
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
    vocab, stated = vocabulary.read(Path(path))
    overrides: dict[str, Any] = {"lowercase": lowercase, "max_word_length": max_word_length}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    if kind != "auto":
        stated["kind"] = kind
    if overrides and VOCABULARIES[stated["kind"]] is not None:
        options = " and ".join(f"{name} = {value}" for name, value in overrides.items())
        raise ConfigError(
            f"{options} does nothing to {path}: its kind is {stated['kind']}, which has no words",
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
    return Tokenizer(vocab, style)


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


def _engine(ids: dict[str, int], style: Style, markup: bool = False) -> tokenizers.Tokenizer:
    """Build the tokenizers object; `markup` finds special tokens in text and adds [CLS], [SEP]."""
    expression = VOCABULARIES[style.kind]
    if expression is None:
        model: Any = models.WordPiece(
            ids,
            unk_token="[UNK]",
            max_input_chars_per_word=style.max_word_length,
            continuing_subword_prefix=PREFIX,
        )
        engine = tokenizers.Tokenizer(model)
        engine.normalizer = _normalizer(style)
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece(prefix=PREFIX)
    else:  # an expression may match "[MASK]", so in plain text that must not be in the vocabulary
        hidden = set() if markup else {*SPECIALS} - {"[UNK]"}
        known = {piece: i for piece, i in ids.items() if piece not in hidden}
        engine = tokenizers.Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
        engine.normalizer = normalizers.Strip()
        engine.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
        engine.decoder = decoders.Fuse()
    if markup:
        engine.add_special_tokens(list(SPECIALS))
        engine.post_processor = processors.BertProcessing(
            ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
        )
    return engine


def _rules(style: Style) -> Rules | None:
    """Return google's character rules for a style that follows them, else None."""
    if style.characters != GOOGLE:
        return None
    accents = style.lowercase if style.strip_accents is None else style.strip_accents
    return google(style.lowercase, accents, style.chinese)


def _normalizer(style: Style) -> normalizers.BertNormalizer:
    return normalizers.BertNormalizer(
        clean_text=style.clean_text,
        handle_chinese_chars=style.chinese,
        strip_accents=style.strip_accents,
        lowercase=style.lowercase,
    )


# --- training -------------------------------------------------------------------------------------


def train(texts: Iterable[str], settings: knobs.Tokenizer, folder: Path | None = None) -> Tokenizer:
    """Learn a vocabulary, which depends on the texts alone: not on their order, threads or process.

    The trainer numbers characters in hash order, and breaks ties between merges by number. So
    every piece of one character is given its number: the alphabet by `initial_alphabet`, its
    continuations as "special" tokens. `folder` is for a temporary file with the normalised text.
    """
    style = Style(
        lowercase=settings.lowercase,
        max_word_length=settings.max_word_length or WORD_LENGTH,
        characters=GOOGLE if settings.characters == "auto" else settings.characters,
    )
    normalize = _normalize_function(style)
    # The text is normalised once, to count its characters, and read once more by the trainer.
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n", dir=folder) as spool:
        counts = np.zeros(0x110000, np.int64)
        for text in _batches(texts):
            clean = normalize(replace_surrogates(text))
            codes = np.bincount(np.frombuffer(clean.encode("utf-32-le"), np.uint32))
            counts[: len(codes)] += codes
            spool.write(clean + "\n")
        alphabet = _alphabet(counts, (settings.vocab_size - len(SPECIALS)) // 2)
        if not alphabet:
            raise DataError(
                "no text to train a vocabulary on",
                "check config.corpus.path, or set config.tokenizer.path",
            )
        split = pre_tokenizers.BertPreTokenizer()
        joins = [c for c in alphabet if len(split.pre_tokenize_str(normalize(f"a{c}"))) == 1]
        trainer = trainers.WordPieceTrainer(
            vocab_size=settings.vocab_size,
            min_frequency=2,
            show_progress=False,
            special_tokens=[*SPECIALS, *(PREFIX + c for c in joins)],
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
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
    normalizer, rules = _normalizer(style), _rules(style)

    def normalize(text: str) -> str:
        text = text if rules is None else rules.lowercase_sigmas(text)
        if rules is None or not rules.apart([text]):
            return normalizer.normalize_str(text)
        return " ".join("".join(letter for letter, _ in word) for word in rules.words(text))

    return normalize


def _batches(texts: Iterable[str]) -> Iterator[str]:
    """Join short texts and cut long ones, so that neither costs much time or memory."""
    held: list[str] = []
    size = 0
    for text in texts:
        if size + len(text) > LINE and held:
            yield " ".join(held)
            held, size = [], 0
        for start in range(0, len(text), LINE):
            part = text[start : start + LINE]
            held.append(part)
            size += len(part)
            if size >= LINE:
                yield " ".join(held)
                held, size = [], 0
    if held:
        yield " ".join(held)


def _alphabet(counts: np.ndarray, limit: int) -> list[str]:
    """Return the commonest characters that cover the text, at most `limit`, by code point."""
    counts[[0x20, 0x0A]] = 0
    order = np.argsort(-counts, kind="stable")
    needed = int(np.searchsorted(np.cumsum(counts[order]), COVERAGE * counts.sum())) + 1
    kept = order[: min(needed, limit)]
    return sorted(chr(c) for c in kept if counts[c])

"""Text to ids: WordPiece as google-research/bert defines it, or one vocabulary line per match of an expression.

tokenizer = load(Path("vocab.txt"))
tokenizer.encode_batch(["Fill the [MASK]."])                -> pieces of "[", "mask", "]": text is text
tokenizer.encode_batch(["Fill the [MASK]."], escape=False)  -> the special token

Google and Hugging Face give the same ids but for three things, each of which is a choice here:
- a word of more than 200 characters is [UNK] to google, of more than 100 to Hugging Face: `max_word_length`;
- google's tokenizer cuts a literal "[MASK]" into pieces, Hugging Face's makes it the special token: `escape`;
- google's goes by Python's Unicode tables, Hugging Face's by its own: `characters`, see `bert_jax.data.characters`.
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
from bert_jax.data import vocabulary
from bert_jax.data.characters import Rules, google
from bert_jax.data.vocabulary import (
    GOOGLE,
    HF_WORD_LENGTH,
    HUGGINGFACE,
    KINDS,
    PREFIX,
    SPECIALS,
    WORD_LENGTH,
    Style,
)
from bert_jax.errors import ConfigError, DataError
from bert_jax.system import disk

FILES = (
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)  # of a saved tokenizer
COVERAGE = 0.99999  # of the characters of the training text lies in the alphabet
LINE = 10_000  # characters the trainer gets at once
_SPACING = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
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
    """A vocabulary and how text is cut into it; ids carry no [CLS] or [SEP]."""

    def __init__(self, vocab: list[str], style: Style):
        ids = {piece: i for i, piece in enumerate(vocab)}
        self.vocab = vocab
        self.style = style
        self.size = len(vocab)
        self.lowercase = style.lowercase
        self.max_word_length = style.max_word_length
        self.has_words = KINDS[style.kind] is None
        self.special = Special(*(ids[name] for name in SPECIALS))
        self.continuation = np.array([piece.startswith(PREFIX) for piece in vocab], bool)  # [V]
        self.hash = _hash(vocab, style)
        self._rules = _rules(style)
        # Two engines, because whether "[MASK]" is text is a property of the tokenizers object, not of a call.
        self._text = _engine(ids, style)
        self._markup = _engine(ids, style, markup=True)

    def encode_batch(self, texts: Sequence[str], escape: bool = True) -> list[list[int]]:
        """Ids of each text. A literal "[MASK]" is ordinary text, or with escape=False the special token."""
        engine = self._text if escape else self._markup
        usual, others = self._sorted_out(texts)
        try:
            found = engine.encode_batch_fast(usual, add_special_tokens=False)
        except TypeError:  # what tokenizers says of a lone surrogate, which is no character
            found = engine.encode_batch_fast(
                [_characters(text) for text in usual], add_special_tokens=False
            )
        ids = [one.ids for one in found]
        for i, text in others.items():
            words = [word for word, _ in self._cut(text, escape)]
            ids[i] = self._words.encode(words, is_pretokenized=True, add_special_tokens=False).ids
        return ids

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Ids of each text, and where in the text each of them lies, in characters: start and end.

        What is dropped on the way to the vocabulary lies in no token; only marks on a letter, such as accents, stay
        with it.
        """
        usual, others = self._sorted_out(texts)
        usual = [
            _SURROGATE.sub("\ufffd", text) for text in usual
        ]  # one for one, so that places stay
        found = [
            (one.ids, one.offsets)
            for one in self._text.encode_batch(usual, add_special_tokens=False)
        ]
        for i, text in others.items():
            cut = list(self._cut(text))
            one = self._words.encode(
                [word for word, _ in cut], is_pretokenized=True, add_special_tokens=False
            )
            letters = [
                cut[word or 0][1][slice(*part)]
                for word, part in zip(one.word_ids, one.offsets, strict=True)
            ]
            found[i] = (one.ids, [(min(places), max(places) + 1) for places in letters])
        return [
            (ids, _with_marks(text, offsets))
            for text, (ids, offsets) in zip(texts, found, strict=True)
        ]

    def _sorted_out(self, texts: Sequence[str]) -> tuple[list[str], dict[int, str]]:
        """The texts for the library, nothing in place of those that it would cut otherwise; and those."""
        if self._rules is None:
            return list(texts), {}
        usual = [self.settled(text) for text in texts]
        others = {i: usual[i] for i in self._rules.apart(usual)}
        for i in others:
            usual[i] = ""
        return usual, others

    def settled(self, text: str) -> str:
        """The text, one character for another, with nothing left whose case depends on what stands beside it."""
        return text if self._rules is None else self._rules.settled(text)

    def _cut(self, text: str, escape: bool = True) -> Iterator[tuple[str, list[int]]]:
        """The words of a settled text by google's rules, and where each of their characters comes from."""
        assert self._rules is not None  # or there was nothing to cut
        for i, part in enumerate([text] if escape else _SPECIAL.split(text)):
            if i % 2:
                yield part, []
                continue
            for letters in self._rules.words(part):
                word = "".join(letter for letter, _ in letters)
                yield (
                    _SURROGATE.sub("\0", word),
                    [place for _, place in letters],
                )  # of either there is no piece

    @functools.cached_property
    def _words(self) -> tokenizers.Tokenizer:
        """Ids of words that are already cut; special tokens are words too."""
        engine = tokenizers.Tokenizer(self._text.model)
        engine.add_special_tokens(list(SPECIALS))
        return engine

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text; special tokens are shown."""
        return self._markup.decode([int(i) for i in ids], skip_special_tokens=False)

    def written(self, ids: Sequence[int]) -> str:
        """Text as people write it, as far as that can be told: pieces joined, no blanks around most punctuation."""
        pieces = [self.vocab[int(i)] for i in ids]
        if not self.has_words:
            return "".join(pieces)
        text = " ".join(pieces).replace(f" {PREFIX}", "").removeprefix(PREFIX)
        for pattern, instead in _SPACING:
            text = pattern.sub(instead, text)
        return text

    def save(self, folder: Path, model_max_length: int | None = None) -> None:
        """Writes `FILES`, which Hugging Face's AutoTokenizer and `load` read alike."""
        folder.mkdir(parents=True, exist_ok=True)
        names = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
        contents = (
            "".join(f"{piece}\n" for piece in self.vocab),
            self._state(),
            json.dumps(_config(self.style, model_max_length) | names, indent=2) + "\n",
            json.dumps(names, indent=2) + "\n",
        )
        for name, text in zip(FILES, contents, strict=True):
            disk.write(folder / name, text)

    def _state(self) -> str:
        """tokenizer.json: the library's description, with a field of ours that the library reads past."""
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
    """Reads a vocab.txt, a tokenizer.json or a folder with either; what is asked for here overrides what they state."""
    vocab, stated = vocabulary.read(Path(path))
    asked: dict[str, Any] = {"lowercase": lowercase, "max_word_length": max_word_length}
    asked = {name: value for name, value in asked.items() if value is not None}
    if kind != "auto":
        stated["kind"] = kind
    if asked and KINDS[stated["kind"]] is not None:
        what = " and ".join(f"{name} = {value}" for name, value in asked.items())
        raise ConfigError(
            f"{what} does nothing to {path}: its kind is {stated['kind']}, which has no words",
            "--config.tokenizer.max_word_length=None leaves it to the vocabulary",
        )
    if characters != "auto":
        asked["characters"] = characters
    style = Style(**({"lowercase": not vocabulary.has_capitals(vocab)} | stated | asked))
    if characters not in ("auto", style.characters):
        raise ConfigError(
            f"characters = {characters} does nothing to {path}: google's code always cleans its text, and never cuts "
            "it by an expression",
            "--config.tokenizer.characters=auto leaves it to the vocabulary",
        )
    return Tokenizer(vocab, style)


def _hash(vocab: list[str], style: Style) -> str:
    """Names vocabulary and style; the library's own WordPiece goes by case and word length alone, as it always did."""
    plain = Style(
        lowercase=style.lowercase, max_word_length=style.max_word_length, characters=HUGGINGFACE
    )
    odd = {k: v for k, v in dataclasses.asdict(style).items() if v != getattr(plain, k)}
    settings = [vocab, style.lowercase, style.max_word_length, *([odd] if odd else [])]
    return hashlib.sha256(json.dumps(settings, ensure_ascii=True).encode()).hexdigest()


def _characters(text: str) -> str:
    """The text with each lone surrogate replaced."""
    return (
        text
        if text.isascii()
        else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def _with_marks(text: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The places of tokens, each up to the end of the combining marks that follow it."""
    if not offsets or text.isascii() or not any(unicodedata.category(c) == "Mn" for c in text):
        return offsets
    limits = [start for start, _ in offsets[1:]] + [len(text)]
    whole = []
    for (start, end), limit in zip(offsets, limits, strict=True):
        while end < limit and unicodedata.category(text[end]) == "Mn":
            end += 1
        whole.append((start, end))
    return whole


def _config(style: Style, model_max_length: int | None) -> dict[str, Any]:
    """tokenizer_config.json, without the names of the special tokens."""
    # transformers 5 rebuilds a BertTokenizer from its vocabulary, with these two as its own; the other class reads
    # tokenizer.json as it stands.
    theirs = (
        style.kind == "wordpiece" and style.max_word_length == HF_WORD_LENGTH and style.clean_text
    )
    config: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer" if theirs else "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    if KINDS[style.kind] is None:
        config |= {name: getattr(style, field) for name, field in vocabulary.CONFIG.items()}
        config["max_input_chars_per_word"] = style.max_word_length
    if style.characters == GOOGLE:
        config["characters"] = style.characters
    return config | ({} if model_max_length is None else {"model_max_length": model_max_length})


def _engine(ids: dict[str, int], style: Style, markup: bool = False) -> tokenizers.Tokenizer:
    """The tokenizers object; with `markup`, special tokens are found in text and added around it."""
    expression = KINDS[style.kind]
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
    else:  # an expression may take "[MASK]" for a token, so as text it must not be in the vocabulary
        known = {
            piece: i
            for piece, i in ids.items()
            if markup or piece == "[UNK]" or piece not in SPECIALS
        }
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
    """google's rules, for a style that follows them."""
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


# --- training -------------------------------------------------------------------------------------------------------


def train(texts: Iterable[str], settings: knobs.Tokenizer, folder: Path | None = None) -> Tokenizer:
    """Learns a vocabulary; the same texts give the same one, whatever their order, the threads or the process.

    The texts are spooled in a folder, or where the system keeps temporary files if none is given.

    The trainer numbers characters in hash order, and ties between merges fall by number. So every piece of one
    character gets its number from us: the alphabet by `initial_alphabet`, its continuations as "special" tokens.
    """
    style = Style(
        lowercase=settings.lowercase,
        max_word_length=settings.max_word_length or WORD_LENGTH,
        characters=GOOGLE if settings.characters == "auto" else settings.characters,
    )
    normalized = _normalizing(style)
    with tempfile.TemporaryFile(
        "w+", encoding="utf-8", newline="\n", dir=folder
    ) as spool:  # normalised once, read once more
        counts = np.zeros(0x110000, np.int64)
        for text in _batches(texts):
            clean = normalized(_characters(text))
            found = np.bincount(np.frombuffer(clean.encode("utf-32-le"), np.uint32))
            counts[: len(found)] += found
            spool.write(clean + "\n")
        alphabet = _alphabet(counts, (settings.vocab_size - len(SPECIALS)) // 2)
        if not alphabet:
            raise DataError(
                "no text to train a vocabulary on",
                "check config.corpus.path, or set config.tokenizer.path",
            )
        split = pre_tokenizers.BertPreTokenizer()
        joins = [c for c in alphabet if len(split.pre_tokenize_str(normalized(f"a{c}"))) == 1]
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


def _normalizing(style: Style) -> Callable[[str], str]:
    """What makes of a text the characters of its pieces; words that the library would cut otherwise are apart."""
    normalizer, rules = _normalizer(style), _rules(style)

    def normalized(text: str) -> str:
        text = text if rules is None else rules.settled(text)
        if rules is None or not rules.apart([text]):
            return normalizer.normalize_str(text)
        return " ".join("".join(letter for letter, _ in word) for word in rules.words(text))

    return normalized


def _batches(texts: Iterable[str]) -> Iterator[str]:
    """Joins short texts and cuts long ones, so that neither costs much time or memory."""
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
    """The commonest characters that cover the text, at most `limit`, in code point order."""
    counts[[0x20, 0x0A]] = 0
    order = np.argsort(-counts, kind="stable")
    needed = int(np.searchsorted(np.cumsum(counts[order]), COVERAGE * counts.sum())) + 1
    kept = order[: min(needed, limit)]
    return sorted(chr(c) for c in kept if counts[c])

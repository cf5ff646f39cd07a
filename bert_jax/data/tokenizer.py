"""WordPiece as google-research/bert defines it: trained so that it is the same every time, or taken from a vocabulary.

tokenizer = load(Path("vocab.txt"))
tokenizer.encode_batch(["Fill the [MASK]."])                -> pieces of "[", "mask", "]": text is text
tokenizer.encode_batch(["Fill the [MASK]."], escape=False)  -> the special token
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bert_jax import knobs
from bert_jax.errors import DataError
from bert_jax.types import Special

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"
WORD_LENGTH = 200  # google's limit; tokenizers' own is 100
COVERAGE = 0.99999  # of the characters of the training text lies in the alphabet
LINE = 10_000  # characters the trainer gets at once


class Tokenizer:
    """A vocabulary and its settings; ids carry no [CLS] or [SEP]."""

    def __init__(self, vocab: list[str], lowercase: bool, max_word_length: int = WORD_LENGTH):
        ids = {piece: i for i, piece in enumerate(vocab)}
        self.vocab = vocab
        self.size = len(vocab)
        self.lowercase = lowercase
        self.max_word_length = max_word_length
        self.special = Special(*(ids[name] for name in SPECIALS))
        self.continuation = np.array([piece.startswith(PREFIX) for piece in vocab], bool)  # [V]
        settings = json.dumps([vocab, lowercase, max_word_length], ensure_ascii=True)
        self.hash = hashlib.sha256(settings.encode()).hexdigest()
        # Two engines, because whether "[MASK]" is text is a property of the tokenizers object, not of a call.
        self._text = _engine(ids, lowercase, max_word_length)
        self._markup = _engine(ids, lowercase, max_word_length)
        self._markup.add_special_tokens(list(SPECIALS))
        self._markup.post_processor = processors.BertProcessing(
            ("[SEP]", self.special.sep), ("[CLS]", self.special.cls)
        )

    def encode_batch(self, texts: Sequence[str], escape: bool = True) -> list[list[int]]:
        """Ids of each text. A literal "[MASK]" is ordinary text, or with escape=False the special token."""
        engine = self._text if escape else self._markup
        try:
            found = engine.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError:  # what tokenizers says of a lone surrogate, which is no character
            found = engine.encode_batch_fast([_characters(text) for text in texts], add_special_tokens=False)
        return [one.ids for one in found]

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text; special tokens are shown."""
        return self._markup.decode([int(i) for i in ids], skip_special_tokens=False)

    def save(self, folder: Path) -> None:
        """Writes vocab.txt and tokenizer.json, which Hugging Face's fast tokenizers read as they are."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("vocab.txt", "".join(f"{piece}\n" for piece in self.vocab)),
            ("tokenizer.json", self._markup.to_str(pretty=True)),
        ):
            part = folder / f".{name}.{os.getpid()}"
            part.write_bytes(text.encode())
            part.replace(folder / name)


def _characters(text: str) -> str:
    """The text with each lone surrogate replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _engine(ids: dict[str, int], lowercase: bool, max_word_length: int) -> tokenizers.Tokenizer:
    model = models.WordPiece(
        ids, unk_token="[UNK]", max_input_chars_per_word=max_word_length, continuing_subword_prefix=PREFIX
    )
    engine = tokenizers.Tokenizer(model)
    engine.normalizer = _normalizer(lowercase)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix=PREFIX)
    return engine


def _normalizer(lowercase: bool) -> normalizers.BertNormalizer:
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=lowercase, lowercase=lowercase
    )


# --- taking a vocabulary as it is -----------------------------------------------------------------------------------


def load(path: Path, lowercase: bool | None = None, max_word_length: int | None = None) -> Tokenizer:
    """Reads a vocab.txt, a tokenizer.json or a folder with either.

    What is None comes from the files: tokenizer.json, then tokenizer_config.json, then, for the case, the vocabulary
    itself (cased if over 1 % of its pieces have capitals); the word length is google's 200 where nothing states it.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"no tokenizer at {path}", "give a vocab.txt, a tokenizer.json or a folder with one of them")
    file = path
    if path.is_dir():
        found = [path / name for name in ("tokenizer.json", "vocab.txt") if (path / name).is_file()]
        if not found:
            raise DataError(f"no vocab.txt or tokenizer.json in {path}", "point at a Hugging Face or prepared folder")
        file = found[0]
    if file.suffix == ".json":
        vocab, stated = _from_json(file)
    else:
        vocab, stated = _from_lines(file), {}
    config = file.parent / "tokenizer_config.json"
    if config.is_file():
        stated.setdefault("lowercase", _json(config).get("do_lower_case"))
    if lowercase is None:
        lowercase = stated.get("lowercase")
    if lowercase is None:
        lowercase = not _has_capitals(vocab)
    return Tokenizer(vocab, lowercase, max_word_length or stated.get("max_word_length") or WORD_LENGTH)


def _has_capitals(vocab: list[str]) -> bool:
    """Whether a vocabulary is cased; the uncased Chinese one still holds "<S>" and "<T>"."""
    words = [piece for piece in vocab if piece not in SPECIALS and not piece.startswith("[unused")]
    letters = sum(piece.lower() != piece.upper() for piece in words)
    return sum(piece != piece.lower() for piece in words) > 0.01 * letters


def _from_lines(file: Path) -> list[str]:
    """The pieces of a vocab.txt; only a newline ends one."""
    try:
        lines = file.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 at byte {error.start}", "a vocab.txt holds one piece a line") from error
    vocab = [line.rstrip("\r") for line in lines]
    while vocab and not vocab[-1]:
        vocab.pop()
    return _checked(vocab, file)


def _from_json(file: Path) -> tuple[list[str], dict[str, Any]]:
    """The pieces of a tokenizer.json, with its case and word length."""
    state = _json(file)
    model = state.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict) or model.get("type") != "WordPiece":
        kind = model.get("type") if isinstance(model, dict) else type(model).__name__
        raise DataError(f"{file} holds a {kind} model, not WordPiece", "BERT needs a WordPiece vocabulary")
    ids = dict(model["vocab"])
    for added in state.get("added_tokens") or []:
        ids.setdefault(added["content"], added["id"])
    if sorted(ids.values()) != list(range(len(ids))):
        raise DataError(f"{file}: ids are not 0 to {len(ids) - 1}, each once", "repair the vocabulary")
    stated: dict[str, Any] = {"max_word_length": model.get("max_input_chars_per_word")}
    normalizer = state.get("normalizer") or {}
    if "lowercase" in normalizer:
        stated["lowercase"] = normalizer["lowercase"]
    return _checked(sorted(ids, key=ids.__getitem__), file), stated


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except ValueError as error:
        raise DataError(f"{file} is not JSON: {error}", "the file may be cut short") from error
    if not isinstance(value, dict):
        raise DataError(f"{file} holds no JSON object", "the file may be cut short")
    return value


def _checked(vocab: list[str], file: Path) -> list[str]:
    seen: dict[str, int] = {}
    for i, piece in enumerate(vocab):
        if piece in seen or not piece:
            what = f"line {i + 1} repeats line {seen[piece] + 1}: {piece!r}" if piece else f"line {i + 1} is empty"
            raise DataError(f"{file}: {what}", "every id needs a piece of its own")
        seen[piece] = i
    missing = [name for name in SPECIALS if name not in seen]
    if missing:
        raise DataError(f"{file} has no {', '.join(missing)}", "BERT needs " + " ".join(SPECIALS))
    return vocab


# --- training -------------------------------------------------------------------------------------------------------


def train(texts: Iterable[str], settings: knobs.Tokenizer) -> Tokenizer:
    """Learns a vocabulary; the same texts give the same one, whatever their order, the threads or the process.

    The trainer numbers characters in hash order, and ties between merges fall by number. So every piece of one
    character gets its number from us: the alphabet by `initial_alphabet`, its continuations as "special" tokens.
    """
    normalizer = _normalizer(settings.lowercase)
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:  # normalised once, read once more
        counts = np.zeros(0x110000, np.int64)
        for text in _batches(texts):
            clean = normalizer.normalize_str(_characters(text))
            found = np.bincount(np.frombuffer(clean.encode("utf-32-le"), np.uint32))
            counts[: len(found)] += found
            spool.write(clean + "\n")
        alphabet = _alphabet(counts, (settings.vocab_size - len(SPECIALS)) // 2)
        if not alphabet:
            raise DataError(
                "no text to train a vocabulary on", "check config.corpus.path, or set config.tokenizer.path"
            )
        split = pre_tokenizers.BertPreTokenizer()
        joins = [c for c in alphabet if len(split.pre_tokenize_str(normalizer.normalize_str(f"a{c}"))) == 1]
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
    return Tokenizer(sorted(ids, key=ids.__getitem__), settings.lowercase, settings.max_word_length)


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

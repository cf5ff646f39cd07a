"""Text to ids: WordPiece as google-research/bert defines it, or one vocabulary line per match of an expression.

tokenizer = load(Path("vocab.txt"))
tokenizer.encode_batch(["Fill the [MASK]."])                -> pieces of "[", "mask", "]": text is text
tokenizer.encode_batch(["Fill the [MASK]."], escape=False)  -> the special token

Google and Hugging Face give the same ids but for two things, both of which are a choice here:
- a word of more than 200 characters is [UNK] to google, of more than 100 to Hugging Face: `max_word_length`;
- google's tokenizer cuts a literal "[MASK]" into pieces, Hugging Face's makes it the special token: `escape`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bert_jax import disk, knobs
from bert_jax.data import vocabulary
from bert_jax.data.vocabulary import HF_WORD_LENGTH, KINDS, PREFIX, SPECIALS, WORD_LENGTH, Style
from bert_jax.errors import ConfigError, DataError
from bert_jax.types import Special

FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")  # of a saved tokenizer
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
        # Two engines, because whether "[MASK]" is text is a property of the tokenizers object, not of a call.
        self._text = _engine(ids, style)
        self._markup = _engine(ids, style, markup=True)

    def encode_batch(self, texts: Sequence[str], escape: bool = True) -> list[list[int]]:
        """Ids of each text. A literal "[MASK]" is ordinary text, or with escape=False the special token."""
        engine = self._text if escape else self._markup
        try:
            found = engine.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError:  # what tokenizers says of a lone surrogate, which is no character
            found = engine.encode_batch_fast([_characters(text) for text in texts], add_special_tokens=False)
        return [one.ids for one in found]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Ids of each text, and where in the text each of them lies, in characters: start and end.

        What is dropped on the way to the vocabulary lies in no token; only marks on a letter, such as accents, stay
        with it.
        """
        characters = [_SURROGATE.sub("\ufffd", text) for text in texts]  # one for one, so that places stay
        found = self._text.encode_batch(characters, add_special_tokens=False)
        return [(one.ids, _with_marks(text, one.offsets)) for text, one in zip(characters, found, strict=True)]

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
            self._markup.to_str(pretty=True),
            json.dumps(_config(self.style, model_max_length) | names, indent=2) + "\n",
            json.dumps(names, indent=2) + "\n",
        )
        for name, text in zip(FILES, contents, strict=True):
            disk.write(folder / name, text)


def load(
    path: Path, kind: str = "auto", lowercase: bool | None = None, max_word_length: int | None = None
) -> Tokenizer:
    """Reads a vocab.txt, a tokenizer.json or a folder with either; what is asked for here overrides what they state."""
    vocab, stated = vocabulary.read(Path(path))
    asked = {"lowercase": lowercase, "max_word_length": max_word_length}
    asked = {name: value for name, value in asked.items() if value is not None}
    if kind != "auto":
        stated["kind"] = kind
    if asked and KINDS[stated["kind"]] is not None:
        what = " and ".join(f"{name} = {value}" for name, value in asked.items())
        raise ConfigError(
            f"{what} does nothing to {path}: its kind is {stated['kind']}, which has no words",
            "--config.tokenizer.max_word_length=None leaves it to the vocabulary",
        )
    return Tokenizer(vocab, Style(**({"lowercase": not vocabulary.has_capitals(vocab)} | stated | asked)))


def _hash(vocab: list[str], style: Style) -> str:
    """Names vocabulary and style; what is plain WordPiece goes by its case and word length alone, as it always did."""
    plain = Style(lowercase=style.lowercase, max_word_length=style.max_word_length)
    odd = {k: v for k, v in dataclasses.asdict(style).items() if v != getattr(plain, k)}
    settings = [vocab, style.lowercase, style.max_word_length, *([odd] if odd else [])]
    return hashlib.sha256(json.dumps(settings, ensure_ascii=True).encode()).hexdigest()


def _characters(text: str) -> str:
    """The text with each lone surrogate replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
    theirs = style.kind == "wordpiece" and style.max_word_length == HF_WORD_LENGTH and style.clean_text
    config: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer" if theirs else "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    if KINDS[style.kind] is None:
        config |= {name: getattr(style, field) for name, field in vocabulary.CONFIG.items()}
        config["max_input_chars_per_word"] = style.max_word_length
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
        known = {piece: i for piece, i in ids.items() if markup or piece == "[UNK]" or piece not in SPECIALS}
        engine = tokenizers.Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
        engine.normalizer = normalizers.Strip()
        engine.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
        engine.decoder = decoders.Fuse()
    if markup:
        engine.add_special_tokens(list(SPECIALS))
        engine.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    return engine


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
    style = Style(lowercase=settings.lowercase, max_word_length=settings.max_word_length or WORD_LENGTH)
    normalizer = _normalizer(style)
    with tempfile.TemporaryFile(
        "w+", encoding="utf-8", newline="\n", dir=folder
    ) as spool:  # normalised once, read once more
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
    return Tokenizer(sorted(ids, key=ids.__getitem__), style)


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

"""A vocabulary as the `tokenizers` library reads it, with facts that BERT needs besides.

    tokenizer = load_tokenizer(Path("vocab.txt"))
    tokenizer.encode_batch(["Fill the [MASK]."])                -> pieces of "[", "mask" and "]"
    tokenizer.encode_batch(["Fill the [MASK]."], escape=False)  -> the special token

The library cuts texts into pieces. This module adds the ids of the five special tokens, which
pieces continue a word, a digest of the vocabulary, and readable text.

`load_tokenizer` reads a tokenizer.json, a vocab.txt (WordPiece), or a vocab.json with its
merges.txt (byte-level BPE). A tokenizer_config.json next to them names the special tokens.
"""

import functools
import hashlib
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models

from bert_jax.batch import Special, TwoSeparators
from bert_jax.data import engines
from bert_jax.errors import ConfigError, DataError, UserError
from bert_jax.system import disk, jsons, opening

INSTEAD = {"cls": "bos", "sep": "eos"}  # role -> key that is read if the role has none
HUGGING_FACE_WORD_LENGTH = 100  # of a vocab.txt beside a tokenizer_config.json
NAMES = ("tokenizer.json", "vocab.txt", "vocab.json")  # files of a vocabulary, best first
CUT = "the file may be cut short"
# Blanks that `readable` takes away: around punctuation, in numbers, in quotes, between ideographs.
SPACING = {
    re.compile(pattern): replacement
    for pattern, replacement in {
        r" (?=[.,;:!?%)\]}…])": "",
        r"(?<=[(\[{]) ": "",
        r"(?<=\d\.) (?=\d)": "",
        r"(?<=\w) (['\u2019]) (?=(?:s|t|d|m|re|ve|ll)\b)": r"\1",
        r"(?<=\w) ([-/_]) (?=\w)": r"\1",
        r'" ([^"]*) "': r'"\1"',
        r"(?<=[\u3040-\u30ff\u3400-\u9fff]) (?=[\u3040-\u30ff\u3400-\u9fff])": "",
    }.items()
}
SURROGATE = re.compile("[\ud800-\udfff]")
Offsets = list[tuple[int, int]]


class Tokenizer:
    """A vocabulary and its rules for cutting text; ids are without [CLS] and [SEP]."""

    def __init__(
        self,
        engine: tokenizers.Tokenizer,
        names: Sequence[str] = engines.SPECIALS,
    ):
        """Wrap a tokenizer of the `tokenizers` library.

        Args:
          engine: the library's object, which is changed: its special tokens are marked as such.
          names: the special tokens in the order of `Special`.
        """
        engines.mark_specials(engine, names)
        state = json.loads(engine.to_str())
        # An object, not a call, decides whether "[MASK]" is plain text: so there are two objects.
        self._engine = engine
        self._plain = tokenizers.Tokenizer.from_str(engine.to_str())
        self._plain.encode_special_tokens = True
        self.kind: str = state["model"]["type"].lower()  # wordpiece, bpe, unigram or wordlevel
        ids = engine.get_vocab(with_added_tokens=True)
        self.vocab = sorted(ids, key=ids.__getitem__)
        self.size = len(self.vocab)
        single, pair = map(engine.num_special_tokens_to_add, (False, True))
        roles = TwoSeparators if pair - single == 2 else Special
        self.special = roles(*(ids[name] for name in names))
        self.mask = names[4]
        self.max_word_length: int | None = state["model"].get("max_input_chars_per_word")
        normalizer = engine.normalizer
        self.lowercase = normalizer is not None and normalizer.normalize_str("A") == "a"
        self.has_words = self.kind != "wordlevel"
        # A word inside a text has this prefix, unless pieces hold no blanks.
        self.blank = "" if self.kind in ("wordpiece", "wordlevel") else " "
        self.continuation = engines.find_continuations(state, self.vocab)  # bool [V]
        self.rules = engines.name_rules(state, names, self.special.separators)
        # Whether a text has the ids of its words, each with its blank.
        self.divides_at_blanks = self.rules in engines.BERT or engines.splits_at_blanks(state)
        self.hash = self._digest()

    @functools.cached_property
    def shown(self) -> list[str]:
        """Return the pieces of the vocabulary as people read them.

        A byte-level piece is decoded to text, with its blank.
        """
        decoder = self._engine.decoder
        if not isinstance(decoder, decoders.ByteLevel):
            return self.vocab
        texts = [decoder.decode([piece]) for piece in self.vocab]
        # Part of a character decodes to U+FFFD: such a piece stays as it is spelt.
        pairs = zip(texts, self.vocab, strict=True)
        return [piece if "\ufffd" in text else text for text, piece in pairs]

    def words(self, counts: np.ndarray, documents: int) -> int:
        """Count the words of documents, given the count of each token [V].

        In WordPiece a word has a letter or a digit. In other vocabularies words stand between
        blanks. `documents` is the number of documents.
        """
        begins = ~self.continuation
        if self.kind == "wordpiece":
            begins &= [any(map(str.isalnum, piece)) for piece in self.vocab]
        plain, spaced = self.encode_batch(["a", " a"])
        if plain == spaced:  # the first word of a document counts like any other word
            documents = 0
        return int(counts[begins].sum()) + documents

    def encode_batch(self, texts: Sequence[str], escape: bool = True) -> list[list[int]]:
        """Return the ids of each text.

        A "[MASK]" in a text is encoded as plain text. With escape=False it is the special token.
        """
        engine = self._plain if escape else self._engine
        try:
            encodings = engine.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:  # the library refuses a lone surrogate, which is no character
            whole = [replace_surrogates(text) for text in texts]
            encodings = engine.encode_batch_fast(whole, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], Offsets]]:
        """Return for each text its ids, and the start and end character of each token.

        A token begins after its blank, and includes the accents of its last letter.
        """
        whole = [SURROGATE.sub("\ufffd", text) for text in texts]  # keeps the length
        encodings = self._plain.encode_batch(whole, add_special_tokens=False)
        return [
            (encoding.ids, _fit_offsets(text, encoding.offsets))
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids by the library, with special tokens."""
        return self._engine.decode([int(i) for i in ids], skip_special_tokens=False)

    def readable(self, ids: Sequence[int]) -> str:
        """Decode ids to text as people write it, for example without a blank before a comma."""
        text = ""
        if self.kind == "wordpiece":
            text = " ".join(self.vocab[int(i)] for i in ids).replace(f" {engines.PREFIX}", "")
            text = text.removeprefix(engines.PREFIX)
            for pattern, replacement in SPACING.items():
                text = pattern.sub(replacement, text)
            return text
        for _, group in itertools.groupby(map(int, ids), lambda i: i if i in self.special else -1):
            part = list(group)
            if part[0] in self.special and text[-1:].strip():
                text += " "  # before a special token
            text += self.decode(part)
        return text.lstrip()

    def save(
        self, folder: Path, model_max_length: int | None = None, types: bool = True
    ) -> list[str]:
        """Write files for `load_tokenizer` and transformers' AutoTokenizer; return their names.

        With `types`, transformers gives the model the segments of a pair, unless two separators
        tell them apart.
        """
        names = {f"{role}_token": self.vocab[i] for role, i in self.special._asdict().items()}
        segments = ["token_type_ids"] if types and self.special.separators == 1 else []
        config: engines.State = {
            "tokenizer_class": "PreTrainedTokenizerFast",  # reads tokenizer.json as it stands
            "model_input_names": ["input_ids", *segments, "attention_mask"],
            "clean_up_tokenization_spaces": self.kind == "wordpiece",
        }
        if model_max_length is not None:
            config["model_max_length"] = model_max_length
        files = {"tokenizer.json": self._engine.to_str(pretty=True)}
        if self.kind == "wordpiece":
            files["vocab.txt"] = "".join(f"{piece}\n" for piece in self.vocab)
            config["do_lower_case"] = self.lowercase  # for programs that read vocab.txt
            config["max_input_chars_per_word"] = self.max_word_length
        if self.kind == "bpe":
            ids = {piece: i for i, piece in enumerate(self.vocab)}
            merges = json.loads(self._engine.to_str())["model"]["merges"]
            files["vocab.json"] = json.dumps(ids, ensure_ascii=False)
            files["merges.txt"] = "\n".join(["#version: 0.2", *map(" ".join, merges), ""])
        files["tokenizer_config.json"] = json.dumps(config | names, indent=2)
        files["special_tokens_map.json"] = json.dumps(names, indent=2)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            disk.write(folder / name, text)
        return [*files]

    def _digest(self) -> str:
        """Return a digest of the pieces and the rules.

        Its form must not change, because committed records hold such digests.
        """
        is_bert = self.rules in engines.BERT
        odd: engines.State = {"characters": "google"}
        if not is_bert:
            odd = {"kind": self.kind, "chinese": False, "clean_text": False, "rules": self.rules}
        settings = [self.vocab, is_bert and self.lowercase, self.max_word_length or 0, odd]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate by U+FFFD, and each pair by the character that it encodes."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _fit_offsets(text: str, offsets: Offsets) -> Offsets:
    """Move the start of each token after its blanks, and its end after combining marks."""
    limits = [*(start for start, _ in offsets), len(text)][1:]  # a token ends before the next one
    fitted = []
    for (start, end), limit in zip(offsets, limits, strict=True):
        while start < end and text[start].isspace():
            start += 1
        while end < limit and unicodedata.category(text[end]) == "Mn":
            end += 1
        fitted.append((start, end))
    return fitted


# --- files ----------------------------------------------------------------------------------------


def load_tokenizer(path: Path, kind: str = "auto", max_word_length: int | None = None) -> Tokenizer:
    """Read a vocabulary from a file, or from a folder with one of the files of NAMES.

    Args:
      path: the file or folder.
      kind: the kind of vocabulary that the file must hold, if not auto.
      max_word_length: characters of the longest word of WordPiece; with None, the number in the
        file.
    """
    file = _find_file(Path(path))
    stated = _read_stated(file.parent)
    try:
        engine = _read_engine(file, stated)
        found = type(engine.model).__name__.lower()
        if kind not in ("auto", found):
            message = f"tokenizer.kind = {kind}, and {file} is no {kind} vocabulary"
            raise ConfigError(message, "--config.tokenizer.kind=auto goes by the files")
        if found == "wordpiece" and max_word_length is not None:
            engine.model.max_input_chars_per_word = max_word_length
        elif max_word_length not in (None, engines.WORD_LENGTH, HUGGING_FACE_WORD_LENGTH):
            # 100 and 200 are those of presets, which say nothing of other kinds.
            message = f"max_word_length = {max_word_length} does nothing to {path}: {found}"
            raise ConfigError(message, "set --config.tokenizer.max_word_length=None")
        tokenizer = Tokenizer(engine, _name_specials(file, engine, stated))
        tokenizer.encode_batch(["\u2603"])  # fails now if an unknown word cannot be encoded
        return tokenizer
    except UserError:
        raise
    except BaseException as error:  # the library raises Exception itself, and its Rust a panic
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise
        raise DataError(f"{file}: the tokenizers library refuses it: {error}", CUT) from error


def _find_file(path: Path) -> Path:
    """Return the file of a vocabulary: the path itself, or the best of NAMES in a folder."""
    names = [name for name in NAMES if os.path.lexists(path / name)]
    if names:
        return opening.check_inside(path, path / names[0], DataError)
    if path.is_dir():
        hint = "a SentencePiece model becomes a tokenizer.json by save_pretrained of transformers"
        raise DataError(f"no vocab.txt or tokenizer.json in {path}", hint)
    if not os.path.lexists(path):
        hint = "give a vocab.txt, a tokenizer.json or a folder with one of them"
        raise DataError(f"no tokenizer at {path}", hint)
    return path


def _read_stated(folder: Path) -> engines.State:
    """Read the settings of tokenizer_config.json, and any others of special_tokens_map.json."""
    stated: engines.State = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if os.path.lexists(folder / name):
            file = opening.check_inside(folder, folder / name, DataError)
            values = jsons.read(file, DataError, dict, CUT)
            stated["max_input_chars_per_word"] = HUGGING_FACE_WORD_LENGTH
            stated |= {key: value for key, value in values.items() if value is not None}
    return stated


def _read_engine(file: Path, stated: engines.State) -> tokenizers.Tokenizer:
    """Read a vocab.json, tokenizer.json or vocab.txt as an object of the library."""
    if file.name == "vocab.json":
        merges = opening.check_inside(file.parent, file.with_name("merges.txt"), DataError)
        opening.check_file(file, DataError)
        model = models.BPE.from_file(str(file), str(merges))
        return engines.build_byte_level(model, bool(stated.get("add_prefix_space")))
    if file.suffix == ".json":
        state = jsons.read(file, DataError, dict, CUT)
        return tokenizers.Tokenizer.from_str(json.dumps(state))
    vocab = _read_pieces(file)
    pieces = [piece for piece in vocab if piece not in engines.SPECIALS and piece[:7] != "[unused"]
    letters = sum(piece.lower() != piece.upper() for piece in pieces)
    # The uncased Chinese vocabulary still holds "<S>" and "<T>".
    cased = sum(piece != piece.lower() for piece in pieces) > 0.01 * letters
    lowercase = stated.get("do_lower_case", not cased)
    accents = stated.get("strip_accents")
    return engines.build_wordpiece(
        vocab,
        max_word_length=stated.get("max_input_chars_per_word", engines.WORD_LENGTH),
        lowercase=lowercase,
        strip_accents=None if accents == lowercase else accents,  # None: as the case
        handle_chinese_chars=stated.get("tokenize_chinese_chars", True),
    )


def _read_pieces(file: Path) -> list[str]:
    """Read the pieces of a vocab.txt; the number of a line, from 0, is the id of its piece."""
    try:
        text = opening.read_file(file, DataError, jsons.LIMIT, CUT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"{file} is not UTF-8 at byte {error.start}"
        raise DataError(problem, "a vocab.txt holds one piece a line") from error
    lines: dict[str, int] = {}
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), 1):
        piece = line.rstrip("\r")
        if (first := lines.setdefault(piece, number)) < number:
            repeats = f"line {number} repeats line {first}: {jsons.show(piece)}"
            raise DataError(f"{file}: {repeats}", "every id needs a piece of its own")
    return [*lines]


def _name_specials(file: Path, engine: tokenizers.Tokenizer, stated: engines.State) -> list[str]:
    """List the special token of each role: the stated name, else BERT's, else RoBERTa's."""
    ids = engine.get_vocab(with_added_tokens=True)
    if sorted(ids.values()) != list(range(len(ids))):
        raise DataError(f"{file}: ids are not 0 to {len(ids) - 1}, each once", "repair it")
    found: dict[str, str] = {}
    for role, *usual in zip(Special._fields, engines.SPECIALS, engines.ROBERTA, strict=True):
        values = [stated.get(f"{key}_token") for key in (role, INSTEAD.get(role, role))]
        names = [value.get("content") if isinstance(value, dict) else value for value in values]
        known = [name for name in (*names, *usual) if name in ids]
        if known:
            found[role] = known[0]
    if "pad" in found:
        found.setdefault("unk", found["pad"])  # no text is unknown to byte-level BPE
    if lacking := [role for role in Special._fields if role not in found]:
        raise DataError(
            f"{file} has no special token for {', '.join(lacking)}",
            f"add {' '.join(engines.SPECIALS)}, or name other tokens in a tokenizer_config.json "
            "beside it",
        )
    return [found[role] for role in Special._fields]

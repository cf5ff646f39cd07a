"""Tokenizer files of ours and of Hugging Face: the pieces, and how text is to be cut. What we cannot do is refused.

Where nothing states the case, it is the vocabulary's own; the longest word is then google's 200 characters, or Hugging
Face's 100 for a vocab.txt beside a tokenizer_config.json. Whose rules of characters hold is stated by our files alone:
others with a tokenizer.json or tokenizer_config.json have Hugging Face's, a bare vocab.txt has google's.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

from bert_jax.errors import DataError
from bert_jax.system import jsons, opening
from bert_jax.system.jsons import show

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"
WORD_LENGTH = 200  # google's limit
HF_WORD_LENGTH = 100  # of tokenizers and transformers
GOOGLE, HUGGINGFACE = CHARACTERS = ("google", "huggingface")  # whose rules of characters hold
LONGEST_WORD = 1_000_000  # that a file may state
LARGEST = 1 << 28  # bytes of a file
CUT = "the file may be cut short"

# What is one token. None: WordPiece over words. An expression: each of its matches, where it is a vocabulary line.
KINDS: dict[str, str | None] = {
    "wordpiece": None,
    "smiles": (
        r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"
    ),
}

# tokenizer.json: the normalizer's fields; tokenizer_config.json: the same, by its own names
NORMALIZER = {
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "chinese",
    "clean_text": "clean_text",
}
CONFIG = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "chinese",
    "clean_text": "clean_text",
}
CONFIG_FIXED = {  # the only values that we can do
    "do_basic_tokenize": True,
    "never_split": [],
    "word_tokenizer_type": "basic",
    "subword_tokenizer_type": "wordpiece",
    "wordpieces_prefix": PREFIX,
}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}


@dataclasses.dataclass(frozen=True)
class Style:
    """Everything about a tokenizer but its vocabulary."""

    kind: str = "wordpiece"
    lowercase: bool = True
    strip_accents: bool | None = None  # None: as lowercase, and so is written what equals it
    chinese: bool = True  # a CJK character is a word
    clean_text: bool = True  # control characters go, any whitespace is a space
    max_word_length: int = WORD_LENGTH  # a longer word is [UNK]; 0 where there are no words
    characters: str = GOOGLE  # by Python's Unicode tables, or those of the tokenizers library

    def __post_init__(self):
        fixed: dict[str, Any] = {}
        if KINDS[self.kind] is not None:  # text is taken as it is
            fixed = dict.fromkeys(("lowercase", "chinese", "clean_text"), False)
            fixed |= {"strip_accents": None, "max_word_length": 0}
        elif self.strip_accents == self.lowercase:
            fixed = {"strip_accents": None}
        if KINDS[self.kind] is not None or not self.clean_text:  # as google's code never takes text
            fixed["characters"] = HUGGINGFACE
        for name, value in fixed.items():
            object.__setattr__(self, name, value)


def split_of(expression: str) -> dict[str, Any]:
    """The pre-tokenizer of a kind with an expression, as tokenizer.json states it."""
    return {
        "type": "Split",
        "pattern": {"Regex": expression},
        "behavior": "Isolated",
        "invert": False,
    }


def recognise(vocab: list[str]) -> str:
    """The kind whose expression takes every piece as one match; specials and unused ones say nothing."""
    pieces = [p for p in vocab if p not in SPECIALS and not p.startswith("[unused")]
    if pieces and not any(p.startswith(PREFIX) for p in pieces):
        for kind, expression in KINDS.items():
            if expression and all(
                (m := re.match(expression, p)) and m.end() == len(p) for p in pieces
            ):
                return kind
    return "wordpiece"


def has_capitals(vocab: list[str]) -> bool:
    """Whether a vocabulary is cased; the uncased Chinese one still holds "<S>" and "<T>"."""
    words = [piece for piece in vocab if piece not in SPECIALS and not piece.startswith("[unused")]
    letters = sum(piece.lower() != piece.upper() for piece in words)
    return sum(piece != piece.lower() for piece in words) > 0.01 * letters


# --- files ----------------------------------------------------------------------------------------------------------


def read(path: Path) -> tuple[list[str], dict[str, Any]]:
    """The pieces of a vocab.txt, a tokenizer.json or a folder with either, and the fields of `Style` that are stated.

    A tokenizer.json states everything; beside a vocab.txt, a tokenizer_config.json states some. Where both are there
    and contradict each other, transformers follows now one and now the other: such a folder is refused.
    """
    if not os.path.lexists(path):
        raise DataError(
            f"no tokenizer at {path}",
            "give a vocab.txt, a tokenizer.json or a folder with one of them",
        )
    file = path
    if path.is_dir():
        found = [
            path / name for name in ("tokenizer.json", "vocab.txt") if os.path.lexists(path / name)
        ]
        if not found:
            raise DataError(
                f"no vocab.txt or tokenizer.json in {path}",
                "point at a Hugging Face or prepared folder",
            )
        file = opening.inside(path, found[0], DataError)
    beside = file.parent / "tokenizer_config.json"
    config = opening.inside(file.parent, beside, DataError) if os.path.lexists(beside) else None
    if config:
        _check_specials(config)
    if file.suffix == ".json":
        vocab, stated = _from_json(file)
        if config:
            stated = (
                _characters(config, _json(config)) | stated
            )  # which another program's save leaves out
            _check_agrees(config, stated)
        return vocab, (
            {"characters": HUGGINGFACE} if KINDS[stated["kind"]] is None else {}
        ) | stated
    vocab = _from_lines(file)
    return vocab, {"kind": recognise(vocab)} | (_from_config(config) if config else {})


def _check_specials(file: Path) -> None:
    """BERT's special tokens have their usual names."""
    state = _json(file)
    for name in SPECIALS:
        key = f"{name.strip('[]').lower()}_token"
        value = state.get(key)
        content = value.get("content") if isinstance(value, dict) else value
        if content not in (None, name):
            raise DataError(
                f"{file}: {key} = {show(content)}, not {name}",
                "only BERT's own special tokens are read",
            )


def _check_agrees(file: Path, stated: dict[str, Any]) -> None:
    """Refuses a tokenizer_config.json that says otherwise than the tokenizer.json beside it."""
    state = _json(file)
    found = _flags(file, state, CONFIG) | _characters(file, state)
    if Style(**stated) != Style(**(stated | found)):
        said = ", ".join(
            f"{field} = {value}" for field, value in found.items() if stated.get(field) != value
        )
        raise DataError(
            f"{file} contradicts the tokenizer.json beside it: {said}", "delete whichever is wrong"
        )


def _from_lines(file: Path) -> list[str]:
    """The pieces of a vocab.txt; only a newline ends one."""
    try:
        lines = opening.read(file, DataError, LARGEST, CUT).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file} is not UTF-8 at byte {error.start}", "a vocab.txt holds one piece a line"
        ) from error
    vocab = [line.rstrip("\r") for line in lines]
    while vocab and not vocab[-1]:
        vocab.pop()
    return _checked(vocab, file)


def _from_config(file: Path) -> dict[str, Any]:
    """What a tokenizer_config.json says about a vocab.txt."""
    stated = _json(file)
    for name, only in CONFIG_FIXED.items():
        value = stated.get(name)
        if value is not None and value != only:
            raise DataError(
                f"{file}: {name} = {show(value)}, and only {only!r} can be done",
                "use another tokenizer",
            )
    added = stated.get("added_tokens_decoder") or {}
    _check_added(file, list(added.values()) if isinstance(added, dict) else added)
    hf = {"max_word_length": _word_length(file, stated, HF_WORD_LENGTH), "characters": HUGGINGFACE}
    return hf | _flags(file, stated, CONFIG) | _characters(file, stated)


def _from_json(file: Path) -> tuple[list[str], dict[str, Any]]:
    """The pieces and the style of a tokenizer.json; its truncation, padding and post-processor are not ours to keep."""
    state = _json(file)
    model = state.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise DataError(
            f"{file} holds no vocabulary",
            "BERT needs a WordPiece vocabulary; the file may be cut short",
        )
    pre_tokenizer = state.get("pre_tokenizer")
    splits = {kind: split_of(expression) for kind, expression in KINDS.items() if expression}
    kind = next((kind for kind, split in splits.items() if split == pre_tokenizer), "wordpiece")
    words = kind == "wordpiece"
    holds = model.get(
        "type", "WordPiece" if "max_input_chars_per_word" in model else None
    )  # old files name no type
    for what, found, only in (
        ("model", holds, "WordPiece" if words else "WordLevel"),
        ("pre_tokenizer", _type(pre_tokenizer), "BertPreTokenizer" if words else "Split"),
        ("unk_token", model.get("unk_token"), "[UNK]"),
        (
            "continuing_subword_prefix",
            model.get("continuing_subword_prefix"),
            PREFIX if words else None,
        ),
    ):
        if found != only:
            raise DataError(
                f"{file}: {what} is {show(found)}, not {only}",
                f"tokenizers are BERT's WordPiece, or split by the expression of a kind: {', '.join(splits)}",
            )
    stated = {"kind": kind} | _normalizer(file, state.get("normalizer"), words)
    if words:
        stated["max_word_length"] = _word_length(file, model, HF_WORD_LENGTH)
    ids = dict(model["vocab"])
    for piece, i in _check_added(file, state.get("added_tokens") or []):
        ids.setdefault(piece, i)
    # Each below their number, and different: then they are all of them.
    if not all(type(i) is int and 0 <= i < len(ids) for i in ids.values()) or len(
        set(ids.values())
    ) < len(ids):
        raise DataError(
            f"{file}: ids are not 0 to {len(ids) - 1}, each once", "repair the vocabulary"
        )
    return _checked(sorted(ids, key=ids.__getitem__), file), stated


def _normalizer(file: Path, section: Any, words: bool) -> dict[str, Any]:
    if not words:
        if section != STRIP:
            raise DataError(
                f"{file}: normalizer is {_type(section)}, not Strip of both ends",
                "rewrite the file",
            )
        return {}
    if section is None:
        return {"lowercase": False, "chinese": False, "clean_text": False}
    if _type(section) != "BertNormalizer":
        raise DataError(
            f"{file}: normalizer is {show(_type(section))}, not BertNormalizer", "use its vocab.txt"
        )
    lacking = NORMALIZER.keys() - section.keys()
    if lacking:
        raise DataError(f"{file}: normalizer has no {', '.join(sorted(lacking))}", CUT)
    return _flags(file, section, NORMALIZER) | _characters(file, section)


def _check_added(file: Path, tokens: Any) -> list[tuple[str, Any]]:
    """Added tokens with their ids. Hugging Face looks for them before anything else, and we for special ones only."""
    found = []
    for token in tokens if isinstance(tokens, list) else [tokens]:
        content = token.get("content") if isinstance(token, dict) else token
        if content not in SPECIALS:
            raise DataError(
                f"{file}: the added token {show(content)} is none of {' '.join(SPECIALS)}",
                "a vocab.txt alone, in a folder of its own, is read without its added tokens",
            )
        found.append((content, token.get("id") if isinstance(token, dict) else None))
    return found


def _flags(file: Path, section: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The stated ones; null states nothing."""
    found: dict[str, Any] = {}
    for name, field in names.items():
        value = section.get(name)
        if value is not None:
            if not isinstance(value, bool):
                raise DataError(f"{file}: {name} = {show(value)}", "true or false")
            found[field] = value
    return found


def _characters(file: Path, section: dict[str, Any]) -> dict[str, Any]:
    """Whose rules of characters hold, where a file of ours says it."""
    value = section.get("characters")
    if value is not None and value not in CHARACTERS:
        raise DataError(f"{file}: characters = {show(value)}", " or ".join(CHARACTERS))
    return {} if value is None else {"characters": value}


def _word_length(file: Path, section: dict[str, Any], default: int) -> int:
    value = section.get("max_input_chars_per_word")
    if value is None:
        return default
    if type(value) is not int or not 1 <= value <= LONGEST_WORD:
        raise DataError(
            f"{file}: max_input_chars_per_word = {show(value)}",
            f"a number from 1 to {LONGEST_WORD}",
        )
    return value


def _json(file: Path) -> dict[str, Any]:
    return jsons.read(file, DataError, hint=CUT, limit=LARGEST)


def _type(section: Any) -> Any:
    return section.get("type") if isinstance(section, dict) else section


def _checked(vocab: list[str], file: Path) -> list[str]:
    seen: dict[str, int] = {}
    for i, piece in enumerate(vocab):
        what = None
        if not piece:
            what = f"line {i + 1} is empty"
        elif piece in seen:
            what = f"line {i + 1} repeats line {seen[piece] + 1}: {show(piece)}"
        elif re.search("[\n\r\ud800-\udfff]", piece):
            what = f"piece {i}, {show(piece)}, has a line end or half a character in it"
        if what:
            raise DataError(f"{file}: {what}", "every id needs a piece of its own")
        seen[piece] = i
    missing = [name for name in SPECIALS if name not in seen]
    if missing:
        raise DataError(f"{file} has no {', '.join(missing)}", "BERT needs " + " ".join(SPECIALS))
    return vocab

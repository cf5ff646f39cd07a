"""Read tokenizer files, ours and Hugging Face's: the pieces, and the style in which text is split.

A style that the tokenizer cannot follow is refused. If no file states the case, the vocabulary's
capitals decide. If no file states the longest word, it has google's 200 characters, or Hugging
Face's 100 for a vocab.txt beside a tokenizer_config.json. Only our own files state whose character
rules hold: other folders with a tokenizer.json or tokenizer_config.json follow Hugging Face's
rules, a bare vocab.txt follows google's. A vocab.txt is WordPiece unless `kind` of
tokenizer_config.json beside it says smiles.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

from bert_jax.config.data_knobs import VOCABULARIES
from bert_jax.errors import DataError
from bert_jax.system import jsons, opening
from bert_jax.system.jsons import show

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"
WORD_LENGTH = 200  # google's limit
HF_WORD_LENGTH = 100  # of tokenizers and transformers
GOOGLE, HUGGINGFACE = CHARACTERS = ("google", "huggingface")  # whose rules of characters hold
LONGEST_WORD = 1_000_000  # largest max_input_chars_per_word of a file
LARGEST = 1 << 28  # bytes of a file
CUT = "the file may be cut short"

# Fields of the normalizer of a tokenizer.json, and the names that tokenizer_config.json gives them.
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
CONFIG_FIXED = {  # the only supported values
    "do_basic_tokenize": True,
    "never_split": [],
    "word_tokenizer_type": "basic",
    "subword_tokenizer_type": "wordpiece",
    "wordpieces_prefix": PREFIX,
}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
NAMES = ("tokenizer.json", "vocab.txt", "vocab.json")  # of a tokenizer's file, the first one there
READ = "read are BERT's WordPiece and byte-level BPE, as vocab.txt, tokenizer.json or vocab.json"
SENTENCEPIECE = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")


@dataclasses.dataclass(frozen=True)
class Style:
    """Settings of a tokenizer besides its vocabulary."""

    kind: str = "wordpiece"
    lowercase: bool = True
    strip_accents: bool | None = None  # None: as `lowercase`; a value equal to that becomes None
    chinese: bool = True  # each CJK character is a word
    clean_text: bool = True  # control characters are dropped, any whitespace becomes a space
    max_word_length: int = WORD_LENGTH  # a longer word is [UNK]; 0 where there are no words
    characters: str = GOOGLE  # Python's Unicode tables, or those of the tokenizers library
    rules: str = ""  # bpe: a digest of what its files say besides the pieces

    def __post_init__(self):
        fixed: dict[str, Any] = {}
        if self.kind != "wordpiece":  # text is not normalised, or as the rules say
            fixed = dict.fromkeys(("lowercase", "chinese", "clean_text"), False)
            fixed |= {"strip_accents": None, "max_word_length": 0}
        elif self.strip_accents == self.lowercase:
            fixed = {"strip_accents": None}
        if self.kind != "wordpiece" or not self.clean_text:  # google's code can do neither
            fixed["characters"] = HUGGINGFACE
        for name, value in fixed.items():
            object.__setattr__(self, name, value)


def split_of(expression: str) -> dict[str, Any]:
    """Return the pre-tokenizer section of tokenizer.json for a kind with an expression."""
    return {
        "type": "Split",
        "pattern": {"Regex": expression},
        "behavior": "Isolated",
        "invert": False,
    }


def has_capitals(vocab: list[str]) -> bool:
    """Tell whether a vocabulary is cased; the uncased Chinese one still holds "<S>" and "<T>"."""
    pieces = _pieces(vocab)
    letters = sum(piece.lower() != piece.upper() for piece in pieces)
    return sum(piece != piece.lower() for piece in pieces) > 0.01 * letters


def _pieces(vocab: list[str]) -> list[str]:
    return [piece for piece in vocab if piece not in SPECIALS and not piece.startswith("[unused")]


def tokenizer_config(style: Style, model_max_length: int | None) -> dict[str, Any]:
    """Build tokenizer_config.json without the names of the special tokens."""
    # transformers 5 rebuilds a BertTokenizer from its vocabulary, with its own word length and
    # cleaning; the other class reads tokenizer.json as it stands.
    usual = style.max_word_length == HF_WORD_LENGTH and style.clean_text
    bert = style.kind == "wordpiece" and usual
    values: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer" if bert else "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    if style.kind == "wordpiece":
        values |= {name: getattr(style, field) for name, field in CONFIG.items()}
        values["max_input_chars_per_word"] = style.max_word_length
    else:
        values["kind"] = style.kind
    if style.characters == GOOGLE:
        values["characters"] = style.characters
    return values | ({} if model_max_length is None else {"model_max_length": model_max_length})


# --- reading --------------------------------------------------------------------------------------


def find(path: Path) -> tuple[Path, dict[str, Any] | None]:
    """Return the file of a tokenizer, or of the one in a folder, and its JSON if it holds any."""
    if not os.path.lexists(path):
        raise DataError(
            f"no tokenizer at {path}",
            "give a vocab.txt, a tokenizer.json or a folder with one of them",
        )
    file = path
    if path.is_dir():
        files = [path / name for name in (*NAMES, *SENTENCEPIECE) if os.path.lexists(path / name)]
        if not files:
            raise DataError(
                f"no vocab.txt or tokenizer.json in {path}",
                "point at a Hugging Face or prepared folder",
            )
        file = opening.inside(path, files[0], DataError)
    if file.suffix == ".model":
        raise DataError(f"{file} is a SentencePiece model, which is not read", READ)
    return file, _json(file) if file.suffix == ".json" else None


def read(file: Path, state: dict[str, Any] | None) -> tuple[list[str], dict[str, Any]]:
    """Read the pieces and the stated fields of `Style` from what `find` returned.

    A tokenizer.json states every field, a tokenizer_config.json beside a vocab.txt states some. If
    a tokenizer_config.json contradicts a tokenizer.json, transformers follows sometimes the one and
    sometimes the other: such a folder is refused.
    """
    beside = file.parent / "tokenizer_config.json"
    config = opening.inside(file.parent, beside, DataError) if os.path.lexists(beside) else None
    if config:
        _check_specials(config)
    if state is None:
        vocab = _from_lines(file)
        return vocab, {"kind": "wordpiece"} | (_from_config(config) if config else {})
    vocab, stated = _from_json(file, state)
    if config:  # it keeps our field where another program has rewritten tokenizer.json without it
        stated = _characters(config, _json(config)) | stated
        _check_agrees(config, stated)
    default = {"characters": HUGGINGFACE} if stated["kind"] == "wordpiece" else {}
    return vocab, default | stated


def _check_specials(file: Path) -> None:
    """Refuse a tokenizer_config.json that gives BERT's special tokens other names."""
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
    """Refuse a tokenizer_config.json that contradicts the tokenizer.json beside it."""
    state = _json(file)
    fields = _kind(file, state) | _flags(file, state, CONFIG) | _characters(file, state)
    if Style(**stated) != Style(**(stated | fields)):
        others = {name: value for name, value in fields.items() if stated.get(name) != value}
        shown = ", ".join(f"{name} = {value}" for name, value in others.items())
        raise DataError(
            f"{file} contradicts the tokenizer.json beside it: {shown}", "delete whichever is wrong"
        )


def _from_lines(file: Path) -> list[str]:
    """Read the pieces of a vocab.txt; only a newline ends a piece."""
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
    """Read the fields of `Style` that a tokenizer_config.json states for a vocab.txt."""
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
    return hf | _kind(file, stated) | _flags(file, stated, CONFIG) | _characters(file, stated)


def _from_json(file: Path, state: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Read the pieces and the style of a tokenizer.json.

    Its truncation, padding and post-processor are ignored.
    """
    model = state.get("model")
    if isinstance(model, dict) and model.get("type") == "Unigram":
        raise DataError(f"{file} is a Unigram model, as of SentencePiece, which is not read", READ)
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise DataError(
            f"{file} holds no vocabulary",
            "BERT needs a WordPiece vocabulary; the file may be cut short",
        )
    pre_tokenizer = state.get("pre_tokenizer")
    splits = {kind: split_of(expression) for kind, expression in VOCABULARIES.items() if expression}
    kind = next((kind for kind, split in splits.items() if split == pre_tokenizer), "wordpiece")
    words = kind == "wordpiece"
    # Old files name no type.
    model_type = model.get("type", "WordPiece" if "max_input_chars_per_word" in model else None)
    prefix = model.get("continuing_subword_prefix")
    for field, value, only in (
        ("model", model_type, "WordPiece" if words else "WordLevel"),
        ("pre_tokenizer", _type(pre_tokenizer), "BertPreTokenizer" if words else "Split"),
        ("unk_token", model.get("unk_token"), "[UNK]"),
        ("continuing_subword_prefix", prefix, PREFIX if words else None),
    ):
        if value != only:
            raise DataError(
                f"{file}: {field} is {show(value)}, not {only}",
                "tokenizers are BERT's WordPiece, byte-level BPE, or split by the expression of a "
                f"kind: {', '.join(splits)}",
            )
    stated = {"kind": kind} | _normalizer(file, state.get("normalizer"), words)
    if words:
        stated["max_word_length"] = _word_length(file, model, HF_WORD_LENGTH)
    ids = dict(model["vocab"])
    for piece, i in _check_added(file, state.get("added_tokens") or []):
        ids.setdefault(piece, i)
    within = all(type(i) is int and 0 <= i < len(ids) for i in ids.values())
    if not within or len(set(ids.values())) < len(ids):
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
    missing = NORMALIZER.keys() - section.keys()
    if missing:
        raise DataError(f"{file}: normalizer has no {', '.join(sorted(missing))}", CUT)
    return _flags(file, section, NORMALIZER) | _characters(file, section)


def _check_added(file: Path, tokens: Any) -> list[tuple[str, Any]]:
    """Return added tokens with their ids; refuse any that is not one of BERT's special tokens.

    Hugging Face matches added tokens before anything else, and we do so for special tokens only.
    """
    added = []
    for token in tokens if isinstance(tokens, list) else [tokens]:
        content = token.get("content") if isinstance(token, dict) else token
        if content not in SPECIALS:
            raise DataError(
                f"{file}: the added token {show(content)} is none of {' '.join(SPECIALS)}",
                "a vocab.txt alone, in a folder of its own, is read without its added tokens",
            )
        added.append((content, token.get("id") if isinstance(token, dict) else None))
    return added


def _flags(file: Path, section: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the stated flags by field of `Style`; null states nothing."""
    flags: dict[str, Any] = {}
    for name, field in names.items():
        value = section.get(name)
        if value is not None:
            if not isinstance(value, bool):
                raise DataError(f"{file}: {name} = {show(value)}", "true or false")
            flags[field] = value
    return flags


def _kind(file: Path, section: dict[str, Any]) -> dict[str, Any]:
    """Return the kind of a vocab.txt if its config states the kind, as only ours do."""
    value = section.get("kind")
    kinds = [kind for kind in VOCABULARIES if kind != "bpe"]
    if value is not None and value not in kinds:
        raise DataError(f"{file}: kind = {show(value)}", " or ".join(kinds))
    return {} if value is None else {"kind": value}


def _characters(file: Path, section: dict[str, Any]) -> dict[str, Any]:
    """Return whose character rules hold, if this is a file of ours, which states them."""
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
        problem = None
        if not piece:
            problem = f"line {i + 1} is empty"
        elif piece in seen:
            problem = f"line {i + 1} repeats line {seen[piece] + 1}: {show(piece)}"
        elif re.search("[\n\r\ud800-\udfff]", piece):
            problem = f"piece {i}, {show(piece)}, has a line end or half a character in it"
        if problem:
            raise DataError(f"{file}: {problem}", "every id needs a piece of its own")
        seen[piece] = i
    missing = [name for name in SPECIALS if name not in seen]
    if missing:
        raise DataError(f"{file} has no {', '.join(missing)}", "BERT needs " + " ".join(SPECIALS))
    return vocab

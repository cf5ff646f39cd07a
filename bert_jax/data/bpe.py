"""Byte-level BPE, as of GPT-2, RoBERTa and ModernBERT: its pieces, its engine, and its training.

A piece is spelt with a visible character for each of its bytes; "Ġ" is a blank. No text is unknown,
and a piece that begins with a blank begins a word, which ends before the next blank.

A vocabulary is a tokenizer.json with every setting filled in, and what the `tokenizers` library
makes of it; `bert_jax.data.bpe_files` reads one from files.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bert_jax.batch import Special, TwoSeparators
from bert_jax.data.training_text import batches
from bert_jax.data.vocabulary import SPECIALS
from bert_jax.errors import DataError

FILES = (
    *("tokenizer.json", "vocab.json", "merges.txt"),
    *("tokenizer_config.json", "special_tokens_map.json"),
)
ROLES = Special._fields
FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")  # of an added token
ROBERTA = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
BYTE_LEVEL = {"add_prefix_space": True, "trim_offsets": True, "use_regex": True}  # its defaults
# Character of a piece -> its byte. Visible bytes stand for themselves.
BYTES = {chr(byte): byte for byte in (*range(33, 127), *range(161, 173), *range(174, 256))}
BYTES |= {chr(256 + i): byte for i, byte in enumerate(sorted({*range(256)} - {*BYTES.values()}))}
BLANKS = {" ", *(character for character, byte in BYTES.items() if chr(byte) in " \t\n\v\f\r")}


@dataclasses.dataclass(frozen=True)
class Bytes:
    """A byte-level vocabulary, and how text is cut into its pieces."""

    state: dict[str, Any]  # of a tokenizer.json; added tokens are pieces of its model too
    names: tuple[str, ...]  # of the special tokens, in the order of Special
    inputs: tuple[str, ...] = ()  # model_input_names, as a file states them

    @functools.cached_property
    def vocab(self) -> list[str]:
        """Return the pieces by id."""
        ids = self.state["model"]["vocab"]
        return sorted(ids, key=ids.__getitem__)

    @property
    def special(self) -> Special:
        """Return the ids of the special tokens."""
        ids = [self.state["model"]["vocab"][name] for name in self.names]
        two = _separators(self.state["post_processor"]) > 1
        return (TwoSeparators if two else Special)(*ids)

    @property
    def digest(self) -> str:
        """Return a digest of all but the pieces and their ids."""
        rules = {key: self.state[key] for key in ("normalizer", "pre_tokenizer", "added_tokens")}
        rules |= {key: value for key, value in self.state["model"].items() if key != "vocab"}
        rules |= {"names": self.names, "separators": self.special.separators}
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def prefixes(self) -> bool:
        """Tell whether a text gets a leading blank that it has not."""
        return any(part["add_prefix_space"] for part in byte_levels(self.state["pre_tokenizer"]))

    @property
    def continuation(self) -> np.ndarray:
        """Return which pieces begin no word: those that begin with no blank, bool [V]."""
        special = {token["content"] for token in self.state["added_tokens"] if token["special"]}
        begins = [piece[0] in BLANKS or piece in special for piece in self.vocab]
        return ~np.array(begins, bool)

    @property
    def divides_at_blanks(self) -> bool:
        """Tell whether a text has the ids of its words, each with the blank before it."""
        added = [token for token in self.state["added_tokens"] if not token["special"]]
        normalizer, split = self.state["normalizer"], self.state["pre_tokenizer"]
        return (
            split["type"] == "ByteLevel"
            and split["use_regex"]
            and (normalizer is None or normalizer["type"] == "NFC")
            and not any(token["rstrip"] or " " in token["content"].strip() for token in added)
        )

    def engine(self, markup: bool) -> tokenizers.Tokenizer:
        """Build the tokenizers object; `markup` finds special tokens in text, which else is text.

        Other added tokens are found in any text.
        """
        engine = tokenizers.Tokenizer.from_str(json.dumps(self.state))
        engine.encode_special_tokens = not markup
        return engine

    def contents(self, model_max_length: int | None) -> tuple[str, ...]:
        """Return the contents of FILES."""
        names = {f"{role}_token": name for role, name in zip(ROLES, self.names, strict=True)}
        types = [] if self.special.separators > 1 else ["token_type_ids"]
        config: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": list(self.inputs) or ["input_ids", *types, "attention_mask"],
            "add_prefix_space": self.prefixes,
            "clean_up_tokenization_spaces": False,
            **names,
        }
        config |= {} if model_max_length is None else {"model_max_length": model_max_length}
        model = self.state["model"]
        merges = "".join(f"{first} {second}\n" for first, second in model["merges"])
        return (
            json.dumps(self.state, ensure_ascii=False, indent=1) + "\n",
            json.dumps(model["vocab"], ensure_ascii=False) + "\n",
            f"#version: 0.2\n{merges}",
            json.dumps(config, indent=2) + "\n",
            json.dumps(names, indent=2) + "\n",
        )


# --- pieces and texts -----------------------------------------------------------------------------


def written(piece: str) -> str:
    """Return the text of a piece; one that is no whole characters stays as it is spelt."""
    try:
        return bytes(BYTES[character] for character in piece).decode()
    except (KeyError, UnicodeDecodeError):
        return piece


def readable(ids: list[int], special: Special, decode: Callable[..., str]) -> str:
    """Return the text of pieces, in which a special token stands apart from what precedes it."""
    text = ""
    for _, group in itertools.groupby(ids, lambda i: i if i in special else -1):
        part = list(group)
        apart = part[0] in special and text[-1:].strip()
        text += f"{' ' if apart else ''}{decode(part, skip_special_tokens=False)}"
    return text.lstrip()


def without_blanks(text: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Move the start of each token behind the blanks that it begins with."""
    trimmed = []
    for start, end in offsets:
        while start < end and text[start].isspace():
            start += 1
        trimmed.append((start, end))
    return trimmed


# --- parts of a tokenizer.json --------------------------------------------------------------------


def assemble(
    model: dict[str, Any],
    added: list[dict[str, Any]],
    pre_tokenizer: dict[str, Any],
    normalizer: dict[str, Any] | None,
    post_processor: dict[str, Any],
) -> dict[str, Any]:
    """Return a tokenizer.json, given of its model the vocabulary, merges and flags."""
    none = dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": {"type": "ByteLevel", **BYTE_LEVEL},
        "model": {"type": "BPE", **none, "byte_fallback": False, **model},
    }


def special_token(name: str, number: int, *, lstrip: bool) -> dict[str, Any]:
    """Return a special token; with `lstrip` it takes the blanks before it."""
    flags = dict.fromkeys(FLAGS, False) | {"special": True, "lstrip": lstrip}
    return {"id": number, "content": name, **flags}


def post_processor(names: tuple[str, ...], ids: dict[str, int]) -> dict[str, Any]:
    """Return what puts a text between cls and sep: RoBERTa's for its names, else BERT's."""
    _, _, cls, sep, _ = names
    section = {"sep": [sep, ids[sep]], "cls": [cls, ids[cls]]}
    if cls not in ROBERTA:
        return {"type": "BertProcessing", **section}
    flags = {"trim_offsets": True, "add_prefix_space": False}
    return {"type": "RobertaProcessing", **section, **flags}


def byte_levels(section: Any) -> list[dict[str, Any]]:
    """Return the ByteLevel parts of a pre-tokenizer."""
    if not isinstance(section, dict):
        return []
    nested = section.get("pretokenizers")
    parts = nested if isinstance(nested, list) else [section]
    return [part for part in parts if isinstance(part, dict) and part.get("type") == "ByteLevel"]


def _separators(processor: dict[str, Any]) -> int:
    """Return how many special tokens stand between the texts of a pair."""
    if "processors" in processor:
        return max(map(_separators, processor["processors"]))
    if "pair" in processor:
        texts = [i for i, part in enumerate(processor["pair"]) if "Sequence" in part]
        return texts[1] - texts[0] - 1
    return 2 if processor["type"] == "RobertaProcessing" else 1


# --- training -------------------------------------------------------------------------------------


def train(texts: Iterable[str], size: int) -> Bytes:
    """Learn a vocabulary from the bytes on; it depends on the texts alone, not on their order."""
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(BYTES),
    )
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    engine.train_from_iterator(batches(texts), trainer)
    model = json.loads(engine.to_str())["model"]
    ids = model["vocab"]
    if not model["merges"]:
        raise DataError(
            "no two bytes stand together twice in the text: no vocabulary to train",
            "check config.corpus.path, or set config.tokenizer.path",
        )
    flags = {"unk_token": None, "fuse_unk": False, "ignore_merges": False}
    state = assemble(
        {**flags, "vocab": ids, "merges": model["merges"]},
        [special_token(name, ids[name], lstrip=name == SPECIALS[-1]) for name in SPECIALS],
        {"type": "ByteLevel", **BYTE_LEVEL, "add_prefix_space": False},
        None,
        post_processor(SPECIALS, ids),
    )
    return Bytes(state, SPECIALS)

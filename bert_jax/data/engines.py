"""Build `tokenizers` objects for BERT's WordPiece and for byte-level BPE; interpret their parts."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # in the order of Special
ROBERTA = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
PREFIX = "##"
WORD_LENGTH = 200  # characters of the longest word, as google has it
BERT = ("uncased", "cased")  # the rules of cutting of BERT's own vocabularies
# First characters of the pieces that begin a word; byte-level BPE spells white space with letters.
BLANKS = " ĠĉĊċČč▁"
State = dict[str, Any]  # the contents of a tokenizer.json or tokenizer_config.json


def build_wordpiece(
    vocab: Sequence[str], *, max_word_length: int = WORD_LENGTH, **options: Any
) -> tokenizers.Tokenizer:
    """Build BERT's WordPiece from the pieces in the order of their ids.

    `options` go to the library's BertNormalizer: lowercase, strip_accents and so on.
    """
    ids = {piece: i for i, piece in enumerate(vocab)}
    engine = tokenizers.Tokenizer(
        models.WordPiece(ids, unk_token=SPECIALS[1], max_input_chars_per_word=max_word_length)
    )
    engine.normalizer = normalizers.BertNormalizer(**options)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix=PREFIX)
    return engine


def build_byte_level(model: models.BPE, add_prefix_space: bool = False) -> tokenizers.Tokenizer:
    """Build byte-level BPE as GPT-2 has it."""
    engine = tokenizers.Tokenizer(model)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    engine.decoder = decoders.ByteLevel()
    return engine


def mark_specials(engine: tokenizers.Tokenizer, names: Sequence[str]) -> None:
    """Mark the special tokens of a tokenizer; switch off its padding, truncation and dropout.

    So a text always has the same ids. Unless the tokenizer puts two special tokens around a text,
    it is made to put [CLS] before it and [SEP] after it, as a model reads it.
    """
    engine.no_padding()
    engine.no_truncation()
    is_bpe = isinstance(engine.model, models.BPE)
    if is_bpe:
        engine.model.dropout = None
    added = engine.get_added_tokens_decoder().values()
    special = {token.content for token in added if token.special}
    for name in (name for name in names if name not in special):
        takes_blank = is_bpe and name == names[4]  # the mask, as RoBERTa has it
        token = AddedToken(name, lstrip=takes_blank, normalized=False, special=True)
        engine.add_special_tokens([token])
    single, pair = map(engine.num_special_tokens_to_add, (False, True))
    if single != 2:  # GPT-2's adds none, and Llama's only the first
        says_nothing = isinstance(engine.post_processor, processors.ByteLevel | None)
        ids = engine.get_vocab(with_added_tokens=True)
        cls, sep = ((name, ids[name]) for name in names[2:4])
        engine.post_processor = processors.BertProcessing(sep, cls)
        if pair - single == 2 or (says_nothing and names[2] in ROBERTA):  # separators in a pair
            engine.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=False)


def find_continuations(state: State, vocab: list[str]) -> np.ndarray:
    """Tell for each piece of a vocabulary whether it continues a word, bool [V]."""
    if prefix := state["model"].get("continuing_subword_prefix"):
        return np.array([piece.startswith(prefix) for piece in vocab])
    if state["model"]["type"] == "WordLevel":
        return np.zeros(len(vocab), bool)
    special = {token["content"] for token in state["added_tokens"] if token["special"]}
    return np.array([piece[:1] not in BLANKS and piece not in special for piece in vocab])


def name_rules(state: State, names: Sequence[str], separators: int) -> str:
    """Name the rules by which a tokenizer cuts text.

    BERT's rules are named "uncased" and "cased", and other rules by a digest. The vocabulary and
    the length of the longest word do not belong to the rules.
    """
    rules = {key: state[key] for key in ("normalizer", "pre_tokenizer", "added_tokens")}
    model = dict(state["model"])
    model.pop("max_input_chars_per_word", None)
    if model["type"] != "Unigram":  # whose pieces have scores
        del model["vocab"]
    special = {token["content"] for token in state["added_tokens"]} == {*SPECIALS}
    for name in BERT:
        usual = json.loads(build_wordpiece(SPECIALS, lowercase=name == "uncased").to_str())
        same = all(state[key] == usual[key] for key in ("normalizer", "pre_tokenizer"))
        if same and special and model.items() <= usual["model"].items():
            return name
    rules |= model | {"names": [*names], "separators": separators}
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]


def splits_at_blanks(state: State) -> bool:
    """Tell whether byte-level BPE cuts a text at each blank, as GPT-2 does."""
    split = state["pre_tokenizer"] or {}
    added = [token for token in state["added_tokens"] if not token["special"]]
    return (
        split.get("type") == "ByteLevel"
        and split["use_regex"]
        and state["normalizer"] in (None, {"type": "NFC"})
        and not any(token["rstrip"] or " " in token["content"].strip() for token in added)
    )

"""Encode the 300 texts of tests/golden/bpe/ by transformers, with two byte-level vocabularies.

One is of RoBERTa's kind and one of ModernBERT's.

The vocabularies were trained on a page of prose. A text is a part of one of its sentences, with
rare words, special tokens and odd blanks drawn at random. Made on 2026-11-23 with Python 3.12,
transformers 5.23.0, tokenizers 0.23.3. To make the answers again (the tests need no transformers):

    python experiments/parity/make_bpe.py
"""

import gzip
import json
from pathlib import Path
from typing import Any

import transformers
from tokenizers import pre_tokenizers

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "golden" / "bpe"
FILE = FOLDER / "texts.jsonl.gz"
KINDS = ("roberta", "modernbert")
LENGTH = 24  # tokens of a truncated text or pair


def main() -> None:
    """Write what transformers makes of each text with each vocabulary."""
    load = transformers.AutoTokenizer.from_pretrained
    tokenizers = {
        kind: (load(FOLDER / kind), load(FOLDER / kind, add_prefix_space=True)) for kind in KINDS
    }
    for _, spaced in tokenizers.values():  # the class of tokenizer.json does not do it by itself
        spaced.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert isinstance(tokenizers["roberta"][0], transformers.RobertaTokenizer)
    rows = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]
    for row in rows:
        row |= {kind: ask(*both, row["text"], row["pair"]) for kind, both in tokenizers.items()}
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    FILE.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def ask(tokenizer: Any, spaced: Any, one: str, other: str) -> dict[str, Any]:
    """Encode a text, a pair, both where they are too long, and words with a blank before each."""
    short: dict[str, Any] = {"truncation": "longest_first", "max_length": LENGTH}
    split: dict[str, Any] = {"is_split_into_words": True, "add_special_tokens": False}
    pair = tokenizer(one, other, return_token_type_ids=True)
    return {
        "text": tokenizer(one)["input_ids"],
        "pair": pair["input_ids"],
        "types": pair["token_type_ids"],
        "short": tokenizer(one, **short)["input_ids"],
        "short_pair": tokenizer(one, other, **short)["input_ids"],
        "offsets": tokenizer(one, return_offsets_mapping=True)["offset_mapping"][1:-1],
        "words": spaced(one.split(), **split)["input_ids"],
        "decoded": tokenizer.decode(tokenizer(one)["input_ids"]),
    }


if __name__ == "__main__":
    main()

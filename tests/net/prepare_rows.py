"""Texts that are prepared in several formats, and the digests of what `bert-jax prepare` writes.

Of a prepared folder only these are read: `<split>*/tokens.npy`, `sentence_ends.npy` (places in the
tokens) and `document_ends.npy` (places in the sentence ends), the vocabulary and the merges of
`tokenizer.json`, and `vocab.txt`, which holds the same vocabulary.
"""

# ruff: noqa: RUF001 (letters of other alphabets are what these texts are for)

import contextlib
import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from tests.net import train_rows
from tests.net.train_rows import print_here

ODD = (  # documents whose characters, sentences or lines are treated in some way
    "Naïve Ærøskøbing façade, Straße: ŁÓDŹ, İstanbul, Ǆ and ﬁn.\nZoë’s “quotes” — dashes… and ﬀ.",
    "東京は日本の首都です。 北京 and 서울 follow.\nМосква, Αθήνα, القاهرة, תל אביב, กรุงเทพ.",
    "Dr. Smith of the U.S. paid 3.50 $ at 5 p.m. on Jan. 2. Was it e.g. too much? He said no! Then",
    "a\tb  c\u00a0d\u200be\u00adf \x07g\x00h.\nA [MASK] and a [SEP], [CLS] [UNK] ##ing @-@ <s>.",
    "🙂 👩‍👩‍👧 e\u0301 é ① ½ ² ℃ 10⁻³ x²+y²=z² C++ f(x)=a_b#c www.example.org/~me?q=1&r=2.",
    "word" * 60 + " is long.\n" + " ".join(f"{number}th" for number in range(40)) + ".",
    "\n".join(f"the cat number {number} sees the sea." for number in range(90)),
    "One line alone.",
)
Digests = dict[str, Any]


def write_texts(folder: Path) -> None:
    """Write the same documents as texts/corpus.txt (there before), .jsonl.gz and .parquet."""
    path = folder / "texts" / "corpus.txt"
    documents = path.read_text().strip().split("\n\n")
    documents = [*documents[:40], *ODD, documents[3], *documents[40:80], documents[7]]
    path.write_bytes("\n\n".join(documents).encode() + b"\n\nBroken \xff\xfe bytes.\r\nCRLF.\r\n")
    documents.append("Broken \ufffd\ufffd bytes.\nCRLF.")
    lines = "".join(json.dumps({"text": document}) + "\n" for document in documents)
    for name in ("jsonl", "parquet"):
        (folder / name).mkdir()
    (folder / "jsonl" / "corpus.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    rows = pyarrow.table({"text": documents, "number": list(range(len(documents)))})
    pyarrow.parquet.write_table(rows, folder / "parquet" / "corpus.parquet", row_group_size=20)


VOCABULARIES = {
    "wordpiece": {"tokenizer.path": "", "tokenizer.vocab_size": 500},
    "bpe": {"tokenizer.path": "", "tokenizer.kind": "bpe", "tokenizer.vocab_size": 500},
    "given": {"tokenizer.path": "models/bert"},
}
FORMATS = {
    "txt": {"corpus.path": "texts/corpus.txt"},
    "jsonl_gz": {"corpus.path": "jsonl/corpus.jsonl.gz"},
    "parquet": {"corpus.path": "parquet"},
}
ROWS: dict[str, dict[str, Any]] = {
    f"{vocabulary}_{form}": knobs | path
    for vocabulary, knobs in VOCABULARIES.items()
    for form, path in FORMATS.items()
}
ROWS |= {
    "given_bpe": {"tokenizer.path": "models/roberta"},
    "cased": VOCABULARIES["wordpiece"] | {"tokenizer.lowercase": False},
    "split_sentences": {"corpus.sentences": "split"},
    "lines_are_sentences": {"corpus.sentences": "lines"},
    "with_duplicates": {"corpus.deduplicate": False},
    "several_files": {"corpus.path": "*/corpus.*", "corpus.deduplicate": False},
    "short_words": {"tokenizer.max_word_length": 10},
    "other_field": {"corpus.path": "other.jsonl", "corpus.text_field": "body"},
}


@contextlib.contextmanager
def inputs(folder: Path) -> Iterator[None]:
    """Write what the rows read into a new folder, and work there."""
    with train_rows.inputs(folder):
        write_texts(folder)
        other = [{"body": text, "text": "not this"} for text in ODD]
        (folder / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in other))
        yield


def measure(name: str) -> Digests:
    """Prepare a row by the command, and return the digests of what it wrote."""
    words = ["prepare", "--config=base.py", *(f"--config.{k}={v}" for k, v in ROWS[name].items())]
    return read_digests(Path(print_here(words).splitlines()[-1]))


def read_digests(folder: Path) -> Digests:
    """Return counts and digests of a prepared folder."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    ids = dict(tokenizer["model"]["vocab"])
    ids |= {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    vocabulary = sorted(ids, key=ids.__getitem__)
    found: Digests = {"vocabulary": f"{len(vocabulary)} {_digest(vocabulary)}"}
    if (file := folder / "vocab.txt").exists():  # of a WordPiece
        assert file.read_text(encoding="utf-8").rstrip("\n").split("\n") == vocabulary
    if merges := tokenizer["model"].get("merges"):
        pairs = [" ".join(pair) if isinstance(pair, list) else pair for pair in merges]
        found["merges"] = f"{len(pairs)} {_digest(pairs)}"
    for split in ("train", "validation"):
        documents = [text for part in sorted(folder.glob(f"{split}*")) for text in _read(part)]
        sentences = [ids for document in documents for ids in document]
        found[split] = {
            "tokens": sum(map(len, sentences)),
            "sentences": len(sentences),
            "documents": len(documents),
            "ids": _digest([token for ids in sentences for token in ids]),
            "sentence_ends": _digest(np.cumsum([len(ids) for ids in sentences]).tolist()),
            "document_ends": _digest(np.cumsum([len(text) for text in documents]).tolist()),
            "in_any_order": _digest(sorted(map(_digest, documents))),
        }
    return found


def _read(part: Path) -> list[list[list[int]]]:
    """Return the ids of each sentence of each document of a folder."""
    tokens, sentences, documents = (
        np.load(part / f"{name}.npy").tolist()
        for name in ("tokens", "sentence_ends", "document_ends")
    )
    starts = [0, *sentences]
    ids = [tokens[start:end] for start, end in zip(starts, sentences, strict=False)]
    return [ids[start:end] for start, end in zip([0, *documents], documents, strict=False)]


def _digest(values: list[Any]) -> str:
    """Return the first 16 digits of the sha256 of a list as JSON."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]

"""Small texts on disk, the config that prepares them, and what was made of them."""

import io
import random
from pathlib import Path

import pyarrow.parquet

from bert_jax.config import knobs
from bert_jax.data import prepare
from bert_jax.data.corpus import Prepared
from tests import corpora

BPE = Path(__file__).parents[1] / "golden" / "bpe"  # tokenizers of two kinds
WORDS = [a + b for a in "bcdfgklmnprst" for b in ("a", "en", "ir", "ost", "u")]
Documents = list[list[str]]


def make_documents(count: int, seed: int = 0) -> Documents:
    """Documents of two to six sentences."""
    draw = random.Random(seed)

    def make_sentence() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(3, 9))) + "."

    return [[make_sentence() for _ in range(draw.randint(2, 6))] for _ in range(count)]


def write_text(folder: Path, documents: Documents, name: str = "a.txt") -> Path:
    """Write documents with a sentence a line; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join("\n".join(lines) for lines in documents) + "\n"
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def make_parquet(*texts: bytes, size: str = "") -> bytes:
    """The bytes of a parquet file of texts, in UTF-8 or not; polars writes the size "large_"."""
    buffers = pyarrow.array(texts, f"{size}binary").buffers()
    kind = pyarrow.type_for_alias(f"{size}string")
    return pack_parquet(pyarrow.Array.from_buffers(kind, len(texts), buffers))


def pack_parquet(column: pyarrow.Array | list[str]) -> bytes:
    """The bytes of a parquet file with the column `text`."""
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), file)
    return file.getvalue()


def configure(folder: Path, vocabulary: str = "", **options) -> knobs.Config:
    """A config that prepares folder/in in folder/cache, by one worker."""
    usual = {"source": "files", "path": str(folder / "in"), "cache": str(folder / "cache")}
    usual |= {"sentences": "lines", "workers": 1, "validation_fraction": 0.1}
    return knobs.Config(
        corpus=knobs.Corpus(**(usual | options)),
        tokenizer=knobs.Tokenizer(path=vocabulary, vocab_size=150),
    )


def run(folder: Path, **options) -> Prepared:
    """Prepare folder/in."""
    return prepare.prepare_corpus(configure(folder, **options), lambda message: None)


def read_split(prepared: Prepared, name: str) -> Documents:
    """The documents of a split, as text."""
    found = corpora.list_documents(prepared.splits[name])
    return [[prepared.tokenizer.decode(ids) for ids in document] for document in found]


def digest_files(folder: Path) -> dict[Path, int]:
    """The digest of every file of a folder."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {file.relative_to(folder): hash(file.read_bytes()) for file in files}

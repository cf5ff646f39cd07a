"""A vocabulary of a few letters, and examples and features made with it."""

from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data.engines import SPECIALS, build_wordpiece
from bert_jax.data.examples import Example
from bert_jax.data.features import Features, encode_examples
from bert_jax.data.tokenizer import Tokenizer

LETTERS = "abcdefghij"
PIECES = [*LETTERS, *("##" + c for c in LETTERS), "cafe", "##de", "字", ".", "-", "ᄒ", "##ᅡ", "##ᆫ"]
TOKENIZER = Tokenizer(build_wordpiece([*SPECIALS, *PIECES]))
SPECIAL = TOKENIZER.special

WORD = st.text(LETTERS, min_size=1, max_size=4)
TEXT = st.lists(WORD, max_size=12).map(" ".join)
STRIDES = st.sampled_from([("step", 1), ("step", 3), ("step", 50), ("overlap", 0), ("overlap", 2)])


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode_batch([text])[0]


def make_example(number: int = 0, **fields) -> Example:
    return Example(where=f"data.tsv:{number + 1}", id=str(number), **fields)


def encode(
    examples: list[Example], kind: str, length: int = 32, train: bool = False, **task
) -> Features:
    return encode_examples(examples, kind, TOKENIZER, knobs.Task(**task), length, train=train)


def row_of(found: Features, name: str, row: int) -> list:
    """Return what features say of each token of a row."""
    values = found.targets[name] if name in found.targets else getattr(found, name)
    return values[found.offsets[row] : found.offsets[row + 1]].tolist()

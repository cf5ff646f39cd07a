"""Knobs of the data: corpus, task, tokenizer, examples and masking. `knobs.py` has the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Source(NamedTuple):
    """A row of SOURCES; `data/corpus.py` has the module."""

    knobs: tuple[str, ...] = ()  # of `corpus`, that not every source reads, but this one


_ROWS = ("path", "text_field")
SOURCES = {  # of a corpus
    "docstrings": Source(),
    "files": Source(_ROWS),
    "tfds": Source((*_ROWS, "tfds_dir", "split")),
    "hub": Source((*_ROWS, "split", "revision")),
}
# Masking units, each with the knobs of `masking` that it reads, in training and in evaluations; the
# unit itself is a row of MARKERS in bert_jax/masking/units.py.
UNITS: dict[str, tuple[str, ...]] = {
    "token": (),
    "word": ("max_unit",),
    "span": ("max_unit", "span_mean", "span_max"),
    "pmi": ("max_unit", "pmi_words", "pmi_count", "pmi_coverage", "pmi_tokens"),
}
OF_UNITS = tuple(dict.fromkeys(knob for knobs in UNITS.values() for knob in knobs))
# Laws of a rate that is drawn for each example, each with the knobs of `masking` that it reads; the
# law itself is a row of LAWS in bert_jax/masking/rates.py.
DRAWS: dict[str, tuple[str, ...]] = {
    "uniform": ("draw_low", "draw_high"),
    "cosine_low": (),
    "cosine_high": (),
    "beta": ("draw_alpha", "draw_beta"),
}
OF_DRAWS = tuple(dict.fromkeys(knob for knobs in DRAWS.values() for knob in knobs))
FORMATS = ("auto", "tsv", "csv", "jsonl", "json", "conll", "conllu", "parquet")  # of a task


def knob(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple = (),
    formerly: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Declare a dataclass field with its documentation and its allowed values.

    `formerly` has the values of older versions, in lower case, and what they are called now.
    """
    metadata = {"doc": doc, "low": low, "high": high, "choices": choices, "formerly": formerly}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The raw text, and its division into documents of sentences."""

    source: str = knob("docstrings", "where text comes from", choices=tuple(SOURCES))
    path: str = knob(
        "",
        "files: a file, folder or glob; tfds: a dataset name such as lm1b; hub: datasets, with "
        "commas between, such as wikimedia/wikipedia:20231101.en,emozilla/pg19",
    )
    revision: str = knob(
        "",
        "hub: a commit, branch or tag for each dataset; empty is the newest commit when it was "
        "first prepared in this cache",
    )
    tfds_dir: str = knob("", "tfds: its data_dir; empty is the library's default")
    split: str = knob("train", "tfds, hub: which split to read")
    text_field: str = knob("text", "jsonl, parquet, tfds, hub: the field that holds the text")
    sentences: str = knob(
        "auto",
        "auto detects whether a line is one sentence; in text without words it always is",
        choices=("auto", "split", "lines"),
    )
    language: str = knob("en", "language of the sentence splitter")
    deduplicate: bool = knob(True, "drop exact copies of a document, before the validation split")
    validation_fraction: float = knob(
        0.02, "share of documents, by hash, held out", low=0, high=0.5
    )
    cache: str = knob(
        "", "folder of prepared corpora; empty is $BERT_JAX_DATA, else ~/.cache/bert_jax"
    )
    workers: int = knob(0, "processes for prepare; 0 is one per core", low=0)


@dataclasses.dataclass(frozen=True)
class Task:
    """The labelled data of one objective; `data/tasks.py` has settings for published tasks."""

    name: str = knob("", "name of the task; a row of data/tasks.py gives its submission format too")
    source: str = knob(
        "",
        "files:PATTERN, where {split} stands for a split's name; files:train=FILE,validation=FILE; "
        "files:FOLDER in the task's usual layout; tfds:NAME; empty trains on the corpus",
    )
    files: dict[str, str] = knob(
        {},
        "files:FOLDER: the file of each split, where the usual layout has names of its own; "
        "a|b is whichever exists",
    )
    tfds_dir: str = knob("", "tfds: its data_dir; empty is the library's default")
    format: str = knob("auto", "file format; auto goes by the names of files", choices=FORMATS)
    columns: tuple[str, ...] = knob(
        (), "names of the columns of a tsv or csv file without a header"
    )
    id: str = knob("", "column that names a row; empty counts rows from 0")
    text: str = knob(
        "text",
        "column of the text; span: of the question; tag: of the words; a|b is whichever exists",
    )
    text_pair: str = knob(
        "", "column of a second text; span: of the context; choice: of how options begin"
    )
    label: str = knob("label", "column of the label; conll: its number from 0, or -1 for the last")
    options: tuple[str, ...] = knob(
        (), "choice: columns of the options, or the one that lists them"
    )
    values: tuple[str, ...] = knob((), "what stands for each label in the file, if not its name")
    validation_fraction: float = knob(
        0.2, "share of rows, by hash, held out of one file", low=0, high=0.9
    )
    rows: int = knob(0, "training rows used, the first ones; 0 is all", low=0)
    long: str = knob(
        "auto",
        "a text over the length: cut its end, read it in windows (tag, span), or refuse it; "
        "auto is windows for tag and span, else cut",
        choices=("auto", "cut", "windows", "refuse"),
    )
    stride: int = knob(128, "stride of windows, in tokens", low=0)
    stride_as: str = knob(
        "step",
        "the stride is what neighbouring windows share, or how much later the next one begins",
        choices=("overlap", "step"),
    )
    question_tokens: int = knob(
        64, "span: a longer question is cut, or refused where task.long says so", low=1
    )
    answer_tokens: int = knob(30, "span: longest answer", low=1)
    n_best: int = knob(20, "span: answers kept, and starts and ends considered", low=1)
    no_answer: bool = knob(False, "span: questions may have no answer, as in SQuAD 2.0")
    no_answer_threshold: float = knob(
        0.0, "span: no answer if its score is higher by more than this"
    )
    metrics: tuple[str, ...] = knob((), "metrics of an evaluation; empty is all of the objective")
    pad: str = knob(
        "batch",
        "rows are padded to the batch's longest, or to sequence_length",
        choices=("batch", "full"),
    )
    group: str = knob(
        "none",
        "rows of a batch: any, as in the paper, or of like lengths",
        choices=("none", "length"),
    )


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """The tokenizer: WordPiece or byte-level BPE trained on the corpus, or the one at `path`."""

    path: str = knob(
        "",
        "a vocab.txt, tokenizer.json, vocab.json (with its merges.txt) or Hugging Face folder to "
        "use instead of training",
    )
    kind: str = knob(
        "auto",
        "wordpiece or bpe (byte-level); auto is what the files at `path` hold, and else WordPiece; "
        "a trained bpe vocabulary keeps case, accents and all characters",
        choices=("auto", "wordpiece", "bpe"),
    )
    vocab_size: int = knob(30_522, "size of a trained vocabulary", low=16, high=10_000_000)
    lowercase: bool = knob(
        True, "a trained WordPiece is uncased, and without accents; one at `path` states its own"
    )
    max_word_length: int | None = knob(
        None,
        "a longer word is [UNK]; None is what the files at `path` state, else google's 200",
        low=1,
        high=1_000_000,
    )
    train_characters: int = knob(
        500_000_000, "most characters of text that the vocabulary is trained on", low=1_000
    )


@dataclasses.dataclass(frozen=True)
class Examples:
    """The construction of the original's training examples from documents."""

    short_probability: float = knob(
        0.1, "nsp, sop: chance, per document, of a random shorter target length", low=0, high=1
    )
    random_next_probability: float = knob(0.5, "nsp: chance of a random segment B", low=0, high=1)
    truncate: str = knob(
        "either",
        "nsp, sop: the end at which the longer segment loses tokens",
        choices=("either", "front", "back"),
    )


@dataclasses.dataclass(frozen=True)
class Masking:
    """The selection of tokens to corrupt and predict, and their replacement."""

    rate: float = knob(0.15, "share of eligible tokens selected", low=0.0, high=1.0)
    prediction_rate: float | None = knob(
        None,
        "share predicted; None is the rate. Above it an example is read in ceil(prediction_rate / "
        "rate) views, each with other tokens corrupted; batch_size counts views",
        low=0.0,
        high=1.0,
    )
    replace: tuple[float, float, float] = knob(
        (0.8, 0.1, 0.1), "shares of [MASK], random token, kept", low=0, high=1
    )
    unit: str = knob(
        "token", "unit of selection; pmi is collocations, and words elsewhere", choices=tuple(UNITS)
    )
    max_unit: int = knob(
        16, "a longer unit is cut into several, so that prediction slots stay bounded", low=1
    )
    overflow: str = knob(
        "fair",
        "a unit that exceeds the quota: fair selects it by a draw that keeps the rate, nested over "
        "rates; skip takes the next that fits, as google does for words: not nested, and short of "
        "the rate where none fits",
        choices=("fair", "skip"),
    )
    span_mean: float = knob(
        3.8, "span: mean words of SpanBERT's clipped geometric distribution", low=1.0
    )
    span_max: int = knob(10, "span: most words", low=1)
    pmi_words: int = knob(5, "pmi: most words of a collocation", low=2, high=16)
    pmi_count: int = knob(
        10, "pmi: a collocation occurs more often than this in the training text", low=0
    )
    pmi_coverage: float = knob(
        0.5,
        "pmi: share of the words that lie in a collocation, which decides how many there are",
        low=0,
        high=1,
    )
    pmi_tokens: int = knob(
        500_000_000, "pmi: most tokens of text searched for collocations", low=1_000
    )
    dupe_factor: int = knob(
        0,
        "0 draws new masks each epoch; n makes n static copies, one an epoch, where google "
        "shuffles all copies together",
        low=0,
    )
    rounding: str = knob(
        "unbiased",
        "how the share of an example becomes whole tokens, at least 1 (which lifts rows shorter "
        "than 1 / rate): unbiased rounds up or down by a draw, so that the mean is the rate at any "
        "length; nearest rounds half to even, as google does and as evaluations always do",
        choices=("unbiased", "nearest"),
    )
    phases: tuple[tuple[float, float, str], ...] = knob(
        (),
        "from `rate` on: until which share of the steps, to which rate, and how: step (at once, "
        "there), linear or cosine; such as ((0.5,0.15,'step'),(0.8,0.05,'step')), or "
        "((1.0,0.15,'linear'),) for one line down to 15 %",
    )
    draw: str = knob(
        "fixed",
        "the rate of an example: fixed is `rate`; else it is drawn for each, evenly over the "
        "stream: 1 - cos(pi u / 2) is cosine_low and cos(pi u / 2) cosine_high, of a uniform u",
        choices=("fixed", *DRAWS),
    )
    draw_low: float = knob(0.0, "uniform: the lowest rate", low=0, high=1)
    draw_high: float = knob(1.0, "uniform: the highest rate", low=0, high=1)
    draw_alpha: float = knob(1.0, "beta: its first parameter", low=0.01, high=1_000)
    draw_beta: float = knob(1.0, "beta: its second parameter", low=0.01, high=1_000)
    weights: str = knob(
        "none",
        "which units are selected more often: frequency goes by weights_power, and none selects "
        "all alike; masks of evaluations always do",
        choices=("none", "frequency"),
    )
    weights_power: float = knob(
        -0.5,
        "frequency: a token weighs its share of the training text to this power, and a unit the "
        "mean of its tokens; below 0 rare ones are selected more often",
        low=-2,
        high=2,
    )
    count: str = knob(
        "eligible",
        "tokens that the rate multiplies; all includes [CLS] and [SEP]",
        choices=("eligible", "all"),
    )
    random_from: str = knob(
        "all",
        "random tokens: the whole vocabulary, or that without special tokens",
        choices=("all", "regular"),
    )

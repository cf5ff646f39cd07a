"""Knobs of the data: corpus, task, tokenizer, examples and masking."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from bert_jax.config.declare import Count, Natural, Share, knob

Source = Literal["docstrings", "files", "tfds", "hub"]  # of a corpus
Format = Literal["auto", "tsv", "csv", "jsonl", "json", "conll", "conllu", "parquet"]  # of a task
Unit = Literal["token", "word", "span", "pmi"]  # a row of MARKERS in bert_jax/masking/units.py
# fixed, or a row of LAWS in bert_jax/masking/rates.py.
Law = Literal["fixed", "uniform", "cosine_low", "cosine_high", "beta"]
Shape = Annotated[float, Meta(ge=0.01, le=1_000)]  # of the beta distribution
Positive = Annotated[float, Meta(gt=0, le=1)]
Course = Literal["step", "linear", "cosine"]  # a row of COURSES in bert_jax/masking/rates.py
Phase = tuple[Positive, Positive, Course]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The raw text, and its division into documents of sentences."""

    #: where text comes from
    source: Source = "docstrings"
    #: files: a file, folder or glob; tfds: a dataset name such as lm1b; hub: datasets, with
    #: commas between, such as wikimedia/wikipedia:20231101.en,emozilla/pg19
    path: str = knob("", when="corpus.source=files|tfds|hub")
    #: a commit, branch or tag for each dataset; empty is the newest commit when it was first
    #: prepared in this cache
    revision: str = knob("", when="corpus.source=hub")
    #: data_dir of tfds; empty is the library's default
    tfds_dir: str = knob("", when="corpus.source=tfds")
    #: which split to read
    split: str = knob("train", when="corpus.source=tfds|hub")
    #: jsonl, parquet, tfds, hub: the field that holds the text
    text_field: str = knob("text", when="corpus.source=files|tfds|hub")
    #: auto detects whether a line is one sentence; in text without words it always is
    sentences: Literal["auto", "split", "lines"] = "auto"
    #: language of the sentence splitter
    language: str = knob("en", when="corpus.sentences=auto|split")
    #: drop exact copies of a document, before the validation split
    deduplicate: bool = True
    #: share of documents, by hash, held out
    validation_fraction: Annotated[float, Meta(ge=0, le=0.5)] = 0.02
    #: folder of prepared corpora; empty is $BERT_JAX_DATA, else ~/.cache/bert_jax
    cache: str = knob("", free=True)
    #: processes for prepare; 0 is one per core
    workers: Natural = knob(0, free=True)


@dataclasses.dataclass(frozen=True)
class Task:
    """The labelled data of one objective; `data/tasks.py` has settings for published tasks."""

    #: name of the task; a row of data/tasks.py gives its submission format too
    name: str = ""
    #: files:PATTERN, where {split} stands for a split's name;
    #: files:train=FILE,validation=FILE; files:FOLDER in the task's usual layout; tfds:NAME;
    #: empty trains on the corpus
    source: str = ""
    #: files:FOLDER: the file of each split, where the usual layout has names of its own; a|b
    #: is whichever exists
    files: dict[str, str] = knob({}, when="files")
    #: data_dir of tfds; empty is the library's default
    tfds_dir: str = knob("", when="tfds")
    #: file format; auto goes by the names of files
    format: Format = knob("auto", when="files")
    #: names of the columns of a tsv or csv file without a header
    columns: tuple[str, ...] = knob((), when=("files", "task.format=auto|tsv|csv"))
    #: column that names a row; empty counts rows from 0
    id: str = ""
    #: column of the text; span: of the question; tag: of the words; a|b is whichever exists
    text: str = "text"
    #: column of a second text; span: of the context; choice: of how options begin
    text_pair: str = knob("", when="kind=classify|regress|span|choice")
    #: column of the label; conll: its number from 0, or -1 for the last
    label: str = "label"
    #: columns of the options, or the column that lists them
    options: tuple[str, ...] = knob((), when="kind=choice")
    #: what stands for each label in the file, if not its name
    values: tuple[str, ...] = knob((), when="kind=classify|tag|choice")
    #: share of rows, by hash, held out of one file
    validation_fraction: Annotated[float, Meta(ge=0, le=0.9)] = knob(0.2, when="files")
    #: training rows used, the first ones; 0 is all
    rows: Natural = 0
    #: a text over the length: cut its end, read it in windows (tag, span), or refuse it; auto
    #: is windows for tag and span, else cut
    long: Literal["auto", "cut", "windows", "refuse"] = "auto"
    #: stride of windows, in tokens
    stride: Natural = knob(128, when=("kind=tag|span", "task.long=auto|windows"))
    #: the stride is what neighbouring windows share, or how much later the next one begins
    stride_as: Literal["overlap", "step"] = knob(
        "step", when=("kind=tag|span", "task.long=auto|windows")
    )
    #: a longer question is cut, or refused if task.long says so
    question_tokens: Count = knob(64, when="kind=span")
    #: longest answer, in tokens
    answer_tokens: Count = knob(30, when="kind=span")
    #: answers kept, and starts and ends considered
    n_best: Count = knob(20, when="kind=span")
    #: questions may have no answer, as in SQuAD 2.0
    no_answer: bool = knob(False, when="kind=span")
    #: no answer is given if its score is higher by more than this
    no_answer_threshold: float = knob(0.0, when="task.no_answer")
    #: metrics of an evaluation; empty is all of the objective
    metrics: tuple[str, ...] = ()
    #: rows are padded to the batch's longest, or to sequence_length
    pad: Literal["batch", "full"] = "batch"
    #: rows of a batch: any, as in the paper, or of like lengths
    group: Literal["none", "length"] = knob("none", when="task.pad=batch")


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """The tokenizer: WordPiece or byte-level BPE trained on the corpus, or the one at `path`."""

    #: a vocab.txt, tokenizer.json, vocab.json (with its merges.txt) or Hugging Face folder to
    #: use instead of training
    path: str = knob("", resets=("vocab_size", "lowercase"))
    #: wordpiece or bpe (byte-level); auto is what the files at `path` hold, and else
    #: WordPiece; a trained bpe vocabulary keeps case, accents and all characters
    kind: Literal["auto", "wordpiece", "bpe"] = knob("auto", when="vocabulary", idle="wordpiece")
    #: size of a trained vocabulary
    vocab_size: Annotated[int, Meta(ge=16, le=10_000_000)] = knob(30_522, when="trained")
    #: a trained WordPiece is uncased, and without accents; one at `path` states its own
    lowercase: bool = knob(True, when="trained")
    #: a longer word is [UNK]; None is what the files at `path` state, else google's 200
    max_word_length: Annotated[int, Meta(ge=1, le=1_000_000)] | None = knob(
        None, when=("vocabulary", "tokenizer.kind=auto|wordpiece")
    )


@dataclasses.dataclass(frozen=True)
class Examples:
    """The construction of the original's training examples from documents."""

    #: chance, for each document, of a random shorter target length
    short_probability: Share = knob(0.1, when="pairs=nsp|sop")
    #: chance of a random segment B
    random_next_probability: Share = knob(0.5, when="pairs=nsp")
    #: the end at which the longer segment loses tokens
    truncate: Literal["either", "front", "back"] = knob("either", when="pairs=nsp|sop")


@dataclasses.dataclass(frozen=True)
class Masking:
    """The selection of tokens to corrupt and predict, and their replacement."""

    #: share of eligible tokens selected
    rate: Share = knob(0.15, when="masking.draw=fixed", traced=True)
    #: share predicted; None is the rate. Above it an example is read in ceil(prediction_rate
    #: / rate) views, each with other tokens corrupted; batch_size counts views
    prediction_rate: Share | None = knob(None, when=("mlm", "masking.draw=fixed"), traced=True)
    #: shares of [MASK], random token, kept
    replace: tuple[Share, Share, Share] = knob((0.8, 0.1, 0.1), traced=True)
    #: unit of selection; pmi is collocations, and words elsewhere
    unit: Unit = "token"
    #: a longer unit is cut into several, so that prediction slots stay bounded
    max_unit: Count = knob(16, when="unit=word|span|pmi")
    #: a unit that exceeds the quota: fair selects it by a draw that keeps the rate, nested
    #: over rates; skip takes the next that fits, as google does for words: not nested, and
    #: short of the rate where none fits
    overflow: Literal["fair", "skip"] = knob("fair", when="masking.unit=word|span|pmi")
    #: mean words of SpanBERT's clipped geometric distribution
    span_mean: Annotated[float, Meta(ge=1.0)] = knob(3.8, when="unit=span")
    #: most words of a span
    span_max: Count = knob(10, when="unit=span")
    #: most words of a collocation
    pmi_words: Annotated[int, Meta(ge=2, le=16)] = knob(5, when="unit=pmi")
    #: a collocation occurs more often than this in the training text
    pmi_count: Natural = knob(10, when="unit=pmi")
    #: share of the words that lie in a collocation, which decides how many there are
    pmi_coverage: Share = knob(0.5, when="unit=pmi")
    #: 0 draws new masks each epoch; n makes n static copies, one an epoch, where google
    #: shuffles all copies together
    dupe_factor: Natural = 0
    #: how the share of an example becomes whole tokens, at least 1 (which lifts rows shorter
    #: than 1 / rate): unbiased rounds up or down by a draw, so that the mean is the rate at
    #: any length; nearest rounds half to even, as google does and as evaluations always do
    rounding: Literal["unbiased", "nearest"] = "unbiased"
    #: from `rate` on: until which share of the steps, to which rate, and how: step (at once,
    #: there), linear or cosine; such as ((0.5,0.15,'step'),(0.8,0.05,'step')), or
    #: ((1.0,0.15,'linear'),) for one line down to 15 %
    phases: tuple[Phase, ...] = knob((), when="masking.draw=fixed", traced=True)
    #: the rate of an example: fixed is `rate`; else it is drawn for each, evenly over the
    #: stream: 1 - cos(pi u / 2) is cosine_low and cos(pi u / 2) cosine_high, of a uniform u
    draw: Law = knob("fixed", traced=True)
    #: the lowest rate
    draw_low: Share = knob(0.0, when="masking.draw=uniform", traced=True)
    #: the highest rate
    draw_high: Share = knob(1.0, when="masking.draw=uniform", traced=True)
    #: first parameter of the distribution
    draw_alpha: Shape = knob(1.0, when="masking.draw=beta", traced=True)
    #: second parameter of the distribution
    draw_beta: Shape = knob(1.0, when="masking.draw=beta", traced=True)
    #: which units are selected more often: frequency goes by weights_power, and none selects
    #: all alike; masks of evaluations always do
    weights: Literal["none", "frequency"] = "none"
    #: a token weighs its share of the training text to this power, and a unit the
    #: mean of its tokens; below 0 rare ones are selected more often
    weights_power: Annotated[float, Meta(ge=-2, le=2)] = knob(
        -0.5, when="masking.weights=frequency"
    )
    #: tokens that the rate multiplies; all includes [CLS] and [SEP]
    count: Literal["eligible", "all"] = "eligible"
    #: random tokens: the whole vocabulary, or that without special tokens
    random_from: Literal["all", "regular"] = knob("all", when="random")

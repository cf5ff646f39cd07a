"""Knobs of the data: corpus, task, tokenizer, examples and masking."""

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from bert_jax.config.declare import Count, Natural, Positive, Share, knob

Source = Literal["docstrings", "files", "tfds", "hub"]  # of a corpus
Format = Literal["auto", "tsv", "csv", "jsonl", "json", "conll", "conllu", "parquet"]  # of a task
Unit = Literal["token", "word", "span", "pmi"]  # a row of MARKERS in bert_jax/masking/units.py
# fixed, or a row of LAWS in bert_jax/masking/rates.py.
Law = Literal["fixed", "uniform", "cosine_low", "cosine_high", "beta"]
Shape = Annotated[float, Meta(ge=0.01, le=1_000)]  # of the beta distribution
Course = Literal["step", "linear", "cosine"]  # a row of COURSES in bert_jax/masking/rates.py
Phase = tuple[Positive, Positive, Course]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The raw text, and its division into documents of sentences."""

    source: Source = "docstrings"  #: where text comes from
    #: a file, folder or glob; a tfds name; or hub datasets, such as
    #: wikimedia/wikipedia:20231101.en,emozilla/pg19
    path: str = knob("", "corpus.source=files|tfds|hub", place=True)
    #: commit, branch or tag of each dataset; empty: the newest when first prepared
    revision: str = knob("", "corpus.source=hub", place=True)
    #: data_dir of tfds; empty is the library's default
    tfds_dir: str = knob("", "corpus.source=tfds", place=True)
    split: str = knob("train", "corpus.source=tfds|hub")  #: which split to read
    text_field: str = knob("text", "corpus.source=files|tfds|hub")  #: the field that holds the text
    #: auto detects whether a line is one sentence
    sentences: Literal["auto", "split", "lines"] = "auto"
    language: str = knob("en", "corpus.sentences=auto|split")  #: language of the sentence splitter
    deduplicate: bool = True  #: drop exact copies of a document
    #: share of documents, by hash, held out
    validation_fraction: Annotated[float, Meta(ge=0, le=0.5)] = 0.02
    #: folder of prepared corpora; empty is $BERT_JAX_DATA, else ~/.cache/bert_jax
    cache: str = knob("", free=True)
    workers: Natural = knob(0, free=True)  #: processes of prepare; 0 is one a core


@dataclasses.dataclass(frozen=True)
class Task:
    """The labelled data of one objective; `data/tasks.py` has rows for published tasks."""

    name: str = ""  #: a row of data/tasks.py, which gives the format of submissions too
    #: files:PATTERN with {split}; files:train=FILE,validation=FILE; files:FOLDER; tfds:NAME; empty
    #: trains on the corpus
    source: str = knob("", place=True)
    #: file of each split of files:FOLDER, if its name is unusual; a|b is whichever exists
    files: dict[str, str] = knob({}, "unsplit", place=True)
    #: data_dir of tfds; empty is the library's default
    tfds_dir: str = knob("", "tfds", place=True)
    format: Format = knob("auto", "files")  #: file format; auto goes by the names of files
    #: names of the columns of a tsv or csv file without a header
    columns: tuple[str, ...] = knob((), "files", "table")
    id: str = ""  #: column that names a row; empty counts rows from 0
    #: column of the text; span: of the question; tag: of the words; a|b is whichever exists
    text: str = "text"
    #: column of a second text; span: of the context; choice: of how options begin
    text_pair: str = knob("", "kind=classify|regress|span|choice")
    label: str = "label"  #: column of the label; conll: its number from 0, or -1 for the last
    #: columns of the options, or the column that lists them
    options: tuple[str, ...] = knob((), "kind=choice")
    #: what stands for each label in the file, if not its name
    values: tuple[str, ...] = knob((), "kind=classify|tag|choice")
    #: share of rows, by hash, held out of one file
    validation_fraction: Annotated[float, Meta(ge=0, le=0.9)] = knob(0.2, "unsplit")
    rows: Natural = 0  #: training rows used, the first ones; 0 is all
    #: a longer text: cut it, read it in windows (tag, span), or refuse it; auto is windows, else
    #: cut
    long: Literal["auto", "cut", "windows", "refuse"] = "auto"
    #: stride of windows, in tokens
    stride: Natural = knob(128, "kind=tag|span", "task.long=auto|windows")
    #: what windows share (overlap), or how much later the next begins (step)
    stride_as: Literal["overlap", "step"] = knob("step", "kind=tag|span", "task.long=auto|windows")
    answer_tokens: Count = knob(30, "kind=span")  #: longest answer, in tokens
    no_answer: bool = knob(False, "kind=span")  #: questions may have no answer, as in SQuAD 2.0
    #: no answer is given if its score is higher by more than this
    no_answer_threshold: float = knob(0.0, "task.no_answer")
    metrics: tuple[str, ...] = ()  #: metrics of an evaluation; empty is all of the objective
    #: rows are padded to the batch's longest, or to sequence_length
    pad: Literal["batch", "full"] = "batch"
    #: rows of a batch: any, as in the paper, or of like lengths
    group: Literal["none", "length"] = knob("none", "task.pad=batch")


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """The tokenizer: WordPiece or byte-level BPE trained on the corpus, or the one at `path`."""

    #: a vocab.txt, tokenizer.json, vocab.json with merges.txt, or Hugging Face folder
    path: str = knob("", resets=("vocab_size", "lowercase"), place=True)
    #: auto is what `path` holds, else WordPiece; bpe is byte-level, and keeps case
    kind: Literal["auto", "wordpiece", "bpe"] = knob("auto", "vocabulary", idle="wordpiece")
    #: size of a trained vocabulary
    vocab_size: Annotated[int, Meta(ge=16, le=10_000_000)] = knob(30_522, "trained")
    #: a trained WordPiece is uncased, and without accents
    lowercase: bool = knob(True, "trained", "tokenizer.kind=auto|wordpiece")
    #: a longer word is [UNK]; None is what `path` states, else 200
    max_word_length: Annotated[int, Meta(ge=1, le=1_000_000)] | None = knob(
        None, "vocabulary", "tokenizer.kind=auto|wordpiece"
    )


@dataclasses.dataclass(frozen=True)
class Examples:
    """The construction of BERT's training examples from documents."""

    #: chance, for each document, of a random shorter target length
    short_probability: Share = knob(0.1, "pairs=nsp|sop")
    random_next_probability: Share = knob(0.5, "pairs=nsp")  #: chance of a random segment B
    #: the end at which the longer segment loses tokens
    truncate: Literal["either", "front", "back"] = knob("either", "pairs=nsp|sop")


@dataclasses.dataclass(frozen=True)
class Masking:
    """The selection of tokens to corrupt and predict, and their replacement."""

    #: share of eligible tokens selected
    rate: Positive = knob(0.15, "masking.draw=fixed", traced=True)
    #: share predicted; None is the rate; above it an example is read in ceil(prediction_rate/rate)
    #: views, which batch_size counts
    prediction_rate: Positive | None = knob(None, "mlm", "masking.draw=fixed", traced=True)
    #: shares of [MASK], random token, kept
    replace: tuple[Share, Share, Share] = knob((0.8, 0.1, 0.1), traced=True)
    unit: Unit = "token"  #: unit of selection; pmi is collocations, and words elsewhere
    #: a longer unit is cut into several, so that prediction slots stay bounded
    max_unit: Count = knob(16, "unit=word|span|pmi")
    #: a unit above the quota: selected by a draw that keeps the rate (fair), or skipped for one
    #: that fits, as google does: not nested, short of the rate
    overflow: Literal["fair", "skip"] = knob("fair", "masking.unit=word|span|pmi")
    #: mean words of SpanBERT's clipped geometric distribution
    span_mean: Annotated[float, Meta(ge=1.0)] = knob(3.8, "unit=span")
    span_max: Count = knob(10, "unit=span")  #: most words of a span
    #: most words of a collocation
    pmi_words: Annotated[int, Meta(ge=2, le=16)] = knob(5, "unit=pmi")
    #: share of words in collocations, which decides how many collocations there are
    pmi_coverage: Share = knob(0.5, "unit=pmi")
    dupe_factor: Natural = 0  #: 0 draws new masks each epoch; n makes n static copies, one an epoch
    #: of quotas, which are at least 1: unbiased by a draw, so that the mean is the rate; nearest
    #: half to even, as google and evaluations do
    rounding: Literal["unbiased", "nearest"] = "unbiased"
    #: from `rate` on: (until which share of the steps, to which rate, step or linear or cosine),
    #: such as --config.masking.phases="((0.5,0.15,'step'),)"
    phases: tuple[Phase, ...] = knob((), "masking.draw=fixed", traced=True)
    #: an example's rate: `rate`, or a draw, evenly over the stream; of a uniform u, cosine_low is
    #: 1-cos(pi*u/2), cosine_high cos(pi*u/2)
    draw: Law = knob("fixed", traced=True)
    draw_low: Share = knob(0.0, "masking.draw=uniform", traced=True)  #: the lowest rate
    draw_high: Positive = knob(1.0, "masking.draw=uniform", traced=True)  #: the highest rate
    #: first parameter of the distribution
    draw_alpha: Shape = knob(1.0, "masking.draw=beta", traced=True)
    #: second parameter of the distribution
    draw_beta: Shape = knob(1.0, "masking.draw=beta", traced=True)
    #: units selected more often by weights_power, except in evaluations
    weights: Literal["none", "frequency"] = "none"
    #: power of a token's share of the text; below 0 rare tokens are preferred; a unit weighs the
    #: mean
    weights_power: Annotated[float, Meta(ge=-2, le=2)] = knob(-0.5, "masking.weights=frequency")
    #: tokens that the rate multiplies; all includes [CLS] and [SEP]
    count: Literal["eligible", "all"] = "eligible"
    #: random tokens: the whole vocabulary, or without special tokens
    random_from: Literal["all", "regular"] = knob("all", "random")

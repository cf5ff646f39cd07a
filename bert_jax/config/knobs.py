"""Every knob of a run, once: name, default, meaning and range."""

from __future__ import annotations

import dataclasses
from typing import Any

SIZES = {  # layers, hidden, heads; the feed-forward width is four times hidden
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}

DEFAULT = (
    "mlm",
    "nsp",
    "sop",
)  # trained where nothing else is asked for, the pair objectives with their pairs
PRETRAINING = (*DEFAULT, "causal_lm")  # their targets come from text alone
LABELLED = ("classify", "regress", "tag", "span", "choice")  # theirs from labelled data
OBJECTIVES = (*PRETRAINING, *LABELLED)
METRICS = {  # of a task's evaluation, by objective; `scores.py` computes those that apply
    "classify": (
        "accuracy",
        "f1",
        "macro_f1",
        "mcc",
    ),  # f1 of the second of two classes, else macro_f1
    "regress": ("pearson", "spearman", "mse"),
    "tag": (
        "accuracy",
        "precision",
        "recall",
        "f1",
    ),  # all but accuracy are of entities, for BIO labels
    "span": (
        *("exact", "f1", "has_answer_exact", "has_answer_f1", "no_answer_exact", "no_answer_f1"),
        *("best_exact", "best_exact_threshold", "best_f1", "best_f1_threshold"),
    ),
    "choice": ("accuracy",),
}
UNITS = ("token", "word", "span", "pmi")  # of masks
# Knobs of masking that say how they are made, for evaluations too.
OF_UNITS = (
    "max_unit",
    "span_mean",
    "span_max",
    "pmi_words",
    "pmi_count",
    "pmi_coverage",
    "pmi_tokens",
)
FORMATS = ("auto", "tsv", "csv", "jsonl", "conll", "conllu", "squad")

LINE = 16 << 20  # bytes of the longest line of labelled data, or of what a model is asked
TEXT = 1_000_000  # characters of the longest text in one


def knob(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple = (),
) -> Any:
    """A dataclass field with its documentation and its allowed values."""
    factory = (
        {"default_factory": lambda: default} if isinstance(default, dict) else {"default": default}
    )
    return dataclasses.field(
        **factory, metadata={"doc": doc, "low": low, "high": high, "choices": choices}
    )


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Raw text and how it becomes documents of sentences."""

    source: str = knob(
        "docstrings", "where text comes from", choices=("docstrings", "files", "tfds")
    )
    path: str = knob(
        "", "files: a file, folder or glob; tfds: a dataset name such as wikipedia/20230601.en"
    )
    tfds_dir: str = knob("", "tfds: its data_dir; empty is the library's default")
    split: str = knob("train", "tfds: which split to read")
    text_field: str = knob("text", "jsonl, parquet, tfds: the field that holds the text")
    sentences: str = knob(
        "auto",
        "auto finds out whether a line is one sentence; without words, it is",
        choices=("auto", "split", "lines"),
    )
    language: str = knob("en", "language of the sentence splitter")
    deduplicate: bool = knob(True, "drop exact copies of a document, before the validation split")
    validation_fraction: float = knob(
        0.02, "share of documents, by hash, held out", low=0, high=0.5
    )
    on_bad_text: str = knob(
        "replace", "binary, NUL or invalid UTF-8: up to half", choices=("replace", "skip", "fail")
    )
    on_bad_row: str = knob(
        "fail", "malformed rows; skip aborts above 1 %", choices=("fail", "skip")
    )
    max_document_tokens: int = knob(1_000_000, "a longer document is cut into several", low=512)
    shard_tokens: int = knob(
        16_000_000, "tokens a shard holds at most", low=1_000, high=4_000_000_000
    )
    cache: str = knob(
        "", "folder of prepared corpora; empty is $BERT_JAX_DATA, else ~/.cache/bert_jax"
    )
    workers: int = knob(0, "processes for prepare; 0 is one a core", low=0)


@dataclasses.dataclass(frozen=True)
class Task:
    """Labelled data of one objective; `data/tasks.py` has these settings for the tasks BERT was judged by."""

    name: str = knob(
        "", "what the task is called; of a row of data/tasks.py, its submission format too"
    )
    source: str = knob(
        "",
        "files:PATTERN, where {split} stands for a split's name; files:train=FILE,validation=FILE; files:FOLDER in the "
        "task's usual layout; tfds:NAME; empty trains on the corpus",
    )
    files: dict[str, str] = knob(
        {},
        "files:FOLDER: the file of each split, where the usual layout has names of its own; a|b is whichever is there",
    )
    tfds_dir: str = knob("", "tfds: its data_dir; empty is the library's default")
    format: str = knob(
        "auto", "of files; auto goes by their names, else by their first lines", choices=FORMATS
    )
    quoting: bool = knob(
        False, "tsv: double quotes hold a field together, as they always do in csv"
    )
    columns: tuple[str, ...] = knob(
        (), "names of the columns of a tsv or csv file without a header"
    )
    extra_columns: bool = knob(
        False, "tsv, csv: leave out columns beyond those that are named, and count such rows"
    )
    id: str = knob("", "column that names a row; empty counts rows from 0")
    text: str = knob(
        "text",
        "column of the text; span: of the question; tag: of the words; a|b is whichever is there",
    )
    text_pair: str = knob(
        "", "column of a second text; span: of the context; choice: of how options begin"
    )
    label: str = knob("label", "column of the label; conll: its number from 0, or -1 for the last")
    options: tuple[str, ...] = knob(
        (), "choice: columns of the options, or the one that lists them"
    )
    values: tuple[str, ...] = knob((), "how the file writes each label, where it is not by name")
    validation_fraction: float = knob(
        0.2, "share of rows, by hash, held out of one file", low=0, high=0.9
    )
    rows: int = knob(0, "training rows used, the first ones; 0 is all", low=0)
    on_bad_row: str = knob(
        "fail", "rows that cannot be used; skip aborts above 1 %", choices=("fail", "skip")
    )
    long: str = knob(
        "auto",
        "a text over the length: cut its end, look at it in windows (tag, span), or refuse it; auto is windows for tag "
        "and span, else cut",
        choices=("auto", "cut", "windows", "refuse"),
    )
    stride: int = knob(128, "of windows, in tokens", low=0)
    stride_as: str = knob(
        "step", "what neighbours share, or how far the next begins", choices=("overlap", "step")
    )
    question_tokens: int = knob(
        64, "span: a longer question is cut, or refused where task.long says so", low=1
    )
    answer_tokens: int = knob(30, "span: longest answer", low=1)
    n_best: int = knob(20, "span: answers kept, and ends looked at", low=1)
    no_answer: bool = knob(False, "span: questions may have no answer, as in SQuAD 2.0")
    no_answer_threshold: float = knob(
        0.0, "span: no answer if that scores higher by more than this"
    )
    metrics: tuple[str, ...] = knob((), "what an evaluation reports; empty is all of the objective")
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
    """WordPiece: trained on the corpus, or taken as it is from `path`."""

    path: str = knob(
        "", "a vocab.txt, tokenizer.json or Hugging Face folder to use instead of training"
    )
    kind: str = knob(
        "auto",
        "path: what is one token; auto finds it out from the files",
        choices=("auto", "wordpiece", "smiles"),
    )
    vocab_size: int = knob(30_522, "size of a trained vocabulary", low=16, high=10_000_000)
    lowercase: bool = knob(
        True, "training, uncased: lower-case and strip accents; a given vocabulary says for itself"
    )
    max_word_length: int | None = knob(
        None,
        "a longer word is [UNK]; None is what the files at path state, else google's 200",
        low=1,
        high=1_000_000,
    )
    characters: str = knob(
        "auto",
        "whose Unicode tables: Python's, as google's code, or Hugging Face's library's; auto: the path's, else google",
        choices=("auto", "google", "huggingface"),
    )
    train_characters: int = knob(
        500_000_000, "text the vocabulary is trained on, at most", low=1_000
    )


@dataclasses.dataclass(frozen=True)
class Examples:
    """How documents become the original's training examples."""

    short_probability: float = knob(
        0.1, "nsp, sop: chance, per document, of a random shorter target length", low=0, high=1
    )
    random_next_probability: float = knob(0.5, "nsp: chance of a random segment B", low=0, high=1)
    truncate: str = knob(
        "either",
        "nsp, sop: end of the longer segment that loses tokens",
        choices=("either", "front", "back"),
    )


@dataclasses.dataclass(frozen=True)
class Masking:
    """Which tokens are corrupted and predicted, and what replaces them."""

    rate: float = knob(0.15, "share of eligible tokens selected", low=0.0, high=1.0)
    prediction_rate: float | None = knob(
        None, "share predicted, at most the rate; None is the rate", low=0.0, high=1.0
    )
    replace: tuple[float, float, float] = knob(
        (0.8, 0.1, 0.1), "shares of [MASK], random token, kept", low=0, high=1
    )
    unit: str = knob(
        "token", "what is selected as one; pmi is collocations, else words", choices=UNITS
    )
    max_unit: int = knob(
        16, "a longer unit is cut into several, so that prediction slots stay bounded", low=1
    )
    overflow: str = knob(
        "fair",
        "a unit across the quota's edge: selected by a draw that keeps the rate, nested over rates; or skipped for the "
        "next that fits, as google skips words: not nested, and short of the rate where none fits",
        choices=("fair", "skip"),
    )
    span_mean: float = knob(3.8, "span: mean words of the clipped geometric of SpanBERT", low=1.0)
    span_max: int = knob(10, "span: most words", low=1)
    pmi_words: int = knob(5, "pmi: most words of a collocation", low=2, high=16)
    pmi_count: int = knob(10, "pmi: it occurs more often than this in the training text", low=0)
    pmi_coverage: float = knob(
        0.5,
        "pmi: share of the words that lie in one, which decides how many there are",
        low=0,
        high=1,
    )
    pmi_tokens: int = knob(500_000_000, "pmi: text they are looked for in, at most", low=1_000)
    dupe_factor: int = knob(
        0,
        "0 draws masks anew each epoch; n static copies, an epoch each, where google shuffles all together",
        low=0,
    )
    schedule: str = knob(
        "constant",
        "rate over training: constant, or linear to final_rate",
        choices=("constant", "linear"),
    )
    final_rate: float | None = knob(None, "linear: the rate at the last step", low=0.0, high=1.0)
    count: str = knob(
        "eligible",
        "tokens the rate multiplies; all includes [CLS] and [SEP]",
        choices=("eligible", "all"),
    )
    random_from: str = knob(
        "all",
        "random tokens: the whole vocabulary, or without specials",
        choices=("all", "regular"),
    )


@dataclasses.dataclass(frozen=True)
class Model:
    """The encoder and its heads. A field left None follows from `size`."""

    size: str = knob("base", "names layers, hidden and heads", choices=tuple(SIZES))
    layers: int | None = knob(None, "encoder layers", low=1)
    hidden: int | None = knob(None, "width", low=1)
    heads: int | None = knob(None, "attention heads", low=1)
    mlp: int | None = knob(None, "feed-forward width; None is 4 x hidden", low=1)
    max_positions: int = knob(512, "longest sequence of learned positions", low=1)
    type_vocab: int = knob(2, "segment types; pairs of texts need 2", low=1)
    vocab_multiple: int = knob(
        64, "the table is padded to a multiple of this; padding is never predicted", low=1
    )
    position: str = knob(
        "learned", "position encoding", choices=("learned", "sinusoidal", "rotary", "alibi", "none")
    )
    norm: str = knob("post", "LayerNorm after or before each block", choices=("post", "pre"))
    activation: str = knob(
        "gelu",
        "feed-forward; gelu is the exact erf form",
        choices=("gelu", "gelu_tanh", "relu", "silu"),
    )
    head_activation: str | None = knob(
        None, "MLM head; None is the feed-forward's", choices=("gelu", "gelu_tanh", "relu", "silu")
    )
    gated: bool = knob(False, "gated feed-forward (GeGLU with gelu)")
    features: int = knob(
        1,
        "last layers, concatenated, that a head over labels reads; 1 is the paper's fine-tuning",
        low=1,
    )
    causal: bool = knob(
        False,
        "each token attends to itself and what precedes it; a text's vector is that of its last token, not [CLS]",
    )
    window: int = knob(
        0, "a token sees those at most so many tokens away, on both sides; 0 is all", low=0
    )
    global_every: int = knob(
        0,
        "with a window: the first layer and every so many after it see everything all the same; 0 is none",
        low=0,
    )
    attention: str = knob(
        "auto",
        "what computes it: einsum, which alone drops probabilities and shows them; cudnn, on NVIDIA's GPUs; splash, on "
        "TPUs; auto is that of the device where it can do what a pass asks for, else einsum",
        choices=("auto", "einsum", "cudnn", "splash"),
    )
    dropout: float = knob(0.1, "hidden dropout", low=0, high=0.99)
    attention_dropout: float = knob(0.1, "attention dropout", low=0, high=0.99)
    classifier_dropout: float | None = knob(
        None, "before a head over labels; None is the hidden dropout", low=0, high=0.99
    )
    norm_epsilon: float = knob(1e-12, "LayerNorm epsilon", low=0)
    init: str = knob(
        "truncated_normal",
        "weights: truncated at two sigma, or plain",
        choices=("truncated_normal", "normal"),
    )
    init_stddev: float = knob(0.02, "nominal standard deviation of weights", low=0)
    attention_bias: float = knob(
        -10_000.0,
        "added to the score of a forbidden position, which is left no weight at all",
        low=-3.4028234663852886e38,  # the least of float32
        high=-1_000.0,
    )
    scan: bool | None = knob(
        None, "compile one layer and loop, or unroll; None is what suits the device"
    )
    remat: bool = knob(False, "recompute activations in the backward pass")
    dtype: str = knob(
        "auto",
        "compute type; bfloat16_products are of bfloat16 factors with float32 sums, and all else is float32; auto is "
        "float32, but bfloat16 to train on an accelerator",
        choices=("auto", "float32", "bfloat16", "bfloat16_products"),
    )


@dataclasses.dataclass(frozen=True)
class Objective:
    """One entry of `objectives`."""

    weight: float | None = knob(
        None, "factor in the loss; 0 keeps head and metrics; None is 1 where pairs allow", low=0
    )
    labels: tuple[str, ...] = knob((), "names of the classes, of heads over labels")
    end: bool = knob(
        True,
        "causal_lm: each [SEP] is predicted too, so that a model says where a text ends; false: text alone",
    )


@dataclasses.dataclass(frozen=True)
class Optim:
    """Optimizer, schedule and clipping."""

    name: str = knob(
        "adamw", "adam2018 has no bias correction", choices=("adam2018", "adamw", "lamb")
    )
    learning_rate: float = knob(1e-4, "peak", low=0)
    warmup_steps: int = knob(10_000, "linear warm-up", low=0)
    warmup_fraction: float | None = knob(
        None, "warm-up as a share of the steps, in place of warmup_steps", low=0, high=1
    )
    layer_decay: float = knob(
        1.0, "each layer learns at this share of the rate of the one above it", low=0, high=1
    )
    freeze: str = knob(
        "",
        "regular expression of parameters that stay as they are, such as ^encoder/; empty is none",
    )
    schedule: str = knob(
        "linear",
        "after warm-up; linear2018 decays from step 0",
        choices=("linear", "linear2018", "cosine", "constant"),
    )
    final_fraction: float = knob(
        0.0,
        "linear, cosine: share of the peak, reached as in the published ones after the last update",
        low=0,
        high=1,
    )
    b1: float = knob(0.9, "first moment", low=0, high=0.999999)
    b2: float = knob(0.999, "second moment", low=0, high=0.999999)
    epsilon: float = knob(1e-6, "added to the root of the second moment", low=1e-30)
    weight_decay: float = knob(0.01, "decoupled, inside the learning-rate product", low=0)
    no_decay: str = knob(
        r"norm/|bias$", "regular expression of undecayed names; must match some; empty decays all"
    )
    clip_norm: float = knob(1.0, "global norm of the gradient; 0 never clips", low=0)
    accumulation: int = knob(1, "microbatches an update; batch_size stays the same", low=1)
    nonfinite_limit: int = knob(
        5, "updates skipped in a row, not finite or spikes, before giving up", low=1
    )
    spike_window: int = knob(
        0, "losses that say what is usual; 0 takes none for a spike", low=0, high=10_000
    )
    spike_sigmas: float = knob(
        6.0, "a loss so many deviations above its window's mean is skipped", low=0
    )


@dataclasses.dataclass(frozen=True)
class Parallel:
    """Devices. `data` = -1 takes what fsdp and tensor leave."""

    step: str = knob(
        "jit", "jit over a mesh, or pmap for pure data parallelism", choices=("jit", "pmap")
    )
    data: int = knob(-1, "ways the batch is split", low=-1)
    fsdp: int = knob(1, "ways the batch, parameters and optimizer state are split", low=1)
    tensor: int = knob(1, "ways heads and feed-forward are split", low=1)
    arms: str = knob(
        "auto",
        "runs that train together, inside a device: one after the other (map) or all at once (vmap), which needs the "
        "prng threefry2x32; auto is map on a CPU or with another prng, else vmap",
        choices=("auto", "map", "vmap"),
    )
    distributed: bool = knob(False, "several processes: start jax.distributed before anything else")
    prng: str = knob(
        "auto",
        "dropout bits; masks are always threefry; auto is threefry2x32, which arms share under vmap",
        choices=("auto", "threefry2x32", "rbg", "unsafe_rbg"),
    )


@dataclasses.dataclass(frozen=True)
class Loader:
    """Prefetching; the batches themselves are a pure function of the step."""

    prefetch: int = knob(4, "batches ready ahead of the step", low=0)
    threads: int = knob(1, "threads that assemble them, at most as many as prefetch", low=1)
    workers: int = knob(0, "processes that assemble them; 0 uses the threads", low=0)


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """What is kept, and how often."""

    every: int = knob(1_000, "steps between saves", low=1)
    epochs: float | None = knob(None, "epochs of a task between saves, in place of every", low=0.01)
    keep: int = knob(2, "latest steps kept", low=1)
    patience: int = knob(
        0, "evaluations in a row without a better `best` before training ends; 0 never", low=0
    )
    best: str = knob(
        "mlm_loss",
        "metric of evals.validation; the saved step where it is best is kept too; empty keeps none",
    )


@dataclasses.dataclass(frozen=True)
class Eval:
    """One evaluation during training."""

    every: int = knob(1_000, "steps between evaluations; 0 only at the end", low=0)
    epochs: float | None = knob(
        None, "epochs of a task between evaluations, in place of every", low=0.01
    )
    split: str = knob(
        "validation", "the part of a task's data that is scored; a corpus has this one"
    )
    rate: float = knob(0.15, "masking rate of the frozen evaluation masks", low=0.0, high=1.0)
    replace: tuple[float, float, float] = knob(
        (0.8, 0.1, 0.1), "its [MASK], random, kept", low=0, high=1
    )
    unit: str = knob(
        "token", "its masking unit, whatever training selects; made as masking's are", choices=UNITS
    )
    seed: int = knob(0, "of evaluation pairs and masks", low=0, high=2**31 - 1)
    batch_size: int = knob(64, "examples a step; never changes the result", low=1)


@dataclasses.dataclass(frozen=True)
class Logging:
    """What is written while training."""

    every: int = knob(10, "steps a line of metrics.jsonl sums up", low=1)
    tensorboard: bool = knob(True, "write TensorBoard events too")
    samples: int = knob(
        12,
        "held-out sentences that each evaluation named validation shows predictions for; the report has the first 12",
        low=0,
        high=1000,
    )


@dataclasses.dataclass(frozen=True)
class Config:
    """One run."""

    seed: int = knob(0, "initialisation, dropout and masks", low=0, high=2**31 - 1)
    data_seed: int = knob(0, "order, pairs and packing", low=0, high=2**31 - 1)
    steps: int = knob(1_000_000, "updates", low=1)
    epochs: float | None = knob(None, "of a task's training data, in place of steps", low=0.01)
    batch_size: int = knob(256, "examples an update, over all devices and microbatches", low=1)
    sequence_length: int = knob(128, "tokens a row", low=8, high=65_535)
    packing: int = knob(1, "examples a row at most; 1 gives each a row of its own", low=1, high=64)
    pairs: str = knob("nsp", "what an example is", choices=("none", "nsp", "sop"))
    init_from: str = knob("", "a run or a model of others whose parameters training starts from")
    init_fresh: str = knob(
        "", "regular expression of parameter names that init_from need not have, such as ^nsp/"
    )
    init_fresh_layers: int = knob(
        0, "top layers, and the pooler, that start fresh all the same", low=0
    )
    init_vocab: str = knob(
        "same", "remap lets init_from have another vocabulary", choices=("same", "remap")
    )
    corpus: Corpus = Corpus()
    task: Task = Task()
    tokenizer: Tokenizer = Tokenizer()
    examples: Examples = Examples()
    masking: Masking = Masking()
    model: Model = Model()
    objectives: dict[str, Objective] = knob({n: Objective() for n in DEFAULT}, "what is trained")
    optim: Optim = Optim()
    parallel: Parallel = Parallel()
    loader: Loader = Loader()
    checkpoints: Checkpoints = Checkpoints()
    evals: dict[str, Eval] = knob({"validation": Eval()}, "evaluations by name")
    logging: Logging = Logging()

    @property
    def masked(self) -> bool:
        """Whether text is corrupted before it is read; labelled texts and causal language models read it as it is."""
        return not self.task.source and "causal_lm" not in self.objectives

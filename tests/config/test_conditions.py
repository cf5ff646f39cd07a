"""A knob acts where its conditions hold, and is refused where it is set and does nothing.

Which conditions each knob has is in configs/KNOBS.md.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import bert_jax
from bert_jax import config
from bert_jax.config import conditions, table
from bert_jax.errors import ConfigError
from tests.config.settings import (
    CAUSAL,
    CLASSIFY,
    DIFFUSION,
    HYBRID,
    MASK_ONLY,
    NSP,
    REPLACED,
    SPAN,
    TAG,
    Settings,
    task,
    write,
)

PACKAGE = Path(bert_jax.__file__).parent
FILES, HUB = {"corpus.source": "files"}, {"corpus.source": "hub"}
OF_TFDS = CLASSIFY | {"task.source": "tfds:x"}
WORDS, SPANS = {"masking.unit": "word"}, {"masking.unit": "span"}
UNIFORM, BETA = {"masking.draw": "uniform"}, {"masking.draw": "beta"}
NO_PAIRS = {"pairs": "none"}
UNDROPPED = {"model.dropout": 0.0, "model.attention_dropout": 0.0}
ROTARY, RELATIVE = {"model.position": "rotary"}, {"model.position": "relative"}
ROWS: list[tuple[str, object, Settings, Settings]] = [  # knob, value, where it acts, where not
    ("steps", 50, {}, {"epochs": 3.0}),
    ("pairs", "sop", {}, CLASSIFY),
    ("init_fresh", "^mlm/", {"init_from": "run"}, {}),
    ("corpus.path", "x", FILES, {}),
    ("corpus.revision", "x", HUB, FILES),
    ("corpus.tfds_dir", "x", {"corpus.source": "tfds"}, HUB),
    ("corpus.split", "x", HUB, FILES),
    ("corpus.language", "de", {}, {"corpus.sentences": "lines"}),
    ("task.rows", 5, CLASSIFY, {}),
    ("task.format", "tsv", CLASSIFY, OF_TFDS),
    ("task.tfds_dir", "x", OF_TFDS, CLASSIFY),
    ("task.columns", ("a",), CLASSIFY, CLASSIFY | {"task.format": "jsonl"}),
    ("task.text_pair", "x", CLASSIFY, TAG),
    ("task.options", ("a", "b", "c"), task("choice"), CLASSIFY),
    ("task.values", ("0", "1"), CLASSIFY, SPAN),
    ("task.stride", 5, SPAN, CLASSIFY),
    ("task.stride", 5, TAG, TAG | {"task.long": "cut"}),
    ("task.no_answer_threshold", 0.5, SPAN | {"task.no_answer": True}, SPAN),
    ("task.group", "length", CLASSIFY, CLASSIFY | {"task.pad": "full"}),
    ("tokenizer.kind", "bpe", {}, CLASSIFY),
    ("tokenizer.vocab_size", 500, {}, {"tokenizer.path": "vocab.txt"}),
    ("tokenizer.max_word_length", 50, {}, {"tokenizer.kind": "bpe"}),
    ("examples.truncate", "front", {}, NO_PAIRS),
    ("examples.random_next_probability", 0.1, {}, {"pairs": "sop"}),
    ("masking.count", "all", {}, CAUSAL),
    ("masking.rate", 0.3, {}, BETA),
    ("masking.prediction_rate", 0.1, {}, NSP),
    ("masking.max_unit", 4, WORDS, {}),
    ("masking.overflow", "skip", WORDS, {"evals.validation.unit": "word"}),
    ("masking.span_max", 8, SPANS, WORDS),
    ("masking.span_max", 8, {"evals.validation.unit": "span"}, {}),
    ("masking.pmi_words", 3, {"masking.unit": "pmi"}, SPANS),
    ("masking.draw_low", 0.1, UNIFORM, BETA),
    ("masking.draw_alpha", 2.0, BETA, UNIFORM),
    ("masking.weights_power", 0.5, {"masking.weights": "frequency"}, {}),
    ("masking.random_from", "regular", {}, MASK_ONLY),
    ("model.max_positions", 256, {}, ROTARY),
    ("model.first_position", 2, {}, RELATIVE),
    ("model.position_buckets", 16, RELATIVE, {}),
    ("model.rotary_base", 1e3, ROTARY, {}),
    ("model.global_every", 2, {"model.window": 8}, {}),
    ("model.first_norm", False, {"model.norm": "pre"}, {}),
    ("model.head_activation", "relu", {}, {"model.word_head": "matrix"}),
    ("model.word_head", "matrix", {}, NSP),
    ("model.pooling", "mean", {}, NO_PAIRS),
    ("model.pooler", "gelu", {}, NO_PAIRS),
    ("model.pooler_bias", False, {}, TAG),
    ("model.classifier_dropout", 0.2, CLASSIFY, {}),
    ("optim.warmup_steps", 50, {}, {"optim.warmup_fraction": 0.1}),
    ("optim.decay_fraction", 0.5, {"optim.schedule": "wsd"}, {}),
    ("optim.final_fraction", 0.1, {}, {"optim.schedule": "constant"}),
    ("optim.no_decay", "bias$", {}, {"optim.weight_decay": 0.0}),
    ("parallel.prng", "rbg", {}, UNDROPPED),
    ("checkpoints.every", 5, CLASSIFY, CLASSIFY | {"checkpoints.epochs": 1.0}),
    ("checkpoints.patience", 3, {}, {"checkpoints.best": ""}),
    ("evals.validation.every", 5, CLASSIFY, CLASSIFY | {"evals.validation.epochs": 1.0}),
    ("logging.samples", 5, {}, NSP),
]
OF_OBJECTIVES = [  # in an entry of which it acts
    ("objectives.classify.labels", ("x", "y"), CLASSIFY),
    ("objectives.hybrid.end", False, HYBRID),
    ("objectives.hybrid.share", 0.4, HYBRID),
    ("objectives.diffusion.gamma", 0.5, DIFFUSION),
    ("objectives.replaced.generator", 0.25, REPLACED | MASK_ONLY),
]


def check_taken(knob: str, value: object, where: Settings) -> None:
    resolved = config.resolve(write(where | {knob: value}))
    assert conditions.get_value(resolved, knob) == value


def check_refused(knob: str, value: object, where: Settings) -> None:
    tree = write(where | {knob: value})
    (error,) = [one.error() for one in config.settle(tree)[1] if one.path == knob]
    assert f"{knob} = " in str(error)
    assert f"--config.{knob}=" in error.hint
    with pytest.raises(ConfigError, match="does nothing: it is for "):
        config.resolve(tree)


@pytest.mark.fault(20, 21)
@pytest.mark.parametrize(("knob", "value", "acts", "idle"), ROWS)
def test_knob_is_taken_only_where_it_acts(knob, value, acts, idle):
    check_taken(knob, value, acts)
    check_refused(knob, value, idle)


@pytest.mark.fault(21)
@pytest.mark.parametrize(("knob", "value", "acts"), OF_OBJECTIVES)
def test_knob_of_an_objective_is_refused_in_others(knob, value, acts):
    check_taken(knob, value, acts)
    check_refused(f"objectives.mlm.{knob.rpartition('.')[2]}", value, {})


@pytest.mark.parametrize(
    ("path", "value", "other"),
    [
        ("pairs", "none", CLASSIFY),
        ("model.head_activation", "gelu", CLASSIFY),
        ("optim.warmup_steps", 100_000, {"optim.warmup_fraction": 0.1}),
        ("logging.samples", 0, NSP),
    ],
)
def test_value_that_means_the_same_is_taken(path, value, other):
    assert config.settle(write(other | {path: value}))[1] == []


def test_every_knob_is_read():
    """A knob whose name no code mentions would do nothing."""
    read = set()
    for file in PACKAGE.rglob("*.py"):
        if file.name.endswith("knobs.py") and file.parent.name == "config":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.update(re.findall(r"\w+", node.value) if len(node.value) < 60 else ())
    assert {path for path in table.list_knobs() if path.rpartition(".")[2] not in read} == set()

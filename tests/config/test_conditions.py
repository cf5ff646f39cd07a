"""A knob acts where its conditions hold, and is refused where it is set and does nothing.

Which conditions each knob has is in configs/KNOBS.md.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import config
from bert_jax.config import conditions, table
from bert_jax.errors import ConfigError
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import toy
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
INIT, NO_PAIRS, WITH_WORDS = {"init_from": "run"}, {"pairs": "none"}, {"tokenizer.path": "v.txt"}
EVAL = "evals.validation"
UNDROPPED = {"model.dropout": 0.0, "model.attention_dropout": 0.0}
ROTARY, RELATIVE = {"model.position": "rotary"}, {"model.position": "relative"}
WINDOW = {"model.window": 8}
ROWS: list[tuple[Settings, Settings, Settings]] = [  # where knobs act, where not, and a value
    ({}, {"epochs": 3.0}, {"steps": 50}),
    ({}, CLASSIFY, {"pairs": "sop", "packing": 2, "tokenizer.kind": "bpe"}),
    ({}, CLASSIFY, {"checkpoints.at_words": (5,), f"{EVAL}.seed": 3}),
    (INIT, {}, {"init_fresh": "^mlm/", "init_fresh_layers": 1, "init_vocab": "remap"}),
    (FILES, {}, {"corpus.path": "x", "corpus.text_field": "x"}),
    (HUB, FILES, {"corpus.revision": "x", "corpus.split": "x"}),
    ({"corpus.source": "tfds"}, HUB, {"corpus.tfds_dir": "x"}),
    ({}, {"corpus.sentences": "lines"}, {"corpus.language": "de"}),
    (CLASSIFY, {}, {"task.rows": 5, "checkpoints.epochs": 2.0}),
    (CLASSIFY, {}, {f"{EVAL}.epochs": 2.0, f"{EVAL}.split": "test"}),
    (CLASSIFY, {}, {"model.classifier_dropout": 0.2, "model.features": 2}),
    (CLASSIFY, OF_TFDS, {"task.format": "tsv", "task.files": {"train": "a.tsv"}}),
    (CLASSIFY, OF_TFDS, {"task.validation_fraction": 0.5}),
    (OF_TFDS, CLASSIFY, {"task.tfds_dir": "x"}),
    (CLASSIFY, CLASSIFY | {"task.format": "jsonl"}, {"task.columns": ("a",)}),
    (CLASSIFY, TAG, {"task.text_pair": "x"}),
    (task("choice"), CLASSIFY, {"task.options": ("a", "b", "c")}),
    (CLASSIFY, SPAN, {"task.values": ("0", "1")}),
    (SPAN, CLASSIFY, {"task.stride": 5, "task.stride_as": "overlap"}),
    (TAG, TAG | {"task.long": "cut"}, {"task.stride": 5, "task.stride_as": "overlap"}),
    (SPAN, TAG, {"task.answer_tokens": 5, "task.no_answer": True}),
    (SPAN | {"task.no_answer": True}, SPAN, {"task.no_answer_threshold": 0.5}),
    (CLASSIFY, CLASSIFY | {"task.pad": "full"}, {"task.group": "length"}),
    ({}, WITH_WORDS, {"tokenizer.vocab_size": 500, "tokenizer.lowercase": False}),
    ({}, {"tokenizer.kind": "bpe"}, {"tokenizer.max_word_length": 50}),
    ({}, NO_PAIRS, {"examples.truncate": "front", "examples.short_probability": 0.5}),
    ({}, {"pairs": "sop"}, {"examples.random_next_probability": 0.1}),
    ({}, CAUSAL, {"masking.count": "all", f"{EVAL}.rate": 0.3, f"{EVAL}.unit": "word"}),
    ({}, CAUSAL, {f"{EVAL}.replace": (1.0, 0.0, 0.0)}),
    ({}, BETA, {"masking.rate": 0.3, "masking.phases": ((0.5, 0.3, "step"),)}),
    ({}, NSP, {"masking.prediction_rate": 0.1, "model.word_head": "matrix", "logging.samples": 5}),
    (WORDS, {}, {"masking.max_unit": 4}),
    (WORDS, {f"{EVAL}.unit": "word"}, {"masking.overflow": "skip"}),
    (SPANS, WORDS, {"masking.span_max": 8, "masking.span_mean": 2.0}),
    ({f"{EVAL}.unit": "span"}, {}, {"masking.span_max": 8}),
    ({"masking.unit": "pmi"}, SPANS, {"masking.pmi_words": 3, "masking.pmi_coverage": 0.3}),
    (UNIFORM, BETA, {"masking.draw_low": 0.1, "masking.draw_high": 0.5}),
    (BETA, UNIFORM, {"masking.draw_alpha": 2.0, "masking.draw_beta": 2.0}),
    ({"masking.weights": "frequency"}, {}, {"masking.weights_power": 0.5}),
    ({}, MASK_ONLY, {"masking.random_from": "regular"}),
    ({}, ROTARY, {"model.max_positions": 256}),
    ({}, RELATIVE, {"model.first_position": 2}),
    (RELATIVE, {}, {"model.position_buckets": 16}),
    (ROTARY, {}, {"model.rotary_base": 1e3}),
    (ROTARY | WINDOW, ROTARY, {"model.rotary_base_near": 1e3}),
    (ROTARY | WINDOW, WINDOW, {"model.rotary_base_near": 1e3}),
    (WINDOW, {}, {"model.global_every": 2}),
    ({"model.norm": "pre"}, {}, {"model.first_norm": False}),
    ({}, {"model.word_head": "matrix"}, {"model.head_activation": "relu"}),
    ({}, NO_PAIRS, {"model.pooling": "mean", "model.pooler": "gelu"}),
    ({}, TAG, {"model.pooler_bias": False}),
    ({}, {"optim.warmup_fraction": 0.1}, {"optim.warmup_steps": 50}),
    ({"optim.schedule": "wsd"}, {}, {"optim.decay_fraction": 0.5}),
    ({}, {"optim.schedule": "constant"}, {"optim.final_fraction": 0.1}),
    ({}, {"optim.weight_decay": 0.0}, {"optim.no_decay": "bias$"}),
    ({}, UNDROPPED, {"parallel.prng": "rbg"}),
    (CLASSIFY, CLASSIFY | {"checkpoints.epochs": 1.0}, {"checkpoints.every": 5}),
    ({}, {"checkpoints.best": ""}, {"checkpoints.patience": 3}),
    (CLASSIFY, CLASSIFY | {f"{EVAL}.epochs": 1.0}, {f"{EVAL}.every": 5}),
]
CASES = [(knob, row[2][knob], row[0], row[1]) for row in ROWS for knob in row[2]]
OF_OBJECTIVES: list[tuple[str, object, Settings]] = [  # in an entry of which it acts
    ("objectives.classify.labels", ("x", "y"), CLASSIFY),
    ("objectives.hybrid.end", False, HYBRID),
    ("objectives.hybrid.share", 0.4, HYBRID),
    ("objectives.hybrid.shift", True, HYBRID),
    ("objectives.diffusion.gamma", 0.5, DIFFUSION),
    ("objectives.replaced.generator", 0.25, REPLACED | MASK_ONLY),
]


def check_taken(knob: str, value: object, where: Settings) -> None:
    resolved = config.resolve(write(where | {knob: value}))
    assert conditions.get_value(resolved, knob) == value
    recorded = json.loads(json.dumps(config.to_dict(resolved)))
    assert config.read_recorded(recorded) == resolved


def check_refused(knob: str, value: object, where: Settings) -> None:
    tree = write(where | {knob: value})
    (error,) = [one.error() for one in config.resolve_and_list_idle(tree)[1] if one.path == knob]
    assert f"{knob} = " in str(error)
    assert f"--config.{knob}=" in error.hint
    with pytest.raises(ConfigError, match="does nothing: it is for "):
        config.resolve(tree)


@pytest.mark.fault(20, 21)
@pytest.mark.parametrize(("knob", "value", "acts", "idle"), CASES)
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
    assert config.resolve_and_list_idle(write(other | {path: value}))[1] == []


def test_every_condition_of_a_knob_is_held():
    rows = {table.generalize(knob) for knob, *_ in (*CASES, *OF_OBJECTIVES)}
    own = {path for path, knob in table.list_knobs().items() if knob.traits.when}
    assert own - rows == set()


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


# --- each knob changes the update -----------------------------------------------------------------

SMALL = {"steps": 100, "batch_size": 16, "sequence_length": 24, "optim.warmup_steps": 10}
SMALL |= {"model.layers": 3, "model.hidden": 32, "model.heads": 4, "model.mlp": 64}
# Values of knobs that act everywhere, where half of the default is none.
OTHER: Settings = {"masking.replace": (1.0, 0.0, 0.0), "model.mlp_biases": False}
OTHER |= {"model.layers": 2, "model.hidden": 48, "model.heads": 2, "model.mlp": 40}
OTHER |= {"model.embedding": 24, "model.type_vocab": 5, "model.vocab_multiple": 7}
OTHER |= {"model.window": 8, "optim.warmup_fraction": 0.5, "optim.accumulation": 2}
OTHER |= {"optim.freeze": "^encoder/embeddings"}
# Knobs that act on the host, or on what a batch here has not.
ELSEWHERE = {f"masking.{name}" for name in conditions.list_unit_knobs()} | {"masking.unit"}
ELSEWHERE |= {"masking.overflow", "masking.weights", "masking.weights_power", "model.size"}
ELSEWHERE |= {"masking.dupe_factor", "optim.nonfinite_limit", "model.attention"}
ELSEWHERE |= {"model.features", "model.classifier_dropout"}


def list_changes() -> list[tuple[str, object, Settings]]:
    """List knobs of masking, model and optimizer, another value, and where they act."""
    found = [(path, value, where) for path, value, where, _ in CASES]
    for path, knob in table.list_knobs().items():
        if not knob.traits.when and path not in ELSEWHERE | OTHER.keys():
            half = knob.default / 2 if isinstance(knob.default, float) else not knob.default
            found.append((path, knob.choices[-1] if knob.choices else half, {}))
    found += [(path, value, {}) for path, value in OTHER.items()]
    wanted = ("masking", "model", "optim")
    return [one for one in found if one[0].partition(".")[0] in wanted and one[0] not in ELSEWHERE]


@functools.cache
def describe_update(items: tuple) -> tuple[str, list[bytes]]:
    """Return the programs of initialisation and update, their constants and traced numbers."""
    found = config.resolve_and_list_idle(write(SMALL | dict(items)))[0]
    inputs = compute_inputs(found, 95)
    with jax.enable_x64(False):
        initialise = functools.partial(init_state, found, toy.VOCAB)
        begin = jax.make_jaxpr(initialise)(np.uint32(0))
        state = jax.eval_shape(initialise, np.uint32(0))
        update = make_update(found, toy.SPECIAL, toy.VOCAB)
        program = jax.make_jaxpr(update)(state, toy.batch(16, 24), inputs)
    numbers = [np.asarray(leaf) for leaf in (*jax.tree.leaves(inputs), *begin.consts)]
    numbers += map(np.asarray, program.consts)
    return f"{begin}\n{program}", [number.tobytes() for number in numbers]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "value", "where"), list_changes())
def test_knob_changes_the_update(path, value, where):
    """Its program, the constants of the program, or its traced numbers."""
    plain = describe_update(tuple(where.items()))
    assert describe_update((*where.items(), (path, value))) != plain


@pytest.mark.slow
def test_knob_of_the_host_leaves_the_update():
    assert describe_update((("optim.nonfinite_limit", 3),)) == describe_update(())

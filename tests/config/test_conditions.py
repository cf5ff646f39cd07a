"""Every knob acts where its conditions hold, and is refused where it is set and does nothing."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import config
from bert_jax.config import conditions, resolve, table
from bert_jax.config.knobs import Config
from bert_jax.errors import ConfigError
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import toy
from tests.config import settings
from tests.config.settings import CLASSIFY, NSP, write

PACKAGE = Path(bert_jax.__file__).parent
KNOBS = table.list_knobs()


def list_texts(path: str) -> tuple[str, ...]:
    """Return the conditions of a knob and of its section."""
    section = table.read_section(Config)[path.partition(".")[0]]
    own = KNOBS[path].traits.when
    return section.traits.when + own if "." in path else own


CONDITIONAL = [path for path in KNOBS if list_texts(path) and path != "task.source"]


@pytest.mark.parametrize("path", CONDITIONAL)
def test_knob_is_taken_where_it_acts(path):
    found: settings.Settings = {}
    for text in list_texts(path):
        found |= settings.hold(text)
    name, value = settings.name_entry(path, found), settings.choose_value(path)
    resolved = resolve(write(found | {name: value}))
    assert conditions.get_value(resolved, name) == value != KNOBS[path].default


@pytest.mark.fault(20)
@pytest.mark.fault(21)
@pytest.mark.parametrize("path", CONDITIONAL)
def test_knob_is_refused_where_it_does_nothing(path):
    """Each of its conditions fails in turn, while the others hold if they can."""
    for broken in list_texts(path):
        found: settings.Settings = {}
        for text in list_texts(path):
            of_data = broken in ("labels", "text", "masks")  # all else depends on the data
            found |= {} if of_data or text == broken else settings.hold(text)
        found |= settings.fail(broken)
        name = settings.name_entry(path, found)
        tree = write(found | {name: settings.choose_value(path)})
        idle = {one.path: one for one in config.settle(tree)[1]}
        error = idle[name].error()
        assert f"{name} = " in str(error)
        assert "does nothing: it is for " in str(error)
        assert f"--config.{name}=" in error.hint
        with pytest.raises(ConfigError, match="does nothing"):
            resolve(tree)


@pytest.mark.parametrize(
    ("path", "value", "other"),
    [
        ("pairs", "none", CLASSIFY),
        ("tokenizer.kind", "wordpiece", CLASSIFY),
        ("model.head_activation", "gelu", CLASSIFY),
        ("model.classifier_dropout", 0.1, {}),
        ("optim.warmup_steps", 100_000, {"optim.warmup_fraction": 0.1}),
        ("logging.samples", 0, NSP),
    ],
)
def test_value_that_means_the_same_is_taken(path, value, other):
    assert config.settle(write(other | {path: value}))[1] == []


def test_every_named_condition_is_used():
    used = {text for path in KNOBS for text in list_texts(path)}
    assert conditions.CONDITIONS.keys() <= used


# --- knobs act ------------------------------------------------------------------------------------


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
    assert {path for path in KNOBS if path.rpartition(".")[2] not in read} == set()


# Knobs that only the host reads, or that need what a toy has not.
ELSEWHERE = {"masking.unit", "masking.dupe_factor", "masking.weights", "optim.nonfinite_limit"}
ELSEWHERE |= {"model.size", "model.attention", "model.scan", "objectives.*.labels"}
ELSEWHERE |= {path for path, knob in KNOBS.items() if "unit" in " ".join(knob.traits.when)}
ELSEWHERE |= {"masking.weights_power", "model.global_every", "objectives.*.generator"}
ELSEWHERE |= {"model.features", "model.classifier_dropout", "objectives.*.end"}
TRACED = [
    path
    for path in KNOBS
    if path.partition(".")[0] in ("model", "optim", "masking", "objectives")
    and path not in ELSEWHERE
]
SMALL = {"steps": 100, "batch_size": 16, "sequence_length": 24, "model.layers": 2}
SMALL |= {
    "model.hidden": 32,
    "model.heads": 4,
    "model.max_positions": 512,
    "optim.warmup_steps": 10,
}


@functools.cache
def describe_update(items: tuple) -> tuple[str, list[bytes]]:
    """Return the program of an update with its constants, and the numbers that are traced."""
    found = config.settle(write(dict(items)))[0]
    inputs = compute_inputs(found, 95)
    batch = toy.batch(16, 24)
    with jax.enable_x64(False):
        begin = jax.make_jaxpr(lambda seed: init_state(found, toy.VOCAB, seed))(np.uint32(0))
        state = jax.eval_shape(lambda seed: init_state(found, toy.VOCAB, seed), np.uint32(0))
        update = make_update(found, toy.SPECIAL, toy.VOCAB)
        program = jax.make_jaxpr(update)(state, batch, inputs)
    numbers = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(inputs)]
    numbers += [np.asarray(leaf).tobytes() for leaf in (*begin.consts, *program.consts)]
    return f"{begin}\n{program}", numbers


@pytest.mark.parametrize("path", TRACED)
def test_knob_changes_the_update(path):
    """Its program, its constants or its traced numbers."""
    found: settings.Settings = dict(SMALL)
    for text in list_texts(path):
        found |= settings.hold(text)
    name = settings.name_entry(path, {k: v for k, v in found.items() if k not in SMALL})
    before = describe_update(tuple(found.items()))
    after = describe_update((*found.items(), (name, settings.choose_value(path))))
    assert before != after

"""A compiled update and what some updates give: programs are shared by tests of a process."""

import dataclasses
from typing import Any

import jax

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.training import program as programs
from bert_jax.training.step import State, compute_inputs
from tests import tiny

PROGRAMS: dict[Any, programs.Program] = {}


def build_program(config: knobs.Config, devices: int = 8) -> programs.Program:
    """Build the program of a config; configs that differ only in traced numbers share it."""
    traced = {"learning_rate": 1e-3, "weight_decay": 0.01, "schedule": "linear"}
    weightless = {
        name: dataclasses.replace(one, weight=1.0) for name, one in config.objectives.items()
    }
    plain = dataclasses.replace(
        config,
        objectives=weightless,
        optim=dataclasses.replace(config.optim, **traced),
        steps=100,
        seed=0,
    )
    key = repr((plain, devices)), programs.make_update  # which a test may replace
    if key not in PROGRAMS:
        mesh = sharding.make_mesh(config.parallel) if devices == 8 else make_mesh(devices)
        PROGRAMS[key] = programs.Program(plain, tiny.SPECIAL, tiny.VOCAB, mesh)
    return PROGRAMS[key]


def make_mesh(devices: int) -> jax.sharding.Mesh:
    """Make a mesh of the first devices, which splits rows over all of them."""
    kinds = (jax.sharding.AxisType.Auto,) * 3
    return jax.make_mesh(
        (1, devices, 1), sharding.AXES, axis_types=kinds, devices=jax.devices()[:devices]
    )


def advance(
    config: knobs.Config, batches: list[Batch], devices: int = 8
) -> tuple[list[dict[str, float]], State]:
    """Return the metrics of some updates, and the final state."""
    program = build_program(config, devices)
    state = program.start.draw_state(config.seed)
    history = []
    for index, batch in enumerate(batches):
        state, metrics = program.update(state, batch, [compute_inputs(config, index)])
        (found,) = program.fetch_metrics(metrics)
        history.append({name: total / max(count, 1) for name, (total, count) in found.items()})
    return history, state


def make_batch(config: knobs.Config, **settings: Any) -> Batch:
    """Make a batch of a config's shape."""
    return tiny.batch(config.batch_size, config.sequence_length, **settings)

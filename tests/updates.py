"""A compiled update and what some updates give: programs are shared by tests of a process."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from bert_jax import sharding
from bert_jax.training import program as steps
from bert_jax.training.step import compute_inputs, init_state
from tests import toy


def prepare(config, devices=8):
    """Mesh, initial state and compiled update of a config."""
    mesh, init, update = program(config, devices)
    return mesh, init(np.uint32(config.seed)), update


PROGRAMS = {}


def program(config, devices):
    """What configs share that differ in traced numbers alone."""
    objectives = {
        name: dataclasses.replace(one, weight=1.0) for name, one in config.objectives.items()
    }
    optim = dataclasses.replace(
        config.optim, learning_rate=1e-3, weight_decay=0.01, schedule="linear"
    )
    plain = dataclasses.replace(config, objectives=objectives, optim=optim, steps=100, seed=0)
    key = repr((plain, devices)), steps.make_update  # which a test may replace
    if key not in PROGRAMS:
        mesh = sharding.make_mesh(config.parallel) if devices == 8 else mesh_of(devices)
        shapes = jax.eval_shape(lambda seed: init_state(plain, toy.VOCAB, seed), np.uint32(0))
        layout = steps.lay_out_state(shapes, mesh, config.parallel)
        init = jax.jit(lambda seed: init_state(plain, toy.VOCAB, seed), out_shardings=layout)
        update = steps.compile_update(plain, toy.SPECIAL, toy.VOCAB, mesh, layout)
        PROGRAMS[key] = mesh, init, update
    return PROGRAMS[key]


def mesh_of(devices):
    kinds = (jax.sharding.AxisType.Auto,) * 3
    return jax.make_mesh(
        (1, devices, 1), sharding.AXES, axis_types=kinds, devices=jax.devices()[:devices]
    )


def advance(config, batches, devices=8):
    """Losses and gradient norms of some updates, and the final state."""
    mesh, state, update = prepare(config, devices)
    history = []
    for index, b in enumerate(batches):
        placed = sharding.place(b, config.batch_size, mesh) if config.parallel.step == "jit" else b
        state, metrics = update(state, placed, compute_inputs(config, index))
        found = {k: float(a) / max(float(n), 1) for k, (a, n) in sharding.to_host(metrics).items()}
        history.append(found)
    return history, state


def batches(config, count=2, **settings):
    return [
        toy.batch(config.batch_size, config.sequence_length, seed, **settings)
        for seed in range(count)
    ]

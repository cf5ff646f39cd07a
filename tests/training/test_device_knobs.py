"""What knobs of devices change: the mesh, processes and generators."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax._src import clusters

from bert_jax import sharding
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.training import processes
from bert_jax.training.step import (
    compute_inputs,
    init_state,
    make_update,
)
from tests import toy


def test_the_mesh_is_as_wide_as_asked_for():
    def shape(**settings: int) -> tuple[int, ...]:
        return tuple(sharding.make_mesh(knobs.Parallel(**settings)).shape.values())

    assert shape() == shape(data=8) == (1, 8, 1)
    assert shape(fsdp=2) == shape(fsdp=2, data=4) == (1, 4, 2)
    with pytest.raises(ConfigError, match=r"data 4 x fsdp 1 != 8 devices"):
        shape(data=4)


def test_processes_join_where_asked_to(monkeypatch):
    joined = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **settings: joined.append(settings))
    monkeypatch.setenv("JAX_NUM_PROCESSES", "3")
    monkeypatch.setenv("JAX_PROCESS_ID", "2")
    processes.start_processes(knobs.Parallel())
    assert joined == []
    processes.start_processes(knobs.Parallel(distributed=True))
    expected = {"num_processes": 3, "process_id": 2, "local_device_ids": None}
    assert joined == [{**expected, "heartbeat_timeout_seconds": processes.HEARTBEAT}]


@pytest.mark.parametrize(
    ("variables", "visible"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, None),
        ({"SLURM_STEP_TASKS_PER_NODE": "1"}, None),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x2)"}, [3]),
        ({"SLURM_STEP_TASKS_PER_NODE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, [3]),
        ({"SLURM_STEP_TASKS_PER_NODE": "1", "JAX_LOCAL_DEVICE_IDS": "0,1"}, [0, 1]),
    ],
)
def test_process_alone_on_its_node_takes_all_devices(variables, visible, monkeypatch):
    """Left to itself, jax takes the device of the process's place on the node: one of eight."""
    slurm = {"JOB_ID": "7", "STEP_NODELIST": "a,b", "NTASKS": "16", "PROCID": "3", "LOCALID": "3"}
    for name, text in {**{f"SLURM_{n}": t for n, t in slurm.items()}, **variables}.items():
        monkeypatch.setenv(name, text)
    given: dict = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda **settings: given.update(settings))
    processes.start_processes(knobs.Parallel(distributed=True))
    # As jax.distributed.initialize goes on with what it was given.
    ids = given["local_device_ids"]
    if ids is None and "JAX_LOCAL_DEVICE_IDS" in variables:
        ids = [int(part) for part in variables["JAX_LOCAL_DEVICE_IDS"].split(",")]
    found = clusters.ClusterEnv.auto_detect_unset_distributed_params(None, None, None, ids, None, 1)
    assert (found[3] or None) == visible


@pytest.mark.parametrize(
    ("prng", "short"), [("threefry2x32", "fry"), ("rbg", "rbg"), ("unsafe_rbg", "urbg")]
)
def test_dropout_draws_from_the_generator_named_and_masks_from_threefry(prng, short):
    config = toy.config(parallel__prng=prng, model__dropout=0.1, model__layers=1)
    state = jax.eval_shape(lambda seed: init_state(config, toy.VOCAB, seed), np.uint32(0))
    update = make_update(config, toy.SPECIAL, toy.VOCAB)
    traced = str(jax.make_jaxpr(update)(state, toy.batch(2, 24), compute_inputs(config, 0)))
    assert {name for name in ("fry", "rbg", "urbg") if f"key<{name}>" in traced} == {"fry", short}

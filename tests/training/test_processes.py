"""Processes of a run that lose each other, or that nobody has named."""

from __future__ import annotations

import errno

import jax
import pytest
from jax._src import clusters

from bert_jax import cli, config
from bert_jax.checkpoints import saving
from bert_jax.config import knobs
from bert_jax.errors import ConfigError, PeerLost, UserError
from bert_jax.training import processes


def test_network_error_between_processes_is_a_lost_peer(monkeypatch):
    """An error of the device, or in a run of one process, stays what it is."""
    said = (
        "UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] "
        "Connection closed by peer"
    )
    for text, count, expected in (
        (said, 2, PeerLost),
        ("UNAVAILABLE: Socket closed", 2, PeerLost),
        ("INTERNAL: NCCL operation ncclAllReduce failed: remote process exited", 2, PeerLost),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes", 2, jax.errors.JaxRuntimeError),
        (said, 1, jax.errors.JaxRuntimeError),
    ):
        monkeypatch.setattr(jax, "process_count", lambda count=count: count)
        with pytest.raises(expected), processes.translate_peer_loss():
            raise jax.errors.JaxRuntimeError(text)


@pytest.mark.fault(3)
@pytest.mark.parametrize("processes", [1, 2])
def test_save_without_its_other_half_is_a_lost_peer(processes, tmp_path, monkeypatch):
    checkpoints = saving.Checkpoints(tmp_path, keep=1, keep_best=False)
    late = TimeoutError("Timed out while waiting for async_write_complete barrier.")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    for raised, code in ((late, 4 if processes == 1 else 75), (full, 4)):
        with pytest.raises(UserError) as error, checkpoints._explain_failure():
            raise raised
        assert error.value.code == code


@pytest.mark.parametrize("variables", [{}, {"JAX_NUM_PROCESSES": "two"}])
def test_processes_that_nobody_names_are_refused(variables, monkeypatch):
    """Where there is no cluster that jax knows, or a number is none."""

    def initialize(**_: object) -> None:
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    tree = config.default()
    config.override(tree, "parallel.distributed", "true")
    with pytest.raises(ConfigError, match="no processes to join") as error:
        processes.start_processes(config.resolve(tree).parallel)
    assert "JAX_COORDINATOR_ADDRESS" in error.value.hint


@pytest.mark.fault(3)
def test_heartbeat_is_a_minute(monkeypatch):
    """All others must have ended two minutes after a process is lost."""
    asked: dict = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: asked.update(given))
    tree = config.default()
    config.override(tree, "parallel.distributed", "true")
    processes.start_processes(config.resolve(tree).parallel)
    assert asked["heartbeat_timeout_seconds"] <= 60


@pytest.mark.fault(3)
def test_failed_process_does_not_wait_for_its_peers(monkeypatch, capsys):
    """Otherwise jax waits five minutes at the end."""
    ended: list[int] = []

    def end(code: int) -> None:
        ended.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(cli.os, "_exit", end)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    with pytest.raises(SystemExit):
        cli.main(["--no-such-command"])
    assert ended == [2]
    with pytest.raises(SystemExit):
        cli.main(["--version"])  # a process that is done meets the others
    assert ended == [2]
    monkeypatch.setattr(cli, "execute", lambda argv: 1 / 0)
    with pytest.raises(SystemExit):
        cli.main(["train"])
    assert ended == [2, 1]
    assert "ZeroDivisionError" in capsys.readouterr().err


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

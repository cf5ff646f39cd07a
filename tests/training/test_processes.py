"""Processes of a run: how they join, what they share, and what the loss of one becomes."""

import errno
from unittest import mock

import jax
import pytest
from jax._src import clusters

from bert_jax import cli
from bert_jax.checkpoints import saving
from bert_jax.config import knobs
from bert_jax.errors import PeerLost, UserError
from bert_jax.training import processes


@pytest.mark.fault(3)
@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("UNKNOWN: Gloo all-reduce failed: Connection closed by peer", 2, PeerLost),
        ("UNAVAILABLE: Socket closed", 2, PeerLost),
        ("INTERNAL: NCCL operation ncclAllReduce failed: remote process exited", 2, PeerLost),
        ("RESOURCE_EXHAUSTED: Out of memory", 2, jax.errors.JaxRuntimeError),
        ("UNAVAILABLE: Socket closed", 1, jax.errors.JaxRuntimeError),
    ],
)
def test_network_error_is_a_lost_peer(text, count, expected, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: count)
    with pytest.raises(expected), processes.translate_peer_loss():
        raise jax.errors.JaxRuntimeError(text)


LATE = TimeoutError("Timed out while waiting for async_write_complete barrier.")
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.fault(3)
@pytest.mark.parametrize(("raised", "count", "code"), [(LATE, 1, 4), (LATE, 2, 75), (FULL, 2, 4)])
def test_save_without_its_other_half_is_a_lost_peer(raised, count, code, tmp_path, monkeypatch):
    checkpoints = saving.Checkpoints(tmp_path, keep=1, keep_best=False)
    monkeypatch.setattr(jax, "process_count", lambda: count)
    with pytest.raises(UserError) as error, checkpoints._explain_failure():
        raise raised
    assert error.value.code == code


@pytest.mark.fault(3)
@pytest.mark.parametrize(
    ("tasks", "mpi", "visible"),
    [("1(x2)", "", None), ("1", "", None), ("8(x2)", "", [3]), ("1", "8", [3])],
)
def test_process_alone_on_its_node_takes_all_devices(tasks, mpi, visible, monkeypatch):
    """Left to itself, jax takes the device of the process's place on the node: one of eight."""
    slurm = {"JOB_ID": "7", "STEP_NODELIST": "a,b", "NTASKS": "16", "PROCID": "3", "LOCALID": "3"}
    for name, text in (slurm | {"STEP_TASKS_PER_NODE": tasks}).items():
        monkeypatch.setenv(f"SLURM_{name}", text)
    if mpi:
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", mpi)
    joined = mock.create_autospec(jax.distributed.initialize)  # which takes no unknown setting
    monkeypatch.setattr(jax.distributed, "initialize", joined)
    processes.start_processes(knobs.Parallel())
    joined.assert_not_called()
    processes.start_processes(knobs.Parallel(distributed=True))
    given = joined.call_args.kwargs
    assert given["heartbeat_timeout_seconds"] <= 60  # all must have ended two minutes after a loss
    # As jax.distributed.initialize goes on with what it was given.
    ids = given["local_device_ids"]
    found = clusters.ClusterEnv.auto_detect_unset_distributed_params(None, None, None, ids, None, 1)
    assert (found[3] or None) == visible


@pytest.mark.fault(3)
def test_failed_process_does_not_wait_for_its_peers(monkeypatch, capsys):
    """Otherwise jax waits five minutes at the end; a process that is done meets the others."""
    end = mock.Mock(side_effect=SystemExit)
    monkeypatch.setattr(cli.os, "_exit", end)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    for word in ("--no-such-command", "--version"):
        with pytest.raises(SystemExit):
            cli.main([word])
    end.assert_called_once_with(2)

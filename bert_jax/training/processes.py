"""The processes of a run on several hosts: how they join, and the error if one is lost."""

import contextlib
import os
import re
from collections.abc import Iterator

import jax

from bert_jax.config import knobs
from bert_jax.errors import ConfigError, PeerLost

HEARTBEAT = 60  # seconds without a heartbeat after which a process is lost, and all others end


def start_processes(settings: knobs.Parallel) -> None:
    """Join the other processes of a run.

    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID define them. Without these
    variables JAX detects the cluster that it runs in.
    """
    if not settings.distributed or jax.distributed.is_initialized():
        return
    count = os.environ.get("JAX_NUM_PROCESSES")
    index = os.environ.get("JAX_PROCESS_ID")
    try:
        jax.distributed.initialize(
            num_processes=None if count is None else int(count),
            process_id=None if index is None else int(index),
            local_device_ids=_choose_devices(),
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except ValueError as error:
        raise ConfigError(
            f"parallel.distributed: no processes to join: {error}",
            "set JAX_COORDINATOR_ADDRESS=HOST:PORT, JAX_NUM_PROCESSES and JAX_PROCESS_ID, or start "
            "under SLURM or MPI",
        ) from error


def _choose_devices() -> list[int] | None:
    """Choose the devices of the node that this process uses.

    The result [] means all devices. None leaves the choice to jax, which under SLURM and MPI gives
    a process one GPU, even if it is the only process on its node.
    """
    if "JAX_LOCAL_DEVICE_IDS" in os.environ:
        return None
    tasks = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    tasks = tasks or os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    alone = re.fullmatch(r"1(\(x\d+\))?", tasks)
    return [] if alone else None


@contextlib.contextmanager
def translate_peer_loss() -> Iterator[None]:
    """Turn a network error between the processes of a run into PeerLost.

    After this error the same command resumes the run.
    """
    try:
        yield
    except (RuntimeError, TimeoutError) as error:
        if jax.process_count() == 1 or not PeerLost.explains(error):
            raise
        raise PeerLost from error

"""The SLURM engine: workers as jobs of a cluster, through submitit.

Groups that are started together are one job array. submitit queues a job again when its time is
over or it is preempted, after its worker has saved. With `nodes=N` (and `tasks_per_node`) a job is
that many processes, which train one cell together: `parallel.distributed` must be set. `--jobs` is
how many jobs of an array may run at a time. Options, each as `--engine-option KEY=VALUE`, are
submitit's parameters: `timeout_min`, `mem_gb`, `cpus_per_task`, `gpus_per_node`, `nodes`,
`tasks_per_node`, `slurm_partition`, `slurm_account`, `slurm_qos`, `slurm_constraint`,
`slurm_signal_delay_s`, `slurm_additional_parameters`, …; `cluster=local` tries it all out without
SLURM. The workdir and the environment must be the same on all nodes. The launcher may be stopped
and started again, on any of them.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import math
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.studies.engines.base import (
    FAILED,
    LOST,
    NOTICE,
    STOPPED,
    Attendant,
    Capacity,
    start_worker,
)
from bert_jax.studies.folder import StudyFolder
from bert_jax.system import extras

PLANNED = 0.75  # share of a job's memory that is planned for
WHOLE = 256  # jobs of an array that run at a time without --jobs: submitit's default
TIMEOUT = 24 * 60  # minutes; the time limit of a job without timeout_min
NODES, TASKS = ("nodes", "slurm_nodes"), ("tasks_per_node", "slurm_ntasks_per_node")
PORTS = range(61440, 65536)  # of a job's first process, where jax does not choose it


class Work:
    """The function of a job: a worker, which saves before submitit queues the job again."""

    def __init__(self, workdir: Path, group: str, folder: str) -> None:
        self._workdir, self._group, self._folder = workdir, group, folder

    def __call__(self) -> int:
        """Run a worker in a process of the job; each process has its own log."""
        import submitit

        os.chdir(self._folder)
        job = submitit.JobEnvironment()
        rank = job.global_rank
        log = StudyFolder(self._workdir).log(self._group)
        if rank:
            log = log.with_suffix(f".{rank}.log")
        variables = {}
        if job.num_tasks > 1:
            variables = {"JAX_PROCESS_ID": str(rank), "JAX_NUM_PROCESSES": str(job.num_tasks)}
            if job.cluster == "local":  # on nodes of SLURM, jax finds the first one itself
                port = PORTS[int(job.job_id) % len(PORTS)]
                variables["JAX_COORDINATOR_ADDRESS"] = f"localhost:{port}"
        self._worker = start_worker(self._workdir, self._group, log, variables)
        return Attendant(self._worker).wait()

    def checkpoint(self) -> Any:
        """Have the worker save and end, and return the job that goes on; called by submitit."""
        from submitit.helpers import DelayedSubmission

        self._worker.send_signal(NOTICE)
        self._worker.wait()
        return DelayedSubmission(Work(self._workdir, self._group, self._folder))


class Slurm:
    """Runs groups as jobs of arrays; submitit's files are in `slurm/` below the workdir."""

    most = math.inf

    def __init__(self, place: StudyFolder, jobs: int, options: Mapping[str, str]) -> None:
        submitit = extras.need("submitit", "slurm", "engine slurm")
        parameters = {name: _read_value(text) for name, text in options.items()}
        cluster = parameters.pop("cluster", "slurm")
        devices = float(parameters.get("gpus_per_node", 0)) * _read_count(options, NODES)
        memory = float(parameters.get("mem_gb", math.inf)) * PLANNED * 2**30
        if devices:
            memory = math.inf  # the memory of a GPU is not known here
        self.capacity = Capacity(jobs or 1, devices, memory, count_processes(options))
        self._place, self._most, self._on_slurm = place, jobs or WHOLE, cluster == "slurm"
        folder = place.workdir.resolve()
        self._name = "bert_jax_" + hashlib.sha256(str(folder).encode()).hexdigest()[:8]
        defaults = {
            "name": self._name,
            "timeout_min": TIMEOUT,
            "slurm_array_parallelism": self._most,
        }
        self._failed = submitit.core.utils.FailedJobError
        try:
            self._executor = submitit.AutoExecutor(place.workdir / "slurm", cluster=cluster)
            self._executor.update_parameters(**(defaults | parameters))
        except (RuntimeError, ValueError, NameError, AssertionError, TypeError) as error:
            # These are all the errors that submitit raises.
            hint = "its parameters are named by `help(submitit.AutoExecutor)`"
            if isinstance(error, RuntimeError):
                hint = "on a machine without SLURM: --engine=local"
            raise ConfigError(f"submitit: {' '.join(str(error).split())}", hint) from error

    def start(self, groups: Sequence[str]) -> list[Any]:
        """Submit groups as one job array."""
        works = [Work(self._place.workdir, group, os.getcwd()) for group in groups]
        return self._executor.submit_array(works) if works else []

    def poll(self, worker: Any) -> int | None:
        """Return the exit code of a job: of its processes', that of the first that failed itself.

        A process that fails stops all other ones.
        """
        if not worker.done():
            return None
        try:
            codes = [code for code in worker.results() if code]
        except self._failed:  # raised by the job's function
            return FAILED
        except Exception:  # submitit raises its own and pickle's for a job without a result
            return LOST
        return next((code for code in codes if code != STOPPED), max(codes, default=0))

    def stop(self, workers: Sequence[Any]) -> None:
        """Cancel jobs; SLURM signals running ones before it kills them."""
        if self._on_slurm:  # whole arrays, or hundreds of jobs take minutes
            arrays = {job.job_id.partition("_")[0] for job in workers}
            with contextlib.suppress(OSError):
                subprocess.run(["scancel", *sorted(arrays)], check=False)
        else:
            for job in workers:
                job.cancel(check=False)

    def describe(self) -> str:
        """Return the name by which squeue and scancel know the jobs."""
        return f"jobs of SLURM named {self._name}, {self._most} at a time at most"


def count_processes(options: Mapping[str, str]) -> int:
    """Return how many processes a job has, on all its nodes."""
    return _read_count(options, NODES) * _read_count(options, TASKS)


def _read_count(options: Mapping[str, str], names: Sequence[str]) -> int:
    """Return the whole number that one of several options gives, else 1."""
    for name in names:
        if name in options:
            if not re.fullmatch(r"[1-9]\d*", options[name]):
                problem = f"--engine-option {name}={options[name]} is not a whole number"
                raise ConfigError(f"{problem} of 1 or more", f"such as {name}=2")
            return int(options[name])
    return 1


def _read_value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text

"""The SLURM engine: workers as jobs of a cluster, through submitit.

Groups that are submitted together are one job array. A job runs a worker and passes SLURM's signals
on to it (SIGUSR2 before the time limit, SIGTERM at preemption): the worker saves, exits with 75,
and is submitted again. With `nodes=N` (and `tasks_per_node`) a job is that many processes, which
train one cell together: `parallel.distributed` must be set. `--jobs` is how many jobs of an array
may run at a time. Options, each as `--engine-option KEY=VALUE`, are submitit's parameters:
`timeout_min`, `mem_gb`, `cpus_per_task`, `gpus_per_node`, `nodes`, `tasks_per_node`,
`slurm_partition`, `slurm_account`, `slurm_qos`, `slurm_constraint`, `slurm_signal_delay_s`,
`slurm_additional_parameters`, …; `cluster=local` tries it all out without SLURM. The workdir and
the environment must be the same on all nodes. The launcher may be stopped and started again, on any
of them.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import math
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.studies.engines import (
    CANCELLED,
    FAILED,
    LOST,
    OUT_OF_MEMORY,
    OUT_OF_TIME,
    STOPPED,
    Capacity,
    Task,
    local,
)
from bert_jax.system import extras

HOUR = 60  # minutes; the shortest time limit of a job without timeout_min
SPARE = 3.0  # time limit of a job, as a multiple of the estimated time
ASK_EVERY = 20.0  # seconds between two calls of squeue
PLANNED = 0.75  # share of a job's memory that is planned for
WHOLE = 256  # jobs of an array that run at a time without --jobs: submitit's default
ASKS = ("gpus", "gres")  # words in options that request GPUs
TAKEN_AWAY = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REVOKED", "INTERRUPTED")
CODES = {  # state of a job without a result -> exit code
    **dict.fromkeys(TAKEN_AWAY, STOPPED),
    "CANCELLED": CANCELLED,
    "TIMEOUT": OUT_OF_TIME,
    "DEADLINE": OUT_OF_TIME,
    "OUT_OF_MEMORY": OUT_OF_MEMORY,
    "FAILED": FAILED,
}
NODES, TASKS = ("nodes", "slurm_nodes"), ("tasks_per_node", "slurm_ntasks_per_node")
PORTS = range(61440, 65536)  # of a job's first process, where jax does not choose it


class Slurm:
    """Runs tasks as job arrays; submitit's files are in `slurm/` below the folder."""

    pause = 2.0

    def __init__(self, folder: Path, jobs: int, options: Mapping[str, str]) -> None:
        submitit = extras.need("submitit", "slurm", "engine slurm")
        parameters = {name: _value(text) for name, text in options.items()}
        cluster = parameters.pop("cluster", "slurm")
        gpus = float(parameters.get("gpus_per_node", 0))
        memory = math.inf if gpus else float(parameters.get("mem_gb", math.inf)) * PLANNED * 2**30
        count, nodes = processes(options), _whole(options, NODES)
        cores = count * float(parameters.get("cpus_per_task", 1))
        self.room = Capacity(jobs or 1, cores, nodes * gpus, memory, count)
        self._name = "bert_jax_" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]
        self._our_jobs = ("--user", str(os.getuid()), "--name", self._name)
        self._limit = "timeout_min" in parameters or "slurm_time" in parameters
        self._jobs: list[tuple[Task, Any]] = []
        self._failed = submitit.core.utils.FailedJobError
        self._asked = time.monotonic()
        self._missed: set[str] = set()
        self._stopping = False
        self._folder = folder / "slurm"
        self._most = jobs or WHOLE
        defaults = {"name": self._name, "slurm_array_parallelism": self._most}
        try:
            self._executor = submitit.AutoExecutor(self._folder, cluster=cluster)
            self._executor.update_parameters(**(defaults | parameters))
        except (RuntimeError, ValueError, NameError, AssertionError, TypeError) as error:
            hint = _DOCUMENTED  # these are all the errors that submitit raises
            if isinstance(error, RuntimeError):
                hint = "on a machine without SLURM: --engine=local"
            raise ConfigError(f"submitit: {' '.join(str(error).split())}", hint) from error
        self._slurm = cluster == "slurm"
        if self._slurm:
            # Pending jobs of a launcher that was killed; its running jobs hold their cells.
            _ask("scancel", "--state=PENDING", *self._our_jobs)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Submit tasks as one job array."""
        if not tasks:
            return
        if not self._limit:
            longest = max(task.seconds for task in tasks)
            self._executor.update_parameters(timeout_min=max(HOUR, math.ceil(longest * SPARE / 60)))
        self._jobs += zip(
            tasks, self._executor.map_array(run, tasks, [os.getcwd()] * len(tasks)), strict=True
        )

    def poll(self) -> list[tuple[Task, int]]:
        """Return the tasks whose jobs have a result, or were missing from squeue twice."""
        gone = self._gone()
        # submitit's `done` would also call sacct, which warns at each call where accounting is off.
        done = self._has_result if self._slurm else lambda job: job.done()
        known = [(task, job, done(job) or job.job_id in gone) for task, job in self._jobs]
        self._jobs = [(task, job) for task, job, over in known if not over]
        return [(task, self._code(task, job)) for task, job, over in known if over]

    def stop(self) -> None:
        """Cancel all jobs; SLURM signals running ones before it kills them."""
        self._stopping = True
        if self._slurm and self._jobs:  # whole arrays, or hundreds of jobs take minutes
            arrays = sorted({job.job_id.partition("_")[0] for _, job in self._jobs})
            _ask("scancel", *arrays)
        else:
            for _, job in self._jobs:
                job.cancel(check=False)

    def describe(self) -> str:
        """Return the name by which squeue and scancel know the jobs."""
        return f"jobs of SLURM named {self._name}, {self._most} at a time at most"

    def _has_result(self, job: Any) -> bool:
        paths = [job.task(rank).paths.result_pickle for rank in range(job.num_tasks)]
        with contextlib.suppress(OSError):  # listing a folder refreshes it on a network file system
            os.listdir(paths[0].parent)
        return all(path.exists() for path in paths)

    def _state(self, job: Any) -> str:
        """Return SLURM's state of a job without a result.

        The controller remembers jobs for minutes, accounting for ever.
        """
        if not self._slurm:
            return str(job.state).upper()
        shown = _ask("scontrol", "show", "job", "--oneliner", job.job_id)
        if match := re.search(r"\bJobState=(\w+)", shown.stdout):
            return match[1]
        format_ = ("--noheader", "--parsable2", "--allocations", "--format=State")
        words = _ask("sacct", *format_, f"--jobs={job.job_id}").stdout.split()
        return words[0].rstrip("+").upper() if words else "UNKNOWN"

    def _gone(self) -> set[str]:
        """Return the jobs that squeue did not list the last two times.

        Two times, because a node may see the files of another one late.
        """
        if not self._slurm or time.monotonic() - self._asked < (0 if self._stopping else ASK_EVERY):
            return set()
        self._asked = time.monotonic()
        answer = _ask("squeue", "--noheader", "--array", "--format=%i", *self._our_jobs)
        if answer.returncode:  # the controller is busy or restarting
            return set()
        missed = {job.job_id for _, job in self._jobs} - set(answer.stdout.split())
        twice, self._missed = missed & self._missed, missed
        return twice

    def _code(self, task: Task, job: Any) -> int:
        """Return the exit code of a job: of its processes', that of the first that failed itself.

        One process that fails stops all others.
        """
        if self._has_result(job):
            try:
                codes = [code for code in job.results() if code]
                return next((code for code in codes if code != STOPPED), max(codes, default=0))
            except self._failed as error:  # raised by the job's function
                _note(task, str(error))
                return FAILED
        state = self._state(job)
        text = f"job {job.job_id} ended without an exit code (state {state})"
        _note(task, f"{text}: see {job.paths.stderr}")
        return STOPPED if self._stopping else CODES.get(state, LOST)


def check(options: Mapping[str, str]) -> None:
    """Refuse nodes and GPUs that the cluster does not have: such jobs would wait for ever."""
    if options.get("cluster", "slurm") != "slurm":
        return
    partition = options.get("slurm_partition")
    where = f"partition {partition}" if partition else "this cluster"
    selection = [f"--partition={partition}"] if partition else []
    listed = _ask("sinfo", "--noheader", "--Node", "--format=%N %G", *selection)
    nodes = dict(line.split(maxsplit=1) for line in listed.stdout.splitlines())
    if listed.returncode or not (nodes or partition):  # nobody knows
        return
    hint = "ask for less, or name a partition that has more: --engine-option slurm_partition=NAME"
    if _whole(options, NODES) > len(nodes):
        asked = f"--engine-option nodes={_whole(options, NODES)} asks for more"
        raise ConfigError(f"{where} has {len(nodes)} nodes" + f", and {asked}" * bool(nodes), hint)
    counts = (map(int, re.findall(r"gpu(?::[^:,(]+)??:(\d+)", gres)) for gres in nodes.values())
    most = max(map(sum, counts), default=0)
    for name, value in options.items():
        if "gpu" in f"{name}={value}" and any(word in f"{name}={value}" for word in ASKS):
            numbers = re.findall(r"\d+", str(value)) or ["1"]  # of gpu:h100:8, the last
            count = int(numbers[-1]) * (_whole(options, TASKS) if name.endswith("_task") else 1)
            if count > most:
                has = f"no node of {where} has {'a GPU' if most == 0 else f'more than {most}'}"
                raise ConfigError(f"{has}, and --engine-option {name}={value} asks for it", hint)


def processes(options: Mapping[str, str]) -> int:
    """Return how many processes a job has, on all its nodes."""
    return _whole(options, NODES) * _whole(options, TASKS)


def _whole(options: Mapping[str, str], names: Sequence[str]) -> int:
    """Return the whole number that one of several options gives, else 1."""
    for name in names:
        if name in options:
            if not re.fullmatch(r"[1-9]\d*", options[name]):
                problem = f"--engine-option {name}={options[name]} is not a whole number"
                raise ConfigError(f"{problem} of 1 or more", f"such as {name}=2")
            return int(options[name])
    return 1


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of SLURM; a missing command counts as failed."""
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def _note(task: Task, text: str) -> None:
    task.log.parent.mkdir(parents=True, exist_ok=True)  # missing if the job never began
    with task.log.open("a") as log:
        log.write(f"{text}\n")


_DOCUMENTED = (
    "its parameters are named in bert_jax/studies/engines/slurm.py, "
    "and by `help(submitit.AutoExecutor)`"
)


def run(task: Task, folder: str) -> int:
    """Run a task in a process of a job; each process has its own log."""
    import submitit

    os.chdir(folder)
    job = submitit.JobEnvironment()
    rank = job.global_rank
    log = task.log.with_suffix(f".{rank}{task.log.suffix}") if rank else task.log
    variables = {}
    if job.num_tasks > 1:
        variables = {"JAX_PROCESS_ID": str(rank), "JAX_NUM_PROCESSES": str(job.num_tasks)}
        if job.cluster == "local":  # on nodes of SLURM, jax finds the first one itself
            port = PORTS[int(job.job_id) % len(PORTS)]
            variables["JAX_COORDINATOR_ADDRESS"] = f"localhost:{port}"
    return local.attend(Task(task.name, task.command, log, task.seconds), variables)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text

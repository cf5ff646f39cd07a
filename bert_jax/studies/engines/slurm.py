"""Jobs of a SLURM cluster, through submitit: one array for all groups that are submitted together.

A job runs the worker and passes on to it what SLURM says (SIGUSR2 before the time limit, SIGTERM at preemption): it
saves and exits 75, and is submitted again. `--jobs` is how many jobs of an array may run at a time. Options, each as
`--engine-option KEY=VALUE`, are submitit's parameters: `timeout_min`, `mem_gb`, `cpus_per_task`, `gpus_per_node`,
`nodes`, `tasks_per_node`, `slurm_partition`, `slurm_account`, `slurm_qos`, `slurm_constraint`, `slurm_signal_delay_s`,
`slurm_additional_parameters`, …; `cluster=local` tries it all out without SLURM. The workdir and the environment must
be the same on all nodes. Who watches may be stopped and started again, on any of them.
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
from bert_jax.studies.engines import FAILED, KILLED, LOST, STOPPED, Room, Task, local, need

HOUR = 60  # minutes; what a job is given at least, where no timeout_min is
SPARE = 3.0  # times the time that a group is expected to take
ASK_EVERY = 20.0  # seconds; for squeue
PLANNED = 0.75  # share of its memory that is planned for
WHOLE = (
    256  # jobs of an array that run at a time unless --jobs says otherwise: submitit's own number
)
ASKS = ("gpus", "gres")  # words of options that ask for GPUs
TAKEN_AWAY = (
    "CANCELLED",
    "PREEMPTED",
    "TIMEOUT",
    "NODE_FAIL",
    "BOOT_FAIL",
    "REVOKED",
    "DEADLINE",
    "INTERRUPTED",
)


class Slurm:
    """Arrays of jobs; what it writes itself lies in `slurm/` below the folder."""

    pause = 2.0

    def __init__(
        self, folder: Path, jobs: int = 0, options: Mapping[str, str] | None = None
    ) -> None:
        submitit = need("submitit", "slurm")
        given = {name: _value(text) for name, text in (options or {}).items()}
        cluster = given.pop("cluster", "slurm")
        check(options or {})
        gpus = float(given.get("gpus_per_node", 0))
        memory = math.inf if gpus else float(given.get("mem_gb", math.inf)) * PLANNED * 2**30
        self.room = Room(jobs or 1, float(given.get("cpus_per_task", 1)), gpus, memory)
        self._name = "bert_jax_" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]
        self._mine = ("--user", str(os.getuid()), "--name", self._name)
        self._limit = "timeout_min" in given or "slurm_time" in given
        self._jobs: list[tuple[Task, Any]] = []
        self._failed = submitit.core.utils.FailedJobError
        self._asked = time.monotonic()
        self._missed: set[str] = set()
        self._stopping = False
        self._folder = folder / "slurm"
        self._most = jobs or WHOLE
        parameters = {"name": self._name, "slurm_array_parallelism": self._most, **given}
        try:
            self._executor = submitit.AutoExecutor(self._folder, cluster=cluster)
            self._executor.update_parameters(**parameters)
        except (
            RuntimeError,
            ValueError,
            NameError,
            AssertionError,
            TypeError,
        ) as error:  # all that submitit raises
            hint = (
                "on a machine without SLURM: --engine=local"
                if isinstance(error, RuntimeError)
                else _DOCUMENTED
            )
            raise ConfigError(f"submitit: {' '.join(str(error).split())}", hint) from error
        self._slurm = cluster == "slurm"
        if (
            self._slurm
        ):  # those of a launcher that was killed wait for nobody; its running ones hold their cells
            _ask("scancel", "--state=PENDING", *self._mine)

    def submit(self, tasks: Sequence[Task]) -> None:
        """One array."""
        if not tasks:
            return
        if not self._limit:
            longest = max(task.seconds for task in tasks)
            self._executor.update_parameters(timeout_min=max(HOUR, math.ceil(longest * SPARE / 60)))
        self._jobs += zip(
            tasks, self._executor.map_array(run, tasks, [os.getcwd()] * len(tasks)), strict=True
        )

    def poll(self) -> list[tuple[Task, int]]:
        """Results are seen at once; that a job is gone without one, as after a kill, when squeue says so twice."""
        gone = self._gone()
        known = [(task, job, self._done(job) or job.job_id in gone) for task, job in self._jobs]
        self._jobs = [(task, job) for task, job, done in known if not done]
        return [(task, self._code(task, job)) for task, job, done in known if done]

    def stop(self) -> None:
        """Cancels all: those that run are told before they are killed."""
        self._stopping = True
        if self._slurm and self._jobs:  # whole arrays, or hundreds of jobs take minutes
            arrays = sorted({job.job_id.partition("_")[0] for _, job in self._jobs})
            _ask("scancel", *arrays)
        else:
            for _, job in self._jobs:
                job.cancel(check=False)

    def describe(self) -> str:
        """The name by which squeue and scancel know the jobs."""
        return f"jobs of SLURM named {self._name}, {self._most} at a time at most"

    def _done(self, job: Any) -> bool:
        """Whether a job has a result; submitit asks sacct besides, which warns each time where nobody does accounts."""
        if not self._slurm:
            return job.done()
        paths = [job.task(rank).paths.result_pickle for rank in range(job.num_tasks)]
        with contextlib.suppress(
            OSError
        ):  # looking at a folder makes a network file system ask for what is new in it
            os.listdir(paths[0].parent)
        return all(path.exists() for path in paths)

    def _state(self, job: Any) -> str:
        """How a job without a result ended, in SLURM's word; the controller knows for minutes, accounts for ever."""
        if not self._slurm:
            return str(job.state).upper()
        shown = _ask("scontrol", "show", "job", "--oneliner", job.job_id)
        if found := re.search(r"\bJobState=(\w+)", shown.stdout):
            return found[1]
        format_ = ("--noheader", "--parsable2", "--allocations", "--format=State")
        words = _ask("sacct", *format_, f"--jobs={job.job_id}").stdout.split()
        return words[0].rstrip("+").upper() if words else "UNKNOWN"

    def _gone(self) -> set[str]:
        """Jobs that squeue did not list the last two times: files of a node may take a while to be seen on another."""
        if not self._slurm or time.monotonic() - self._asked < (0 if self._stopping else ASK_EVERY):
            return set()
        self._asked = time.monotonic()
        answer = _ask("squeue", "--noheader", "--array", "--format=%i", *self._mine)
        if answer.returncode:  # the controller is busy or restarts
            return set()
        missed = {job.job_id for _, job in self._jobs} - set(answer.stdout.split())
        twice, self._missed = missed & self._missed, missed
        return twice

    def _code(self, task: Task, job: Any) -> int:
        """The exit code of a job: the first of its processes' that is not 0."""
        if all(job.task(rank).paths.result_pickle.exists() for rank in range(job.num_tasks)):
            try:
                return next((code for code in job.results() if code), 0)
            except self._failed as error:  # the job's own function raised
                _note(task, str(error))
                return FAILED
        state = self._state(job)
        if self._stopping or state in TAKEN_AWAY:
            _note(task, f"job {job.job_id} was taken away (state {state})")
            return STOPPED
        _note(
            task, f"job {job.job_id} ended without a word (state {state}): see {job.paths.stderr}"
        )
        return {"FAILED": FAILED, "OUT_OF_MEMORY": KILLED}.get(state, LOST)


def check(options: Mapping[str, str]) -> None:
    """Refuse to ask for GPUs where no node has one: such jobs wait for ever."""
    given = [f"{name}={value}" for name, value in options.items() if str(value) != "0"]
    asked = [one for one in given if "gpu" in one and any(word in one for word in ASKS)]
    if not asked or options.get("cluster", "slurm") != "slurm":
        return
    partition = options.get("slurm_partition")
    where = f"partition {partition}" if partition else "this cluster"
    listed = _ask(
        "sinfo", "--noheader", "--format=%G", *([f"--partition={partition}"] if partition else [])
    )
    if listed.returncode == 0 and "gpu" not in listed.stdout:
        raise ConfigError(
            f"no node of {where} has a GPU, and --engine-option {asked[0]} asks for one",
            "leave it out, or name a partition that has: --engine-option slurm_partition=NAME",
        )


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of SLURM; one that is not there fails."""
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def _note(task: Task, text: str) -> None:
    task.log.parent.mkdir(parents=True, exist_ok=True)  # of a job that never began it is not there
    with task.log.open("a") as log:
        log.write(f"{text}\n")


_DOCUMENTED = "its parameters are named in bert_jax/studies/engines/slurm.py, and by `help(submitit.AutoExecutor)`"


def run(task: Task, folder: str) -> int:
    """What a job does, in each of its processes; their logs are apart."""
    import submitit

    os.chdir(folder)
    rank = submitit.JobEnvironment().global_rank
    log = task.log.with_suffix(f".{rank}{task.log.suffix}") if rank else task.log
    return local.attend(Task(task.name, task.command, log, task.seconds))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text

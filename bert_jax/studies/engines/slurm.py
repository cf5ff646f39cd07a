"""The SLURM engine: workers as jobs of a cluster, through submitit.

Groups that are started together form one job array. When the time of a job is over, or it is
preempted, its worker saves and submitit queues the job again. With `nodes=N` (and `tasks_per_node`)
a job has several processes, which train one cell together; `parallel.distributed` must be set.
`--jobs` limits how many jobs of an array run at a time.

Options, each given as `--engine-option KEY=VALUE`, are submitit's parameters: `timeout_min`,
`mem_gb`, `cpus_per_task`, `gpus_per_node`, `nodes`, `tasks_per_node`, `slurm_partition`,
`slurm_account`, `slurm_qos`, `slurm_constraint`, `slurm_signal_delay_s`,
`slurm_additional_parameters`, …; `cluster=local` tries everything without SLURM. The workdir and
the environment must be the same on all nodes. The launcher may be stopped, and started again on any
node.
"""

import ast
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.studies.engines.base import FAILED, LOST, NOTICE, STOPPED, start_worker, wait_for
from bert_jax.studies.folder import StudyFolder
from bert_jax.system import extras

WHOLE = 256  # jobs of an array that run at a time without --jobs: submitit's default
TIMEOUT = 24 * 60  # minutes; the time limit of a job without timeout_min
PORTS = range(61440, 65536)  # of a job's first process, where jax does not choose it


class Work:
    """The function of a job: runs a worker, which saves before submitit queues the job again."""

    def __init__(self, workdir: Path, group: str, folder: str) -> None:
        self._workdir = workdir
        self._group = group
        self._folder = folder

    def __call__(self) -> int:
        """Run a worker in a process of the job; each process of a job has its own log."""
        import submitit

        os.chdir(self._folder)
        job = submitit.JobEnvironment()
        log = StudyFolder(self._workdir).log(self._group)
        variables = {}
        if job.num_tasks > 1:
            rank = str(job.global_rank)
            variables = {"JAX_PROCESS_ID": rank, "JAX_NUM_PROCESSES": str(job.num_tasks)}
            if job.global_rank:
                log = log.with_suffix(f".{rank}.log")
            if job.cluster == "local":  # on nodes of SLURM, jax finds the first one itself
                port = PORTS[int(job.job_id) % len(PORTS)]
                variables["JAX_COORDINATOR_ADDRESS"] = f"localhost:{port}"
        self._worker = start_worker(self._workdir, self._group, log, variables)
        # A notice is left to submitit, whose handler calls `checkpoint` and queues the job again.
        return wait_for(self._worker, (signal.SIGTERM, signal.SIGINT))

    def checkpoint(self) -> Any:
        """Have the worker save and end, and return the function that continues its work.

        submitit calls this before it queues a job again.
        """
        from submitit.helpers import DelayedSubmission

        self._worker.send_signal(NOTICE)
        self._worker.wait()
        return DelayedSubmission(Work(self._workdir, self._group, self._folder))


class Slurm:
    """Runs the worker of each group as a job of a job array.

    submitit writes its files to `slurm/` in the workdir.
    """

    most = sys.maxsize

    def __init__(self, place: StudyFolder, jobs: int, options: Mapping[str, str]) -> None:
        submitit = extras.need_extra("submitit", "slurm", "engine slurm")
        self._submitit = submitit
        self._place = place
        parameters = {name: _read_value(text) for name, text in options.items()}
        cluster = parameters.pop("cluster", "slurm")
        self._on_slurm = cluster == "slurm"
        folder = str(place.workdir.resolve())
        self._name = "bert_jax_" + hashlib.sha256(folder.encode()).hexdigest()[:8]
        usual = {"name": self._name, "timeout_min": TIMEOUT}
        usual["slurm_array_parallelism"] = jobs or WHOLE
        try:
            self._executor = submitit.AutoExecutor(place.workdir / "slurm", cluster=cluster)
            self._executor.update_parameters(**(usual | parameters))
        except (RuntimeError, ValueError, NameError, AssertionError, TypeError) as error:
            # These are all the errors that submitit raises.
            hint = "its parameters are named by `help(submitit.AutoExecutor)`"
            if isinstance(error, RuntimeError):
                hint = "on a machine without SLURM: --engine=local"
            raise ConfigError(f"submitit: {' '.join(str(error).split())}", hint) from error
        nodes = int(parameters.get("nodes", parameters.get("slurm_nodes", 1)))
        tasks = parameters.get("tasks_per_node", parameters.get("slurm_ntasks_per_node", 1))
        self.parallel = jobs or 1
        self.processes = nodes * int(tasks)

    def start(self, groups: Sequence[str]) -> Iterator[Any]:
        """Submit groups as one job array."""
        works = [Work(self._place.workdir, group, os.getcwd()) for group in groups]
        try:
            jobs = self._executor.submit_array(works) if works else []
        except self._submitit.core.utils.FailedJobError as error:  # what sbatch says
            hint = "give other values by --engine-option, such as slurm_partition=NAME; "
            hint += "the same command goes on"
            problem = f"SLURM takes no job: {' '.join(str(error).split())}"
            raise ConfigError(problem, hint) from error
        yield from jobs

    def poll(self, worker: Any) -> int | None:
        """Return the exit code of a job; None while it runs.

        A process that fails stops all other processes of its job, so its code is the code of the
        job.
        """
        if not worker.done():
            return None
        try:
            codes = [code for code in worker.results() if code]
        except self._submitit.core.utils.FailedJobError:  # raised by the job's function
            return FAILED
        except Exception:  # submitit raises its own and pickle's for a job without a result
            return LOST
        return next((code for code in codes if code != STOPPED), max(codes, default=0))

    def stop(self, workers: Sequence[Any]) -> None:
        """Cancel jobs; SLURM sends a signal to running jobs before it kills them."""
        if not self._on_slurm:
            for job in workers:
                job.cancel(check=False)
            return
        arrays = {job.job_id.partition("_")[0] for job in workers}  # one by one takes minutes
        with contextlib.suppress(OSError):
            subprocess.run(["scancel", *sorted(arrays)], check=False)

    def describe(self) -> str:
        """Return the name of the jobs, which squeue and scancel take."""
        return f"jobs of SLURM named {self._name}"


def _read_value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text

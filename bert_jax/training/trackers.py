"""Trackers, which get the metrics of a run too: TensorBoard, Weights & Biases, MLflow.

Each tracker uses its own library, and data are sent in the background. A tracker that fails gives
one warning, and the run goes on without it. metrics.jsonl has all metrics in any case.

To add a tracker, write a class and a row of `CLASSES` here. In config/knobs.py, add a row
with its name and its package to `TRACKERS`, and its name to the choices of `trackers`.
"""

import contextlib
import json
import logging
import os
import re
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

from bert_jax.config import flatten
from bert_jax.config.knobs import TRACKERS
from bert_jax.errors import DataError, first_line
from bert_jax.system import disk, extras, jsons

logger = logging.getLogger(__name__)

RECORD = "trackers.json"  # in the folder of a run: {name: id of its tracked run}
LONGEST_WAIT = 60.0  # seconds at the end of a run, for a slow server
PROJECT = "bert_jax"  # unless a tracker's own environment variables name another


class TensorBoard:
    """Files of events in the folder `tensorboard` of the run.

    Events are written at once, without SummaryWriter. SummaryWriter's thread dies when the disk is
    full, and then whoever adds to its queue waits for ever.
    """

    def __init__(self, workdir: Path, start: int, config: Mapping[str, Any], run: str):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        self.run = ""
        self._event = Event
        self._scalar = scalar
        self._next_flush = 0.0
        folder = workdir / "tensorboard"
        folder.mkdir(exist_ok=True)
        # Names have whole seconds: without the suffix a quick restart overwrites a file.
        self._file = EventsWriter(str(folder / "events"), f".from-{start}")
        begun = SessionLog(status=SessionLog.START)  # hides the later steps of a killed attempt
        self._file.write_event(Event(step=start + 1, session_log=begun))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write the scalars of one step."""
        for name, value in values.items():
            summary = self._scalar(name, value)
            event = self._event(step=step, wall_time=time.time(), summary=summary)
            self._file.write_event(event)
        if time.monotonic() >= self._next_flush:  # seldom: the library waits for the disk
            self._file.flush()
            self._next_flush = time.monotonic() + 1.0

    def close(self, finished: bool) -> None:
        """Close the file of events."""
        self._file.close()


class WeightsAndBiases:
    """A run of Weights & Biases; WANDB_MODE, WANDB_PROJECT and others say who, where and how.

    With WANDB_MODE=offline the data stays in the folder of the run, and `wandb sync` sends it
    later.
    """

    def __init__(self, workdir: Path, start: int, config: Mapping[str, Any], run: str):
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run or None,
            resume="allow",
            name=workdir.resolve().name,
            dir=workdir,
            config=dict(config),
            settings=wandb.Settings(console="off", silent=True, reinit="create_new"),
        )
        self._start = start
        self.run = self._run.id
        logger.info(f"wandb: run {self.run}, {self._run.url or self._run.dir}")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Log the metrics of a step; the library ignores steps that an earlier attempt logged.

        An evaluation that the earlier attempt left out is logged with the step after its own.
        """
        self._run.log(dict(values), step=step + (step == self._start))

    def close(self, finished: bool) -> None:
        """Send what is left, with the exit code 0 if training reached its end."""
        self._run.finish(exit_code=0 if finished else 1)


class MLflow:
    """A run of MLflow; MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say where it is.

    A thread sends the metrics, so that a slow server delays no update. The library's own thread
    would only log an error, and not raise it here.
    """

    def __init__(self, workdir: Path, start: int, config: Mapping[str, Any], run: str):
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # else it tries for minutes
        import mlflow

        self._mlflow = mlflow
        self._client = mlflow.MlflowClient()
        self._thread = futures.ThreadPoolExecutor(1)
        self._sent: list[futures.Future] = []
        self.run = run
        if not run:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = mlflow.set_experiment(name).experiment_id
            made = self._client.create_run(experiment, run_name=workdir.resolve().name)
            self.run = made.info.run_id
            for knob, value in flatten(dict(config)).items():
                self._send(self._client.log_param, self.run, knob, str(value)[:500])
        self._client.update_run(self.run, status="RUNNING")
        logger.info(f"mlflow: run {self.run}, {mlflow.get_tracking_uri()}")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Log the metrics of a step, under names with only the characters that MLflow allows."""
        named = {re.sub(r"[^\w. /-]", "_", name): value for name, value in values.items()}
        self._check_sent()
        self._send(self._mlflow.log_metrics, named, step=step, run_id=self.run)

    def close(self, finished: bool) -> None:
        """Send what is left; mark the run as FINISHED, or as KILLED if training did not end.

        Raise an error if requests are left without an answer.
        """
        try:
            futures.wait(self._sent, timeout=LONGEST_WAIT)
            self._check_sent()
            left = len(self._sent)
            self._sent = []  # closing it again, after the error, waits no more
            if left:
                raise TimeoutError(f"{left} requests had no answer in {LONGEST_WAIT:g} s")
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._client.set_terminated(self.run, "FINISHED" if finished else "KILLED")

    def _send(self, request: Callable, *arguments: Any, **named: Any) -> None:
        self._sent.append(self._thread.submit(request, *arguments, **named))

    def _check_sent(self) -> None:
        """Forget the requests that are done; raise the error of the first one that failed."""
        done = [sent for sent in self._sent if sent.done()]
        self._sent = [sent for sent in self._sent if sent not in done]
        for sent in done:
            sent.result()


CLASSES: dict[str, Any] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}


def check_trackers(names: Iterable[str]) -> None:
    """Refuse trackers whose package is not installed."""
    for name in names:
        extras.need_extra(TRACKERS[name], name, f"tracker {name}")


def _read_runs(file: Path) -> dict[str, str]:
    """Read {tracker: id of its run}; if the file is damaged, warn and return {}."""
    try:
        return jsons.read(file, DataError, dict[str, str])
    except DataError as error:
        logger.warning(f"{error}: each tracker begins a new run")
        return {}


class Trackers:
    """The trackers of a run; a tracker that fails is dropped.

    Each tracker has a run of its own, whose id is stored. So this run continues when training
    resumes from step `start`.
    """

    def __init__(self, names: Iterable[str], workdir: Path, start: int, config: Mapping[str, Any]):
        self._open: dict[str, Any] = {}
        file = workdir / RECORD
        runs = _read_runs(file) if start and file.exists() else {}
        for name in names:
            with self._warn_of_failure(name):
                self._open[name] = CLASSES[name](workdir, start, config, runs.get(name, ""))
                runs[name] = self._open[name].run
        if runs := {name: run for name, run in runs.items() if run}:
            disk.write(file, json.dumps(runs) + "\n")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Pass the finite metrics of a step to each tracker."""
        for name, tracker in [*self._open.items()]:
            with self._warn_of_failure(name):
                tracker.add(step, values)

    def close(self, finished: bool) -> None:
        """Close each tracker; `finished` tells whether training reached its end."""
        for name, tracker in [*self._open.items()]:
            with self._warn_of_failure(name, finished):
                tracker.close(finished)

    @contextlib.contextmanager
    def _warn_of_failure(self, name: str, finished: bool = False) -> Iterator[None]:
        """Turn an error of a tracker's library into a warning, and drop the tracker.

        `finished` tells whether training has reached its end.
        """
        try:
            yield
        except Exception as error:  # no tracker may end a run, whatever its library raises
            if broken := self._open.pop(name, None):
                with contextlib.suppress(Exception):  # it has failed, and the user is told why
                    broken.close(finished)
            problem = textwrap.shorten(first_line(error), 200)
            logger.warning(
                f"tracker {name}: {problem}; the run goes on without it, "
                "and metrics.jsonl has everything"
            )

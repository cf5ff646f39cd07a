"""MLflow; MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say where, else its own default.

That is a server, a database such as sqlite:///mlflow.db, or a folder.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping

# It would try for minutes whether there is a server; during training the rows wait in any case.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # folders, which it likes to be asked for

import mlflow
from mlflow.entities import Metric, Param

from bert_jax.config import flat
from bert_jax.training.trackers import Place, sending

logger = logging.getLogger(__name__)
logging.getLogger("urllib3").setLevel(logging.ERROR)  # it warns of every try

HINT = "MLFLOW_TRACKING_URI names the server, database or folder where runs are kept"
LONGEST = 500  # characters of a parameter, in every version
MOST = 100  # parameters of a request


def check() -> None:
    """Refuse to go on without a server, or a file, that answers."""
    mlflow.MlflowClient().search_experiments(max_results=1)


def begin(place: Place) -> sending.Sender:
    """Begin or continue the tracked run."""
    return sending.begin("mlflow", place, lambda run: Client(place, run))


class Client:
    """A run of MLflow."""

    held: int | None = None  # what was handed over is there

    def __init__(self, place: Place, run: str):
        self._client = mlflow.MlflowClient()
        self.run = run or self._create(place)
        self._client.update_run(self.run, status="RUNNING")
        logger.info(f"mlflow: run {self.run}, {mlflow.get_tracking_uri()}")

    def _create(self, place: Place) -> str:
        """Create a run, whose parameters are the knobs."""
        experiment = os.environ.get("MLFLOW_EXPERIMENT_ID") or (
            mlflow.set_experiment(
                os.environ.get("MLFLOW_EXPERIMENT_NAME", "bert_jax")
            ).experiment_id
        )
        run = self._client.create_run(experiment, run_name=place.workdir.resolve().name).info.run_id
        knobs = flat(dict(place.config)).items()
        params = [Param(path, str(value)[:LONGEST]) for path, value in knobs]
        for first in range(0, len(params), MOST):
            self._client.log_batch(run, params=params[first : first + MOST])
        return run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand over a row, in names of the letters that it allows."""
        now = int(1000 * time.time())
        metrics = [
            Metric(re.sub(r"[^\w. /-]", "_", name), value, now, step)
            for name, value in values.items()
        ]
        self._client.log_batch(self.run, metrics=metrics)

    def finish(self, finished: bool) -> None:
        """Tell whether the run came to its end."""
        self._client.set_terminated(self.run, "FINISHED" if finished else "KILLED")

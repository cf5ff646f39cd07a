"""The engines that run the workers of a study: three ways to call `bert_jax.studies.worker`.

A worker does the missing work of a group and writes the results to the folders of its cells. An
engine keeps no results. So a study that was begun on one engine may continue on another. To add an
engine, write its class in a file of this folder, and its row in TABLE.
"""

from collections.abc import Callable, Mapping

from bert_jax.studies.engines import local, ray, slurm
from bert_jax.studies.engines.base import Engine
from bert_jax.studies.folder import StudyFolder

TABLE: dict[str, Callable[..., Engine]] = {
    "local": local.Local,
    "slurm": slurm.Slurm,
    "ray": ray.Ray,
}


def make_engine(name: str, place: StudyFolder, jobs: int, options: Mapping[str, str]) -> Engine:
    """Make the engine of a name.

    Args:
      name: a row of TABLE.
      place: the study's folder.
      jobs: how many groups run at the same time; 0 means as many as suit the engine.
      options: settings of the engine, from `--engine-option`.
    """
    return TABLE[name](place, jobs, options)

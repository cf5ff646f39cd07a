"""The engines that run the workers of a study: three ways to call `bert_jax.studies.worker`.

A worker does the missing work of a group and writes the results to the folders of its cells. An
engine keeps no results. So a study that was begun on one engine may continue on another. To add an
engine, write its class in a file of this folder, and its row in TABLE.
"""

from collections.abc import Callable

from bert_jax.studies.engines import local, ray, slurm
from bert_jax.studies.engines.base import Engine

# Each is made from the study's folder, the number of jobs (0: as many as suit it) and its options.
TABLE: dict[str, Callable[..., Engine]] = {
    "local": local.Local,
    "slurm": slurm.Slurm,
    "ray": ray.Ray,
}

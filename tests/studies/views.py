"""Studies to report on: of made-up values in memory, or of a workdir that is made of files."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.config.knobs import Config
from bert_jax.studies import cell_result, results, spec
from bert_jax.studies.definition import Axis, Cell, Claimed, Comparison, Point, Study, Suite
from bert_jax.studies.folder import State, StudyFolder
from bert_jax.studies.report import answers, blocks, document, simultaneous
from bert_jax.studies.report.view import View
from tests import study_workdir

LOSS = "validation/mlm_loss"
# By `study_workdir.truth`: 20 % beats 80 % by 0.1 nats and more, and 15 % hardly differs.
TRUE = Claimed("C1", "masking.rate", "20 %", "80 %", LOSS, effect=0.05)
REVERSED = dataclasses.replace(TRUE, claim="C3", point="80 %", baseline="20 %")
NULL = dataclasses.replace(TRUE, claim="C16", baseline="15 %", within=0.15)
RATES = {"15 %": 0.15, "40 %": 0.4, "80 %": 0.8}
Points = Mapping[str, Sequence[float | None]]  # values of the seeds; None where a cell failed


def make_view(points: Points, metric: str = LOSS, unigram: float = 9.0) -> View:
    """Make a study of masking rates, with the values of a metric."""
    axis = Axis("masking.rate", tuple(Point(label, RATES[label]) for label in points))
    evaluation = metric.partition("/")[0]
    known = {f"{evaluation}/unigram_loss": unigram} if metric.endswith("loss") else {}
    found = []
    for label, values in points.items():
        for seed, value in enumerate(values):
            labels = {axis.name: label}
            entry = Cell(f"{label}{seed}", Config(), labels, labels, seed)
            state = State("failed" if value is None else "done", "", 10, 10)
            metrics = {} if value is None else {metric: value, **known}
            found.append(cell_result.Result(entry, state, metrics, {}))
    asked = {"axes": (axis,), "comparisons": (Comparison(axis.name, "15 %", (metric,)),)}
    asked |= {"seeds": (0, 1, 2), "evaluations": {evaluation: {"name": evaluation}}}
    study = spec.StudyRecord(name="x", spec="x", config={}, cells={}, **asked)
    return View(StudyFolder(Path("/nowhere")), study, found)


def define_claims(**changes: Any) -> Study:
    """Define a study that states a true, a reversed and a null claim."""
    settings = {"rates": (0.15, 0.2, 0.8), "claims": (TRUE, REVERSED, NULL), "seeds": (0, 1, 2, 3)}
    settings |= {"comparisons": (Comparison("masking.rate", "15 %", (LOSS,)),)}
    settings |= {"evaluations": {"validation": Suite("pretrain")}}
    return study_workdir.masking_rate(**{**settings, **changes})


def read_view(place: StudyFolder) -> View:
    """Read a study from its workdir."""
    return View(place, place.read_study(), results.read_results(place))


def build_view(
    folder: Path,
    study: Any,
    state: Callable[[Any], str] = study_workdir.finish,
    examples: int = 10,
    name: str = "masking_rate",
) -> View:
    """Build the workdir of a study, and read it."""
    return read_view(study_workdir.build(folder, study, state, name, examples, lines=8))


def compose(view: View) -> list[blocks.Block]:
    """Compose the report of a study."""
    return document.compose_report(view, answers.compute_findings(view))


def list_values(view: View, metric: str = LOSS) -> dict[tuple[object, ...], float]:
    """List the values of cells by the labels of the axes and the seed; NaN where there is none."""
    return {
        (*one.entry.labels.values(), one.entry.seed): one.metrics.get(metric, math.nan)
        for one in view.results
    }


def halves_by_hand(values: np.ndarray, level: float) -> np.ndarray:
    """Return half of the intervals of each point but the first: values [points, seeds], no hole.

    The points scatter alike.
    """
    points, seeds = values.shape
    noise = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    freedom = (points - 1) * (seeds - 1)
    pooled = math.sqrt(2 / seeds * (noise**2).sum() / freedom)
    alone = (values[1:] - values[0]).std(axis=1, ddof=1) / math.sqrt(seeds)
    return simultaneous.find_quantile(points - 1, freedom, level) * np.maximum(alone, pooled)

"""Studies to report on: of made-up values in memory, or of a workdir that is made of files."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bert_jax.config.knobs import Config
from bert_jax.studies import results
from bert_jax.studies.cell_result import Result
from bert_jax.studies.definition import Axis, Cell, Claimed, Comparison, Point, Study, Suite
from bert_jax.studies.folder import State, StudyFolder
from bert_jax.studies.report import answers, document
from bert_jax.studies.report.blocks import Block
from bert_jax.studies.report.view import View
from bert_jax.studies.spec import StudyRecord
from tests import study_workdir

LOSS = "validation/mlm_loss"
# By `study_workdir.truth`: 20 % beats 80 % by 0.1 nats and more, and 15 % hardly differs.
TRUE = Claimed("C1", "masking.rate", "20 %", "80 %", LOSS, effect=0.05)
REVERSED = dataclasses.replace(TRUE, claim="C3", point="80 %", baseline="20 %")
NULL = dataclasses.replace(TRUE, claim="C16", baseline="15 %", within=0.15)
RATES = {"15 %": 0.15, "40 %": 0.4, "80 %": 0.8}
Points = Mapping[str, Sequence[float | None]]  # values of the seeds; None where a cell failed


def make_view(sizes: Mapping[str, Points], metric: str = LOSS, unigram: float = 9.0) -> View:
    """Make a study of masking rates at some sizes; the name of a single size may be empty."""
    labels = next(iter(sizes.values()))
    axes = [_make_axis("size", {name: name for name in sizes})] * (len(sizes) > 1)
    axes.append(_make_axis("masking.rate", {label: RATES.get(label, label) for label in labels}))
    evaluation = metric.partition("/")[0]
    known = {f"{evaluation}/unigram_loss": unigram} if metric.endswith("loss") else {}
    found = [
        _make_result(size, rate, seed, {} if value is None else {metric: value, **known})
        for size, of_size in sizes.items()
        for rate, values in of_size.items()
        for seed, value in enumerate(values)
    ]
    study = StudyRecord(
        name="x",
        spec="x",
        axes=tuple(axes),
        comparisons=(Comparison("masking.rate", "15 %", (metric,)),),
        seeds=(0, 1, 2),
        evaluations={evaluation: {"name": evaluation}},
        config={},
        cells={},
    )
    return View(StudyFolder(Path("/nowhere")), study, found)


def _make_axis(name: str, points: Mapping[str, Any]) -> Axis:
    return Axis(name, tuple(Point(label, value) for label, value in points.items()))


def _make_result(size: str, rate: str, seed: int, metrics: dict[str, float]) -> Result:
    labels = {"size": size, "masking.rate": rate} if size else {"masking.rate": rate}
    entry = Cell(f"{size}{rate}{seed}", Config(), labels, labels, seed)
    return Result(entry, State("done" if metrics else "failed", "", 10, 10), metrics, {})


def define_claims(**changes: Any) -> Study:
    """Define a study that states a true, a reversed and a null claim."""
    settings = {"rates": (0.15, 0.2, 0.8), "claims": (TRUE, REVERSED, NULL), "seeds": (0, 1, 2, 3)}
    settings |= {"comparisons": (Comparison("masking.rate", "15 %", (LOSS,)),)}
    settings |= {"evaluations": {"validation": Suite("pretrain")}}
    return study_workdir.masking_rate(**{**settings, **changes})


def read_view(place: StudyFolder, **changes: Any) -> View:
    """Read a study from its workdir, with changes to its study.json."""
    study = msgspec.structs.replace(place.read_study(), **changes)
    return View(place, study, results.read_results(place))


def build_view(
    folder: Path, study: Any, state: Callable[[Any], str] = lambda cell: "done", examples: int = 10
) -> View:
    """Build the workdir of a study, and read it."""
    return read_view(study_workdir.build(folder, study, state, examples=examples, lines=8))


def compose(view: View) -> list[Block]:
    """Compose the report of a study."""
    return document.compose_report(view, answers.compute_findings(view))

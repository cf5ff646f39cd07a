"""`study sweep`: a study of some values of some knobs, without a study file."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax import config as configs
from bert_jax.config import knobs, table
from bert_jax.errors import need
from bert_jax.studies.actions import SWEEP, Flags, Named, launch_study
from bert_jax.studies.definition import override_base
from bert_jax.studies.measures import READING
from bert_jax.studies.spec import Axis, Budget, Comparison, Study, Suite, axis


class Sweep(NamedTuple):
    """The sweep that a command line asks for: a config, knobs with values, seeds and a budget."""

    config: str  # FILE.py[:argument]
    overrides: Sequence[tuple[str, str]]  # knobs of it
    axes: Sequence[str]  # KNOB=VALUE,VALUE,… each; they are crossed
    seeds: int  # their number, from 0
    budget: Budget | None  # of every cell; None: the steps of the config


def run_sweep(sweep: Sweep, workdir: Path, flags: Flags) -> None:
    """Run the missing cells of a sweep; the study is named after its workdir."""
    named = Named(make_study(sweep), workdir.resolve().name, f"{SWEEP}{sweep.config}", workdir)
    launch_study(named, workdir, flags)


def make_study(sweep: Sweep) -> Study:
    """Make the study of a sweep; the first value of each knob is the baseline."""
    varied = [_read_axis(text) for text in sweep.axes]
    need(bool(varied), "nothing varies", "name a knob, such as --axis masking.rate=0.15,0.3")
    names = [one.name for one in varied]
    for length in ("steps", "epochs"):
        if sweep.budget and length in names:
            problem = f"{length} and --{sweep.budget.kind} both say how long a cell trains"
            need(False, problem, "leave one of them out")
    study = Study(
        question=f"What {'does' if len(varied) == 1 else 'do'} {' and '.join(names)} change?",
        base=configs.load_file(sweep.config),
        axes=tuple(varied),
        seeds=tuple(range(sweep.seeds)),
        evaluations={},
        budget=sweep.budget,
    )
    override_base(study, sweep.overrides)
    first = configs.copy_tree(study.base)
    for one in varied:
        configs.assign(first, dict(one.points[0].changes))
    suite, metric = _find_metric(configs.resolve(first))
    compared = (f"validation/{metric}",)
    return dataclasses.replace(
        study,
        evaluations={"validation": Suite(suite)},
        comparisons=tuple(Comparison(one.name, one.points[0].label, compared) for one in varied),
    )


def _read_axis(text: str) -> Axis:
    """Parse KNOB=VALUE,VALUE,… as an axis; a value in brackets may contain commas."""
    path, equals, values = text.partition("=")
    path = path.removeprefix("config.")
    need(bool(equals), f"--axis {text!r} has no values", "write --axis masking.rate=0.15,0.3")
    parts = _split_values(values)
    need(len(parts) > 1, f"--axis {path} has one value, {values!r}", "two or more, by commas")
    return axis(path, [configs.check_knob(path, table.read_text(path, part)) for part in parts])


def _split_values(text: str) -> list[str]:
    """Split a text at the commas that are not inside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _find_metric(config: knobs.Config) -> tuple[str, str]:
    """Return the suite and its metric by which the values of a sweep are compared."""
    if kind := config.kind:
        return "task", (config.task.metrics or knobs.METRICS[kind])[0]
    head = next((name for name in READING if name in config.heads), config.heads[0])
    return "pretrain", f"{head}_loss"

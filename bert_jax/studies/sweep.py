"""`study sweep`: some values of some knobs of a config, as a study.

The study is written as the study.py that it stands for, into the workdir, so that it can be read,
edited, and run again by `study run`.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax import config as configs
from bert_jax.config import conditions, knobs, shipped, table
from bert_jax.errors import ConfigError
from bert_jax.studies.measures import READING
from bert_jax.studies.spec import Axis, axis
from bert_jax.system import disk

MARK = "Written by `bert-jax study sweep`"
ELSEWHERE = "choose another --workdir"
FILE = '''"""{question} {mark}:

    {command}

`bert-jax study run {folder} --workdir={folder}` does the same after this file is edited.
"""

from bert_jax.config import load_file{imports}
from bert_jax.studies.definition import {budgets}Comparison, Study, Suite, axis


def get_study():
    base = load_file({spec}, beside=__file__)
{changes}    return Study(
        question="{question}",
        base=base,
        axes=(
{axes}        ),
        seeds={seeds},
{budget}        evaluations={{"validation": Suite("{suite}")}},
        comparisons=(
{comparisons}        ),
    )
'''


def write(
    workdir: Path,
    spec: str,
    overrides: Sequence[tuple[str, str]],
    axes: Sequence[str],
    seeds: int,
    command: Sequence[str],
    budget: tuple[str, float] | None = None,
) -> Path:
    """Write the study of a sweep; return its file.

    Args:
      workdir: the folder of the study.
      spec: the config, FILE.py[:argument].
      overrides: knobs of it that the command line sets.
      axes: KNOB=VALUE,VALUE,… each; they are crossed.
      seeds: their number, from 0.
      command: the command line, for the record.
      budget: what every cell may spend, and how much of it; by default the steps of the config.
    """
    varied = [_axis(text) for text in axes]
    if not varied:
        raise ConfigError("nothing varies", "name a knob, such as --axis masking.rate=0.15,0.3")
    if len({one.name for one in varied}) < len(varied):
        raise ConfigError("two --axis of one knob", "name all its values in one")
    for length in ("steps", "epochs"):
        if budget and length in (*dict(overrides), *(one.name for one in varied)):
            problem = f"{length} and --{budget[0]} both say how long a cell trains"
            raise ConfigError(problem, "leave one of them out")
    tree = configs.load_file(spec)
    configs.overrides(tree, overrides)
    for one in varied:
        configs.assign(tree, dict(one.points[0].changes))
    suite, metric = _judged_by(configs.resolve(tree))
    names = " and ".join(one.name for one in varied)
    question = f"What {'does' if len(varied) == 1 else 'do'} {names} change?"
    file, colon, argument = spec.partition(":")
    beside = os.path.relpath(shipped.find_config(file).resolve(), workdir.resolve())
    changes = f"    overrides(base, {_python(list(overrides))})\n" if overrides else ""
    text = FILE.format(
        mark=MARK,
        command=_quoted(shlex.join(command)),
        folder=_quoted(shlex.quote(str(workdir))),
        imports=", overrides" if overrides else "",
        spec=_python(f"{beside}{colon}{argument}"),
        changes=changes,
        question=question,
        axes="".join(f"            {_written(one)},\n" for one in varied),
        seeds=tuple(range(seeds)),
        budgets="Budget, " if budget else "",
        budget=f"        budget=Budget{_python(_whole(budget))},\n" if budget else "",
        suite=suite,
        comparisons="".join(f"            {_compared(one, metric)},\n" for one in varied),
    )
    path = workdir / "study.py"
    with disk.output(workdir, ConfigError, ELSEWHERE):
        workdir.mkdir(parents=True, exist_ok=True)
        disk.write(path, text)
    return path


def check_workdir(workdir: Path) -> None:
    """Refuse the folder of a run, and of a study that no sweep wrote."""
    path = workdir / "study.py"
    if path.exists() and MARK not in path.read_text("utf-8", errors="replace"):
        raise ConfigError(f"{path} was not written by a sweep", ELSEWHERE)
    if (workdir / "study.json").exists() and not path.exists():
        raise ConfigError(f"{workdir} holds a study that no sweep made", ELSEWHERE)
    if (workdir / "checkpoints").exists():
        raise ConfigError(f"{workdir} is the folder of a run", ELSEWHERE)


def _axis(text: str) -> Axis:
    """Read KNOB=VALUE,VALUE,…; a value in brackets may hold commas."""
    path, equals, values = text.partition("=")
    path = path.removeprefix("config.")
    if not equals:
        raise ConfigError(f"--axis {text!r} has no values", "write --axis masking.rate=0.15,0.3")
    parts = _split(values)
    if len(parts) < 2:
        raise ConfigError(f"--axis {path} has one value, {values!r}", "two or more, by commas")
    read = [table.read_text(path, part) for part in parts]
    for value in read:
        configs.checked(path, value)
    if len({repr(value) for value in read}) < len(read):
        raise ConfigError(f"--axis {path} names a value twice: {values}", "leave one of them out")
    return axis(path, read)


def _split(text: str) -> list[str]:
    """Split at commas that are in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _judged_by(config: knobs.Config) -> tuple[str, str]:
    """Return the suite and the metric by which the values are compared."""
    if kind := conditions.kind_of(config):
        return "task", (config.task.metrics or knobs.METRICS[kind])[0]
    head = next((name for name in READING if name in config.heads), config.heads[0])
    return "pretrain", f"{head}_loss"


def _quoted(text: str) -> str:
    """Write a text as a part of a docstring."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _written(one: Axis) -> str:
    values = tuple(change for point in one.points for _, change in point.changes)
    return f"axis({_python(one.name)}, {_python(values)})"


def _compared(one: Axis, metric: str) -> str:
    metrics = (f"validation/{metric}",)
    return f"Comparison({', '.join(map(_python, (one.name, one.points[0].label, metrics)))})"


def _whole(budget: tuple[str, float]) -> tuple[str, float]:
    """Write a whole amount without a point."""
    kind, amount = budget
    return kind, int(amount) if amount.is_integer() and amount < 1e15 else amount


def _python(value: Any) -> str:
    """Write a plain value as Python code with double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(map(_python, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_python, value))}{',' * (len(value) == 1)})"
    return repr(value)

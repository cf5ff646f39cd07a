"""What the README says of adding things: one file or one row, in a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "bert_jax"

# What is added: the table's file, the line before which the row goes, the row; a new file, if one
# belongs to it; and what then works.
ADDED = {
    "a task": (
        (
            "data/tasks.py",
            "TASKS",
            '    "mine": _glue("mine", "Mine", ("no", "yes"), "accuracy", text="sentence"),\n',
        ),
        {},
        """
from bert_jax import recipes
from bert_jax.config import resolve
recipes.finetuning("mine")
from bert_jax import suites
assert suites.named(["mine"])
""",
    ),
    "a way to evaluate": (
        (
            "suites/__init__.py",
            "TABLE",
            '    "mine": Suite(lambda run, options: {"answer": 42}),\n',
        ),
        {},
        """
from bert_jax import suites
assert suites.TABLE["mine"].run(None, suites.SuiteOptions()) == {"answer": 42}
""",
    ),
    "an objective": (
        ("config/knobs.py", "OBJECTIVES", '    "mine": Row("text", default=False),\n'),
        {
            "objectives/mine.py": '''
"""Distance of the pooled vector from zero: pulls all texts to one point."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from bert_jax.models.heads import label_head


@dataclasses.dataclass(frozen=True)
class Mine:
    """The mean square of one output for each text."""

    pooled = True

    def head(self, cfg, vocab_size, labels, train, name):
        return label_head(cfg, 1, pooled=True, dropout=False, train=train, name=name)

    def count(self, batch):
        return jnp.sum(batch["segment_ids"][:, 0] > 0, dtype=jnp.float32)

    def loss(self, outputs, batch):
        return {"mine_loss": (jnp.sum(outputs**2), self.count(batch))}


OBJECTIVE = Mine()
'''
        },
        """
import dataclasses, json
from pathlib import Path
from bert_jax import train
from bert_jax.config import knobs
from tests import texts
config = texts.configure(texts.config_file(Path.cwd()), steps=4, pairs="none", checkpoints__best="")
config = dataclasses.replace(config, objectives={"mine": knobs.Objective(weight=1.0)})
train.run(config, Path("run"), command=[])
lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
assert any("train/mine_loss" in line for line in lines), lines
assert any("eval/validation/mine_loss" in line for line in lines), lines
""",
    ),
    "a preset": (
        ("config/presets.py", "PRESETS", '    "mine": {"masking.rate": 0.33},\n'),
        {},
        """
from bert_jax import config
tree = config.default()
config.apply(tree, "mine")
assert config.resolve(tree).masking.rate == 0.33
""",
    ),
    "an engine": (
        ("studies/engines/__init__.py", "TABLE", '    "mine": "Mine",\n'),
        {
            "studies/engines/mine.py": '''
"""An engine that has no room."""

from bert_jax.studies.engines import Room


class Mine:
    """No tasks at all."""

    def __init__(self, workdir, jobs, options):
        self.room = Room(1)
'''
        },
        """
from bert_jax.studies import engines
assert engines.make("mine", ".", 0, {}).room.parallel == 1
""",
    ),
    "a benchmark": (
        ("benchmarks/table.py", "TABLE", '    "mine": Row(lambda setup: [], "nothing at all"),\n'),
        {},
        """
from bert_jax.benchmarks import table
assert table.TABLE["mine"].what == "nothing at all"
""",
    ),
}


def add_row(file: Path, table: str, row: str) -> None:
    """Put a row at the end of a table: before the brace that closes it."""
    lines = file.read_text().splitlines(keepends=True)
    begin = next(
        i for i, line in enumerate(lines) if line.startswith((f"{table} = ", f"{table}: "))
    )
    end = next(i for i in range(begin, len(lines)) if lines[i].startswith("}"))
    lines.insert(end, row)
    file.write_text("".join(lines))


@pytest.mark.parametrize("what", ADDED)
def test_adding_takes_one_file_or_one_row(what, tmp_path):
    """Nothing else is touched, and what was added works, checked by a process that has the copy."""
    (name, table, row), files, check = ADDED[what]
    shutil.copytree(PACKAGE, tmp_path / "bert_jax", ignore=shutil.ignore_patterns("__pycache__"))
    add_row(tmp_path / "bert_jax" / name, table, row)
    for path, text in files.items():
        (tmp_path / "bert_jax" / path).write_text(text.lstrip())
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    env = {**os.environ, "PYTHONPATH": path}
    check = f"import bert_jax; assert bert_jax.__file__.startswith({str(tmp_path)!r})\n" + check
    done = subprocess.run(
        [sys.executable, "-c", check], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

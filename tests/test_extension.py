"""What CONTRIBUTING says of adding things: one file or one row, in a copy of the package."""

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
assert suites.find_row("mine").head == "classify"
""",
    ),
    "a way to evaluate": (
        (
            "suites/__init__.py",
            "SUITES",
            '    "mine": Row("source limit", "answer"),\n',
        ),
        {
            "suites/mine.py": '''
"""Suite `mine`: the number of texts asked for, doubled."""


def score(run, options):
    return {"answer": 2 * options.limit}, {}
'''
        },
        """
from bert_jax import cli, suites
from bert_jax.config import default
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from bert_jax.studies.definition import Study, Suite, check
assert suites.evaluate(None, "mine", limit=21) == {"answer": 42}
runs.open_run = lambda path, tokenizer: None
assert cli.execute(["evaluate", "--model=any", "--suite=mine", "--limit=21"]) == 0
check(Study("Which?", default(), (), (0,), {"asked": Suite("mine", (("limit", 3),))}))
try:
    check(Study("Which?", default(), (), (0,), {"asked": Suite("mine", (("draws", 3),))}))
except ConfigError as error:
    assert str(error) == "--draws means nothing to mine", error
""",
    ),
    "an objective": (
        ("config/knobs.py", "OBJECTIVES", '    "mine": ObjectiveRow("text", pooled=True),\n'),
        {
            "objectives/__init__.py": '''

class Mine(Objective):
    """The mean square of one output for each text: pulls all texts to one point."""

    def loss(self, outputs, batch):
        squares = (outputs**2).sum(-1)
        _, weights = self.find_targets(batch)
        return {"mine_loss": ((squares * weights).sum(), weights.sum())}


def find_texts(batch):
    return labelled.keep_known(batch["segment_ids"][:, :1] - 1)


TABLE["mine"] = Mine("mine", over_labels(pooled=True, outputs=1, dropout=False), find_texts)
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
from bert_jax.config import validation
from bert_jax.errors import ConfigError
from bert_jax.batch import SPECIAL
from bert_jax.interop import export
exported = lambda config: export.find_family(config, SPECIAL)
for refuse, metric in ((exported, ""), (validation.check_rules, "mine_accuracy")):
    saves = dataclasses.replace(config.checkpoints, best=metric)
    try:
        refuse(dataclasses.replace(config, checkpoints=saves))
    except ConfigError as error:
        assert "mine" in str(error), error
    else:
        raise AssertionError(refuse)
""",
    ),
    "a preset": (
        ("config/presets.py", "PRESETS", '    "mine": {"masking.rate": 0.33},\n'),
        {},
        """
from bert_jax import config
assert config.resolve(config.default("mine")).masking.rate == 0.33
""",
    ),
    "an engine": (
        (
            "studies/engines/__init__.py",
            "TABLE",
            '    "mine": __import__("bert_jax.studies.engines.mine", fromlist=["mine"]).Mine,\n',
        ),
        {
            "studies/engines/mine.py": '''
"""An engine that has no room."""



class Mine:
    """No groups at all."""

    parallel, most, processes = 1, 0, 1

    def __init__(self, place, jobs, options):
        pass
'''
        },
        """
from bert_jax.studies import engines
assert engines.make("mine", None, 0, {}).parallel == 1
""",
    ),
    "a corpus source": (
        (
            "data/corpus.py",
            "SOURCES",
            '    "mine": __import__("bert_jax.data.mine", fromlist=["mine"]),\n',
        ),
        {
            "data/mine.py": '''
"""Corpus source `mine`: as many documents as its path says."""

from bert_jax.data.sentences import Item, Text


def identify(settings, cache):
    return settings.path


def list_items(settings, cache):
    return [Item("mine", 1, (int(settings.path),))], []


def read_texts(item, settings):
    for i in range(*item.spec):
        yield Text(f"The document with number {i} ends here.", "")
''',
        },
        """
import json, pathlib
from bert_jax import config, prepare
tree = config.default()
config.overrides(tree, [("corpus.source", "mine"), ("corpus.path", "100")])
config.overrides(tree, [("corpus.cache", "cache"), ("tokenizer.vocab_size", "60")])
prepare.run(config.resolve(tree))
(audit,) = pathlib.Path("cache").glob("*/audit.json")
assert json.loads(audit.read_text())["documents"] == 100
tree.corpus.text_field = "body"
assert [idle.path for idle in config.settle(tree)[1]] == ["corpus.text_field"]
""",
    ),
    "a masking unit": (
        ("masking/units.py", "MARKERS", '    "halves": lambda rows: halves(rows),\n'),
        {
            "masking/units.py": '''


def halves(rows: Rows) -> np.ndarray:
    """Make everything before the middle of a row a unit, and everything after it."""
    middle = np.int32(rows.tokens.shape[1] // 2)
    halves = np.where(np.arange(rows.tokens.shape[1]) < middle, np.int32(1), middle)
    return np.where(rows.eligible, halves, np.int32(-1))

'''
        },
        """
import numpy as np
from pathlib import Path
from bert_jax.data import pipeline, prepare
from tests import texts
changes = {"masking__unit": "halves", "masking__span_max": 3, "evals__validation__unit": "halves"}
config = texts.configure(texts.config_file(Path.cwd()), **changes)
source = pipeline.Source(prepare.prepare_corpus(config, log=print), "train", config)
assert set(np.unique(source.batch(0)["unit_ids"])) == {-1, 1, config.sequence_length // 2}
""",
    ),
    "a law of drawn rates": (
        ("masking/rates.py", "LAWS", '    "square": lambda knob, u: knob.draw_high * u**2,\n'),
        {},
        """
from bert_jax.config import default, resolve
from bert_jax.masking import drawn_quotas, rates
tree = default()
tree.masking.draw, tree.masking.draw_high = "square", 0.6
settings = resolve(tree).masking
assert abs(rates.mean_rate(settings) - 0.2) < 1e-4
assert drawn_quotas.make_drawn(settings, 16).rates.shape == (rates.CELLS, 3)
""",
    ),
}

# What the new name is written into beside its row: the declaration of its knob, and the conditions
# of the knobs that it reads.
NAMED = {
    "a corpus source": {
        '"tfds", "hub"]': '"tfds", "hub", "mine"]',
        'path: str = knob("", "corpus.source=': ('path: str = knob("", "corpus.source=mine|'),
    },
    "a masking unit": {
        '"span", "pmi"]': '"span", "pmi", "halves"]',
        'span_max: Count = knob(10, "unit=': 'span_max: Count = knob(10, "unit=halves|',
    },
    "a law of drawn rates": {
        '"cosine_high", "beta"]': '"cosine_high", "beta", "square"]',
        'draw_high: Share = knob(1.0, "masking.draw=': (
            'draw_high: Share = knob(1.0, "masking.draw=square|'
        ),
    },
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
    knobs = tmp_path / "bert_jax" / "config" / "data_knobs.py"
    for old, new in NAMED.get(what, {}).items():
        declared = knobs.read_text()
        assert declared.count(old) == 1
        knobs.write_text(declared.replace(old, new))
    for path, text in files.items():
        with (tmp_path / "bert_jax" / path).open("a") as file:  # or at the end of one
            file.write(text.lstrip("\n") if file.tell() == 0 else text)
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    env = {**os.environ, "PYTHONPATH": path}
    check = f"import bert_jax; assert bert_jax.__file__.startswith({str(tmp_path)!r})\n" + check
    done = subprocess.run(
        [sys.executable, "-c", check], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

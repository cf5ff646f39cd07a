"""What CONTRIBUTING says of adding things: one file or one row, in a copy of the package."""

import os
import shutil
import subprocess
import sys
from typing import NamedTuple

from tests.texts import ROOT


class Addition(NamedTuple):
    """A row at the end of a table, the code beside it, and a check that it works."""

    table: str  # FILE TABLE
    row: str
    check: str
    code: tuple[str, str]  # a file, new or not, and the text at its end
    named: tuple[tuple[str, str], ...] = ()  # what becomes what in config/data_knobs.py


SUITE = """
def score(run, options):
    return {"answer": 2 * options.limit}, {}
"""
OBJECTIVE = '''

class Mine(Objective):
    """The mean square of one output for each text."""

    def loss(self, outputs, batch):
        squares = (outputs**2).sum(-1)
        _, weights = self.find_targets(batch)
        return {"mine_loss": ((squares * weights).sum(), weights.sum())}


def find_texts(batch):
    return labelled.keep_known(batch["segment_ids"][:, :1] - 1)


TABLE["mine"] = Mine("mine", partial(make_label_head, outputs=1, dropout=False), find_texts)
'''
SOURCE = """
from bert_jax.data.sentences import Item, Text


def identify(settings, cache):
    return settings.path


def list_items(settings, cache):
    return [Item("mine", 1, (int(settings.path),))], []


def read_texts(item, settings):
    for number in range(*item.spec):
        yield Text(f"The document with number {number} ends here.", "")
"""
UNIT = """

def halves(rows: Rows) -> np.ndarray:
    middle = np.int32(rows.tokens.shape[1] // 2)
    halves = np.where(np.arange(rows.tokens.shape[1]) < middle, np.int32(1), middle)
    return np.where(rows.eligible, halves, np.int32(-1))
"""
ADDED = (
    Addition(
        "suites/__init__.py SUITES",
        '"mine": SuiteRow("source limit", "answer"),',
        """
from bert_jax import suites
(options,) = suites.build_options(["mine"], limit=21)
assert suites.score(None, options)[0] == {"answer": 42}
from bert_jax.studies.definition import Study, Suite, check_study
check_study(Study("Which?", default(), (), (0,), {"asked": Suite("mine", (("limit", 3),))}))
""",
        ("suites/mine.py", SUITE),
    ),
    Addition(
        "config/knobs.py OBJECTIVES",
        '"mine": ObjectiveRow("text", pooled=True),',
        """
from bert_jax import cli
knobs = ("pairs=none", "objectives.mine.weight=1", "objectives.mlm.weight=0")
train = ["train", f"--config={texts.config_file(Path.cwd())}", "--workdir=run", "--dry-run"]
assert cli.execute(train + [f"--config.{knob}" for knob in knobs]) == 0
""",
        ("objectives/__init__.py", OBJECTIVE),
    ),
    Addition(
        "data/corpus.py SOURCES",
        '"mine": importlib.import_module("bert_jax.data.mine"),',
        """
mine = {"corpus__source": "mine", "corpus__path": "100", "tokenizer__vocab_size": 60}
splits = prepare.prepare_corpus(texts.configure(texts.config_file(Path.cwd()), **mine)).splits
assert sum(len(split.document_ends) for split in splits.values()) == 100
""",
        ("data/mine.py", SOURCE),
        (
            ('"tfds", "hub"]', '"tfds", "hub", "mine"]'),
            ('path: str = knob("", "corpus.source=', 'path: str = knob("", "corpus.source=mine|'),
        ),
    ),
    Addition(
        "masking/units.py MARKERS",
        '"halves": lambda rows: halves(rows),',
        """
changes = {"masking__unit": "halves", "evals__validation__unit": "halves"}
config = texts.configure(texts.config_file(Path.cwd()), **changes)
source = pipeline.TextStream(prepare.prepare_corpus(config, log=print), "train", config)
assert set(np.unique(source.batch(0)["unit_ids"])) == {-1, 1, config.sequence_length // 2}
""",
        ("masking/units.py", UNIT),
        (('"span", "pmi"]', '"span", "pmi", "halves"]'),),
    ),
)
BEGIN = """
from pathlib import Path
import numpy as np
import bert_jax
from bert_jax.config import default
from bert_jax.data import pipeline, prepare
from tests import texts
assert Path(bert_jax.__file__).is_relative_to(Path.cwd())
"""


def test_adding_takes_one_file_or_one_row(tmp_path):
    """Nothing else is touched, and a process that has the copy checks all that was added."""
    package = tmp_path / "bert_jax"
    shutil.copytree(ROOT / "bert_jax", package, ignore=shutil.ignore_patterns("__pycache__"))
    declared = package / "config" / "data_knobs.py"
    for added in ADDED:
        file, table = added.table.split()
        lines = (package / file).read_text().splitlines()
        starts = (f"{table} = ", f"{table}: ")
        begin = next(i for i, line in enumerate(lines) if line.startswith(starts))
        end = next(i for i in range(begin, len(lines)) if lines[i].startswith("}"))
        lines.insert(end, f"    {added.row}")
        (package / file).write_text("\n".join(lines) + "\n")
        for old, new in added.named:
            knobs = declared.read_text()
            assert knobs.count(old) == 1, old
            declared.write_text(knobs.replace(old, new))
        path, code = added.code
        with (package / path).open("a") as target:
            target.write(code)
    check = BEGIN + "".join(added.check for added in ADDED)
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    (tmp_path / "check.py").write_text(check)
    words = [sys.executable, "check.py"]
    done = subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

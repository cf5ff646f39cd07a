"""The commands of every README, run as they are printed, in order, in a copy of the project.

A command whose comment begins with its time (`# 45 min`) or with what it needs (`# needs torch`) is
not run: of the first kind, training and studies are planned instead (`--dry-run`). Such a comment
on a line of its own is for all commands after it in the block. A line with … in it is a pattern,
and a block that begins with $ shows output: the tour's own test compares its own, and a test
below the number of updates of the demo.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert_jax.config import load_file
from tests import texts
from tests.texts import ROOT

PAGES = ("README.md", "configs/README.md", "experiments/README.md", "CONTRIBUTING.md")
PAGES += tuple(sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("experiments/*/README.md")))
MARK = re.compile(r"#\s*(\d[\d.]*(?: to [\d.]+)? (?:min|h)\b|needs )")
NOTEBOOKS = ("student", "researcher", "engineer")
EXECUTE = """
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

file = Path(sys.argv[1])
book = nbformat.read(file, as_version=4)
NotebookClient(book, timeout=900, resources={"metadata": {"path": str(file.parent)}}).execute()
for output in (output for cell in book.cells for output in cell.get("outputs", ())):
    assert "Warning" not in output.get("text", ""), output
"""


def list_blocks(page: str, language: str = "") -> list[str]:
    """Return the fenced blocks of a page in a language."""
    text = (ROOT / page).read_text()
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def list_commands(page: str) -> list[tuple[str, str]]:
    """Return the commands of a page, each with its mark: its time, or "needs" (or neither)."""
    found = []
    for block in list_blocks(page):
        if block.startswith("$ "):
            continue
        marked = ""
        for line in block.replace("\\\n", " ").splitlines():
            words, _, comment = line.partition(" #") if not line.startswith("#") else ("", "", line)
            match = MARK.search(f"#{comment.removeprefix('#')}")
            mark = match[1] if match else ""
            if marked == "needs ":  # what a block needs, a command with its own time needs too
                mark = marked
            if words.strip():
                found.append((words.strip(), mark or marked))
            elif mark:
                marked = mark
    return [(words, mark) for words, mark in found if "…" not in words]


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The files that git has, as they are now, with this interpreter as their environment."""
    folder = tmp_path_factory.mktemp("project") / "bert_jax"
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, which says what files the project has")
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in names.stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        (folder / ".venv" / entry.name).symlink_to(entry)
    (folder / ".venv" / ".made").touch()
    return folder


def run(copy: Path, words: str) -> str:
    """Run a command in the copy; fail the test with its output where it fails."""
    variables = texts.as_a_user() | {
        "PATH": f"{copy / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(copy),
        "BERT_JAX_DATA": str(copy.parent / "data"),
    }
    bash = ["bash", "-euc", words]
    done = subprocess.run(
        bash, cwd=copy, env=variables, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def demo(copy) -> Path:
    """The copy with the model of `make demo`, which most pages begin with, and its seconds."""
    began = time.monotonic()
    run(copy, "make demo")
    (copy / "seconds").write_text(str(time.monotonic() - began))
    return copy


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_demo_learns_what_it_promises_in_its_time(demo):
    workdir = demo / "runs" / "demo"
    found = json.loads((workdir / "evaluation.json").read_text())["pretrain"]
    assert found["mlm_loss"] <= found["unigram_loss"] - 2.0
    assert found["mlm_accuracy"] >= 3.5 * found["unigram_accuracy"]
    assert found["nsp_accuracy_low"] > found["majority_accuracy"]
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    assert [row["train/data_wait"] for row in lines if "train/data_wait" in row][-1] < 0.02
    seconds = float((demo / "seconds").read_text())
    assert seconds < 300, f"{seconds:.0f} s; on an idle machine of two cores it takes under 300"


def test_first_page_quotes_the_updates_of_the_demo():
    quoted = re.findall(r"step \d+/(\d+)", (ROOT / "README.md").read_text())
    assert set(map(int, quoted)) == {load_file(f"{ROOT}/configs/tiny.py").steps}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", PAGES)
def test_page_commands_run_as_printed(page, demo):
    folder = "."
    for words, mark in list_commands(page):
        if mark:
            long = re.search(r"bert-jax (train|study run|study sweep) ", words)
            words = f"{words} --dry-run" if long and mark != "needs " else ""
        if words.startswith("cd "):
            folder = words.removeprefix("cd ")
        elif words:
            run(demo, f"cd {folder}; {words}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(name, demo):
    """On the model of `make demo`, by a kernel with this interpreter's packages."""
    for package in ("nbclient", "ipykernel"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: notebooks need Jupyter")
    file = demo / "experiments" / "notebooks" / f"{name}.ipynb"
    run(demo, f"python -c '{EXECUTE}' {file}")


@pytest.mark.slow
def test_files_in_manuals_are_configs_and_studies(copy):
    (config,) = list_blocks("configs/README.md", "python")
    (study,) = list_blocks("experiments/README.md", "python")
    for place, text in (("configs/shown.py", config), ("experiments/shown/study.py", study)):
        (copy / place).parent.mkdir(exist_ok=True)
        (copy / place).write_text(text)
    run(copy, "bert-jax train --config=configs/shown.py --workdir=runs/shown --dry-run")
    plan = run(copy, "bert-jax study run experiments/shown --workdir=runs/shown_study --dry-run")
    assert "9 cells" in plan, plan

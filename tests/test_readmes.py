"""The commands of every README, run as they are printed, in order, in a copy of the project.

A command whose comment begins with its time (`# 45 min`) or with what it needs (`# needs torch`) is
not run: of the first kind, training and studies are planned instead (`--dry-run`). Such a comment
on a line of its own is for all commands after it in the block. A line with … in it is a pattern,
and a block that begins with $ shows output, which the tour's own test compares.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import texts

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "configs/README.md", "experiments/README.md", "CONTRIBUTING.md")
PAGES += tuple(sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("experiments/*/README.md")))
MARK = re.compile(r"#\s*(?P<time>\d[\d.]* (?:min|h)\b.*)|#\s*(?P<needs>needs .*)")
PROGRAMS = ("bert-jax", "python", "make", "git", "echo", "mkdir", "pip", "cd", "time", "taskset")
PROGRAMS += ("$TORCH",)
NOTEBOOKS = ("student", "researcher", "engineer")
MINUTE = 60
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


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of a page."""

    words: str
    time: str = ""
    needs: str = ""


def blocks(page: str, language: str = "") -> list[str]:
    """Return the fenced blocks of a page in a language."""
    text = (ROOT / page).read_text()
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def commands(page: str) -> list[Command]:
    """Return the commands of a page, in order."""
    found = []
    for block in blocks(page):
        if block.startswith("$ "):
            continue
        marked: dict[str, str] = {}
        for line in block.replace("\\\n", " ").splitlines():
            words, _, comment = line.partition(" #") if not line.startswith("#") else ("", "", line)
            match = MARK.search(f"#{comment.removeprefix('#')}")
            mark = {key: value or "" for key, value in match.groupdict().items()} if match else {}
            if words.strip():
                found.append(Command(words.strip(), **(mark or marked)))
            elif mark:
                marked = mark
    return [command for command in found if "…" not in command.words]


def planned(command: Command) -> str:
    """Return the command that plans a long one, or nothing."""
    plans = re.search(r"bert-jax (train|study run|study sweep) ", command.words)
    return f"{command.words} --dry-run" if plans else ""


def environment(copy: Path) -> dict[str, str]:
    """Return the variables of a shell in the copy, whose environment is this interpreter's."""
    home = copy / ".venv"
    home.mkdir(exist_ok=True)
    for entry in Path(sys.prefix).iterdir():
        if not (home / entry.name).exists():
            (home / entry.name).symlink_to(entry)
    (home / ".made").touch()
    return texts.as_a_user() | {
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(copy),
        "BERT_JAX_DATA": str(copy.parent / "data"),
    }


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The files that git has, as they are now."""
    folder = tmp_path_factory.mktemp("project") / "bert_jax"
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, which says what files the project has")
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in names.stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def run(copy: Path, words: str, minutes: int = 15) -> str:
    """Run a command in the copy; fail the test with its output where it fails."""
    done = subprocess.run(
        ["bash", "-euc", words],
        cwd=copy,
        env=environment(copy),
        capture_output=True,
        text=True,
        timeout=minutes * MINUTE,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_read(page):
    """No line of a block is lost to the reader above, and each begins with a known program."""
    for command in commands(page):
        words = re.sub(r"^(\w+=(\$\(.*\)|\S+)\s*)+", "", command.words).split()  # NAME=VALUE
        assert not words or words[0] in PROGRAMS, command
        assert not (command.time and command.needs)


def test_marks_are_read(monkeypatch, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```\nmake demo   # under five minutes\ngit clone … && cd x\n```\ntext\n```\n"
        "bert-jax study run s --workdir=w \\\n   --jobs=1   # 45 min on two cores\n"
        "# needs torch\npython a.py\npython b.py  # 2 h\n```\n```\n$ python c.py\nout\n```\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    demo, study, a, b = commands("page.md")
    assert demo == Command("make demo")
    assert (study.time, study.words.split()[-1]) == ("45 min on two cores", "--jobs=1")
    assert planned(study).endswith("--jobs=1 --dry-run")
    assert (a.needs, b.needs, b.time) == ("needs torch", "", "2 h")
    assert planned(b) == ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", PAGES)
def test_its_commands_run_as_printed(page, copy):
    """On what the commands of the first page have made."""
    if page != PAGES[0] and not (copy / "runs" / "demo" / "config.json").exists():
        run(copy, "make demo")
    folder = "."
    for command in commands(page):
        words = planned(command) if command.time else "" if command.needs else command.words
        if words.startswith("cd "):
            folder = words.removeprefix("cd ")
        elif words:
            run(copy, f"cd {folder}; {words}")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_starts_commands_without_a_fork(name):
    """A line with ! forks the kernel, of which jax warns; %%bash starts a process and does not."""
    book = json.loads((ROOT / "experiments" / "notebooks" / f"{name}.ipynb").read_text())
    lines = [
        line for cell in book["cells"] if cell["cell_type"] == "code" for line in cell["source"]
    ]
    assert [line for line in lines if line.startswith("!")] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, copy):
    """On the model of `make demo`, by a kernel with this interpreter's packages."""
    for package in ("nbclient", "ipykernel"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: notebooks need Jupyter")
    if not (copy / "runs" / "demo" / "config.json").exists():
        run(copy, "make demo")
    file = copy / "experiments" / "notebooks" / f"{name}.ipynb"
    run(copy, f"python -c '{EXECUTE}' {file}")


@pytest.mark.slow
def test_files_shown_in_the_manuals_are_configs_and_studies(copy):
    (config,) = blocks("configs/README.md", "python")
    (study,) = blocks("experiments/README.md", "python")
    for place, text in (("configs/shown.py", config), ("experiments/shown/study.py", study)):
        (copy / place).parent.mkdir(exist_ok=True)
        (copy / place).write_text(text)
    run(copy, "bert-jax train --config=configs/shown.py --workdir=runs/shown --dry-run")
    plan = run(copy, "bert-jax study run experiments/shown --workdir=runs/shown_study --dry-run")
    assert "9 cells" in plan, plan


def test_the_first_page_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130

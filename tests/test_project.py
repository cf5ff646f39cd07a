"""What contributors are given: the recipes, the site and the workflows name what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import bert_jax

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RECIPES = (ROOT / "CONTRIBUTING.md").read_text()


def _leaves(tree: object) -> list[str]:
    """List the texts of nested lists and mappings."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        return [leaf for branch in tree for leaf in _leaves(branch)]
    return [str(tree)]


def test_site_contents_name_files():
    pages = _leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert "README.md" in pages
    assert [page for page in pages if not (ROOT / page).is_file()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_calls_make_targets(workflow):
    """A workflow runs nothing that a person cannot run by make."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    lines = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert lines
    for line in lines:
        program, *words = re.sub(r"\$\{\{.*?\}\}", "", line).split()
        assert program == "make"
        called = {word for word in words if "=" not in word}
        assert called
        assert called <= targets


def test_workflows_run_quick_slow_and_wheel():
    called = " ".join(re.findall(r"run: make (.*)", "".join(map(Path.read_text, WORKFLOWS))))
    assert {"lint", "test", "test-all", "test-gpu", "docs", "wheel"} <= set(called.split())


def test_recipes_name_files_that_exist():
    named = set(re.findall(r"`([\w./-]*\w\.(?:py|md|js))`", RECIPES))
    named |= set(re.findall(r"\b((?:tests|experiments|configs)/[\w/]+\.(?:py|md))\b", RECIPES))
    own = {"NAME.py", "nsp.py", "base.py", "distilbert.py"}  # of the folder of their recipe
    own |= {"hub.py", "card.py", "tf1.py", "huggingface.py", "export.py"}
    own |= {"model_knobs.py", "data_knobs.py", "run_knobs.py", "study.py"}
    real = {name for name in named - own if "NAME" not in name}
    missing = [n for n in real if not any((ROOT / p / n).exists() for p in (".", "bert_jax"))]
    assert len(real) > 30
    assert missing == []
    for name in own - {"NAME.py", "study.py"}:
        assert list((ROOT / "bert_jax").rglob(name)), name


def test_rooms_name_their_tests():
    table = re.findall(r"^\| (`[^|]*) \| (`[^|]*`) \|$", RECIPES, re.MULTILINE)
    rooms = [
        room for rooms, tests in table if "/" not in rooms for room in re.findall(r"\w+", rooms)
    ]
    tests = [
        test for rooms, tests in table if "/" not in rooms for test in re.findall(r"\w+", tests)
    ]
    folders = {path.parent.name for path in (ROOT / "bert_jax").glob("*/__init__.py")}
    assert set(rooms) == folders
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert {f"test_{test}.py" for test in tests} - there == set()


def test_version_is_said_alike_everywhere():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert newest is not None
    assert newest[1] == cited["version"] == bert_jax.__version__


def test_commit_checks_call_what_make_lint_calls():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    entries = {hook["id"]: hook["entry"].removeprefix(".venv/bin/") for hook in hooks}
    assert f"$(BIN)/{entries['docstrings']}" in lint
    for tool in ("format", "lint"):
        assert "$(BIN)/" + " ".join(entries[tool].split()[:2]) in lint

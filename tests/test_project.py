"""What contributors are given: recipes, glossary, site and workflows name what is there."""

import re

import yaml

import bert_jax
from tests.texts import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RECIPES = (ROOT / "CONTRIBUTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
PACKAGE = ROOT / "bert_jax"


def test_site_contents_name_files():
    _, _, contents = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")
    pages = re.findall(r"[\w./-]+\.md\b", contents)
    assert "README.md" in pages
    assert [page for page in pages if not (ROOT / page).is_file()] == []


def test_workflows_call_make_targets():
    """A workflow runs nothing that a person cannot run by make, and each level of tests."""
    called: dict[str, set[str]] = {}
    for workflow in WORKFLOWS:
        targets = called.setdefault(workflow.stem, set())
        jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
        for line in (step["run"] for job in jobs for step in job["steps"] if "run" in step):
            program, *words = re.sub(r"\$\{\{.*?\}\}", "", line).split()
            assert program == "make"
            targets |= {word for word in words if "=" not in word}
    assert called == {
        "quick": {"lint", "test"},
        "nightly": {"demo", "lint", "docs", "wheel", "extras", "test-all", "test-gpu"},
        "wheel": {"lint", "test", "wheel"},
    }
    known = re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)
    assert set().union(*called.values()) <= set(known)


def test_recipes_name_files_that_exist():
    """A name without a folder is a file of the folder that its recipe is about."""
    named = set(re.findall(r"`([\w./-]*\w\.(?:py|md|js))`", RECIPES))
    named |= set(re.findall(r"\b((?:tests|experiments|configs)/[\w/]+\.(?:py|md))\b", RECIPES))
    real = {name for name in named if "NAME" not in name and name != "study.py"}
    assert len(real) > 30
    missing = [name for name in real if not (ROOT / name).exists()]
    assert [name for name in missing if not any(PACKAGE.rglob(name))] == []


def test_glossary_names_what_is_there():
    answers = (PACKAGE / "GLOSSARY.md").read_text().partition("## Where")[2]
    named = re.findall(r"\?\|`([\w/.]+)`(?:, `(\w+)`)?\|$", answers, re.M)
    assert len(named) == 10
    for file, name in named:
        assert name in (PACKAGE / file).read_text(), file
    tested = re.findall(r"`([\w/]+\.(?:py|txt))`", answers.partition("## Tests")[2])
    assert [file for file in tested if not (ROOT / "tests" / file).is_file()] == []


def test_version_is_the_same_everywhere():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert newest is not None
    assert newest[1] == cited["version"] == bert_jax.__version__

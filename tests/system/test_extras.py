"""Commands that install what only some features need: of this checkout, never by a name."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from bert_jax.errors import ConfigError
from bert_jax.planning import targets
from bert_jax.system import extras
from tests import texts

EXTRAS = tomllib.loads((texts.ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def source(command: str) -> tuple[Path, str]:
    """Return the folder and the extra that a command installs."""
    words = shlex.split(command)
    assert words[-2] == "-e"
    folder, extra = re.fullmatch(r"(.+)\[(\w+)\]", words[-1]).groups()
    return Path(folder).resolve(), extra


@pytest.mark.parametrize("elsewhere", [False, True])
def test_command_installs_the_extra_of_this_checkout(elsewhere, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path if elsewhere else texts.ROOT)
    command = extras.command("wandb", "wandb")
    assert source(command) == (texts.ROOT, "wandb")
    assert ("'.[wandb]'" in command) == (not elsewhere)


def test_command_uses_the_pip_of_this_python(monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert extras.command("ray", "ray").startswith("pip install ")
    monkeypatch.setenv("PATH", "/usr/bin")
    assert extras.command("ray", "ray").startswith(f"{sys.executable} -m pip install ")
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    assert extras.command("ray", "ray").startswith("uv pip install ")


def test_command_of_a_wheel_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    assert extras.command("slurm", "submitit").endswith("pip install 'submitit'")
    assert "pip install 'jax[tpu]'" in extras.newer_python("tpu", "jax[tpu]")


@pytest.mark.parametrize(("target", "extra"), [("v5e:2x4", "tpu"), ("h100x8", "cuda")])
def test_target_on_an_old_python_hints_at_a_newer(target, extra, monkeypatch):
    """The environment is made by this checkout's Makefile, and the extra is one it declares."""
    monkeypatch.chdir(texts.ROOT)
    monkeypatch.setattr(targets.sys, "version_info", (3, 11))
    with pytest.raises(ConfigError, match=r"needs Python 3\.12 or newer, and this is 3\.11") as no:
        targets.find(target)
    make, _, install = no.value.hint.partition(";")[0].partition(" && ")
    assert make == "make venv VENV=.venv-3.13 PYTHON=python3.13"
    assert ".venv-3.13/bin/python" in install
    assert source(install) == (texts.ROOT, extra)
    assert extra in EXTRAS


def test_no_page_installs_the_project_by_its_name():
    """The index has no such package, and one day perhaps somebody else's."""
    places = [*texts.ROOT.glob("*.md"), *texts.ROOT.glob("*/*.md"), *texts.ROOT.glob("*/*/*.md")]
    for file in (*places, *(texts.ROOT / "bert_jax").rglob("*.py")):
        assert "install 'bert-jax[" not in file.read_text(), file

"""Commands that install what only some features need: of this checkout, never by a name."""

import sys

import pytest

from bert_jax.errors import ConfigError
from bert_jax.system import extras
from tests import texts


def test_command_installs_the_extra_of_this_checkout(monkeypatch, tmp_path):
    pip = f"{sys.executable} -m pip install"
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: object())
    assert extras.write_install_command("wandb", "wandb") == f"{pip} -e '{texts.ROOT}[wandb]'"
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)  # of a wheel
    assert extras.write_install_command("slurm", "submitit") == f"{pip} 'submitit'"
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    assert extras.write_install_command("ray", "ray").startswith("uv pip install ")


def test_need_imports_or_says_how_to_install():
    assert extras.need_extra("json", "x", "it") is __import__("json")
    with pytest.raises(ConfigError, match="it needs the package no_such_package") as caught:
        extras.need_extra("no_such_package", "x", "it")
    assert "[x]" in caught.value.hint

"""Commands that install what only some features need: of this checkout, never by a name."""

import sys

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

"""Packages that only some features need, and the command that installs them."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

from bert_jax.errors import ConfigError

CHECKOUT = Path(__file__).resolve().parents[2]


def need(package: str, extra: str, what: str) -> ModuleType:
    """Import an optional package, or raise an error that says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} needs the package {package}", f"install it: {command(extra, package)}"
        ) from error


def command(extra: str, package: str) -> str:
    """Return the command that installs an extra of this checkout, or else a package it brings.

    The project is on no index, so its own name would install somebody else's package.
    """
    on_path = shutil.which("pip")
    if not importlib.util.find_spec("pip"):  # an environment that uv made
        pip = f"uv pip install --python {sys.executable}"
    elif on_path and Path(on_path).parent == Path(sys.executable).parent:
        pip = "pip install"
    else:  # an environment that is not activated
        pip = f"{sys.executable} -m pip install"
    return f"{pip} {_source(extra) or repr(package)}"


def newer_python(extra: str, package: str) -> str:
    """Return the commands that install an extra where this Python is too old for it."""
    if not (source := _source(extra)):
        return f"python3.13 -m pip install {package!r}, beside this package"
    venv, make = ".venv-3.13", "make"
    if Path.cwd() != CHECKOUT:
        venv, make = f"{CHECKOUT}/.venv-3.13", f"make -C {CHECKOUT}"
    pip = f"{venv}/bin/python -m pip install"
    if not importlib.util.find_spec("pip"):
        pip = f"uv pip install --python {venv}/bin/python"
    return f"{make} venv VENV=.venv-3.13 PYTHON=python3.13 && {pip} {source}"


def _source(extra: str) -> str:
    """Return the words that make pip install an extra of this checkout; empty outside one."""
    if not (CHECKOUT / "pyproject.toml").is_file():
        return ""
    return f"-e '{'.' if Path.cwd() == CHECKOUT else CHECKOUT}[{extra}]'"

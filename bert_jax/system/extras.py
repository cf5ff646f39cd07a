"""Packages that only some features need, which `pip install 'bert-jax[EXTRA]'` brings."""

from __future__ import annotations

import importlib
from types import ModuleType

from bert_jax.errors import ConfigError


def need(package: str, extra: str, what: str) -> ModuleType:
    """Import an optional package, or raise an error that says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} needs the package {package}",
            f"install it: pip install 'bert-jax[{extra}]', or {package}",
        ) from error

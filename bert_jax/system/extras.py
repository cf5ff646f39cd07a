"""Packages that only some features need, and the command that installs them."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from bert_jax.errors import ConfigError

CHECKOUT = Path(__file__).resolve().parents[2]


def need_extra(package: str, extra: str, what: str) -> ModuleType:
    """Import an optional package; if it is missing, the error says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} needs the package {package}",
            f"install it: {write_install_command(extra, package)}",
        ) from error


def write_install_command(extra: str, package: str) -> str:
    """Write the command that installs an extra of this checkout.

    Outside a checkout it installs only the package that the extra needs. The project itself is on
    no index, and its name there would install somebody else's package.
    """
    pip = f"{sys.executable} -m pip install"
    if not importlib.util.find_spec("pip"):  # an environment that uv made
        pip = f"uv pip install --python {sys.executable}"
    is_checkout = (CHECKOUT / "pyproject.toml").is_file()
    return f"{pip} -e '{CHECKOUT}[{extra}]'" if is_checkout else f"{pip} {package!r}"

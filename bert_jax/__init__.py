"""bert_jax: pre-training science on BERT, in JAX."""

import importlib as _importlib
import typing as _typing

from bert_jax.system import log as _log

__version__ = "0.2.0"
__all__ = ["Model", "Page", "Run", "default_config", "load", "run", "score", "show"]  # of api.py

_log.install_log()


if _typing.TYPE_CHECKING:
    from bert_jax.api import Model, Page, Run, default_config, load, run, score, show
else:

    def __getattr__(name: str) -> _typing.Any:
        """Import the Python API at first use, because preparing data must not import jax."""
        if name in __all__:
            return getattr(_importlib.import_module("bert_jax.api"), name)
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

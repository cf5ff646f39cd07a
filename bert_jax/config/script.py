"""Running a user's Python file, such as a config or a study: its errors are reported as its own."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.config import shipped
from bert_jax.errors import ConfigError, UserError
from bert_jax.system import opening

logger = logging.getLogger(__name__)


def call(spec: str, beside: str = "", function: str = "get_config") -> Any:
    """Run `get_config(arg)` of `FILE.py[:arg]` or of a name; `beside=__file__`: from that file."""
    path, _, arg = spec.partition(":")
    file = Path(beside).parent / path if beside else shipped.find_config(path)
    if not beside and file != Path(path):
        logger.info(f"{path}: {file}")
    if not os.path.lexists(file):
        raise ConfigError(f"no config file {path!r}", f"a path from the folder of {beside}")
    opening.check(file, ConfigError, "the path of a FILE.py, such as configs/tiny.py")
    file = Path(os.path.realpath(file))
    if file.suffix != ".py":
        raise ConfigError(f"{path} is no Python file", f"a FILE.py that defines {function}")
    module_spec = importlib.util.spec_from_file_location(f"_config_{file.stem}", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        with apart():
            module_spec.loader.exec_module(module)
            run = getattr(module, function, None)
            if not callable(run):
                raise ConfigError(
                    f"{path} defines no {function}",
                    f"def {function}(arg=…): … return what it makes",
                )
            _check_argument(run, path, arg, function)
            return run(arg) if arg else run()
    except UserError:  # also that of a checkpoint, where the config opens one
        raise
    except SystemExit as error:
        raise ConfigError(
            f"{path}{_line_in(error, file)}: the file exits ({error.code!r}) in place of returning",
            f"take the exit out; to refuse something, raise an error in {function}",
        ) from error
    except Exception as error:  # anything a user's file raises
        raise _user_error(error, path, file) from error


def _user_error(error: Exception, path: str, file: Path) -> ConfigError:
    """Return the error of a user's file with its place and a hint."""
    place = f"{path}{_line_in(error, file)}"
    # The message of ml_collections lists the whole config.
    if key := re.search(r'Key "(\w+)" does not exist', str(error)):
        close = re.search(r'Did you mean "(\w+)"', str(error))
        hint = f"did you mean {close[1]!r}?" if close else "`bert-jax knobs` lists all of them"
        return ConfigError(f"{place}: no knob {key[1]!r}", hint)
    if isinstance(error, SyntaxError):
        text = f": {error.text.strip()}" if error.text else ""
        return ConfigError(
            f"{path}:{error.lineno}: {type(error).__name__}: {error.msg}{text}", "repair that line"
        )
    if isinstance(error, EOFError):
        return ConfigError(
            f"{place}: the file reads standard input, which is closed to it",
            "FILE.py:ARGUMENT asks it",
        )
    return ConfigError(
        f"{place}: {type(error).__name__}: {error}",
        "this is the file's own code; --debug shows where",
    )


def _check_argument(run: Callable[..., Any], path: str, arg: str, function: str) -> None:
    try:
        inspect.signature(run).bind(*[arg] * bool(arg))
    except TypeError as error:
        argument = f"{path}:ARGUMENT; its docstring or {function} says which"
        hint = f"{path} alone" if arg else argument
        raise ConfigError(f"{path}: {function}: {error}", hint) from error


def _line_in(error: BaseException, file: Path) -> str:
    trace = error.__traceback__
    line = ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Redirect what a user's code prints to standard error, and give it no standard input.

    Standard output carries only results.
    """
    before = sys.stdin
    sys.stdin = io.StringIO()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdin = before

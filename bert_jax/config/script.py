"""Run a user's Python file, such as a config or a study; errors name the file and line."""

import contextlib
import importlib.util
import inspect
import logging
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from bert_jax.config import shipped
from bert_jax.errors import ConfigError, UserError
from bert_jax.system import opening

logger = logging.getLogger(__name__)


def call_file(spec: str, beside: str = "", function: str = "get_config") -> Any:
    """Run a function of a Python file, by default get_config, and return its result.

    `spec` is FILE.py, FILE.py:ARGUMENT, or the name of a shipped config in place of FILE.py. With
    `beside=__file__` the path is relative to the folder of that file.
    """
    path, _, arg = spec.partition(":")
    file = Path(beside).parent / path if beside else shipped.find_config(path)
    if not beside and file != Path(path):
        logger.info(f"{path}: {file}")
    opening.check_file(file, ConfigError, "the path of a FILE.py, such as configs/tiny.py")
    file = Path(os.path.realpath(file))
    if file.suffix != ".py":
        raise ConfigError(f"{path} is no Python file", f"a FILE.py that defines {function}")
    module_spec = importlib.util.spec_from_file_location(f"_config_{file.stem}", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output carries only results
            module_spec.loader.exec_module(module)
            run = getattr(module, function, None)
            if not callable(run):
                raise ConfigError(f"{path} defines no {function}", f"def {function}(arg=…): …")
            try:
                inspect.signature(run).bind(*[arg] * bool(arg))
            except TypeError as error:
                hint = f"{path} alone" if arg else f"{path}:ARGUMENT; its docstring says which"
                raise ConfigError(f"{path}: {function}: {error}", hint) from error
            return run(arg) if arg else run()
    except UserError:  # also that of a checkpoint, where the config opens one
        raise
    except SystemExit as error:
        said = f"the file exits ({error.code!r}) in place of returning"
        hint = f"to refuse something, raise an error in {function}"
        raise ConfigError(f"{path}{_line_in(error, file)}: {said}", hint) from error
    except Exception as error:  # anything a user's file raises
        raise _user_error(error, path, file) from error


def _user_error(error: Exception, path: str, file: Path) -> ConfigError:
    """Convert an error of a user's file to a ConfigError with the line and a hint."""
    place = f"{path}{_line_in(error, file)}"
    said = f"{type(error).__name__}: {error}"
    hint = "this is the file's own code; --debug shows where"
    # The message of ml_collections lists the whole config.
    if key := re.search(r'Key "(\w+)" does not exist', str(error)):
        said = f"no knob {key[1]!r}"
        hint = "`bert-jax knobs` lists all of them"
        if close := re.search(r'Did you mean "(\w+)"', str(error)):
            hint = f"did you mean {close[1]!r}?"
    elif isinstance(error, SyntaxError):
        said = f"{type(error).__name__}: {error.msg}"
        if error.text:
            said += f": {error.text.strip()}"
        source = error.filename or ""
        if Path(source).is_file():  # and not the text of an eval
            if source == str(file):
                source = path
            place, hint = f"{source}:{error.lineno}", "repair that line"
    return ConfigError(f"{place}: {said}", hint)


def _line_in(error: BaseException, file: Path) -> str:
    """Return the number of the line of `file` where an error arose, such as ":12".

    The result is "" if the traceback of the error does not pass through the file.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f":{lines[-1]}" if lines else ""

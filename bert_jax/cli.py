"""From a command line to an exit code: `bert-jax COMMAND` and `python -m bert_jax.COMMAND` both come here.

A command is a module of the package with HELP, EXAMPLE, `flags(parser)` and `main(call)`, found by its name and imported
when it is asked for. Whatever goes wrong ends in `error: …`, a `hint: …` and an exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import errno
import importlib
import re
import shlex
import sys
import traceback
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import bert_jax
from bert_jax.errors import EXHAUSTED, ConfigError, UserError
from bert_jax.system import disk, opening, streams, supervisor

COMMANDS = (
    *("prepare", "train", "evaluate", "predict", "inspect"),
    *("study", "export", "import", "benchmark", "doctor"),
)
PATHS = ("DIR", "FILE", "PATH", "RUN")  # what the help calls a value that is a path
INTERNAL, INTERRUPTED, STOPPED, BROKEN_PIPE = 1, 130, 75, 141


class Parser(argparse.ArgumentParser):
    """argparse that raises our errors, suggests what was meant, and never guesses an abbreviation."""

    def __init__(self, **settings: Any):
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings
        )
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def error(self, message: str) -> NoReturn:
        """Ends in exit code 2, like every other usage error."""
        raise ConfigError(message, f"see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest a choice near a word that is none."""
        if action.choices is not None and value not in action.choices:
            name = action.option_strings[0] if action.option_strings else action.metavar
            words = [str(choice) for choice in action.choices]
            close = difflib.get_close_matches(str(value), words, n=1, cutoff=0.5)
            listing = f"one of: {', '.join(words)}"
            hint = f"did you mean {close[0]!r}? {listing}" if close else listing
            raise ConfigError(f"argument {name}: invalid choice: {value!r}", hint)

    def strict(self, argv: list[str]) -> argparse.Namespace:
        """Parses a command line; of an unknown flag it says which was probably meant, before anything is missed."""
        known = sorted(self._option_string_actions)
        for flag in (word.partition("=")[0] for word in argv if word.startswith("--")):
            if flag in known:
                continue
            close = difflib.get_close_matches(flag, known, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else f"see {self.prog} --help"
            if "." in flag and "--config" in known:
                knob = re.sub(r"^--(no-?)?(config\.)?", "", flag)
                hint = f"knobs are set as --config.{knob}=VALUE, and switched off with VALUE false"
            raise ConfigError(f"{self.prog} has no flag {flag}", hint)
        args = self.parse_args(argv)
        for action in self._actions:
            if str(action.metavar).startswith(PATHS):
                given = getattr(args, action.dest)
                for path in given if isinstance(given, list) else [given]:
                    opening.local(path or "", (action.option_strings or [action.dest])[0])
        return args


def split_overrides(argv: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Takes `--config.a.b=v` and `--config.a.b v` out of a command line, in order."""
    rest: list[str] = []
    overrides: list[tuple[str, str]] = []
    words = iter(argv)
    for word in words:
        if not word.startswith("--config."):
            rest.append(word)
            continue
        path, equals, text = word.removeprefix("--config.").partition("=")
        if not equals:
            text = next(words, "--")
            if text.startswith("--"):
                raise ConfigError(f"--config.{path} has no value", f"write --config.{path}=VALUE")
        overrides.append((path, text))
    return rest, overrides


def main(argv: list[str] | None = None) -> NoReturn:
    """Runs a command line and exits with its code."""
    supervisor.begin()
    code = execute(sys.argv[1:] if argv is None else argv)
    supervisor.announce(code)
    sys.exit(code)


def execute(argv: list[str]) -> int:
    """Runs a command line and returns its exit code.

    Ctrl-C ends a command that the same command line continues with 75 (stopped and resumable), others with 130.
    """
    debug = "--debug" in argv
    resumable = False
    try:
        streams.ready()
        words = [word for word in argv if word != "--debug"]
        name, rest = (words[0], words[1:]) if words else ("", [])
        if name in ("-h", "--help"):
            print(_overview())
        elif name == "--version":
            print(f"bert-jax {bert_jax.__version__}")
        else:
            command = _find(name)
            resumable = getattr(command, "RESUMABLE", False)
            _run(name, command, rest, debug)
        return _unwritten(
            streams.unwritten(), debug
        )  # here, where a closed pipe can still be answered
    except UserError as error:
        return _fail(str(error), error.hint, error.code, debug)
    except KeyboardInterrupt:
        hint, code = ("the same command continues", STOPPED) if resumable else ("", INTERRUPTED)
        return _fail("interrupted", hint, code, debug)
    except SystemExit as request:  # argparse's --help
        code = request.code if isinstance(request.code, int) else 0
        return _unwritten(streams.unwritten(), debug) or code
    except Exception as error:  # the outermost frame: a user gets a line, whatever it was
        if isinstance(error, OSError) and (code := _unwritten(streams.unwritten(), debug)):
            return code
        if isinstance(error, OSError) and disk.is_full(error):
            found = disk.full(error.filename or Path.cwd())
            return _fail(str(found), found.hint, found.code, debug)
        if isinstance(error, OSError) and error.errno in (
            errno.ENAMETOOLONG,
            errno.EACCES,
            errno.EPERM,
        ):
            said = f"{str(error.filename)[:200]}: {error.strerror}"
            return _fail(said, "check the paths given", UserError.code, debug)
        first = (str(error).strip().splitlines() or [""])[0]
        if EXHAUSTED in first:
            return _fail(
                f"out of memory on a device: {first[:200]}",
                "fewer rows a step",
                UserError.code,
                debug,
            )
        hint = "" if debug else "the same command with --debug shows where"
        return _fail(f"internal: {type(error).__name__}: {first}", hint, INTERNAL, debug)


def _unwritten(error: OSError | None, debug: bool) -> int:
    """The exit code where standard output cannot be written, else 0."""
    if error is None:
        return 0
    if isinstance(error, BrokenPipeError):  # the reader, such as head, has what it wanted
        return BROKEN_PIPE
    said = f"standard output cannot be written: {error.strerror}"
    return _fail(said, "redirect it to where there is room", UserError.code, debug)


def _run(name: str, command: ModuleType, argv: list[str], debug: bool) -> None:
    prog = f"bert-jax {name}"
    parser = Parser(
        prog=prog, description=command.HELP, epilog=f"example:\n  {prog} {command.EXAMPLE}"
    )
    command.flags(parser)
    takes_config = (
        getattr(command, "OVERRIDES", False) or "--config" in parser._option_string_actions
    )
    rest, overrides = split_overrides(argv) if takes_config else (argv, [])
    command.main(Call(parser.strict(rest), overrides, ["bert-jax", name, *argv], debug))


def _find(name: str) -> ModuleType:
    """Import the module of a command."""
    if name in COMMANDS:
        return importlib.import_module(f"bert_jax.{name}")
    listing = ", ".join(COMMANDS)
    close = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    said = f"no command {shlex.quote(name)}" if name else "no command given"
    raise ConfigError(
        said, f"did you mean {close[0]!r}? one of: {listing}" if close else f"one of: {listing}"
    )


def _overview() -> str:
    rows = "\n".join(f"  {name:10} {_find(name).HELP}" for name in COMMANDS)
    return (
        f"usage: bert-jax COMMAND [flags]\n\n{bert_jax.__doc__}\n\ncommands:\n{rows}\n\n"
        "bert-jax COMMAND --help lists its flags; --debug shows the traceback of an error."
    )


def _fail(message: str, hint: str, code: int, debug: bool) -> int:
    supervisor.announce(code)  # first: where a peer is lost, jax may end this process at any moment
    with contextlib.suppress(OSError):  # standard error may be on the disk that is full
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
        if hint:
            print(f"hint: {' '.join(hint.split())}", file=sys.stderr)
    if debug:
        traceback.print_exc()
    return code


# --- flags that mean the same in every command -----------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """What a command is run with."""

    args: argparse.Namespace
    overrides: list[tuple[str, str]]
    words: list[str]  # the whole command line, for the record
    debug: bool = False


def read_config(spec: str | None, overrides: list[tuple[str, str]], source: str = "") -> Any:
    """Return the checked config of `--config` and its overrides; of a task, with the data that --source names."""
    from bert_jax import config
    from bert_jax.config import knobs

    if spec is None:
        raise ConfigError("no config given", "name one, such as --config=configs/tiny.py")
    tree = config.load_file(spec)
    config.overrides(tree, overrides)
    if source and set(tree.objectives) & set(knobs.LABELLED):
        tree.task.source = source
    return config.resolve(tree)


def positive(text: str) -> int:
    """A number of 1 or more."""
    if not re.fullmatch(r"[1-9]\d*", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def count(text: str) -> int:
    """A number of 0 or more."""
    if not re.fullmatch(r"\d+", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def given(text: str) -> str:
    """A text that is not empty."""
    if not text:  # an unset variable of the shell, which would mean the folder one is in
        raise ArgumentTypeError("it is empty")
    return text


def make_room(output: Path | None) -> None:
    """Finds out that a result cannot be written before it is computed."""
    if output is None:
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        existed = output.exists()
        output.open("a").close()
        if not existed:
            output.unlink()
    except OSError as error:
        if disk.is_full(error):
            raise disk.full(output) from error
        raise ConfigError(
            f"cannot write {str(output)!r}: {error.strerror}", "choose another --output"
        ) from error


def config_flag(parser: ArgumentParser) -> None:
    """--config."""
    parser.add_argument(
        "--config", metavar="FILE.py[:arg]", help="the config; --config.a.b=VALUE changes one knob"
    )


def checkpoint_flag(parser: ArgumentParser) -> None:
    """--checkpoint, also called --model, and --tokenizer."""
    parser.add_argument(
        *("--checkpoint", "--model"),
        dest="checkpoint",
        metavar="PATH",
        required=True,
        type=given,
        help="a run, or a model of others: Hugging Face folder, .safetensors, TF1 checkpoint, name on the hub",
    )
    parser.add_argument(
        "--tokenizer", default="", metavar="PATH", help="the vocabulary of a model that has none"
    )


def output_flag(parser: ArgumentParser, what: str) -> None:
    """--output of a folder."""
    parser.add_argument(
        "--output",
        type=lambda text: Path(given(text)),
        metavar="DIR",
        required=True,
        help=f"{what}; new, or empty",
    )


if __name__ == "__main__":
    main()

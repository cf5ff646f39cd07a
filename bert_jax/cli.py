"""Entry point of `bert-jax COMMAND` and `python -m bert_jax.COMMAND`, from arguments to exit code.

A command is a row of COMMANDS and a module of the same name, which is imported when the command is
used. The module has EXAMPLE, `add_flags(parser)` and `main(call)`. A user's error is printed as the
lines `error: …` and `hint: …`, and gives an exit code. Any other error shows its traceback.
"""

import argparse
import collections
import contextlib
import errno
import importlib
import math
import os
import re
import shlex
import sys
import traceback
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import bert_jax
from bert_jax.errors import EXHAUSTED, ConfigError, UserError, first_line, suggest
from bert_jax.system import disk, log, opening
from bert_jax.system.arguments import Parser, wrap

COMMANDS = {  # name -> what it does; the rest is in the module of that name
    "prepare": "corpus and vocabulary of a config, once",
    "train": "prepare if needed, train, evaluate; the same command resumes",
    "evaluate": "exact evaluation of a checkpoint, as JSON",
    "predict": "fill masks, classify, tag, answer, embed, generate: lines in, results out",
    "report": "runs and evaluations beside one another, or one run, as one offline HTML page",
    "inspect": "attention, embeddings or generation of texts, as one offline HTML page",
    "study": "many runs that answer one question: run, sweep, status, report",
    "export": "a checkpoint as a folder for transformers and sentence-transformers",
    "import": "another project's model as a run: Hugging Face, safetensors, TF1",
    "plan": "compile the update for devices that are not here: memory, collectives, hours, cost",
    "benchmark": "the time of a config's update on the devices here: ms, tokens a second, MFU",
    "doctor": "versions, devices, disk, prepared corpora, known trouble",
    "knobs": "every knob with its default, its values, where it acts and what it does",
}
TELLING = (["study", "status"], ["study", "report"])  # actions that nothing continues
UNFORESEEN, INTERRUPTED, STOPPED, BROKEN_PIPE = 1, 130, 75, 141


def split_overrides(argv: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Split a command line into the list of other words and the (path, value) pairs that set knobs.

    A knob is set by `--config.a.b=v` or `--config.a.b v`. A knob that is true or false may also be
    set by `--config.a.b` and `--noconfig.a.b`.
    """
    rest: list[str] = []
    overrides: list[tuple[str, str]] = []
    words = collections.deque(argv)
    while words:
        word = words.popleft()
        prefix, _, knob = word.partition("config.")
        path, equals, text = knob.partition("=")
        if prefix == "--no" and not equals and _is_switch(path):
            text = "false"
        elif prefix != "--" or not knob:
            rest.append(word)
            continue
        elif not equals and _is_switch(path):
            follows = bool(words) and words[0].lower() in ("true", "false", "none")
            text = words.popleft() if follows else "true"
        elif not equals:
            text = words.popleft() if words else "--"
            if text.startswith("--"):
                raise ConfigError(f"--config.{path} has no value", f"write --config.{path}=VALUE")
        overrides.append((path, text))
    return rest, overrides


def _is_switch(path: str) -> bool:
    """Tell whether the knob at a path is a bool; return False for an unknown path."""
    from bert_jax.config import table

    return table.is_switch(path)


def main(argv: list[str] | None = None) -> NoReturn:
    """Run a command line and exit with its code."""
    # Figures are written to files. The backend of a notebook that calls a command may not be
    # installed beside the package, and matplotlib refuses to be imported then.
    os.environ["MPLBACKEND"] = "agg"
    try:
        code = execute(sys.argv[1:] if argv is None else argv)
    except Exception:  # whatever it is: the other processes of the run must end too
        if not _is_one_of_several():
            raise
        traceback.print_exc()
        code = UNFORESEEN
    if code and _is_one_of_several():
        # At the end jax waits minutes for processes that may never come.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _is_one_of_several() -> bool:
    """Tell whether this process is one of several that train together."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def execute(argv: list[str]) -> int:
    """Run a command line and return its exit code.

    An unexpected exception is raised. Ctrl-C gives the code 75 if the same command can continue the
    work, and 130 otherwise.
    """
    words = [word for word in argv if word != "--debug"]
    debug = "--debug" in argv
    resumable = False
    try:
        name = words[0] if words else ""
        if name in ("-h", "--help"):
            print(_write_overview())
        elif name == "--version":
            print(f"bert-jax {bert_jax.__version__}")
        else:
            command = _find_command(name)
            only_tells = "--dry-run" in words or words[:2] in TELLING
            resumable = getattr(command, "RESUMABLE", False) and not only_tells
            _run_command(name, command, words[1:])
        sys.stdout.flush()  # while an error can still be told
        return 0
    except SystemExit as request:  # argparse's --help
        return request.code if isinstance(request.code, int) else 0
    except BrokenPipeError:  # a reader such as head has all that it wanted
        _discard_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        hint = "the same command continues" if resumable else ""
        return _fail("interrupted", hint, STOPPED if resumable else INTERRUPTED, debug)
    except Exception as error:  # a full disk or a lack of memory has no type of its own
        told = _explain(error)
        if told is None:
            raise
        return _fail(str(told), told.hint, told.code, debug)


def _explain(error: Exception) -> UserError | None:
    """Convert an exception to a UserError with a hint; return None if the cause is unknown."""
    if isinstance(error, UserError):
        return error
    if disk.is_full(error):
        # An error of a file is given the file's name where the file is written.
        if isinstance(error, OSError) and error.filename is None:
            _discard_output()
            return disk.DiskFull("disk full: standard output takes no more", disk.HINT)
        return disk.make_full_error(getattr(error, "filename", Path.cwd()))
    if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.EACCES):
        problem = f"{str(error.filename)[:200]}: {error.strerror}"
        return ConfigError(problem, "check the paths given")
    if EXHAUSTED in str(error):
        problem = f"out of memory on a device: {first_line(error)[:200]}"
        return ConfigError(problem, "fewer rows a step")
    return None


def _discard_output() -> None:
    """Discard buffered output: Python would try to print it at exit, and fail."""
    with contextlib.suppress(OSError):  # a stream that a program put there has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, hint: str, code: int, debug: bool) -> int:
    """Print an error and its hint, and return the exit code."""
    with contextlib.suppress(OSError):  # standard error may be on the disk that is full
        print(f"error: {log.show_controls(' '.join(message.split()))}", file=sys.stderr)
        if hint:
            print(f"hint: {log.show_controls(' '.join(hint.split()))}", file=sys.stderr)
    if debug:
        traceback.print_exc()
    return code


def _find_command(name: str) -> ModuleType:
    """Import the module of a command."""
    if name in COMMANDS:
        return importlib.import_module(f"bert_jax.{name}")
    problem = f"no command {shlex.quote(name)}" if name else "no command given"
    raise ConfigError(problem, suggest(name, COMMANDS))


def _run_command(name: str, command: ModuleType, argv: list[str]) -> None:
    prog = f"bert-jax {name}"
    parser = Parser(
        prog=prog, description=COMMANDS[name], epilog=f"example:\n  {prog} {command.EXAMPLE}"
    )
    command.add_flags(parser)
    parser.description = wrap(parser.description or "")
    rest: list[str] = argv
    overrides: list[tuple[str, str]] = []
    if "--config" in parser._option_string_actions or getattr(command, "OVERRIDES", False):
        rest, overrides = split_overrides(argv)
    command.main(Call(parser.strict(rest), overrides, ["bert-jax", name, *argv]))


def _write_overview() -> str:
    rows = "\n".join(f"  {name:10} {does}" for name, does in COMMANDS.items())
    return (
        f"usage: bert-jax COMMAND [flags]\n\n{bert_jax.__doc__}\n\ncommands:\n{rows}\n\n"
        "bert-jax COMMAND --help lists its flags; --debug shows the traceback of an error."
    )


# --- flags that mean the same in every command --------------------------------------------------


@dataclass(frozen=True)
class Call:
    """The arguments of one run of a command."""

    args: argparse.Namespace
    overrides: list[tuple[str, str]]
    words: list[str]  # the whole command line, for the record


def read_config(spec: str | None, overrides: list[tuple[str, str]], source: str = "") -> Any:
    """Read the config file of --config, set the overrides, and check the config.

    `source`, if given, replaces `task.source` of a config with labelled data.
    """
    from bert_jax import config

    if spec is None:
        raise ConfigError("no config given", "name one, such as --config=configs/tiny.py")
    tree = config.load_file(spec)
    config.overrides(tree, overrides)
    return config.resolve(config.copy_with_source(tree, source))


def read_positive(text: str) -> int:
    """Read a whole number of 1 or more."""
    if not re.fullmatch(r"[1-9]\d*", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def read_row_count(text: str) -> int:
    """Read a number of rows to compute at once; refuse more than MOST_ROWS."""
    from bert_jax.config import knobs

    number = read_positive(text)
    if number > knobs.MOST_ROWS:
        raise ArgumentTypeError(f"{text!r} is more than {knobs.MOST_ROWS:,} rows")
    return number


def read_count(text: str) -> int:
    """Read a whole number of 0 or more."""
    if not re.fullmatch(r"\d+", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def read_amount(text: str) -> float:
    """Read a finite number above 0, such as 2e9."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a number above 0, such as 2e9")
    return value


def check_nonempty(text: str) -> str:
    """Return a text unchanged; refuse an empty text."""
    if not text:  # an unset shell variable, which would mean the current folder
        raise ArgumentTypeError("it is empty")
    return text


def read_path(text: str) -> Path:
    """Convert a text to a path; refuse an empty text, which would mean the current folder.

    A shell leaves the ~ of --flag=~/path as it is.
    """
    return opening.expand_home(check_nonempty(text))


def add_config_flag(parser: ArgumentParser) -> None:
    """Add the flag --config."""
    parser.add_argument(
        "--config", metavar="FILE.py[:arg]", help="the config; --config.a.b=VALUE changes one knob"
    )


def add_format_flag(parser: Parser, part: str = "") -> None:
    """Add the flag --format to a whole command, or only to its task or page `part`."""
    what = "JSON for programs, or text for people (text on a terminal, else JSON)"
    settings: dict[str, Any] = {"choices": ("json", "text"), "default": SUPPRESS}
    if part:
        parser.add_for({part: what}, "--format", **settings)
    else:
        parser.add_argument("--format", help=what, **settings)


def prints_for_people(form: str) -> bool:
    """Tell whether to print text for people, and not JSON.

    `form` is the value of --format. If it is empty, text is printed on a terminal, and JSON
    elsewhere.
    """
    return form == "text" if form else sys.stdout.isatty()


def add_option_flags(
    parser: Parser, fields: Iterable[Field], renamed: Mapping[str, str] | None = None
) -> None:
    """Add a flag for each field that `arguments.option` declared.

    A flag that is not given sets no attribute. The help of a field is one text, or a text for each
    part of a command (a task, page or action). With a text for each part, only these parts get the
    flag. `renamed` maps a part that a field names to the part of this command. Parts that `renamed`
    lacks do not get the flag.
    """
    for field in fields:
        does = field.metadata["does"]
        settings: dict[str, Any] = {"default": SUPPRESS}
        if "bool" in str(field.type):
            settings["action"] = "store_true"
        elif choices := field.metadata["choices"]:
            settings["choices"] = choices
        else:
            settings |= {"metavar": field.metadata["metavar"], "type": _reader(field)}
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(does, str):
            parser.add_argument(flag, help=does, **settings)
        else:
            if renamed:
                does = {renamed[part]: text for part, text in does.items() if part in renamed}
            parser.add_for(does, flag, **settings)


def _reader(field: Field) -> Callable[[str], Any]:
    """Choose the function that converts the text of an option's flag to its value."""
    named = {"batch_size": read_row_count, "seed": read_count}
    if "int" in str(field.type):
        return named.get(field.name, read_positive)
    return float if "float" in str(field.type) else check_nonempty


def add_checkpoint_flag(parser: ArgumentParser) -> None:
    """Add the flags --model (or --checkpoint) and --tokenizer."""
    parser.add_argument(
        *("--model", "--checkpoint"),
        dest="checkpoint",
        metavar="PATH",
        required=True,
        type=check_nonempty,
        help="a run, or another project's model: Hugging Face folder, .safetensors, TF1 "
        "checkpoint, name on the hub",
    )
    parser.add_argument(
        "--tokenizer", default="", metavar="PATH", help="the vocabulary of a model that has none"
    )


def add_output_flag(parser: ArgumentParser, what: str) -> None:
    """Add the flag --output, which names a new or empty folder."""
    parser.add_argument(
        "--output", type=read_path, metavar="DIR", required=True, help=f"{what}; new, or empty"
    )


if __name__ == "__main__":
    main()

"""Entry point of `bert-jax COMMAND` and `python -m bert_jax.COMMAND`, from arguments to exit code.

A command is a row of COMMANDS and a module of that name, imported when it is used, with EXAMPLE,
`flags(parser)` and `main(call)`. Every error ends in `error: …`, a `hint: …` and an exit code.
"""

from __future__ import annotations

import argparse
import collections
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
from bert_jax.errors import EXHAUSTED, ConfigError, UserError, suggest
from bert_jax.system import disk, opening, streams, supervisor

COMMANDS = {  # name -> what it does; the rest is in the module of that name
    "prepare": "corpus and vocabulary of a config, once",
    "train": "prepare if needed, train, evaluate; the same command resumes",
    "evaluate": "exact evaluation of a checkpoint, as JSON",
    "predict": "fill masks, classify, tag, answer, embed, generate: texts in, JSON lines out",
    "inspect": "attention, embeddings or generation of texts, as one offline HTML page",
    "study": "many runs that answer one question: run, status, report",
    "export": "a checkpoint as a folder for transformers and sentence-transformers",
    "import": "another project's model as a run: Hugging Face, safetensors, TF1",
    "plan": "compile the update for devices that are not here: memory, traffic, speed, cost",
    "benchmark": "speed of this project and of its alternatives, timed in turn",
    "doctor": "versions, devices, disk, prepared corpora, known trouble",
}
PATHS = ("DIR", "FILE", "PATH", "RUN")  # what the help calls a value that is a path
INTERNAL, INTERRUPTED, STOPPED, BROKEN_PIPE = 1, 130, 75, 141


class Parser(argparse.ArgumentParser):
    """An argument parser that raises our errors, suggests corrections and takes no abbreviation."""

    def __init__(self, **settings: Any):
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings
        )
        # For --help alone: `execute` takes it out of the command line.
        debug = "show the traceback of an error"
        self.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=debug)

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError, whose exit code is 2, like that of every other usage error."""
        raise ConfigError(message, f"see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is no choice, and suggest the nearest one."""
        if action.choices is not None and value not in action.choices:
            name = action.option_strings[0] if action.option_strings else action.metavar
            hint = suggest(str(value), action.choices)
            raise ConfigError(f"argument {name}: invalid choice: {value!r}", hint)

    def strict(self, argv: list[str]) -> argparse.Namespace:
        """Parse a command line; refuse an unknown flag first, with the nearest known one."""
        known = sorted(self._option_string_actions)
        for flag in (word.partition("=")[0] for word in argv if word.startswith("--")):
            if flag in known:
                continue
            close = difflib.get_close_matches(flag, known, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else f"see {self.prog} --help"
            if "." in flag and "--config" in known:
                knob = re.sub(r"^--(no-?)?(config\.)?", "", flag)
                hint = f"knobs are set as --config.{knob}=VALUE; --noconfig.KNOB sets one to false"
            raise ConfigError(f"{self.prog} has no flag {flag}", hint)
        args = self.parse_args(argv)
        for action in self._actions:
            if str(action.metavar).startswith(PATHS):
                value = getattr(args, action.dest)
                for path in value if isinstance(value, list) else [value]:
                    opening.local(path or "", (action.option_strings or [action.dest])[0])
        return args


def split_overrides(argv: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Take the knobs out of a command line, in order.

    They are `--config.a.b=v`, `--config.a.b v` and, for true and false, `--config.a.b` and
    `--noconfig.a.b`.
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
    """Tell whether the knob at a path is true or false; an unknown path is refused later."""
    from bert_jax.config import load

    try:
        return load.is_switch(load.knob_at(path)[0])
    except ConfigError:
        return False


def main(argv: list[str] | None = None) -> NoReturn:
    """Run a command line and exit with its code."""
    supervisor.begin()
    code = execute(sys.argv[1:] if argv is None else argv)
    supervisor.announce(code)
    sys.exit(code)


def execute(argv: list[str]) -> int:
    """Run a command line and return its exit code.

    Ctrl-C ends a command that can be resumed with 75, others with 130.
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
        return _unwritten(streams.unwritten(), debug)  # while a broken pipe can still be handled
    except UserError as error:
        return _fail(str(error), error.hint, error.code, debug)
    except KeyboardInterrupt:
        hint, code = ("the same command continues", STOPPED) if resumable else ("", INTERRUPTED)
        return _fail("interrupted", hint, code, debug)
    except SystemExit as request:  # argparse's --help
        code = request.code if isinstance(request.code, int) else 0
        return _unwritten(streams.unwritten(), debug) or code
    except OSError as error:
        return _unwritten(streams.unwritten(), debug) or _system_error(error, debug)
    except Exception as error:  # the outermost frame: a user gets one line for any error
        return _unexpected(error, debug)


def _unwritten(error: OSError | None, debug: bool) -> int:
    """Return the exit code where standard output cannot be written, else 0."""
    if error is None:
        return 0
    if isinstance(error, BrokenPipeError):  # a reader such as head has all that it wanted
        return BROKEN_PIPE
    problem = f"standard output cannot be written: {error.strerror}"
    return _fail(problem, "redirect it to where there is room", UserError.code, debug)


def _system_error(error: OSError, debug: bool) -> int:
    """Report an error of the operating system that no command has handled."""
    if disk.is_full(error):
        full = disk.full(error.filename or Path.cwd())
        return _fail(str(full), full.hint, full.code, debug)
    if error.errno in (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM):
        problem = f"{str(error.filename)[:200]}: {error.strerror}"
        return _fail(problem, "check the paths given", UserError.code, debug)
    return _unexpected(error, debug)


def _unexpected(error: Exception, debug: bool) -> int:
    """Report an error that is not the user's."""
    first = (str(error).strip().splitlines() or [""])[0]
    if EXHAUSTED in first:
        problem = f"out of memory on a device: {first[:200]}"
        return _fail(problem, "fewer rows a step", UserError.code, debug)
    hint = "" if debug else "the same command with --debug shows where"
    return _fail(f"internal: {type(error).__name__}: {first}", hint, INTERNAL, debug)


def _run(name: str, command: ModuleType, argv: list[str], debug: bool) -> None:
    prog = f"bert-jax {name}"
    parser = Parser(
        prog=prog, description=COMMANDS[name], epilog=f"example:\n  {prog} {command.EXAMPLE}"
    )
    command.flags(parser)
    has_flag = "--config" in parser._option_string_actions
    takes_config = has_flag or getattr(command, "OVERRIDES", False)
    rest, overrides = split_overrides(argv) if takes_config else (argv, [])
    command.main(Call(parser.strict(rest), overrides, ["bert-jax", name, *argv], debug))


def _find(name: str) -> ModuleType:
    """Import the module of a command."""
    if name in COMMANDS:
        return importlib.import_module(f"bert_jax.{name}")
    problem = f"no command {shlex.quote(name)}" if name else "no command given"
    raise ConfigError(problem, suggest(name, COMMANDS))


def _overview() -> str:
    rows = "\n".join(f"  {name:10} {does}" for name, does in COMMANDS.items())
    return (
        f"usage: bert-jax COMMAND [flags]\n\n{bert_jax.__doc__}\n\ncommands:\n{rows}\n\n"
        "bert-jax COMMAND --help lists its flags; --debug shows the traceback of an error."
    )


def _fail(message: str, hint: str, code: int, debug: bool) -> int:
    supervisor.announce(code)  # first: after the loss of a peer jax may end this process any moment
    with contextlib.suppress(OSError):  # standard error may be on the disk that is full
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
        if hint:
            print(f"hint: {' '.join(hint.split())}", file=sys.stderr)
    if debug:
        traceback.print_exc()
    return code


# --- flags that mean the same in every command --------------------------------------------------


@dataclass(frozen=True)
class Call:
    """The arguments of one run of a command."""

    args: argparse.Namespace
    overrides: list[tuple[str, str]]
    words: list[str]  # the whole command line, for the record
    debug: bool = False


def read_config(spec: str | None, overrides: list[tuple[str, str]], source: str = "") -> Any:
    """Return the checked config of --config and its overrides; --source replaces a task's data."""
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
    """Read a whole number of 1 or more."""
    if not re.fullmatch(r"[1-9]\d*", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def count(text: str) -> int:
    """Read a whole number of 0 or more."""
    if not re.fullmatch(r"\d+", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def nonempty(text: str) -> str:
    """Refuse an empty text."""
    if not text:  # an unset shell variable, which would mean the current folder
        raise ArgumentTypeError("it is empty")
    return text


def check_output(output: Path | None) -> None:
    """Create the folder of an output file, and check that the file can be written."""
    if output is None:
        return
    with disk.output(output, ConfigError, "choose another --output", repr(str(output))):
        output.parent.mkdir(parents=True, exist_ok=True)
        existed = output.exists()
        output.open("a").close()
        if not existed:
            output.unlink()


def config_flag(parser: ArgumentParser) -> None:
    """Add --config."""
    parser.add_argument(
        "--config", metavar="FILE.py[:arg]", help="the config; --config.a.b=VALUE changes one knob"
    )


def generation_flags(parser: ArgumentParser) -> None:
    """Add the flags by which text is generated; those that are not given are left out."""

    def add(*names: str, **settings: Any) -> None:
        parser.add_argument(*names, default=argparse.SUPPRESS, **settings)

    most = "generation: at most so many more (64); of a masked model so many masks behind a text "
    add("--max-tokens", type=positive, metavar="N", help=f"{most}without [MASK]")
    warm = "generation: 0 takes the likeliest token; others draw, 1 as the model says (0)"
    add("--temperature", type=float, metavar="T", help=warm)
    nucleus = "generation: draw from the fewest tokens that have this share of the probability (1)"
    add("--top-p", type=float, metavar="P", help=nucleus)
    add("--seed", type=count, metavar="N", help="generation: of what is drawn (0)")
    rounds = "generation, masked models: rounds in which masks are filled (one for each mask)"
    add("--steps", type=positive, metavar="N", help=rounds)
    order = "generation, masked models: masks to fill next are random ones (random), or those of "
    order += "whose likeliest token the model is surest (confident, the default)"
    add("--order", choices=("random", "confident"), help=order)


def checkpoint_flag(parser: ArgumentParser) -> None:
    """Add --checkpoint, also called --model, and --tokenizer."""
    parser.add_argument(
        *("--checkpoint", "--model"),
        dest="checkpoint",
        metavar="PATH",
        required=True,
        type=nonempty,
        help="a run, or another project's model: Hugging Face folder, .safetensors, TF1 "
        "checkpoint, name on the hub",
    )
    parser.add_argument(
        "--tokenizer", default="", metavar="PATH", help="the vocabulary of a model that has none"
    )


def output_flag(parser: ArgumentParser, what: str) -> None:
    """Add --output of a folder."""
    parser.add_argument(
        "--output",
        type=lambda text: Path(nonempty(text)),
        metavar="DIR",
        required=True,
        help=f"{what}; new, or empty",
    )


if __name__ == "__main__":
    main()

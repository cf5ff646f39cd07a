"""The only file that sees flags: `bert-jax COMMAND` and `python -m bert_jax.COMMAND` both come here.

A command is one row of COMMANDS. Whatever goes wrong ends in `error: …`, a `hint: …` and an exit code.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import bert_jax
from bert_jax import allocator
from bert_jax.errors import ConfigError, UserError

INTERNAL, INTERRUPTED, STOPPED, BROKEN_PIPE = 1, 130, 75, 141


class Parser(argparse.ArgumentParser):
    """argparse that raises our errors, suggests what was meant, and never guesses an abbreviation."""

    def __init__(self, **settings: Any):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def error(self, message: str) -> NoReturn:
        """Ends in exit code 2, like every other usage error."""
        raise ConfigError(message, f"see {self.prog} --help")

    def strict(self, argv: list[str]) -> argparse.Namespace:
        """Parses a command line; of an unknown flag it says which was probably meant, before anything is missed."""
        known = sorted(self._option_string_actions)
        for flag in (word.partition("=")[0] for word in argv if word.startswith("--")):
            if flag in known:
                continue
            close = difflib.get_close_matches(flag, known, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else f"see {self.prog} --help"
            if "." in flag and "--config" in known:
                hint = f"knobs are set as --config.{flag[2:]}=VALUE"
            raise ConfigError(f"{self.prog} has no flag {flag}", hint)
        return self.parse_args(argv)


# --- config flags ---------------------------------------------------------------------------------------------------


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


def read_config(spec: str | None, overrides: list[tuple[str, str]]) -> Any:
    """The checked config of `--config` and its overrides."""
    from bert_jax import config

    if spec is None:
        raise ConfigError("no config given", "name one, such as --config=configs/tiny.py")
    tree = config.load_file(spec)
    for path, text in overrides:
        config.override(tree, path, text)
    return config.resolve(tree)


# --- commands -------------------------------------------------------------------------------------------------------
# Each imports what it needs when it runs: --help, and every usage error, answer before jax is loaded.


@dataclass(frozen=True)
class Call:
    """What a command is run with."""

    args: argparse.Namespace
    overrides: list[tuple[str, str]]
    words: list[str]  # the whole command line, for the record


def _positive(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _given(text: str) -> str:
    if not text:  # an unset variable of the shell, which would mean the folder one is in
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _make_room(output: Path | None) -> None:
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
        raise ConfigError(f"cannot write {str(output)!r}: {error.strerror}", "choose another --output") from error


def _config_flag(parser: Parser) -> None:
    parser.add_argument("--config", metavar="FILE.py[:arg]", help="the config; --config.a.b=VALUE changes one knob")


def _checkpoint_flag(parser: Parser) -> None:
    parser.add_argument(
        *("--checkpoint", "--model"),
        dest="checkpoint",
        metavar="PATH",
        required=True,
        type=_given,
        help="a run, or a model of others: Hugging Face folder, .safetensors, TF1 checkpoint, name on the hub",
    )
    parser.add_argument("--tokenizer", default="", metavar="PATH", help="the vocabulary of a model that has none")


def _prepare(call: Call) -> None:
    from bert_jax import prepare

    prepare.run(read_config(call.args.config, call.overrides))


def _train_flags(parser: Parser) -> None:
    _config_flag(parser)
    parser.add_argument("--workdir", type=Path, metavar="DIR", required=True, help="where the run lives; resumes it")
    parser.add_argument("--dry-run", action="store_true", help="print config, parameters, memory and steps only")
    allow = "resume although this knob changed, such as steps; may be repeated"
    parser.add_argument("--allow-change", action="append", default=[], metavar="KEY", help=allow)


def _train(call: Call) -> None:
    config = read_config(call.args.config, call.overrides)
    allocator.retain()
    from bert_jax import train

    allowed = tuple(key.removeprefix("config.") for key in call.args.allow_change)
    train.run(config, call.args.workdir, dry_run=call.args.dry_run, allow_change=allowed, command=call.words)


def _evaluate_flags(parser: Parser) -> None:
    _checkpoint_flag(parser)
    _config_flag(parser)
    parser.add_argument("--suite", choices=("pretrain",), default="pretrain", help="what is evaluated (%(default)s)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there too")


def _evaluate(call: Call) -> None:
    args = call.args
    config = read_config(args.config, call.overrides) if args.config else None
    allocator.retain()
    _make_room(args.output)
    from bert_jax import evaluate

    changes = [] if config else call.overrides  # of the checkpoint's own config
    evaluate.run(args.checkpoint, args.suite, config, args.output, changes=changes, tokenizer=args.tokenizer)


def _predict_flags(parser: Parser) -> None:
    parser.add_argument("task", metavar="TASK", choices=("fill-mask", "nsp", "embed"), help="fill-mask, nsp or embed")
    _checkpoint_flag(parser)
    parser.add_argument("--input", type=Path, metavar="FILE", help="texts or JSON lines; standard input when left out")
    parser.add_argument(
        "--top-k", type=_positive, default=5, metavar="K", help="fill-mask: tokens a mask (%(default)s)"
    )
    parser.add_argument("--pooling", choices=("mean", "cls"), default="", help="embed (the model's own, else mean)")
    parser.add_argument("--normalize", action="store_true", help="embed: vectors of length 1")
    too_long = "a text too long for the model: refuse it, cut its end, or (fill-mask) look at it in windows"
    parser.add_argument("--long", choices=("refuse", "cut", "windows"), default="refuse", help=too_long)
    parser.add_argument("--stride", type=_positive, default=64, metavar="N", help="of windows, in tokens (%(default)s)")
    parser.add_argument("--stride-as", choices=("overlap", "step"), default="overlap", help="what the stride is")
    parser.add_argument("--batch-size", type=_positive, default=32, metavar="N", help="rows a step (%(default)s)")


def _predict(call: Call) -> None:
    args = call.args
    allocator.retain()
    from bert_jax import predict

    options = {
        key: getattr(args, key)
        for key in ("top_k", "pooling", "normalize", "long", "stride", "stride_as", "batch_size")
    }
    predict.run(args.task, args.checkpoint, args.input, args.tokenizer, **options)


def _output_flag(parser: Parser, what: str) -> None:
    parser.add_argument(
        "--output", type=lambda text: Path(_given(text)), metavar="DIR", required=True, help=f"{what}; new, or empty"
    )


def _export_flags(parser: Parser) -> None:
    _checkpoint_flag(parser)
    _output_flag(parser, "the folder for transformers and sentence-transformers")


def _export(call: Call) -> None:
    from bert_jax import export

    export.run(call.args.checkpoint, call.args.output, call.args.tokenizer)


def _import_flags(parser: Parser) -> None:
    _checkpoint_flag(parser)
    _output_flag(parser, "the run")
    parser.add_argument("--allow-missing", action="store_true", help="do without heads its config.json promises")
    parser.add_argument("--allow-unused", action="store_true", help="leave tensors aside that are no part of BERT")
    parser.add_argument("--resize-vocab", action="store_true", help="cut rows of the table that no piece has")


def _import(call: Call) -> None:
    module = importlib.import_module("bert_jax.import")  # a keyword in Python, and the right word for users
    allowed = {key: getattr(call.args, key) for key in ("allow_missing", "allow_unused", "resize_vocab")}
    module.run(call.args.checkpoint, call.args.output, call.args.tokenizer, **allowed)


def _doctor_flags(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    compare = "in what two presets differ; defaults is one too"
    parser.add_argument("--preset-diff", nargs=2, metavar=("A", "B"), default=(), help=compare)


def _doctor(call: Call) -> None:
    from bert_jax import doctor

    doctor.run(call.args.json, call.args.preset_diff)


@dataclass(frozen=True)
class Command:
    """One row of the table: what it does, its flags, its function, and whether the same command continues it."""

    help: str
    example: str
    flags: Callable[[Parser], None]
    run: Callable[[Call], None]
    resumable: bool = False


COMMANDS = {
    "prepare": Command(
        "corpus and vocabulary of a config, once", "--config=configs/tiny.py", _config_flag, _prepare, resumable=True
    ),
    "train": Command(
        "prepare if needed, train, evaluate; the same command resumes",
        "--config=configs/tiny.py --workdir=runs/tiny --config.masking.rate=0.4",
        *(_train_flags, _train),
        resumable=True,
    ),
    "evaluate": Command(
        "exact evaluation of a checkpoint, as JSON",
        "--checkpoint=runs/tiny --output=runs/tiny/evaluation.json",
        *(_evaluate_flags, _evaluate),
    ),
    "predict": Command(
        "fill masks, judge next sentences, embed: texts in, JSON lines out",
        "fill-mask --model=runs/tiny --input=texts.txt",
        *(_predict_flags, _predict),
    ),
    "export": Command(
        "a checkpoint as a folder for transformers and sentence-transformers",
        "--checkpoint=runs/tiny --output=exported",
        *(_export_flags, _export),
    ),
    "import": Command(
        "a model of others as a run: Hugging Face, safetensors, TF1",
        "--model=google-bert/bert-base-uncased --output=runs/bert_base",
        *(_import_flags, _import),
    ),
    "doctor": Command("versions, devices, disk, prepared corpora, known trouble", "--json", _doctor_flags, _doctor),
}


# --- from a command line to an exit code ----------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> NoReturn:
    """Runs a command line and exits with its code."""
    sys.exit(execute(sys.argv[1:] if argv is None else argv))


def execute(argv: list[str]) -> int:
    """Runs a command line and returns its exit code.

    Ctrl-C ends a command that the same command line continues with 75 (stopped and resumable), others with 130.
    """
    debug = "--debug" in argv
    resumable = False
    try:
        words = [word for word in argv if word != "--debug"]
        name, rest = (words[0], words[1:]) if words else ("", [])
        if name in ("-h", "--help"):
            print(_overview())
        elif name == "--version":
            print(f"bert-jax {bert_jax.__version__}")
        else:
            command = _find(name)
            resumable = command.resumable
            _run(name, command, rest)
        sys.stdout.flush()  # here, where a closed pipe can still be answered
        return 0
    except UserError as error:
        _complain(str(error), error.hint)
        return _traced(debug, error.code)
    except KeyboardInterrupt:
        _complain("interrupted", "the same command continues" if resumable else "")
        return _traced(debug, STOPPED if resumable else INTERRUPTED)
    except BrokenPipeError:  # the reader, such as head, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except SystemExit as request:  # argparse's --help
        return request.code if isinstance(request.code, int) else 0
    except Exception as error:  # the outermost frame: a user gets a line, whatever it was
        if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM):
            _complain(f"{str(error.filename)[:200]}: {error.strerror}", "check the paths given")
            return _traced(debug, UserError.code)
        first = (str(error).strip().splitlines() or [""])[0]
        hint = "" if debug else "the same command with --debug shows where"
        _complain(f"internal: {type(error).__name__}: {first}", hint)
        return _traced(debug, INTERNAL)


def _run(name: str, command: Command, argv: list[str]) -> None:
    prog = f"bert-jax {name}"
    parser = Parser(prog=prog, description=command.help, epilog=f"example:\n  {prog} {command.example}")
    command.flags(parser)
    takes_config = "--config" in parser._option_string_actions
    rest, overrides = split_overrides(argv) if takes_config else (argv, [])
    command.run(Call(parser.strict(rest), overrides, ["bert-jax", name, *argv]))


def _find(name: str) -> Command:
    if name in COMMANDS:
        return COMMANDS[name]
    listing = ", ".join(COMMANDS)
    close = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    said = f"no command {shlex.quote(name)}" if name else "no command given"
    raise ConfigError(said, f"did you mean {close[0]!r}? one of: {listing}" if close else f"one of: {listing}")


def _overview() -> str:
    rows = "\n".join(f"  {name:10} {command.help}" for name, command in COMMANDS.items())
    return (
        f"usage: bert-jax COMMAND [flags]\n\n{bert_jax.__doc__}\n\ncommands:\n{rows}\n\n"
        "bert-jax COMMAND --help lists its flags; --debug shows the traceback of an error."
    )


def _complain(message: str, hint: str) -> None:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    if hint:
        print(f"hint: {' '.join(hint.split())}", file=sys.stderr)


def _traced(debug: bool, code: int) -> int:
    if debug:
        traceback.print_exc()
    return code


if __name__ == "__main__":
    main()

"""What several commands share: how a call reaches one, and the flags that mean the same everywhere."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.system import disk


@dataclass(frozen=True)
class Call:
    """What a command is run with."""

    args: Namespace
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
        raise ConfigError(f"cannot write {str(output)!r}: {error.strerror}", "choose another --output") from error


def config_flag(parser: ArgumentParser) -> None:
    """--config."""
    parser.add_argument("--config", metavar="FILE.py[:arg]", help="the config; --config.a.b=VALUE changes one knob")


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
    parser.add_argument("--tokenizer", default="", metavar="PATH", help="the vocabulary of a model that has none")


def output_flag(parser: ArgumentParser, what: str) -> None:
    """--output of a folder."""
    parser.add_argument(
        "--output", type=lambda text: Path(given(text)), metavar="DIR", required=True, help=f"{what}; new, or empty"
    )

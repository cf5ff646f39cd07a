"""The parser of a command line: flags, and the parts of a command that have flags of their own."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import itertools
import re
import textwrap
from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from bert_jax.errors import ConfigError, suggest
from bert_jax.system import opening

PATHS = ("DIR", "FILE", "PATH", "RUN")  # what the help calls a value that is a path
WIDTH = 79  # columns of what argparse does not wrap itself


def option(
    default: Any, does: str | Mapping[str, str], metavar: str = "", choices: Sequence[str] = ()
) -> Any:
    """Declare a field of a dataclass of options that is a flag too: `cli.option_flags` adds it.

    Args:
      default: what the field has where the flag is not given.
      does: the help of the flag, or by part of the command the help that it has there.
      metavar: what the help calls the value; "" for a switch and for choices.
      choices: the values that there are.
    """
    metadata = {"does": does, "metavar": metavar, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Part:
    """A task, page or action of a command, as its --help shows it."""

    does: str  # in a line; an empty one is not shown
    example: str = ""  # what stands behind its name
    notes: str = ""  # such as the shapes of its input


class Parser(argparse.ArgumentParser):
    """An argument parser that raises our errors, suggests corrections and takes no abbreviation.

    A command may have parts, such as tasks, that its first positional argument names. A flag of
    some parts alone is shown in their --help, and refused with others.
    """

    def __init__(self, **settings: Any):
        self.parts: Mapping[str, Part] = {}
        # An argument that not all parts have -> its help in each of those that have it.
        self.owners: dict[argparse.Action, Mapping[str, str]] = {}
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings
        )
        # For --help alone: `execute` takes it out of the command line.
        debug = "show the traceback of an error"
        self.add_argument("--debug", action="store_true", default=SUPPRESS, help=debug)

    def add_parts(self, name: str, parts: Mapping[str, Part]) -> None:
        """Add the argument that names a part of the command."""
        self.parts = parts
        self.add_argument(name, metavar=name.upper(), choices=parts, help="one of those below")

    def add_for(self, helps: Mapping[str, str], *names: str, **settings: Any) -> None:
        """Add an argument of some parts: `helps` says what it does in each."""
        self.owners[self.add_argument(*names, **settings)] = helps

    def part_of(self, argv: list[str]) -> str:
        """Return the part that a command line names, before or behind flags; empty if none."""
        for before, word in itertools.pairwise(["", *argv]):
            flag = self._option_string_actions.get(before)
            if word in self.parts and (flag is None or flag.nargs == 0):
                return word
        return ""

    def narrow(self, part: str) -> None:
        """Make --help that of one part; of no part, what all parts share and a list of them."""
        for action in self._actions:
            if action in self.owners:
                action.help = self.owners[action].get(part, SUPPRESS)
            elif part and action.choices is self.parts:
                action.help = SUPPRESS
        if part:
            row = self.parts[part]
            self.prog = f"{self.prog} {part}"
            self.description = "\n\n".join(map(_wrapped, filter(None, (row.does, row.notes))))
            self.epilog = f"example:\n  {self.prog} {row.example}"
        elif self.parts:
            kind = next(str(a.metavar) for a in self._actions if a.choices is self.parts)
            title = f"{kind.lower()}s ({self.prog} {kind} --help: input, output and flags of one):"
            rows = [self._listed(name, row.does) for name, row in self.parts.items() if row.does]
            self.epilog = "\n".join([title, *rows, f"\n{self.epilog}"])

    def _listed(self, part: str, does: str) -> str:
        """Return what a part does, and the flags that not all parts have."""
        own = (action for action, parts in self.owners.items() if part in parts)
        flags = " ".join(action.option_strings[0] for action in own if action.option_strings)
        rows = _wrapped(f"{does}\n{flags}".rstrip(), WIDTH - 13)
        return f"  {part:10} {textwrap.indent(rows, ' ' * 13).lstrip()}"

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError, whose exit code is 2, like that of every other usage error."""
        hint = f"see {self.prog} --help"
        if message.startswith("unrecognized"):
            hint = f"words without a flag stand before all flags, and values hold no blanks: {hint}"
        raise ConfigError(message, hint)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is no choice, and suggest the nearest one."""
        if action.choices is not None and value not in action.choices:
            name = action.option_strings[0] if action.option_strings else action.metavar
            hidden = {name for name, row in self.parts.items() if not row.does}
            hint = suggest(str(value), [one for one in action.choices if one not in hidden])
            raise ConfigError(f"argument {name}: invalid choice: {value!r}", hint)

    def strict(self, argv: list[str]) -> argparse.Namespace:
        """Parse a command line; refuse an unknown flag first, with the nearest known one."""
        command, part = self.prog.removeprefix("bert-jax "), self.part_of(argv)
        self.narrow(part)
        name = f"{command} {part}".rstrip()
        every = self._option_string_actions
        owners = {flag: self.owners.get(every[flag], {part: ""}) for flag in every}
        known = sorted(flag for flag in every if not part or part in owners[flag])
        for flag in (word.partition("=")[0] for word in argv if word.startswith("--")):
            if flag in known:
                continue
            close = difflib.get_close_matches(flag, known, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else f"see {self.prog} --help"
            if flag in every:
                have = "have" if len(owners[flag]) > 1 else "has"
                hint = f"{command} {', '.join(owners[flag])} {have} it"
            elif "." in flag and "--config" in every:
                knob = re.sub(r"^--(no-?)?(config\.)?", "", flag)
                hint = f"knobs are set as --config.{knob}=VALUE; --noconfig.KNOB sets one to false"
            raise ConfigError(f"{name} has no flag {flag}", hint)
        args = self.parse_args(argv)
        for action in self._actions:
            if str(action.metavar).startswith(PATHS):
                value = getattr(args, action.dest, None)
                for path in value if isinstance(value, list) else [value]:
                    opening.local(path or "", (action.option_strings or [action.dest])[0])
        return args

    def check(self, part: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse options in Python, by the names of their flags, whose values the flags refuse."""
        for name, value in options.items():
            if value is None or value is False or value == "":
                continue
            flag = f"--{name.replace('_', '-')}"
            action = self._option_string_actions.get(flag)
            bare = value is True and action is not None and action.nargs == 0
            try:
                self.strict([*part, "--model=.", flag if bare else f"{flag}={value}"])
            except ConfigError as error:
                reason = str(error).removeprefix(f"argument {flag}: ")
                reason = reason.replace(f"flag {flag}", f"option {name!r}")
                raise ConfigError(f"{name} = {value!r}: {reason}", error.hint) from None


def _wrapped(text: str, width: int = WIDTH) -> str:
    """Break long lines, each below its own indentation."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        wrap = textwrap.TextWrapper(width, subsequent_indent=indent, break_on_hyphens=False)
        lines += wrap.wrap(line) or [""]
    return "\n".join(lines)

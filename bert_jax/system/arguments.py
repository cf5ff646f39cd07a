"""The parser of a command line: argparse with the project's errors; parts are subparsers.

A part is a task, page or action of a command.
"""

import argparse
import dataclasses
import difflib
import re
import textwrap
from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from bert_jax.errors import ConfigError, suggest
from bert_jax.system import opening

PATHS = ("DIR", "FILE", "PATH", "RUN")  # what the help calls a value that is a path
WIDTH = 79  # columns of what argparse does not wrap itself


def option(
    default: Any, does: str | Mapping[str, str], metavar: str = "", choices: Sequence[str] = ()
) -> Any:
    """Declare a field of a dataclass of options, for which `cli.add_option_flags` adds a flag.

    Args:
      default: the value of the field if the flag is not given.
      does: the help of the flag, or its help for each part of a command that has the flag.
      metavar: the name of the value in the help; "" for a switch and for choices.
      choices: the allowed values; () if they are not listed.
    """
    metadata = {"does": does, "metavar": metavar, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a command (a task, page or action), as its --help shows it."""

    does: str  # in a line; an empty one is not shown
    example: str = ""  # what stands behind its name
    notes: str = ""  # such as the shapes of its input


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ConfigErrors, suggests corrections and never abbreviates."""

    def __init__(self, **settings: Any):
        self.parts: dict[str, Parser] = {}
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings
        )
        # Only for --help: `cli.execute` takes it out of the command line.
        debug = "show the traceback of an error"
        self.add_argument("--debug", action="store_true", default=SUPPRESS, help=debug)

    def add_parts(self, name: str, parts: Mapping[str, Part]) -> None:
        """Add a subparser for each part of the command, such as its tasks."""
        group = self.add_subparsers(
            dest=name, metavar=name.upper(), required=True, parser_class=Parser, title=f"{name}s"
        )
        for part, row in parts.items():
            texts = [wrap(text) for text in (row.does, row.notes) if text]
            sub = group.add_parser(part, help=row.does, description="\n\n".join(texts))
            if not row.does:
                group._choices_actions.pop()  # the list in --help
            sub.epilog = f"example:\n  {sub.prog} {row.example}"
            self.parts[part] = sub

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an argument to the command, or to each of its parts if it has parts."""
        if not self.parts:
            return super().add_argument(*names, **settings)
        return [part.add_argument(*names, **settings) for part in self.parts.values()][-1]

    def add_for(self, helps: Mapping[str, str], *names: str, **settings: Any) -> None:
        """Add an argument to some parts of a command.

        `helps` has the help text for each of these parts. Other parts get the argument's default,
        without its flag.
        """
        for part, text in helps.items():
            action = self.parts[part].add_argument(*names, help=text, **settings)
        for part, sub in self.parts.items():
            if part not in helps and action.default is not SUPPRESS:
                sub.set_defaults(**{action.dest: action.default})

    def strict(self, argv: list[str]) -> argparse.Namespace:
        """Parse a command line; refuse an unknown flag, and suggest the nearest."""
        named = next((word for word in argv if not word.startswith("-")), "")
        chosen = self.parts.get(named, self)
        if chosen is not self or not self.parts:
            # Before argparse, which would first miss the flag that was meant.
            for word in argv:
                if word.startswith("--"):
                    self._check_flag(chosen, word.partition("=")[0])
        args, unknown = self.parse_known_args(argv)
        if unknown:
            chosen.error(f"unrecognized arguments: {' '.join(unknown)}")
        for action in chosen._actions:
            if str(action.metavar).startswith(PATHS):
                value = getattr(args, action.dest, None)
                for path in value if isinstance(value, list) else [value]:
                    opening.check_local(path or "", (action.option_strings or [action.dest])[0])
        return args

    def check(self, part: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse options of Python whose values the flags of the command would refuse.

        `options` is {option: value}, and `part` has the name of the part, if the command has parts.
        """
        known = (self.parts[part[0]] if part else self)._option_string_actions
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            if value is None or value is False or value == "":
                continue
            is_switch = value is True and flag in known and known[flag].nargs == 0
            try:
                self.strict([*part, "--model=.", flag if is_switch else f"{flag}={value}"])
            except ConfigError as error:
                reason = str(error).removeprefix(f"argument {flag}: ")
                reason = reason.replace(f"flag {flag}", f"option {name!r}")
                raise ConfigError(f"{name} = {value!r}: {reason}", error.hint) from None

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError in place of argparse's exit."""
        raise ConfigError(message, f"see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among the choices of an argument, and suggest the nearest."""
        if action.choices is not None and value not in action.choices:
            name = action.option_strings[0] if action.option_strings else action.metavar
            shown = [part for part in action.choices if part not in self.parts or self._shows(part)]
            raise ConfigError(
                f"argument {name}: invalid choice: {value!r}", suggest(str(value), shown)
            )

    def _shows(self, part: str) -> bool:
        return bool(self.parts[part].description)

    def _check_flag(self, chosen: "Parser", flag: str) -> None:
        """Refuse a flag that the chosen part of a command lacks."""
        known = chosen._option_string_actions
        if flag in known:
            return
        command = self.prog.removeprefix("bert-jax ")
        close = difflib.get_close_matches(flag, known, n=1, cutoff=0.7)
        owners = [name for name, part in self.parts.items() if flag in part._option_string_actions]
        if owners:
            hint = f"{command} {', '.join(owners)} {'have' if len(owners) > 1 else 'has'} it"
        elif "." in flag and "--config" in known:
            knob = re.sub(r"^--(no-?)?(config\.)?", "", flag)
            hint = f"knobs are set as --config.{knob}=VALUE; --noconfig.KNOB sets one to false"
        else:
            hint = f"did you mean {close[0]}?" if close else f"see {chosen.prog} --help"
        raise ConfigError(f"{chosen.prog.removeprefix('bert-jax ')} has no flag {flag}", hint)


def wrap(text: str) -> str:
    """Break long lines; each part keeps the indentation of its line."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        wrap = textwrap.TextWrapper(WIDTH, subsequent_indent=indent, break_on_hyphens=False)
        lines += wrap.wrap(line) or [""]
    return "\n".join(lines)

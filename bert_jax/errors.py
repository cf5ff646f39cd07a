"""Errors a user can act on: one line of what, where and which values, one hint, one exit code."""


class UserError(Exception):
    """Base of every expected failure; `cli.main` prints it as two lines and exits with `code`."""

    code = 2

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


class ConfigError(UserError):
    """A flag, config or workdir that cannot be used."""

    code = 2


class HeadError(ConfigError):
    """A model without the head, or with other classes, than what it is asked."""


class DataError(UserError):
    """A corpus, task file or row that cannot be used."""

    code = 3


class MissingError(DataError):
    """Data that is not there, as opposed to data that is broken."""


class CheckpointError(UserError):
    """A checkpoint that cannot be written, read or trusted."""

    code = 4


class DivergedError(UserError):
    """Training produced numbers that must not be trained on any further."""

    code = 5


class Stopped(UserError):
    """The work was interrupted with everything saved: the same command continues it."""

    code = 75


class IncompleteError(UserError):
    """Work of which a part failed; the rest is done."""

    code = 1

"""The errors that users can fix: one root, each class with its exit status.

An error that only one package raises is defined there, below PlaitError: its message is for
users, and is printed without a traceback. Any other exception is a defect of plait, and is
shown with its traceback. Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class PlaitError(Exception):
    """A failure that users can fix: the message says what is wrong and what is valid.

    Examples:
        >>> try:
        ...     plait.open_run("runs/quickstart").answer("SA-0001", "anole", repeat=2)
        ... except plait.PlaitError as error:
        ...     print(error, error.exit_status)
        repeat 2 is not from 1 to 1 2
    """

    exit_status: ClassVar[int] = 1
    """Exit status of the command line: 2 for wrong use, 1 for what stopped a run."""
    tables: Sequence[Any] = ()
    """What is shown before the message: of `plait.benchmarks.results.table`."""


class PlaitWarning(UserWarning):
    """What users should know of results that they read all the same."""


class UsageError(PlaitError, ValueError):
    """Something the user named does not exist or is not allowed.

    Examples:
        >>> try:
        ...     plait.system("anloe")
        ... except plait.UsageError as error:
        ...     print(error)
        unknown system 'anloe'; did you mean 'anole'? ...
    """

    exit_status = 2


class MissingInput(UsageError):
    """A file, folder or module that the user named is not there."""


class UnknownName(UsageError):
    """A name that is not one of the valid ones."""

    def __init__(self, message: str, valid: tuple[str, ...]) -> None:
        super().__init__(message)
        self.valid = valid


class CheckpointError(PlaitError, ValueError):
    """The weights a user named cannot be found, pinned or read."""

    exit_status = 2


class WriteError(PlaitError, OSError):
    """A file cannot be written; the message names the folder and the cause."""

    def __str__(self) -> str:
        return str(self.strerror)

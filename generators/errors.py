"""The errors that users can fix: one root, each class with its exit status.

* PlaitError                a message for users, printed without a traceback
  * UsageError              2: something named does not exist or is not allowed
    * UnknownName           2: a name that is not one of the valid ones
  * CheckpointError         2: weights that cannot be found, pinned or read
  * AttentionError          2: an attention kernel that cannot run here
  * TaskError               2: a task set that cannot be read
  * RunInUse                2: another process works on the run directory
  * PictureError            1: bytes that cannot be read as a picture
    * BombError             1: a picture of too many pixels
  * WriteError              1: a file that cannot be written
  * StoreError              1: results that cannot be written or read
    * DamagedPart           1: a part whose bytes have changed
  * ClusterError            1: a Ray cluster that cannot be reached or used
  * EndpointError           1: an endpoint that cannot be used
  * ServerError             1: a server that plait starts and that cannot be used
  * NoDocument              1: a system that was called from Python and gave no answer
  * ServingError            1: a model that was to be served and cannot be loaded
  * NoReference           1: the way that others are compared with cannot be run

An error that only one package raises is defined there. Any other exception is a defect
of plait, and is shown with its traceback. Standard library only.
"""

from __future__ import annotations

from typing import ClassVar


class PlaitError(Exception):
    """A failure that users can fix: the message says what is wrong and what is valid."""

    exit_status: ClassVar[int] = 1
    """Exit status of the command line: 2 for wrong use, 1 for what stopped a run."""


class UsageError(PlaitError, ValueError):
    """Something the user named does not exist or is not allowed."""

    exit_status = 2


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

"""Pictures that come inside a file, put on disk once so that every worker reads them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tasks.reading.rules import RowError, Rule, TaskError
from generators.document import Image
from generators.errors import WriteError
from generators.files import write_whole
from generators.pictures import BombError, PictureError, decode


@dataclass(frozen=True, slots=True)
class Shelf:
    """A folder that holds pictures under the SHA-256 of their bytes."""

    folder: Path

    def keep(self, data: bytes) -> Image:
        """The picture, known by its place; RowError for bytes that are no picture.

        What stands on the shelf has been decoded before and is not decoded again. Raises
        TaskError where the folder cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / digest[:2] / digest
        if not path.is_file():
            _refuse_unreadable(data)
            _write(path, data)
        return Image(digest, place=str(path))


def _refuse_unreadable(data: bytes) -> None:
    try:
        decode(data)
    except BombError as error:
        raise RowError(Rule.BOMB, str(error)) from None
    except PictureError as error:
        raise RowError(Rule.UNDECODABLE, str(error)) from None


def _write(path: Path, data: bytes) -> None:
    try:
        # What a crash of the machine takes is read from its source again.
        write_whole(path, data, durable=False)
    except WriteError as error:
        raise TaskError(
            f"pictures cannot be kept: {error}; set XDG_CACHE_HOME to a folder with room"
        ) from error

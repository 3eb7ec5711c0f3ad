"""Whose wording judges are given, and whether the released program is followed exactly.

parse_rubric("own")                  # this project's wording
parse_rubric("official:MMIE/")       # the user's copy of a released program's prompts
parse_mode("official")               # that program's layout, limits and reader, as they are
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from generators.errors import UsageError
from generators.files import write_whole
from generators.names import unknown

Mode = Literal["corrected", "official"]
"""`official`: layout, constants and quirks of a released program; `corrected`: ours."""
MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT_MODE: Mode = "corrected"

OWN = "own"
OFFICIAL = "official:"
"""Prefix of a rubric before the path of a released program's prompts."""
PROMPTS = "prompts.py"
"""MMIE's file of prompts, and the name of a run's own copy of it."""


@dataclass(frozen=True, slots=True)
class RubricSource:
    """Where a judge's wording comes from; written as `own` or `official:PATH`."""

    path: Path | None = None
    """The released prompts, or the folder that holds them; None for our wording."""

    def __str__(self) -> str:
        return OWN if self.path is None else f"{OFFICIAL}{self.path}"

    @property
    def absolute(self) -> RubricSource:
        """The same source, named so that it means the same in any working directory."""
        if self.path is None:
            return self
        return RubricSource(self.path.expanduser().resolve())

    def file(self, inside: str = PROMPTS) -> Path | None:
        """The file of prompts: `path`, or `inside` in it where it is a folder."""
        if self.path is None:
            return None
        path = self.path.expanduser()
        return path / inside if path.is_dir() else path

    def keep(self, folder: Path) -> None:
        """Copy the released prompts into `folder`, unless they are there already.

        Records are found by what was asked, so a run cannot be read without the texts it
        was judged by. All files that pass for the released one hold the same texts.
        """
        copy, file = folder / PROMPTS, self.file()
        if file is not None and not copy.exists():
            write_whole(copy, file.read_bytes())

    def or_copy_in(self, folder: Path) -> RubricSource:
        """This source, or the copy kept in `folder` where the user's file is gone."""
        copy, file = folder / PROMPTS, self.file()
        gone = file is not None and not file.is_file() and copy.is_file()
        return replace(self, path=copy) if gone else self


OWN_WORDING = RubricSource()
"""This project's own rubrics."""


def parse_rubric(text: str | None) -> RubricSource:
    """The source that `text` names; our wording for None.

    Raises UsageError for anything but `own` and `official:PATH`. The file is not read.
    """
    if text is None or text == OWN:
        return OWN_WORDING
    if not text.startswith(OFFICIAL):
        raise UsageError(
            f"rubric {text!r} is not valid; a rubric is 'own' or 'official:PATH'"
        )
    path = text.removeprefix(OFFICIAL)
    if not path.strip():
        raise UsageError(
            f"rubric {text!r} is not valid: 'official:' must be followed by the path "
            "of the released prompts"
        )
    return RubricSource(Path(path))


def parse_mode(text: str | None) -> Mode:
    """The mode that `text` names, `corrected` for None; UsageError for any other text."""
    if text is None:
        return DEFAULT_MODE
    for mode in MODES:
        if text == mode:
            return mode
    raise unknown("mode", text, MODES)

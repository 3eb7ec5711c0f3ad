"""The released rubrics of a run, kept beside its records.

Records are found by what was asked, so a run cannot be read without the texts it was
judged by. All files that pass for the released one hold the same texts.
"""

from __future__ import annotations

from benchmarks.runs.config import RunConfig
from generators.files import write_whole
from scorers.judging.published import FILE, published_file
from scorers.judging.settings import OFFICIAL


def keep_rubrics(config: RunConfig) -> None:
    """Copy the user's file with the released rubrics into the run directory."""
    for rubric in config.rubrics:
        kept = config.root / FILE
        if rubric.startswith(OFFICIAL) and not kept.exists():
            text = published_file(rubric.removeprefix(OFFICIAL)).read_bytes()
            write_whole(kept, text)


def with_kept_rubrics(config: RunConfig) -> RunConfig:
    """The run's own copy wherever the user's file is no longer there."""
    kept = config.root / FILE

    def found(rubric: str) -> str:
        gone = (
            rubric.startswith(OFFICIAL)
            and not published_file(rubric.removeprefix(OFFICIAL)).is_file()
        )
        return f"{OFFICIAL}{kept}" if gone and kept.is_file() else rubric

    return config.with_rubrics(found)

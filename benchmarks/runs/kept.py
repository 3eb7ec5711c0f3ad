"""The released rubrics of a run, kept beside its records."""

from __future__ import annotations

from benchmarks.runs.config import RunConfig
from generators.files import write_whole


def keep_rubrics(config: RunConfig) -> None:
    """Copy the user's file with the released rubrics into the run directory."""
    for rubric in config.rubrics:
        rubric.keep(config.root, write_whole)


def with_kept_rubrics(config: RunConfig) -> RunConfig:
    """The run's own copy wherever the user's file is no longer there."""
    return config.with_rubrics(lambda rubric: rubric.or_copy_in(config.root))

"""What is written first: one pairing after another, each with texts of its own.

    python -m benchmarks.speed.small_jobs.naive DATA OUT

Every pairing loads its two models and asks the LVLM again, as a program does that knows one
LVLM and one text-to-image model and is called for each of the 16 pairings. Unlike that, it
imports the libraries once. CLIP is loaded once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.speed.small_jobs import job
from benchmarks.speed.small_jobs.answers import JobFolder, candidate, text_of, value_of
from benchmarks.tasks.task_set import TaskSet
from cluster.local import load_stage
from generators.base import Result


def main(data: Path, out: Path) -> None:
    """Answer the queries in `data` with every pairing, and score the answers."""
    task, folder = job.task_of(data), JobFolder(out)
    judge = load_stage(job.scorer())
    texts: dict[tuple[str, str], str] = {}
    for writer in job.WRITERS:
        for artist in job.ARTISTS:
            answer(writer, artist, judge, task, folder, texts)
    folder.save(texts)


def answer(
    writer: str,
    artist: str,
    judge: Any,
    task: TaskSet,
    folder: JobFolder,
    texts: dict[tuple[str, str], str],
) -> None:
    """Write, draw and score every query with one pairing."""
    write, paint = load_stage(job.writer(writer)), load_stage(job.artist(artist))
    for sample in job.samples_of(task):
        text = text_of(write([job.question(task, sample)])[0])
        if text is None:
            continue
        texts[writer, sample.id] = text
        if not sample.wants_images:
            continue
        drawn = paint([job.picture_request(task, sample, text)])[0]
        if isinstance(drawn, Result):
            picture = folder.save_picture(drawn.value, writer, artist, sample.id)
            judged = judge([candidate(text, picture)])[0]
            folder.save_score(value_of(judged), writer, artist, sample.id)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

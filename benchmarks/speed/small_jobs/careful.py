"""What a careful researcher would write: one model after another, each asked once.

    python -m benchmarks.speed.small_jobs.careful DATA OUT

Texts are kept and given to every text-to-image model. One query at a time, one process,
no Ray and no store. The models are plait's own stages: they run transformers, diffusers and
open_clip, at batch 1 as fast as a loop over these libraries does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.speed.small_jobs import job
from benchmarks.speed.small_jobs.answers import JobFolder, candidate, text_of, value_of
from benchmarks.tasks.task_set import TaskSet
from cluster.local import load_stage
from generators.base import Result
from generators.document import Image, Sample

Texts = Mapping[tuple[str, str], str]
Pictures = dict[tuple[str, str, str], Image]


def main(data: Path, out: Path) -> None:
    """Answer the queries in `data` with every pairing, and score the answers."""
    task, folder = job.task_of(data), JobFolder(out)
    samples = job.samples_of(task)
    texts = {
        (name, sample.id): text
        for name in job.WRITERS
        for sample, text in written(name, task, samples)
    }
    pictures: Pictures = {}
    for name in job.ARTISTS:
        draw(name, task, samples, texts, folder, pictures)
    score(texts, pictures, folder)
    folder.save(texts)


def written(
    name: str, task: TaskSet, samples: Iterable[Sample]
) -> Iterable[tuple[Sample, str]]:
    """One LVLM's text for every query that it can take."""
    write = load_stage(job.writer(name))
    for sample in samples:
        text = text_of(write([job.question(task, sample)])[0])
        if text is not None:
            yield sample, text


def draw(
    name: str,
    task: TaskSet,
    samples: Iterable[Sample],
    texts: Texts,
    folder: JobFolder,
    pictures: Pictures,
) -> None:
    """One text-to-image model's picture of every text whose query asks for pictures."""
    paint = load_stage(job.artist(name))
    for sample in samples:
        for writer in job.WRITERS:
            text = texts.get((writer, sample.id))
            if text is None or not sample.wants_images:
                continue
            drawn = paint([job.picture_request(task, sample, text)])[0]
            if isinstance(drawn, Result):
                names = (writer, name, sample.id)
                pictures[names] = folder.save_picture(drawn.value, *names)


def score(texts: Texts, pictures: Pictures, folder: JobFolder) -> None:
    """CLIPScore of every text with its picture."""
    judge = load_stage(job.scorer())
    for (writer, artist, query), picture in pictures.items():
        judged = judge([candidate(texts[writer, query], picture)])[0]
        folder.save_score(value_of(judged), writer, artist, query)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

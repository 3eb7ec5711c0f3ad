"""The job: every LVLM with every text-to-image model on N queries, scored by CLIPScore."""

from __future__ import annotations

import json
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.tasks.mmie.reader import SAMPLE
from benchmarks.tasks.task_set import TaskSet, load
from cluster.local import at_hand
from generators.base import StageSpec
from generators.document import ImageRequest, Request, Sample, with_blobs
from generators.system import Repetition
from pipelines.systems import Models, artist_spec, writer_spec
from scorers.clipscore import clipscore

WRITERS = (
    "qwen2-vl-72b",
    "qwen2-vl-7b",
    "llava-34b",
    "hf:llava-hf/llava-v1.6-34b-hf",
)
"""Every LVLM with tiny weights; the last reads queries with several pictures, too."""
ARTISTS = ("openjourney", "sd3", "sdxl", "flux")
"""Those of the MMIE paper's Table 2."""
_MODELS = Models(weights="tiny")


def write_queries(folder: Path, queries: int) -> Path:
    """Write `queries` queries of the sample set in MMIE's format; the folder.

    Beyond the 40 of the set they are worded anew by their number, so that no two are equal.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = json.loads((SAMPLE / "data.json").read_text())
    numbered = [_numbered(row, i) for i, row in enumerate(islice(cycle(rows), queries))]
    (folder / "images").symlink_to(SAMPLE / "images", target_is_directory=True)
    (folder / "data.json").write_text(json.dumps(numbered))
    return folder


def _numbered(row: dict[str, Any], number: int) -> dict[str, Any]:
    human, *others = row["conversations"]
    first, *rest = human["content"]
    first = {**first, "text": f"Query {number + 1}. {first['text'] or ''}"}
    asked = {**human, "content": [first, *rest]}
    id = f"{row['id']}-{number + 1}"
    return {**row, "id": id, "conversations": [asked, *others]}


def task_of(folder: Path) -> TaskSet:
    """The queries of a folder that `write_queries` has written."""
    return load(str(folder))


def samples_of(task: TaskSet) -> list[Sample]:
    """Its queries as samples."""
    return [sample for sample in task.samples if isinstance(sample, Sample)]


def systems() -> tuple[str, ...]:
    """The names of all pairings for `plait run`."""
    return tuple(f"{writer}+{artist}" for writer in WRITERS for artist in ARTISTS)


def writer(name: str) -> StageSpec:
    """The stage of an LVLM."""
    return writer_spec(name, _MODELS)


def artist(name: str) -> StageSpec:
    """The stage of a text-to-image model."""
    return artist_spec(name, _MODELS)


def scorer() -> StageSpec:
    """The stage of CLIPScore."""
    return clipscore("tiny", {}).stage


def question(task: TaskSet, sample: Sample) -> Request:
    """What an LVLM is asked, in MMIE's words for models that write text alone."""
    return with_blobs(Request(task.prompt(sample, "text")), at_hand)


def picture_request(task: TaskSet, sample: Sample, text: str) -> ImageRequest:
    """MMIE's protocol: one picture, whose prompt is the whole text."""
    seed = Repetition(task.prompt).seed_at(sample, 0)
    return ImageRequest(prompt=text.strip(), seed=seed)

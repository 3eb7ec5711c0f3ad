"""A run of a user's own system, which fails on some queries, filled without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image as Pillow

from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.experiment import Experiment, open_experiment
from plait.benchmarks.tasks.published import as_asked
from plait.benchmarks.tasks.task_set import TaskSet
from plait.cluster.local import LocalStages
from plait.cluster.manifest import write_json
from plait.cluster.records import Item, encode
from plait.cluster.run import MANIFEST
from plait.cluster.store import Store
from plait.cluster.walks import drive, together
from plait.generators.base import Failure, Fault, Job, Kind, Outcome, Result, Skip
from plait.generators.document import (
    Candidate,
    Document,
    Draft,
    Query,
    Request,
    Score,
    Text,
    Turn,
)
from plait.generators.images import encode as as_png

COLOURS = {"red": (250, 10, 10), "blue": (10, 10, 250)}
SYSTEM = "api_helpers:Illustrator"
SCORER = "api_helpers:PictureCount"
TEXTS = {
    "Q-1": "Tell <b>all</b> & show & tell",
    "Q-2": "please !skip this",
    "Q-3": "please !refuse this",
    "Q-4": "please write !plain text",
}


def flat(colour: str, side: int = 400) -> Pillow.Image:
    return Pillow.new("RGB", (side, side), COLOURS[colour])


def colour_of(picture: Pillow.Image) -> str:
    """The colour of COLOURS that the image is nearest to."""
    pixel = picture.getpixel((5, 5))
    assert isinstance(pixel, tuple)
    near = {
        n: sum(abs(a - b) for a, b in zip(c, pixel, strict=True))
        for n, c in COLOURS.items()
    }
    return min(near, key=lambda name: near[name])


def queries() -> TaskSet:
    samples = tuple(
        Query(
            id=id,
            category="SA" if id < "Q-3" else "PBL",
            field="Art",
            turns=(Turn("user", (Text(text), as_png(flat("blue")))),),
            reference=Document((Text("the truth"),)),
        )
        for id, text in TEXTS.items()
    )
    return TaskSet(
        name="mine",
        samples=samples,
        prompt=as_asked,
        categories={},
        fields=("Art",),
        about={"digest": "1"},
    )


class Illustrator:
    """Answers with text, a red image, text and a blue one, where it answers."""

    kind = "draft"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._draft(request) for request in inputs]

    def _draft(self, request: Request) -> Outcome[Draft]:
        content = request.turns[-1].content
        text = " ".join(s.text for s in content if isinstance(s, Text))
        if "!skip" in text:
            return Skip("takes no <such> query")
        if "!refuse" in text:
            return Failure("the model refused", Fault.REFUSED)
        if "!plain" in text:
            return Result(Draft((Text("no picture"),)))
        parts = (Text("<i>first</i>\nthen"), as_png(flat("red")))
        parts += (Text(f"{text}; last, {len(request.images)}"), as_png(flat("blue")))
        return Result(Draft(parts), {"tokens": 1}, {"prompt": text})


class Terse(Illustrator):
    """Answers every query with one red image."""

    def _draft(self, request: Request) -> Outcome[Draft]:
        return Result(Draft((as_png(flat("red")),)))


class PictureCount:
    """Images of an answer; one without any is a failure of the scorer."""

    kind = "score"
    scale = "0-9"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        return [self._score(len(c.document.images)) for c in inputs]

    def _score(self, count: int) -> Outcome[Score]:
        return Result(Score(count)) if count else Failure("nothing to count", Fault.ERROR)


def fill(root: Path, *kinds: Kind, **options: Any) -> Experiment:
    """A run directory with all records (or those of these kinds), made in this process."""
    experiment = open_experiment(load_config(None, {"out": root, **options}))
    store, stages = Store(root), LocalStages()

    def answering(jobs: Sequence[Job]) -> list[Outcome[Any]]:
        outcomes = stages.outcomes(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.spec.kind in (kinds or Kind):
                item = Item(job.key, job.label, job.input)
                store.commit(job.spec, encode(job.spec.kind, [item], [outcome], 0.0))
        return outcomes

    drive(together(list(experiment.plan.walks())), answering)
    write_json(root / MANIFEST, experiment.about())
    return experiment


OWN = {
    "data": "api_helpers:queries",
    "systems": [SYSTEM, "gt"],
    "scorers": [SCORER],
    "weights": "tiny",
}

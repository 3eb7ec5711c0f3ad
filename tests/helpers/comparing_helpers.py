"""Writers and judges without models, and small copies of the benchmarks' own formats."""

from __future__ import annotations

import base64
import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from picture_helpers import flat
from stages import Constant

from plait.generators.base import Failure, Fault, Outcome, Placement, Result, Skip, Unscored
from plait.generators.document import Candidate, Draft, ImageRequest, Request, Score, Text
from plait.generators.images import Drawing

LIGHT = Placement(num_cpus=0.1, batch_size=4)
MUTE = "I would rather not say."


def text_of(request: Request) -> str:
    return " ".join(s.text for t in request.turns for s in t.content if isinstance(s, Text))


class Writer:
    """Repeats the question so often."""

    kind = "draft"
    placement = LIGHT
    times = 1

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._answer(text_of(r)) for r in inputs]

    def _answer(self, text: str) -> Outcome[Draft]:
        if "!silent" in text:
            return Failure("said nothing", Fault.REFUSED)
        return said("word " * self.times + f"to {text}")


class Counting(Writer):
    """Counts its tokens."""

    def _answer(self, text: str) -> Outcome[Draft]:
        outcome = super()._answer(text)
        if isinstance(outcome, Result):
            outcome = replace(outcome, usage={"output_tokens": 3})
        return outcome


class Picky(Counting):
    """Takes one image only."""

    times = 4

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        one = Skip("takes one image only")
        return [one if r.images[1:] else self._answer(text_of(r)) for r in inputs]


class Terse(Writer):
    times = 2


class Wordy(Writer):
    times = 30


class Middling(Writer):
    times = 8


def said(text: str) -> Outcome[Draft]:
    return Result(Draft((Text(text),)))


class Longest(Writer):
    """Prefers the longer answer, much so if twice as long.

    `!first` in a question makes it prefer what is shown first, `!mute` say nothing that
    can be read, `!refuse` fail.
    """

    seeded = False

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._verdict(r) for r in inputs]

    def _verdict(self, request: Request) -> Outcome[Draft]:
        text = text_of(request)
        if "!refuse" in text:
            return Failure("will not judge", Fault.REFUSED)
        if "Visual Factuality Score" in text:
            scores = "Response A Visual Factuality Score: 8/10\n"
            return said(scores + "Response B Visual Factuality Score: 6/10")
        if "!mute" in text:
            return said(MUTE)
        return said(f"Final Verdict is: [[{self.preferred(text, request)}]]")

    def preferred(self, text: str, request: Request) -> str:
        if "!first" in text:
            return "A>B"
        a, b = re.split(r"# Answer [AB]\n|# Your verdict", text)[1:3]
        sizes = len(a.split()), len(b.split())
        if sizes[0] == sizes[1]:
            return "A=B"
        much = ">>" if max(sizes) > 2 * min(sizes) else ">"
        return f"A{much}B" if sizes[0] > sizes[1] else f"B{much}A"


class Firstborn(Longest):
    """Prefers what is shown first, in the words of every protocol."""

    def _verdict(self, request: Request) -> Outcome[Draft]:
        return said('{"better_response": "A"}\nFinal Verdict is: [[A>B]]\nAnswer1')


class Mute(Longest):
    """Says nothing that can be read, about whatever pair."""

    def _verdict(self, request: Request) -> Outcome[Draft]:
        return said(MUTE)


class Unloadable(Longest):
    """A judge whose model is not to be had."""

    def __init__(self, **_: Any) -> None:
        raise OSError("no weights here")


class Moody(Longest):
    """Says one or the other by the seed alone."""

    seeded = True

    def preferred(self, text: str, request: Request) -> str:
        return "A>B" if (request.seed or 0) % 2 else "A=B"


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def creation_row(index: int, **about: str) -> dict[str, str]:
    row = {
        "index": str(index),
        "question": f"request {index}",
        "image": base64_of(flat()),
        "image_path": f"{index}.png",
        "task_name": "story_continue" if index % 2 else "meme_explanation",
        "criteria": repr({"Subjective": "vivid", "Visual factuality": "a red square"}),
        "reference_answer_by_gpt4o": f"a published answer to {index}",
        "ground_truth": "",
    }
    return row | about


def write_tsv(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        table.writeheader()
        table.writerows(rows)
    return path


def mllm_row(id: Any, **about: Any) -> dict[str, Any]:
    meta = {
        "level": "Applying",
        "capability": "OCR",
        "url": "https://example.org/1.jpg",
        "question type": "close-ended",
    }
    row = {"id": id, "image_path": f"./data/images/{id}.png", "question": f"what is {id}?"}
    return row | {"meta": meta} | about


def write_mllm(root: Path, rows: Sequence[Any], answers: Mapping[str, Any]) -> Path:
    (root / "data" / "images").mkdir(parents=True)
    (root / "data" / "questions.json").write_text(json.dumps(list(rows)))
    for name, content in answers.items():
        (root / "data" / name).write_text(json.dumps(content))
    for row in rows:
        if isinstance(row, dict) and "nowhere" not in str(row.get("image_path")):
            (root / "data" / "images" / f"{row.get('id')}.png").write_bytes(flat())
    return root


def probench_row(uuid: str, *said: str, **about: Any) -> dict[str, Any]:
    turns = [{"from": "gpt" if i % 2 else "human", "value": v} for i, v in enumerate(said)]
    return {
        "uuid": uuid,
        "image": {"bytes": flat(), "path": None},
        "chat_type": "multi-round" if len(said) > 2 else "singleround",
        "conversations": turns,
        "challenge": {"challenge_image": "HARD", "challenge_reasoning": "EASY"},
        "category": {"image_category": "Photographs", "question_category": "Coding"},
        "language": "en",
    } | about


def mmrb2_pair(id: str, **about: Any) -> dict[str, Any]:
    """A pair as the interleaved split has them; answer B has three words more than A."""
    sides = {
        f"response_{side}": {
            "model_name": f"model-{side}",
            "response_content": [
                ["text", f"{side} on {id}{more}"],
                ["image", f"images/{side}.png"],
            ],
        }
        for side, more in (("a", ""), ("b", " and much more"))
    }
    question = [["text", f"What is {id}?"], ["image", "input_images/q.png"]]
    pair = {"id": id, "prompt_source": "isgbench", "prompt_content": question}
    return {**pair, **sides, "chosen": "A", "human_annotations": [6, 5, 6], **about}


def write_mmrb2(root: Path, splits: Mapping[str, Sequence[Any]]) -> Path:
    for name, colour in (("images/a", "red"), ("images/b", "blue"), ("input_images/q", "")):
        path = root / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(flat(colour) if colour else flat())
    for split, pairs in splits.items():
        (root / f"{split}.json").write_text(json.dumps({"pairs": list(pairs)}))
    return root


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


class Grader(Writer):
    """Scores an answer by how often it says `good`; one more under an odd seed."""

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._graded(r) for r in inputs]

    def _graded(self, request: Request) -> Outcome[Draft]:
        asked = text_of(request)
        harsh = "Method." in asked or "Story." in asked
        score = asked.count("good") + (request.seed or 0) % 2 - harsh
        return said(f"### Score\n{max(score, 0)}")


class Shy(Grader):
    """Scores a good answer only when asked for its score again."""

    def _graded(self, request: Request) -> Outcome[Draft]:
        if len(request.turns) == 1 and "good and good" in text_of(request):
            return said(MUTE)
        return super()._graded(request)


class Pictures(Constant):
    """Counts the images of an answer, on the scale of people."""

    scale = "0-6"


class Brief(Constant):
    """Counts the words of an answer, the fewer the better; none of one that is `!mute`."""

    scale, direction = "0-100", "lower"

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        texts = [c.document.text for c in inputs]
        return [
            Unscored("mute") if "!mute" in t else Result(Score(float(len(t.split()))))
            for t in texts
        ]


class Square:
    """A T2I model of which a setting changes the images."""

    kind = "render"

    def __init__(self, weights: Any = None, shade: int = 0) -> None:
        self.shade = shade

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        return [Result(Drawing(np.full((16, 16, 3), self.shade, np.uint8))) for _ in inputs]


class Painter(Square):
    """Another one."""

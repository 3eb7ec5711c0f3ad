"""GEdit's and ImgEdit's layouts with crafted data, and what their programs made of them.

`UPSTREAM` holds what the functions of stepfun-ai/Step1X-Edit@570eba6 and
PKU-YuanGroup/ImgEdit@547185d read and counted there: recorded once, by running them. A
reply at which the first program asks again or ends in an error has null there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from paths import DATA
from picture_helpers import flat

from plait.scorers.judging.gedit import GeditWording
from plait.scorers.judging.imgedit import ASPECTS
from plait.scorers.judging.summaries import GEDIT_GROUPS, GEDIT_LANGUAGES

FILE = DATA / "editing_upstream.json"
UPSTREAM: Mapping[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}

GEDIT_PROMPTS = GeditWording("Edit? <instruction>", "Natural?")
"""Stand-ins of the released texts."""
IMGEDIT_PROMPTS = {kind: f"Grade {kind}: <edit_prompt>." for kind in ASPECTS}

BOTH = '{"score": [8, 9], "reasoning": "Good."}'
GEDIT_REPLIES: Sequence[str] = (
    BOTH,
    '{"score": [3, 10], "reasoning": "Half."}',
    '{"score": [0, 7], "reasoning": "No."}',
    '||V^=^V||\n{"score": [5, 6],\n"reasoning": "So."}\n||V^=^V||',
    f"```json\n{BOTH}\n```",
    f"Here you are: {BOTH} That is all.",
    '{"score": 7, "reasoning": "One."}',
    '{"score": [7.5, 9], "reasoning": "Half."}',
    '{"score": [12, 14], "reasoning": "Beyond."}',
    '{"score": [-1, 5], "reasoning": "Below."}',
    '{"score": [8, 9, 2], "reasoning": "Three."}',
    '{"score": ["8", "9"], "reasoning": "Texts."}',
    '{"score": [], "reasoning": "None."}',
    '{"score": null}',
    '{"score": {"editing": 8, "overediting": 9}}',
    '{"score": [[8], [9]]}',
    '{"scores": [8, 9], "reasoning": "Another key."}',
    "{'score': [8, 9], 'reasoning': 'Python.'}",
    "{score: 8, reasoning: fine}",
    '{"score": 8, reasoning: fine}',
    '{"score": [8, 9], "reasoning": "It says "hi"."}',
    '{"score": 8 "reasoning": "No comma."}',
    '{"score": [8, 9]',
    "[8, 9]",
    "The scores are [8, 9].",
    "[8,9]",
    "[8.5, 9]",
    "[8, 9, 7]",
    "8",
    " 8 ",
    "11",
    "8/10",
    "score: 8",
    "I cannot judge this image.",
    "",
    "rate_limit_exceeded",
    "false",
    "{}",
    "} {",
    '{"score": [NaN, 9]}',
    "||V^=^V||||V^=^V||",
    "||V^=^V||5||V^=^V||",
    f"{BOTH}\n{BOTH}",
)
"""Of every kind."""


class Edited(NamedTuple):
    """A crafted request."""

    language: str
    kind: str
    key: str
    is_shared: bool
    """Whether it is in the intersection."""
    reply: str
    """What is said of its consistency."""

    @property
    def instruction(self) -> str:
        return f"Change {self.kind} {self.key} ({self.language})."


def gedit_rows(each: int = 3) -> Iterator[Edited]:
    """So many of each type and language, of which the first are in the intersection."""
    number = 0
    for language in GEDIT_LANGUAGES:
        for kind in GEDIT_GROUPS:
            for i in range(each):
                reply = GEDIT_REPLIES[number % len(GEDIT_REPLIES)] if i else BOTH
                yield Edited(language, kind, f"k{number}", i < each - 1, reply)
                number += 1


QUALITY = '{"score": [6, 7], "reasoning": "Fine."}'
"""What is said of the quality of every edit."""
LOST = "ps_human"
"""The type of which the model `poor` has no image."""


def gedit_row(edited: Edited) -> dict[str, Any]:
    image = {"bytes": flat("red", (16, 12)), "path": None}
    return {
        "task_type": edited.kind,
        "key": edited.key,
        "instruction": edited.instruction,
        "instruction_language": edited.language,
        "input_image": image,
        "input_image_raw": image,
        "Intersection_exist": edited.is_shared,
    }


def write_gedit(root: Path) -> Path:
    """Write the data set, and the answers of two models."""
    root.mkdir(parents=True, exist_ok=True)
    edits = [*gedit_rows()]
    table = pa.Table.from_pylist([gedit_row(one) for one in edits])
    pq.write_table(table, root / "train-00000.parquet")
    for one in edits:
        for model in ("rich", "poor"):
            if model == "poor" and one.kind == LOST:
                continue
            folder = root / "results" / model / "fullset" / one.kind / one.language
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{one.key}.png").write_bytes(flat("blue", (9, 9)))
    return root


IMGEDIT_REPLIES: Sequence[str] = (
    "Brief reasoning: Fine.\n{0}: 5\n{1}: 4\n{2}: 3",
    "Brief reasoning: Low.\n{0}: 1\n{1}: 5\n{2}: 5",
    "{0}: 2\n{1}: 2\n{2}: 3\nTotal: 12",
    "{0}: 4.\n{1}: 4\n{2}: 3",
    "{0}: 4/5\n{1}: 4/5\n{2}: 3/5",
    "**{0}:** 4\n**{1}:** 4\n**{2}:** 3",
    "{0}:4\n{1}:4\n{2}:3",
    "{0}: 45\n{1}: 4\n{2}: 3",
    "1. {0}: 4\n2. {1}: 4\n3. {2}: 3",
    "  {0}: 4  \n{1}: 4\n{2}: 3",
    "{0}: 4\n{0}: 2\n{1}: 4\n{2}: 3",
    "{0}: 4\n{1}: 3",
    '{{"{0}": 4, "{1}": 3, "{2}": 2}}',
    '{{\n"{0}": 4,\n"{1}": 3,\n"{2}": 2\n}}',
    "Brief reasoning: 4\n{0}: 4\n{1}: 4\n{2}: 3",
    "{0}: four\n{1}: 4\n{2}: 3",
    "{0}: 0\n{1}: 4\n{2}: 3",
    "{0}: \u00b2\n{1}: 4\n{2}: 3",
    "I'm sorry, I can't help with that.",
    "",
)
"""Of every kind, with the names of the marks left open."""


class ImgEdited(NamedTuple):
    """A crafted request."""

    key: str
    kind: str
    reply: str


def imgedit_rows() -> Iterator[ImgEdited]:
    """Every reply of two types, and the first two of all others."""
    number = 0
    for kind, names in ASPECTS.items():
        many = kind in ("add", "extract")
        for reply in IMGEDIT_REPLIES if many else IMGEDIT_REPLIES[:2]:
            yield ImgEdited(str(number), kind, reply.format(*names))
            number += 1


def write_imgedit(root: Path) -> Path:
    """Write the folder of the data with the answers of one model."""
    (root / "animal").mkdir(parents=True, exist_ok=True)
    (root / "animal" / "a.png").write_bytes(flat("red"))
    folder = root / "edited_images" / "rich"
    folder.mkdir(parents=True, exist_ok=True)
    rows = {}
    for one in imgedit_rows():
        prompt = f"Change number {one.key}!"
        rows[one.key] = {"id": "animal/a.png", "prompt": prompt, "edit_type": one.kind}
        (folder / f"{one.key}.png").write_bytes(flat("blue"))
    (root / "basic_edit.json").write_text(json.dumps(rows))
    return root

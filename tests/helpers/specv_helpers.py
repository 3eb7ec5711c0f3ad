"""SpecV's layout with crafted data, and what its programs made of them.

`write` makes a checkout of two models whose judge replies in every way of `REPLIES`.
`UPSTREAM` holds what the programs of yuyouxixi/SpecV@2af3845 asked and counted there, with
the texts of `PROMPTS` in the place of theirs: recorded once, by running them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paths import DATA
from picture_helpers import flat

from plait.scorers.judging.specifications import DIMENSIONS

FILE = DATA / "specv_upstream.json"
UPSTREAM: Mapping[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
PROMPTS = {
    "t2i": "T\n{insert_prompt_here}\n{insert_checklist_here}\n{insert_image_here}",
    "edit": "E\n{{EDITING_PROMPT}}\n{{CHECKLIST}}",
    "many2one": "M\n{{PROMPT}}\n{{CHECKLIST}}",
    "interleave": "I\n{original_prompt}\nC {checklist}\nO {interleaved_output}\nEnd",
    "think_with_img": (
        "H\n{{INSERT_QUESTION_HERE}}\nO {{INSERT_MODEL_OUTPUT_HERE}}\n"
        "C {{INSERT_CHECKLIST_JSON_HERE}}\nEnd"
    ),
    "understanding": "U\n{original_question}\nR {model_response}\nC {checklist}",
}
"""Stand-ins of the judge's prompts, by track."""


def listed(*answers: Any, first: int = 1) -> str:
    """A reply in the form that is asked for."""
    rows = [{"id": i, "answer": a} for i, a in enumerate(answers, start=first)]
    return json.dumps(rows)


GOOD = listed("Yes", "No", "Yes", "Yes", "No")
REPLIES: Sequence[str] = (
    GOOD,
    listed("No", "Yes", "No", "No", "Yes"),
    listed("yes", "No", "Yes.", "YES", "no"),
    listed(True, False, "Yes", None, 0),
    f"```json\n{GOOD}\n```",
    f"```\n{GOOD}\n```",
    f"Here you are:\n{GOOD}\nThat is all.",
    f"```json\n{GOOD}",
    GOOD.replace('"No"}]', '"No"},]'),
    f"```json\n{GOOD.replace('}]', '},]')}\n```",
    GOOD.replace(': "Yes"', ': Yes"'),
    GOOD.replace(': "Yes"', ": Yes"),
    listed("Yes", "No", "Yes", first=0),
    listed("Yes", "No"),
    "[]",
    '["Yes", "No"]',
    GOOD.replace('"id": 1,', '"id": "1",'),
    GOOD.replace('"id": 1,', '"id": 1.0,'),
    GOOD.replace('"id": 1,', '"id": [1],'),
    GOOD[:-1] + ', {"id": 1, "answer": "No"}]',
    GOOD[:-1] + ', {"id": 9, "answer": "Yes"}]',
    json.dumps({"answers": json.loads(GOOD)}),
    json.dumps({"1": "Yes", "2": "No"}),
    "Yes",
    "I cannot judge this.",
    f"[Note] {GOOD}",
    "null",
    '{"id": 1, "answer": "Yes"}',
)
"""Of every kind; the expected answers of `CHECKLIST` are those of the first."""


def specification(
    id: int, expected: str = "Yes", category: str = "Style", subcategory: str = "N/A"
) -> dict[str, Any]:
    return {
        "id": id,
        "question": f"Is {id} there?",
        "category": category,
        "subcategory": subcategory,
        "expected_answer": expected,
        "score": 9.5,
    }


EXPECTED = ("Yes", "No", "Yes", "Yes", "No")
CHECKLIST = [specification(i, own) for i, own in enumerate(EXPECTED, start=1)]
_GROUPS = {
    "think_with_img": (
        *("Final Answer", "Reasoning Quality", "Image Quality - Visual Fidelity"),
        *("Image-Text Alignment", "Reasoning Quality"),
    ),
    "understanding": ("Final Answer Correctness", *["Process-Level Evaluation"] * 4),
}


def checklist(track: str, lacking: str = "") -> list[dict[str, Any]]:
    """Five specifications, those of a group `lacking` in another one."""
    rows = []
    for row, group in zip(CHECKLIST, _GROUPS.get(track, ("Style",) * 5), strict=True):
        named = "Other" if lacking and group.startswith(lacking) else group
        key = "subcategory" if track == "think_with_img" else "category"
        rows.append({**row, key: named})
    return rows


def row_of(track: str, dimension: str, id: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": id, "dimension": dimension, "question": f"Draw {id}."}
    image = "images/a.png"
    if track == "edit":
        row["question_img"] = [image]
    if track == "many2one":
        row["question_img"] = [image, "images/b.png"]
    if dimension == "interleaved_completion" or track in _GROUPS:
        row["question"] = f"See [IMAGE2] and [IMAGE1]: {id}?"
        row["question_img"] = [image, "images/b.png"]
    if track in _GROUPS:
        row["answer"] = "7"
    return row


_FIXED = ("t2i", "edit")
"""Tracks whose programs know their dimensions; the others take those that are there."""
DIMENSION = {t: own if t in _FIXED else own[:2] for t, own in DIMENSIONS.items()}
"""Those of each track that there are."""
MANY = ("composition", "math", "charxiv", "interleaved_completion")
"""Dimensions with a query for every reply; the others have three."""


def queries() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """By track and dimension the ids and what the judge replies about each."""
    found = {}
    for track, names in DIMENSION.items():
        for name in names:
            replies = REPLIES if name in MANY else REPLIES[:3]
            own = [(f"{name[:4]}_{i:03d}", r) for i, r in enumerate(replies, start=1)]
            found[track, name] = own
    return found


def answer_files(track: str, id: str) -> dict[str, bytes]:
    """What a model answers, by the name of the file."""
    if track == "understanding":
        told = {"id": id, "response": f"It is {id}.", "error": None}
        return {f"{id}.json": json.dumps(told).encode()}
    if track in ("interleave", "think_with_img"):
        content = [
            {"type": "text", "text": "First."},
            {"type": "image", "image": "1.png"},
            {"type": "thought", "text": "Hm."},
            {"type": "audio"},
            {"type": "text", "text": "Last."},
        ]
        told = json.dumps({"content": content}).encode()
        return {f"{id}/response.json": told, f"{id}/1.png": flat("green")}
    return {f"{id}.png": flat("green")}


LOST = ("composition", "math", "cross_domain")
"""Dimensions of which the second model has no answer that can be judged."""


def write(root: Path) -> Path:
    """Write a checkout; the model `poor` lacks answers, images and a whole track."""
    for (track, name), own in queries().items():
        data = root / "eval_data" / track
        (data / "images").mkdir(parents=True, exist_ok=True)
        (data / "images" / "a.png").write_bytes(flat("red"))
        (data / "images" / "b.png").write_bytes(flat("blue"))
        rows = [row_of(track, name, id) for id, _ in own]
        (data / f"{name}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
        folder = root / "eval_checklist" / track / name
        folder.mkdir(parents=True)
        for i, (id, _) in enumerate(own):
            lacking = ""
            if name in ("physics", "countbench"):
                lacking = ("", "Image Quality", "Final Answer")[i]
            text = json.dumps(checklist(track, lacking), indent=2)
            (folder / f"{id}.json").write_text(text)
            files = answer_files(track, id)
            _write_answer(root / "model_outputs" / track / "rich", files)
            if track != "understanding":
                poor = files if name not in LOST else _broken(track, id, files)
                _write_answer(root / "model_outputs" / track / "poor", poor)
    return root


def _broken(track: str, id: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """An answer without its image, or none."""
    return {name: own for name, own in files.items() if not name.endswith(".png")}


def _write_answer(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def write_prompts(root: Path) -> Path:
    """Write the stand-ins where the checkout has the judge's prompts."""
    for track, text in PROMPTS.items():
        file = root / "eval" / track / "eval_prompt.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root

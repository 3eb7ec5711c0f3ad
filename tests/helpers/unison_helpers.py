"""Unison's layout with crafted rows, answers to them, and what its program made of these.

`UPSTREAM` holds what the functions of FudanCVL/Unison@407b7b5 counted of `ANSWERS`, where
its judge replies as `reply_to` does: recorded once, by running them. A reply depends on the
marks `zz1`, `zz2`, ... in what is asked, whatever words stand around them.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contents import query_of
from paths import DATA
from picture_helpers import flat

from plait.generators.document import Content, Document, Image, Query, Text
from plait.scorers.judging.imgedit import ASPECTS
from plait.scorers.judging.rewards import Wording
from plait.scorers.judging.unison import IC, ME, ROUNDS, UGG, UNISON

FILE = DATA / "unison_upstream.json"
UPSTREAM: Mapping[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}

EACH = 6
"""Rows of every task, and of every part of the third one two."""
PARTS = {
    "2D_Spatial": "2d_spatial.json",
    "3D_Spatial": "spatial.json",
    "Complex_Relation": "complex_relation.json",
}
SIZE = (120, 80)
FOLDERS = (
    *("Internal_Consistency/images", "Und_Guided_Gen/images", "Mutual_Enhancement/images"),
    *(f"Gen_Guided_Und/{part}" for part in PARTS),
)


def ic_questions(i: int) -> dict[str, str]:
    return {str(q + 1): f"Is zz{i + q} there?" for q in range(1 + i % 4)}


OPERATIONS = (
    *("Add", "Remove", "Background swap", "Change colour of it", "whatever"),
    "1: Add, a cat zz3, [10, 10, 60, 50]; 2: Remove, dog zz4",
)


def ugg_row(i: int) -> dict[str, Any]:
    return {
        "image_path": f"images/{i}.png",
        "instruction": f"Do zz{i}",
        "operation": OPERATIONS[i % len(OPERATIONS)],
        "bbox": f"[{i}, {i + 1}, {i + 50}, {i + 30}]",
        "mask": ("", "[[10, 10, 60, 10, 60, 60.5]]", "[1, 2, 3]")[i % 3],
    }


def ggu_row(part: str, i: int) -> dict[str, Any]:
    options = ("Left", "Right", "above it", "below")
    row: dict[str, Any] = {
        # The first rows of two parts ask the same.
        "question": f"Where is {min(i, 1)}?",
        "options": dict(zip("ABCD", options, strict=True)),
        "answer": "AB"[i % 2],
        "description": f"A plan of {part} {i}",
    }
    if part == "Complex_Relation":
        row["image_generation_validate"] = {"0": f"Is zz{i} drawn?", "1": "Is zz5 drawn?"}
        return row
    row["image_path"] = f"{i}.png"
    answers = ("yes", "no", "Yes")
    row["quality_questions"] = [
        {"text": f"Is zz{i + q} on the plan?", "answer": answers[(i + q) % 3]}
        for q in range(3)
    ]
    return row


def me_row(i: int) -> dict[str, Any]:
    operations = (
        "1: Add, a hat zz1, [10, 10, 60, 50]; 2: Remove, the dog zz2, [1, 2, 30, 40]",
        "Remove the cat zz3",
        "1: Replace, a bird zz4, [5, 5, 20, 20]; 2: Change, a tree zz5",
    )
    return {
        "image_path": f"{i}.png",
        "operation": operations[i % 3],
        "instruction": f"Mend zz{i}",
        "caption": "As it was.",
        "final_caption": f"As it is zz{i}",
    }


def write(root: Path, form: str = "json", each: int = EACH) -> Path:
    """Write the data set with its tables in the files that end with `form`."""
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    colours = ("red", "blue", "green")
    for i in range(each):
        picture = flat(colours[i % 3], SIZE)
        (root / f"Internal_Consistency/images/{i + 1}.png").write_bytes(picture)
        for folder in FOLDERS[1:]:
            (root / folder / f"{i}.png").write_bytes(picture)
    own = root / "Internal_Consistency"
    (own / "prompts.txt").write_text("".join(f"A scene {i}\n" for i in range(each)))
    questions = {f"prompt_{i}": ic_questions(i) for i in range(each)}
    (own / "questions.json").write_text(json.dumps({"questions": questions}))
    for part, name in PARTS.items():
        rows = [ggu_row(part, i) for i in range(max(1, each // len(PARTS)))]
        (root / "Gen_Guided_Und" / part / name).write_text(json.dumps(rows))
    write_table(root / "Und_Guided_Gen" / f"UGG.{form}", [ugg_row(i) for i in range(each)])
    write_table(
        root / "Mutual_Enhancement" / f"ME.{form}", [me_row(i) for i in range(each)]
    )
    return root


def write_table(file: Path, rows: Sequence[Any]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".json":
        file.write_text(json.dumps(rows))
        return file
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return file


# -------------------------------------------------------------------------------- answers

_TOLD = ("yes", "No", "Yes.", "no, it is", "I think yes", "nothing")
_DRAWN = ("drawn.png", "drawn.png", "No image.")
_BOXES = (
    *("[10, 100, 500, 500]", "[0.1, 0.2, 0.5, 0.9]", '{"bbox_2d": [5, 5, 400, 300]}'),
    *("none", "[500, 500, 100, 100]", "x 12.5, 3, 990 2000"),
)
_LETTERS = ("A", "(B)", "The answer is A.", "A cube", "I think B", "above it")
_LOOKS = (
    "No, 1.[a hat zz1 is there]:[remove it], 2.[the dog zz3 is gone]:[add it]",
    "No. 1. the zz4 is red 2) the zz2 is big",
    "Yes.",
    "No, the zz5 is there; the zz7 is not",
)


def _answers() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for i in range(EACH):
        drawn = [_DRAWN[(i + turn) % len(_DRAWN)] for turn in range(3)]
        told = [_TOLD[(i + q) % len(_TOLD)] for q in range(len(ic_questions(i)))]
        found[f"ic-{i + 1}"] = [*told, drawn[0]]
        found[f"ugg-{i + 1}"] = [_BOXES[i], drawn[1], drawn[2]]
        part, number = [*PARTS][i // 2], i % 2
        letters = _LETTERS[i], _LETTERS[-1 - i]
        found[f"ggu-{part}-{number + 1}".lower()] = [letters[0], drawn[0], letters[1]]
        looks = [_LOOKS[(i + turn) % len(_LOOKS)] for turn in range(3)]
        mended, compared = [""] * ROUNDS, [""] * ROUNDS
        mended[:4] = [drawn[0], "No, more", drawn[1], "Yes"]
        compared[: 2 * (i % 3)] = [looks[0], drawn[0], looks[1], drawn[2]][: 2 * (i % 3)]
        found[f"me-{i + 1}"] = [*mended, *compared]
    return found


ANSWERS = _answers()
"""By query what is answered to each turn; what ends with .png is an image."""


def content_of(told: str) -> Content:
    if told.endswith(".png"):
        return (Image.of(flat("white", SIZE)),)
    return (Text(told),) if told else ()


def answer_to(id: str) -> Document:
    return Document.of([content_of(told) for told in ANSWERS[id]])


RESULTS = "Inference_Pipeline/result"
_OPERATIONS = {
    "UGG": ("understanding", "editing", "unify"),
    "GGU": ("understanding", "generation", "unify"),
}


def result_rows(id: str, number: int) -> list[dict[str, Any]]:
    """The answer to a query as the released program's tables have it, a row for each turn.

    `number` is that of the row among those of its task, from 0.
    """
    task = id.partition("-")[0].upper()
    rows = []
    for turn, told in enumerate(ANSWERS[id]):
        operation, number_of_round, question = turn, "", ""
        if task == "IC":
            is_drawn = turn == len(ANSWERS[id]) - 1
            kind = "generation" if is_drawn else "understanding"
            operation = int(is_drawn)
            question = "" if is_drawn else f"{turn + 1}"
        elif task == "ME":
            kind, operation = "unify", turn // ROUNDS
            number_of_round = f"{turn % ROUNDS + 1}.0"
            if not told and turn % ROUNDS:
                continue  # the talk ended before
        else:
            kind = _OPERATIONS[task][turn]
        rows.append(
            {
                "dialogue_index": number,
                "model_response": f"result/drawn/{told}" if told.endswith(".png") else told,
                "status": "success",
                "operation_type": kind,
                "operation_index": operation,
                "round_number": number_of_round,
                "question_id": question,
            }
        )
    return rows


def write_results(root: Path, model: str = "rich") -> dict[str, Path]:
    """Write the answers of a model beside a checkout; return its tables by task."""
    drawn = root / RESULTS / "drawn" / "drawn.png"
    drawn.parent.mkdir(parents=True, exist_ok=True)
    drawn.write_bytes(flat("white", SIZE))
    rows: dict[str, list[dict[str, Any]]] = {}
    numbers: dict[str, int] = {}
    for id in ANSWERS:
        task = id.partition("-")[0].upper()
        numbers[task] = numbers.get(task, -1) + 1
        rows.setdefault(task, []).extend(result_rows(id, numbers[task]))
    files = {}
    for task, own in rows.items():
        file = root / RESULTS / model / task / f"{task}_{model}_results.csv"
        files[task] = write_table(file, own)
    return files


# --------------------------------------------------------------------------- the judge

_REPLIES: Mapping[str, Sequence[str]] = {
    "check": ("yes", "No", "Yes.", "no, yes", "unclear"),
    "edit": (
        "Brief reasoning: 4: 3\nPrompt: 4\nVisual: 5\nPhysical: 2",
        "A: 3/5\nB: 5",
        "rating 4",
        "none",
        "A: 5\nB: 5\nC: 4\nD: 1",
    ),
    "match": ("3", "5", "2", "score: 4", "none", "0", "7"),
}
KINDS = {"check": "CHECK", "edit": "EDIT", "match": "MATCH"}
"""With what the stand-ins of the released texts begin."""
WORDING = Wording.of(
    {
        "check_system": "CHECK",
        "check": "?",
        "match_system": "MATCH",
        "match": "C ",
        "match_region": "R ",
        "match_told": "M ",
        "match_end": ".",
        "region": "R ",
        "region_end": ".",
        "no_region": "all",
        **{
            kind: f"EDIT {kind} {{instruction}} {{bbox}}"
            for kind in ("replace", "add", "remove", "adjust", "background", "compose")
        },
    }
)
"""Stand-ins of the released texts."""


def reply_to(kind: str, asked: str) -> str:
    """What the judge says, whatever words it is asked in."""
    replies = _REPLIES[kind]
    return replies[sum(map(int, re.findall(r"zz(\d+)", asked))) % len(replies)]


# ---------------------------------------------------------- one question of each kind


def _reply_of_edit(mark: int) -> str:
    return "\n".join(f"{name}: {mark}" for name in ASPECTS["add"])


WORST_AND_BEST = {
    "check": ("no", "yes"),
    "edit": (_reply_of_edit(1), _reply_of_edit(5)),
    "match": ("1", "5"),
}
"""Two replies to each kind of question."""


def session(kind: str) -> tuple[Query, Document]:
    """A query and an answer about which the judge asks this alone."""
    edit = {"instruction": "Add a hat.", "operation": "Add", "bbox": "[1, 2, 300, 400]"}
    values: Mapping[str, Any] = {
        "check": {"task": IC, "questions": {"1": "Is it red?"}},
        "edit": {"task": UGG, "size": SIZE, "mask": "", **edit},
        "match": {"task": ME, "final_caption": "A dog.", **edit},
    }[kind]
    told = {
        "check": ["yes", "drawn.png"],
        "edit": ["[1, 2, 3, 4]", "drawn.png", "drawn.png"],
        "match": [*[""] * ROUNDS, "No, there is no hat", *[""] * (ROUNDS - 1)],
    }[kind]
    shown = Image.of(flat("red", SIZE))
    metadata = {UNISON: json.dumps(values)}
    query = query_of(shown, "Go on.", category=values["task"], metadata=metadata)
    return query, Document.of([content_of(text) for text in told])

"""Rows of benchmarks in their published layouts, and runs on them beside a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cli_helpers import invoke
from endpoint_helpers import MODEL, Answer, serving
from picture_helpers import flat
from typer.testing import Result as Invoked

from plait.benchmarks.tasks.task_set import TaskSet, load


def read(format: str, place: Path) -> TaskSet:
    return load(f"{format}:{place}", cache=place / "cache")


def served_run(
    out: Path,
    data: str,
    systems: Sequence[str],
    scorers: Sequence[str],
    reply: Callable[[Any], Answer],
    *words: str,
) -> tuple[Invoked, dict[str, Any], list[Any]]:
    """The command as done, its leaderboard by system, and what the server was asked."""
    words = ("--data", data, "--out", str(out), "--weights", "tiny", *words)
    words += tuple(w for name in systems for w in ("--system", name))
    words += tuple(w for name in scorers for w in ("--scorer", name))
    with serving(reply) as server:
        own = f'models."openai:{MODEL}".base_url="{server.url}"'
        done = invoke("run", *words, "--set", own)
        bodies = list(server.bodies)
    rows = json.loads((out / "leaderboard.json").read_text())
    return done, {row["system"]: row for row in rows}, bodies


# --------------------------------------------------------------------------- ISG-Bench


def isg_text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


ISG_PICTURE = {"type": "image", "content": "images/x.PNG"}
"""In the published files the suffix of some is in lower case."""
ISG: dict[str, Any] = {
    "id": "0000",
    "Category": "Prediction",
    "Query": [isg_text("What is next?"), ISG_PICTURE],
    "Golden": [isg_text("It falls."), ISG_PICTURE],
    "predict": {
        "block_qa": {
            "questions": [
                {"subject": "<gen_text1>", "object": "<gen_img1>", "Question": "Fits?"},
                {"subject": "<gen_text1>", "object": "<gen_img1>"},
            ]
        },
        "image_qa": {
            "questions": [
                {"image": "<gen_img1>", "Question": "A cup?", "id": 0, "Preliminary": []},
                {"image": "<gen_img1>", "Question": "Broken?", "id": 1, "Preliminary": [0]},
            ]
        },
    },
}


def write_isg(folder: Path, rows: Sequence[Any], **answers: list[Any]) -> Path:
    lines = {"ISG-Bench": rows, **{f"answers/{n}": own for n, own in answers.items()}}
    for name, values in lines.items():
        file = folder / f"{name}.jsonl"
        (file.parent / "images").mkdir(parents=True, exist_ok=True)
        (file.parent / "images" / "x.png").write_bytes(flat())
        file.write_text("\n".join(map(json.dumps, values)) + "\n")
    return folder


# ------------------------------------------------------------------------------- UEval

UEVAL: dict[str, Any] = {
    "id": "7",
    "prompt": "Show how to fold a boat.",
    "text_ref": "Fold it.",
    "image_ref": ["ref.png"],
    "task": "life",
    "question_type": "open",
    "text_rubrics": ["Names two steps.", "Is polite."],
    "image_rubrics": ["Shows a boat."],
}


def write_ueval(folder: Path, rows: Sequence[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ref.png").write_bytes(flat())
    (folder / "ueval.json").write_text(json.dumps(rows))
    return folder


# --------------------------------------------------------------------------- RealUnify

GEU: dict[str, Any] = {
    "index": 3,
    "task_type": "mental_tracking",
    "question": "Which?",
    "option": ["a", "b", "c", "d"],
    "answer": "B",
    "evaluation_prompt": "Which? A. a B. b C. c D. d",
    "input_image": "./image/x.png",
}


def write_realunify(folder: Path, geu: list[Any], ueg: list[Any] | None = None) -> Path:
    (folder / "image").mkdir(parents=True)
    (folder / "image" / "x.png").write_bytes(flat())
    (folder / "GEU_direct.json").write_text(json.dumps(geu))
    if ueg is not None:
        (folder / "UEG_direct.json").write_text(json.dumps(ueg))
    return folder

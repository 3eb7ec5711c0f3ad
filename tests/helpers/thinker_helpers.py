"""Crafted replies of InterleaveThinker's two models, and what its program did with them.

python tests/helpers/thinker_helpers.py CHECKOUT writes `interleavethinker_upstream.json`:
the calls of UEval/ueval_klein.py of zhengdian1/InterleaveThinker@94c7593 for these replies,
its long prompts and its models replaced by those here.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import typer
from paths import DATA
from PIL import Image as Pillow

RECORDED = DATA / "interleavethinker_upstream.json"
WORDING = {
    "plan": "PLAN <{text_input}> PLANNED",
    "plan_with_images": "GO ON <{text_input}>",
    "critic": "LOOK <{original_instruction}> <{rewritten_prompt}>",
}
"""Stands for the released prompts."""
ATTEMPTS = 3
QUESTION = "How is a kite made? Answer both visually and textually."
_STORIES = 120
Call = list[Any]


class Scripted:
    """Gives the replies of a story in turn, the last of them for ever."""

    def __init__(self, story: dict[str, Any]) -> None:
        self.left = {who: list(story[who]) for who in ("planner", "critic")}
        self.calls: list[Call] = []

    def says(self, who: str, text: str, images: Sequence[Pillow.Image] = ()) -> str:
        self.calls.append([who, text, [name_of(image) for image in images]])
        replies = self.left[who]
        return str(replies.pop(0) if len(replies) > 1 else replies[0])

    def draws(self, prompt: Any, seed: int, before: Pillow.Image | None) -> Pillow.Image:
        if not isinstance(prompt, str):
            raise ValueError("as pipelines refuse a prompt that is no text")
        seen = None if before is None else name_of(before)
        self.calls.append(["draw", prompt, seed, seen])
        shade = hashlib.sha256(f"{prompt}|{seed}|{seen}".encode()).digest()[:3]
        return Pillow.new("RGB", (4, 3), tuple(shade))


def name_of(image: Pillow.Image) -> str:
    """The image's colour, and white for a canvas of that of any size."""
    pixel = image.convert("RGB").getpixel((0, 0))
    return "white" if pixel == (255, 255, 255) else bytes(pixel).hex()  # type: ignore[arg-type]


def png(image: Pillow.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def stories() -> list[dict[str, Any]]:
    """Replies as models may give them, many of them wrong."""
    return [_story(Random(number)) for number in range(_STORIES)]


def _story(chance: Random) -> dict[str, Any]:
    planner = []
    while chance.random() < 0.3:
        planner.append(_wrong_plan(chance))
    planner.append(_answer({"execution_plan": _steps(chance)}))
    critic = [_verdict(chance) for _ in range(24)]
    return {"planner": planner, "critic": critic}


def _answer(content: Any) -> str:
    return f"<think>Well.</think>\n<answer>\n{json.dumps(content)}\n</answer>"


def _steps(chance: Random) -> list[dict[str, Any]]:
    steps = []
    for number in range(1, chance.choice((1, 2, 2, 3)) + 1):
        told = chance.choice((f"Text {number}.", f"Text {number}.", None, "None", ""))
        prompt = None if chance.random() < 0.04 else f"prompt {number}"
        step = {"step_number": number, "step_name": "s", "auxiliary_text": told}
        steps.append({**step, "instruction": f"Do {number}.", "prompt": prompt})
    return steps


def _wrong_plan(chance: Random) -> str:
    steps = _steps(chance)
    del steps[-1][chance.choice(("prompt", "instruction", "auxiliary_text"))]
    together = {**_steps(chance)[0], "auxiliary_text": "None}, {'step_number': 2"}
    plans = ({"note": 1}, [1], 5, {"execution_plan": steps}, {"execution_plan": 3})
    content = chance.choice((*plans, {"execution_plan": [together]}))
    return chance.choice((_answer(content), "no JSON", json.dumps(content)))


def _verdict(chance: Random) -> str:
    word = chance.choice(("bright", "large", "plain"))
    refined = chance.choice((f"a {word} kite", f"a {word} kite", ""))
    good = {"previous_step_success": True, "refine_prompt": refined}
    bad = {"previous_step_success": False, "refine_prompt": refined}
    wrong = (
        {"previous_step_success": True},
        {"refine_prompt": refined},
        {**bad, "refine_prompt": 7},
        {**bad, "previous_step_success": "perhaps"},
        [good],
    )
    content = chance.choice((good, bad, bad, bad, *wrong))
    return "It looks fine." if chance.random() < 0.2 else _answer(content)


def run_upstream(program: ModuleType, story: dict[str, Any], folder: Path) -> Any:
    """The program's calls for a story, with what came of it."""
    script = Scripted(story)

    def predict(model: str, processor: None, messages: list[Any]) -> str:
        *images, text = messages[0]["content"]
        opened = [Pillow.open(part["image"]) for part in images]
        return script.says(model, text["text"], opened)

    def pipeline(prompt: Any, generator: Any, image: Any = None, **about: Any) -> Any:
        assert about == {
            "height": 1024,
            "width": 1024,
            "guidance_scale": 1.0,
            "num_inference_steps": 4,
        }
        drawing = script.draws(prompt, generator.initial_seed(), image)
        drawn = ModuleType("drawn")
        drawn.images = [drawing]  # type: ignore[attr-defined]
        return drawn

    program.qwen3_vl_predict = predict  # type: ignore[attr-defined]
    whole = program.IterativeImageGenerator
    generator = whole.__new__(whole)
    about = {"device": "cpu", "planner": "planner", "critic": "critic"}
    about |= {"qwen_processor": None, "pipeline": pipeline}
    for name, value in about.items():
        setattr(generator, name, value)
    item = {"id": "1", "prompt": QUESTION}
    limits = {"retry_delay": 0.0, "max_attempts": ATTEMPTS}
    try:
        paths, text = generator.generate(item, str(folder), **limits)
    except Exception as error:
        return {"calls": script.calls, "error": type(error).__name__}
    names = [name_of(Pillow.open(path)) for path in paths]
    return {"calls": script.calls, "text": text, "images": names}


def load_upstream(checkout: Path, loads: Any) -> ModuleType:
    """The program, with stand-ins for prompts and libraries."""
    stand_in = ModuleType("json_repair")
    stand_in.loads = loads  # type: ignore[attr-defined]
    modules = {"json_repair": stand_in, "datasets": ModuleType("datasets")}
    modules["datasets"].load_dataset = None  # type: ignore[attr-defined]
    sys.modules |= modules
    sys.path.insert(0, str(checkout / "UEval"))
    os.chdir(checkout / "UEval")  # the white canvas is in its working directory
    program = importlib.import_module("ueval_klein")
    program.NARRATIVE_PROMPT_JSON = WORDING["plan"]  # type: ignore[attr-defined]
    program.Iterative_T2I_PROMPT_QWEN = WORDING["critic"]  # type: ignore[attr-defined]
    return program


def main(checkout: Path) -> None:
    from tempfile import TemporaryDirectory

    program = load_upstream(checkout, json.loads)
    recorded = []
    for story in stories():
        with TemporaryDirectory() as folder:
            recorded.append(run_upstream(program, story, Path(folder)))
    RECORDED.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    typer.run(main)

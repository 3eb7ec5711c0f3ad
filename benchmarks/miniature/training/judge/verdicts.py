"""The reply that the mini judge should give: what it sees, and a verdict per criterion.

What a criterion means in the miniature world, in the order of the rubrics:

    SA, PBL  1  ENOUGH of the text is right, and no text is repeated
             2  ENOUGH of the pictures is right, and none is missing or spoiled
             3  every picture shows exactly what its text tells
             4  MOST of the answer is right
             5  NEARLY_ALL of the answer is right
             6  all of the answer is right
    MSR      1  the answer speaks of what is asked      4  at most one word of it is wrong
             2, 3, 5, 6  it is right

Shares are F1 over attributes, so that the sum of the verdicts follows the truth.
"""

from __future__ import annotations

import re
from dataclasses import astuple

from benchmarks.miniature.training.judge.corruptions import (
    NO_BACKGROUND,
    Damaged,
    ShownScene,
    Told,
)
from benchmarks.miniature.training.judge.shares import (
    picture_share,
    pooled,
    text_share,
)
from scorers.judging.rubrics import OWN
from scorers.truth.language import noun
from scorers.truth.scene import PLACES, Scene, SceneItem

ENOUGH, MOST, NEARLY_ALL = 0.85, 0.8, 0.92


def reply(answer: Damaged) -> str:
    """In the form that the rubric of the answer's category asks for."""
    rubric = OWN[answer.query.category]
    values = verdicts(answer)
    names = [*rubric.criteria]
    if rubric.penalty:
        names.append(f"{rubric.penalty} (penalty)")
    lines = [
        f"{i}. {name}: {value}"
        for i, (name, value) in enumerate(zip(names, [*values, 0], strict=False), 1)
    ]
    blocks = ("### Feedback", feedback(answer), "### Verdicts", *lines, "### Score")
    return "\n".join([*blocks, str(sum(values))])


def verdicts(answer: Damaged) -> list[int]:
    """0 or 1 for each of the six criteria."""
    if answer.query.category == "MSR":
        return [int(v) for v in _reasoning(answer)]
    texts, pictures = text_share(answer), picture_share(answer)
    every = pooled([texts, pictures]).f1
    return [
        int(v)
        for v in (
            texts.f1 >= ENOUGH and not _repeated(answer),
            pictures.f1 >= ENOUGH and all(_clear(p.shown) for p in answer.parts),
            all(_matches(p.told, p.shown) for p in answer.parts),
            every >= MOST,
            every >= NEARLY_ALL,
            every == 1,
        )
    ]


def _repeated(answer: Damaged) -> bool:
    texts = [p.told.text for p in answer.parts if p.told]
    return len(set(texts)) < len(texts)


def _clear(shown: ShownScene | None) -> bool:
    return shown is not None and not shown.spoiled


def _matches(told: Told | None, shown: ShownScene | None) -> bool:
    if told is None or shown is None or shown.spoiled:
        return False
    return told.scene == shown.scene


def _reasoning(answer: Damaged) -> tuple[bool, ...]:
    right, text = str(answer.query.answer[0]), answer.text
    asked, correct = topic(text) == topic(right), text == right
    partly = _partly(text, right)
    return asked, correct, correct, partly, correct, correct


_TOPICS = (
    re.compile(r"(?P<kind>The) (?P<thing>\w+ \w+) is at .*"),
    re.compile(r"There is (?P<kind>a) .* at the (?P<thing>.*)\."),
    re.compile(r"There (?:is|are) \w+ (?P<thing>\w+?)s? (?P<kind>and) \w+ (\w+?)s?,.*"),
    re.compile(r"There (?P<kind>)(?:is|are) \w+ (?P<thing>\w+?|\w+ \w+?)s?\."),
)


def topic(answer: str) -> tuple[str, ...]:
    """What a reasoning answer speaks of, whatever it says of it; empty without one."""
    for pattern in _TOPICS:
        if match := pattern.fullmatch(answer):
            return match.groups()
    return ()


def _partly(text: str, right: str) -> bool:
    """Whether at most one word of several that state facts is wrong."""
    if text == right:
        return True
    words, others = text.split(" "), right.split(" ")
    counting = topic(right)[:1] == ("",)
    wrong = sum(a != b for a, b in zip(words, others, strict=False))
    return not counting and len(words) == len(others) and wrong == 1


def feedback(answer: Damaged) -> str:
    """What the answer should hold and what it holds, in one line."""
    if answer.query.category == "MSR":
        return f"{compared(answer)} {_remark(answer)}"
    lines = []
    if answer.query.category == "PBL":
        lines.append(f"Image-0 shows {slots(answer.query.scenes[0])}.")
    picture = 0
    for part, goal in zip(answer.parts, answer.expected, strict=True):
        lines.append(f"Expected {slots(goal)}.")
        lines.append(f"The text tells {_told(part.told, goal)}.")
        picture += part.shown is not None
        lines.append(_seen(part.shown, picture, goal))
    return " ".join(lines)


def caption(scene: Scene, number: int = 0) -> str:
    """What the judge says of a picture alone."""
    return f"Image-{number} shows {slots(scene)}."


REMARKS = (
    "The final answer is correct.",
    "The final answer is partly wrong.",
    "The final answer is wrong.",
    "This does not answer the question.",
    "There is no answer.",
)
"""What is said of reasoning answers, from right to none."""


def compared(answer: Damaged) -> str:
    """The correct reasoning answer and the given one, whose other words are marked."""
    right, given = str(answer.query.answer[0]).split(" "), answer.text.split(" ")
    if len(right) == len(given):
        pairs = zip(given, right, strict=True)
        given = [word if word == other else f"{word} (wrong)," for word, other in pairs]
    told = " ".join(given) or "nothing."
    return f"Expected {' '.join(right)} The text tells {told}"


def _remark(answer: Damaged) -> str:
    asked, correct, _, partly, _, _ = _reasoning(answer)
    applies = (correct, partly, asked, bool(answer.text), True)
    return REMARKS[applies.index(True)]


def _told(told: Told | None, goal: Scene) -> str:
    return "nothing" if told is None or told.scene is None else slots(told.scene, goal)


def _seen(shown: ShownScene | None, number: int, goal: Scene) -> str:
    if shown is None:
        return "A picture is missing."
    if shown.spoiled:
        return f"Image-{number} shows nothing definite."
    return f"Image-{number} shows {slots(shown.scene, goal)}."


def slots(scene: Scene, goal: Scene | None = None) -> str:
    """What is at each of `PLACES`, then the background; marked where it is not `goal`'s."""
    parts = []
    for place in PLACES:
        item = scene.at(place)
        text = noun(item) if item else "nothing"
        parts.append(text + (_mark(item, goal.at(place)) if goal else ""))
    ground = scene.background if scene.background != NO_BACKGROUND else "nothing"
    wrong = goal is not None and scene.background != goal.background
    return f"{', '.join(parts)}, on {ground}{' (wrong)' if wrong else ''}"


def _mark(item: SceneItem | None, goal: SceneItem | None) -> str:
    if item == goal:
        return ""
    if item is None or goal is None:
        return " (wrong)"
    pairs = zip(astuple(item), astuple(goal), strict=True)
    return f" ({sum(a != b for a, b in pairs)} wrong)"

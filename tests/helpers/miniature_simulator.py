"""Answers of miniature queries, worked out again: no code of the queries is used.

A scene is {place: (size, colour, shape)} with its background, read from the question's
image; the question is read from its text by patterns of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ORDER = ("top left", "top right", "bottom left", "bottom right")
WORDS = ("zero", "one", "two", "three", "four")
_AT = r"at the (top left|top right|bottom left|bottom right)"
_THE = r"the (\w+) (\w+)"
_PHRASE = re.compile(rf"a (\w+) (\w+) (\w+) {_AT}")

Things = dict[str, tuple[str, str, str]]


def things(scene: Any) -> Things:
    return {item.place: (item.size, item.colour, item.shape) for item in scene.items}


def described(text: str) -> Things:
    """The items that a description names."""
    found = {m[4]: (m[1], m[2], m[3]) for m in _PHRASE.finditer(text)}
    assert len(found) == len(_PHRASE.findall(text)), "two items at one place"
    return found


def place_of(now: Things, colour: str, shape: str) -> str:
    """The place of the only item of this colour and shape."""
    (place,) = (p for p, (_, c, s) in now.items() if (c, s) == (colour, shape))
    return place


def follow(now: Things, order: str) -> Things:
    """What becomes of `now` by one sentence of a story or one step of a project."""
    now = dict(now)
    if m := re.fullmatch(rf"(?:add )?(a \w+ \w+ \w+ {_AT})(?: appears)?", order):
        assert m[2] not in now
        return now | described(m[1])
    if m := re.fullmatch(rf"(?:move )?{_THE} (?:moves )?to (?:the )?(.*)", order):
        moved = now.pop(place_of(now, m[1], m[2]))
        assert m[3] in ORDER
        assert m[3] not in now
        return now | {m[3]: moved}
    if m := re.fullmatch(rf"{_THE} goes away", order):
        del now[place_of(now, m[1], m[2])]
        return now
    if m := re.fullmatch(rf"(?:make )?{_THE} (?:turns )?(grows|shrinks|\w+)", order):
        place = place_of(now, m[1], m[2])
        size, colour, shape = now[place]
        sizes = {"grows": ("small", "large"), "shrinks": ("large", "small")}
        if m[3] in sizes:
            assert size == sizes[m[3]][0]
            return now | {place: (sizes[m[3]][1], colour, shape)}
        return now | {place: (size, m[3], shape)}
    raise AssertionError(order)


def say(now: Things, background: str) -> str:
    listed = [f"a {' '.join(now[p])} at the {p}" for p in ORDER if p in now]
    *first, last = listed
    text = f"{', '.join(first)} and {last}" if first else last
    return f"Now there is {text} on a {background} background."


def answers(category: str, picture: Any, question: str) -> Iterator[tuple[str, Things]]:
    """Each text of the answer, and what its image shows."""
    now = things(picture)
    if category == "MSR":
        yield solve(now, question), {}
    elif category == "SA":
        told, story = question.split(" background. ")
        assert (
            told == say(now, picture.background)[4:].capitalize().split(" background.")[0]
        )
        assert described(told) == now
        now = follow(now, story.split(": ")[1].rstrip("."))
        yield say(now, picture.background), now
    else:
        steps = re.fullmatch(r"Step 1: (.*)\. Step 2: (.*)\.", question)
        assert steps is not None
        for number, order in enumerate(steps.groups(), start=1):
            now = follow(now, order)
            yield f"Step {number}: {say(now, picture.background)}", now


def solve(now: Things, question: str) -> str:
    if m := re.fullmatch(rf"Where is {_THE}\?", question):
        return f"The {m[1]} {m[2]} is at the {place_of(now, m[1], m[2])}."
    if m := re.fullmatch(rf"What is {_AT}\?", question):
        return f"There is a {' '.join(now[m[1]])} at the {m[1]}."
    if m := re.fullmatch(r"Are there more (\w+)s than (\w+)s\?", question):
        first, second = (sum(t[2] == s for t in now.values()) for s in m.groups())
        numbers = f"{count(first, m[1])} and {count(second, m[2])}"
        return f"There {be(first)} {numbers}, so {'yes' if first > second else 'no'}."
    m = re.fullmatch(r"How many ((?:\w+ )?\w+)s are there\?", question)
    assert m is not None, question
    wanted = set(m[1].split()) - {"shape"}
    number = sum(wanted <= set(t) for t in now.values())
    return f"There {be(number)} {count(number, m[1])}."


def count(number: int, thing: str) -> str:
    return f"{WORDS[number]} {thing}{'' if number == 1 else 's'}"


def be(number: int) -> str:
    return "is" if number == 1 else "are"

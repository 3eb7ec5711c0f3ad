"""From a scene to English, and back: one small grammar, written once."""

from __future__ import annotations

import random
from collections.abc import Sequence

from plait.scorers.truth.changes import Change
from plait.scorers.truth.scene import Scene, SceneItem

LEADS = ("The picture shows", "There is", "Now there is")
CAPTION_PROMPT = "Describe the picture."
"""What the mini models that describe images are asked; they begin with the first lead."""
NUMBERS = ("zero", "one", "two", "three", "four")


def noun(item: SceneItem) -> str:
    """Return what the item looks like: `large red circle`."""
    return f"{item.size} {item.colour} {item.shape}"


def phrase(item: SceneItem) -> str:
    """Return the item with its place: `a large red circle at the top left`."""
    return f"a {noun(item)} at the {item.place}"


def list_words(parts: Sequence[str]) -> str:
    """Return parts as English lists them: `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def description(scene: Scene, rng: random.Random | None = None) -> str:
    """Return the scene without a sentence around it; `rng` shuffles the items."""
    items = list(scene.items)
    if rng is not None:
        rng.shuffle(items)
    phrases = [phrase(item) for item in items]
    return f"{list_words(phrases)} on a {scene.background} background"


def sentence(scene: Scene, rng: random.Random) -> str:
    """Return one sentence that describes the scene in full."""
    return f"{rng.choice(LEADS)} {description(scene, rng)}."


def statement(scene: Scene) -> str:
    """Return the sentence of an answer: always the same one of a scene, items by place."""
    return f"Now there is {description(scene)}."


def name(item: SceneItem) -> str:
    """Colour and shape, which name one item of a scene: `red circle`."""
    return f"{item.colour} {item.shape}"


def event(change: Change) -> str:
    """Return a change as a story tells it: `the red circle moves to the top left`."""
    if change.before is None:
        return f"{phrase(_item(change.after))} appears"
    subject = f"the {name(change.before)}"
    if change.after is None:
        return f"{subject} goes away"
    if change.kind == "move":
        return f"{subject} moves to the {change.after.place}"
    if change.kind == "recolour":
        return f"{subject} turns {change.after.colour}"
    return f"{subject} {'grows' if change.after.size == 'large' else 'shrinks'}"


def instruction(change: Change) -> str:
    """Return a change as a step asks for it: `move the red circle to the top left`."""
    if change.before is None:
        return f"add {phrase(_item(change.after))}"
    thing = f"the {name(change.before)}"
    if change.after is None:
        return f"take away {thing}"
    if change.kind == "move":
        return f"move {thing} to the {change.after.place}"
    new = change.after.colour if change.kind == "recolour" else change.after.size
    return f"make {thing} {new}"


def state_change(change: Change, rng: random.Random) -> str | None:
    """A change by what is there afterwards: `Now there is a large red circle at ...`.

    None where an item goes or leaves its place, of which such a sentence would not tell.
    """
    new = change.after
    old = change.before
    if new is None or (old is not None and old.place != new.place):
        return None
    return f"{rng.choice(LEADS)} {phrase(new)}."


def step(number: int, text: str) -> str:
    """Return a numbered step, from 1: `Step 1: ...`."""
    return f"Step {number}: {text}"


def count_words(number: int, thing: str) -> str:
    """Return a number of things: `one circle`, `two red shapes`."""
    return f"{NUMBERS[number]} {thing if number == 1 else thing + 's'}"


def count_answer(number: int, thing: str) -> str:
    """Answer to `How many {thing}s are there?`."""
    return f"There {_be(number)} {count_words(number, thing)}."


def more_answer(first: int, shape: str, second: int, other: str) -> str:
    """Answer to `Are there more {shape}s than {other}s?`: both numbers, then which."""
    numbers = f"{count_words(first, shape)} and {count_words(second, other)}"
    return f"There {_be(first)} {numbers}, so {'yes' if first > second else 'no'}."


def where_answer(item: SceneItem) -> str:
    """Answer to `Where is the red circle?`."""
    return f"The {name(item)} is at the {item.place}."


def what_answer(item: SceneItem) -> str:
    """Answer to `What is at the top left?`."""
    return f"There is {phrase(item)}."


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _item(item: SceneItem | None) -> SceneItem:
    if item is None:
        raise ValueError("a change has an item before or after it")
    return item

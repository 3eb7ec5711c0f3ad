"""What an artist is asked to draw: everything a writer may say of a scene."""

from __future__ import annotations

import random

from scorers.truth.language import description, sentence, statement, step
from scorers.truth.scene import Scene

_MOST_STEPS = 3


def caption(scene: Scene, rng: random.Random, earlier: Scene | None = None) -> str:
    """A prompt for `scene` in one of the writers' forms.

    With `earlier`, sometimes a whole answer in two steps, of which the last is drawn.
    """
    form = rng.random()
    if earlier is not None and form < 0.1:
        return f"{step(1, statement(earlier))} {step(2, statement(scene))}"
    text = _plain(scene, rng)
    if form < 0.4:
        return step(rng.randint(1, _MOST_STEPS), text)
    return text


def _plain(scene: Scene, rng: random.Random) -> str:
    form = rng.random()
    if form < 0.4:
        return statement(scene)
    if form < 0.8:
        return sentence(scene, rng)
    return description(scene, rng if form < 0.9 else None)

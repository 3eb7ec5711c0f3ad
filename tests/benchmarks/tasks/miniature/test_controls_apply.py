"""Every control of the miniature world says or shows something else than the truth."""

from __future__ import annotations

import pytest

from benchmarks.tasks.controls import CONTROLS, control
from benchmarks.tasks.miniature.queries import ScenePicture, queries
from benchmarks.tasks.miniature.samples import content_of, sample_of
from generators.document import Document, Image

NUMBER = 200
APPLIES = {
    "gt:shuffled-images": {"SA", "PBL"},
    "gt:no-images": {"SA", "PBL"},
    "gt:other-answer": {"SA", "PBL", "MSR"},
    "gt:repeated-text": {"PBL"},
}


@pytest.fixture(scope="module")
def world():
    """The queries, and what each of their pictures shows."""
    asked = queries(NUMBER, 0, "test")
    parts = [p for q in asked for p in (*q.question, *q.answer)]
    pictures = [p for p in parts if isinstance(p, ScenePicture)]
    shown = {content_of((p,))[0].digest: p.scene for p in pictures}
    return {q.id: sample_of(q) for q in asked}, shown


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_means_something_else(world, name) -> None:
    samples, shown = world
    system = control(name, list(samples.values()), seed=0)
    changed = set()
    for id, answer in system.answers.items():
        if not isinstance(answer, Document):
            continue
        changed.add(id)
        assert _meaning(answer, shown) != _meaning(samples[id].reference, shown), id
    expected = {id for id, s in samples.items() if s.category in APPLIES[name]}
    assert changed <= expected
    assert len(changed) >= 0.95 * len(expected)


def _meaning(document: Document, shown):
    """Texts and scenes: two pictures of one scene mean the same."""
    return [shown[s.digest] if isinstance(s, Image) else s.text for s in document.segments]

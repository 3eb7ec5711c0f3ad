"""UnifiedReward-Think: what is asked by the released text, and what a reply says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from contents import document, query_of
from judging_helpers import picture, shown

from plait.generators.base import Unscored
from plait.scorers.pairwise import resolve_protocol, unified_reward
from plait.scorers.pairwise.readers import better_image, official_better_image

FIRST, SECOND = document(picture("a")), document("Here:", picture("b"))


def test_the_released_text_follows_both_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"before": "Caption: [", "after": "]. Which?"}
    digests = {k: hashlib.sha256(t.encode()).hexdigest() for k, t in texts.items()}
    monkeypatch.setattr(unified_reward, "_DIGESTS", digests)
    file = tmp_path / "released.py"
    file.write_text("prompt = ''\nproblem = f'''Caption: [{prompt}]. Which?'''\n")
    protocol = resolve_protocol("unified-reward-think", official=file)
    asked = protocol.requests(query_of("A {hat}"), FIRST, SECOND)
    told = ["".join(shown(turn.content) for turn in one.turns) for one in asked]
    ending = "Caption: [A {hat}]. Which?"
    assert told == [f"[a][b]{ending}", f"[b][a]{ending}"]
    with pytest.raises(ValueError, match="has 2"):
        protocol.requests(query_of("A"), FIRST, document(picture("a"), picture("b")))


@pytest.mark.parametrize(
    ("reply", "ours", "official"),
    [
        ("<answer>Image 1 is better</answer>", 1, 1),
        ("<answer>Image 2 is better</answer>", -1, -1),
        ("Overall, **Image 2 is better**.", -1, -1),
        ("<answer>image 1 is the better</answer>", 1, None),
        ("Image 1 is better in colour.\n<answer>Image 2 is better</answer>", -1, None),
        (
            "<answer>Image 1 is better</answer><answer>Image 2 is better</answer>",
            None,
            None,
        ),
        ("Neither.", None, None),
        ("", None, None),
    ],
)
def test_replies(reply: str, ours: int | None, official: int | None) -> None:
    for read, wanted in ((better_image, ours), (official_better_image, official)):
        found = read(reply)
        value = None if isinstance(found, Unscored) else found.preference
        assert value == wanted, read.__name__

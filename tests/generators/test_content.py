"""Joining, filling and following up, for chat models, judges and comparisons alike."""

from __future__ import annotations

import pytest

from generators.content import EMPTY_REPLY, filled, followed_up, joined
from generators.document import Image, Text, Turn

RED = Image.of(b"red")


def test_a_template_is_filled_and_its_texts_are_joined() -> None:
    segments = [Text(""), Text("a"), Text(""), Text("b"), RED, Text(""), RED, Text("c")]
    assert joined(segments) == (Text("ab"), RED, RED, Text("c"))
    fields = {"q": (Text("{a}"), RED), "a": (Text("x"),)}
    assert filled("Q: {q} A: {a}{{}}", fields) == (Text("Q: {a}"), RED, Text(" A: x{}"))
    with pytest.raises(KeyError, match="missing"):
        filled("{missing}", fields)


@pytest.mark.parametrize("reply", ["hm", ""])
def test_a_follow_up_keeps_the_conversation_and_marks_an_empty_reply(reply: str) -> None:
    asked = (Turn("user", (Text("well?"), RED)),)
    answer = Turn("assistant", (Text(reply or EMPTY_REPLY),))
    after = (*asked, answer, Turn("user", (Text("again"),)))
    assert followed_up(asked, reply, "again") == after

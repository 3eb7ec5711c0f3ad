"""Joining, filling and following up, for chat models, judges and comparisons alike."""

from __future__ import annotations

import pytest

from generators.content import EMPTY_REPLY, filled, followed_up, joined
from generators.document import Image, Text, Turn

RED = Image.of(b"red")


def test_neighbouring_texts_are_joined_and_empty_ones_left_out() -> None:
    segments = [Text(""), Text("a"), Text(""), Text("b"), RED, Text(""), RED, Text("c")]
    assert joined(segments) == (Text("ab"), RED, RED, Text("c"))
    assert joined([Text("")]) == ()


def test_a_template_is_filled_and_braces_in_the_content_stay() -> None:
    fields = {"q": (Text("{a}"), RED), "a": (Text("x"),)}
    assert filled("Q: {q} A: {a}{{}}", fields) == (Text("Q: {a}"), RED, Text(" A: x{}"))
    with pytest.raises(KeyError, match="missing"):
        filled("{missing}", fields)


def test_a_follow_up_keeps_the_conversation_and_marks_an_empty_reply() -> None:
    asked = (Turn("user", (Text("well?"), RED)),)
    assert followed_up(asked, "hm", "again") == (
        *asked,
        Turn("assistant", (Text("hm"),)),
        Turn("user", (Text("again"),)),
    )
    assert followed_up(asked, "", "again")[1].content == (Text(EMPTY_REPLY),)

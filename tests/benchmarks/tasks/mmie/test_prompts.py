"""Queries are worded as the paper's tables word them, and as a user asks otherwise."""

from __future__ import annotations

from itertools import pairwise

import pytest
from pairwise_helpers import document
from pairwise_helpers import sample as query_of

from plait.benchmarks.tasks.mmie.prompts import prompts
from plait.generators.document import Image, Query, Text, Turn
from plait.generators.errors import UsageError

A, B = Image.of(b"a"), Image.of(b"b")


def content(*parts):
    return document(*parts).segments


def sample(category, *parts):
    return query_of(*parts, id=f"{category}-1", category=category)


RACE = "Before heading to the race, we stopped at Starbucks for coffee."


@pytest.mark.parametrize(
    ("query", "variant", "asked"),
    [
        (
            sample("SA", RACE, A),
            "text",
            "I will give you the beginning of a story. Continue the story with detailed "
            f"description.\nQuestion:\n{RACE}\n|\nAnswer:",
        ),
        (
            sample("PBL", "How to?", "Method 1: So", "Step 1: Go.\nGo on.", A),
            "interleaved",
            "I will give you a question and the first step to complete it. I want to know "
            "what should I do next. Explain it to me with text and images.\nQuestion:\n"
            "How to?\nMethod 1: So\nStep 1: Go.\nGo on.\n|\nAnswer:",
        ),
        (
            sample("MSR", "The first image is", A, "the second", B, "More bars?"),
            "text",
            "I will give you a question with image(s). Please solve this question.\n"
            "Question:\nThe first image is\n|\nthe second\n|\nMore bars?\nAnswer:",
        ),
    ],
)
def test_the_published_wording(query, variant, asked):
    """Tables 12-14 of the paper, with the published examples and one of two variants."""
    (turn,) = prompts()(query, variant)
    assert turn.role == "user"
    assert "".join(s.text if isinstance(s, Text) else "|" for s in turn.content) == asked
    images = [s for s in turn.content if isinstance(s, Image)]
    assert images == [s for s in query.question if isinstance(s, Image)]


@pytest.mark.parametrize("parts", [(A, B), (A,), ("", A), ("x\n\n", " y")])
def test_no_content_is_lost_or_changed(parts):
    (turn,) = prompts()(sample("SA", *parts), "interleaved")
    assert [s for s in turn.content if isinstance(s, Image)] == [
        p for p in parts if isinstance(p, Image)
    ]
    text = "".join(s.text if isinstance(s, Text) else "|" for s in turn.content)
    middle = "\n".join(p if isinstance(p, str) else "|" for p in parts)
    assert text.endswith(f"Question:\n{middle}\nAnswer:")
    kinds = [type(s) for s in turn.content]
    assert (Text, Text) not in pairwise(kinds)


def test_earlier_turns_stay_and_the_last_is_worded():
    said = (("user", "a"), ("assistant", "b"), ("user", "c"))
    turns = tuple(Turn(role, content(text)) for role, text in said)
    query = Query(id="SA-1", category="SA", field="x", turns=turns)
    asked = prompts()(query, "text")
    assert asked[:2] == turns[:2]
    assert asked[2].content[0].text.endswith("Question:\nc\nAnswer:")


def test_a_template_of_the_users_own_and_braces_in_the_content():
    words = prompts({"MSR": {"text": "### Question\n{question}\n### End {x}"}})
    query = sample("MSR", "{question} {0}", A)
    asked = content("### Question\n{question} {0}\n", A, "\n### End {x}")
    assert words(query, "text")[0].content == asked
    bare = prompts({"SA": {"interleaved": "{question}"}})
    assert bare(sample("SA", A), "interleaved")[0].content == (A,)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"PLB": {"text": "x"}}, "unknown prompt category 'PLB'; did you mean 'PBL'"),
        ({"SA": {"txt": "x"}}, "unknown prompt variant of SA 'txt'; did you mean 'text'"),
        ({"SA": {"plain": "x"}}, "'plain'.*Valid: interleaved, text"),
        ({"SA": {"text": 3}}, "SA.text must be a string, not 3"),
        ({"SA": {"text": "{question} {question}"}}, "more than once"),
    ],
)
def test_wrong_overrides_are_refused(overrides, message):
    with pytest.raises(UsageError, match=message):
        prompts(overrides)


def test_equal_queries_in_two_folders_keep_their_own_images():
    """One process may read the same data twice, after the first folder has gone."""
    for place in ("first/a.png", "second/a.png"):
        image = Image(A.digest, place=place)
        turn = Turn("user", (Text("How to?"), image))
        query = Query(id="SA-1", category="SA", field="x", turns=(turn,))
        (asked,) = prompts()(query, "interleaved")
        assert [s.place for s in asked.content if isinstance(s, Image)] == [place]

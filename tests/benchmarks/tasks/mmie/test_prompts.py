"""Queries are worded as the paper's tables word them, and as a user asks otherwise."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.tasks.mmie.prompts import prompts
from generators.document import Image, Sample, Text, Turn
from generators.errors import UsageError

A, B = Image.of(b"a"), Image.of(b"b")


def sample(category, *content):
    return Sample(
        id=f"{category}-1", category=category, field="x", turns=(Turn("user", content),)
    )


# Tables 12-14 of the paper, with the published examples and one of the two variants.
PUBLISHED = [
    (
        sample(
            "SA", Text("Before heading to the race, we stopped at Starbucks for coffee."), A
        ),
        "text",
        (
            Text(
                "I will give you the beginning of a story. Continue the story with "
                "detailed description.\nQuestion:\nBefore heading to the race, we stopped "
                "at Starbucks for coffee.\n"
            ),
            A,
            Text("\nAnswer:"),
        ),
    ),
    (
        sample(
            "PBL", Text("How to?"), Text("Method 1: So"), Text("Step 1: Go.\nGo on."), A
        ),
        "interleaved",
        (
            Text(
                "I will give you a question and the first step to complete it. I want to "
                "know what should I do next. Explain it to me with text and images.\n"
                "Question:\n"
                "How to?\nMethod 1: So\nStep 1: Go.\nGo on.\n"
            ),
            A,
            Text("\nAnswer:"),
        ),
    ),
    (
        sample(
            "MSR", Text("The first image is"), A, Text("the second"), B, Text("More bars?")
        ),
        "text",
        (
            Text(
                "I will give you a question with image(s). Please solve this question.\n"
                "Question:\nThe first image is\n"
            ),
            A,
            Text("\nthe second\n"),
            B,
            Text("\nMore bars?\nAnswer:"),
        ),
    ),
]


@pytest.mark.parametrize(("query", "variant", "content"), PUBLISHED)
def test_the_published_wording(query, variant, content):
    assert prompts()(query, variant) == (Turn("user", content),)


@pytest.mark.parametrize(
    "content", [(A, B), (A,), (Text(""), A), (Text("x\n\n"), Text(" y"))]
)
def test_no_content_is_lost_or_changed(content):
    (turn,) = prompts()(sample("SA", *content), "interleaved")
    assert [s for s in turn.content if isinstance(s, Image)] == [
        s for s in content if isinstance(s, Image)
    ]
    text = "".join(s.text if isinstance(s, Text) else "|" for s in turn.content)
    middle = "\n".join(s.text if isinstance(s, Text) else "|" for s in content)
    assert text.endswith(f"Question:\n{middle}\nAnswer:")
    kinds = [type(s) for s in turn.content]
    assert (Text, Text) not in pairwise(kinds)


def test_earlier_turns_stay_and_the_last_is_worded():
    turns = (
        Turn("user", (Text("a"),)),
        Turn("assistant", (Text("b"),)),
        Turn("user", (Text("c"),)),
    )
    query = Sample(id="SA-1", category="SA", field="x", turns=turns)
    asked = prompts()(query, "text")
    assert asked[:2] == turns[:2]
    assert asked[2].content[0].text.endswith("Question:\nc\nAnswer:")


def test_a_template_of_the_users_own_and_braces_in_the_content():
    words = prompts({"MSR": {"text": "### Question\n{question}\n### End {x}"}})
    query = sample("MSR", Text("{question} {0}"), A)
    assert words(query, "text")[0].content == (
        Text("### Question\n{question} {0}\n"),
        A,
        Text("\n### End {x}"),
    )
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

"""How requests become turns, and how a user's text is kept from steering a template."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from plait.generators.base import Skip
from plait.generators.document import Image, Request, Text, Turn
from plait.pipelines.chat.turns import ControlTokens, too_many_images, turns_of

RED = Image.of(b"red")
TOKENS = ("<image>", "<|im_end|>", "<|im_start|>", "</s>", "<s>", "aa")


def user(*content):
    return Turn("user", tuple(Text(c) if isinstance(c, str) else c for c in content))


def test_neighbouring_texts_become_one_and_empty_ones_none():
    turns = turns_of(Request((user("a", "b", RED, "", RED, "c"),)))
    assert turns == (user("ab", RED, RED, "c"),)


def test_the_system_prompt_is_said_first_and_once():
    request = Request((user("a"),))
    assert turns_of(request, "Be brief.")[0] == Turn("system", (Text("Be brief."),))
    own = Request((Turn("system", (Text("Be kind."),)), user("a")))
    assert turns_of(own, "Be brief.") == (
        Turn("system", (Text("Be brief.\n\nBe kind."),)),
        user("a"),
    )


def test_only_too_many_pictures_are_skipped():
    request = Request((user(RED), user("a", RED)))
    assert too_many_images(request, None) is None
    assert too_many_images(request, 2) is None
    assert isinstance(too_many_images(request, 1), Skip)


def test_tokens_are_broken_visibly_and_named():
    """Also one cut in two by an image, which some templates would join again."""
    (turn,), broken = ControlTokens(TOKENS).neutralise([user("an <image>, ", RED, "</s>")])
    assert turn == user("an < image>, ", RED, "< /s>")
    assert broken == ["<image>", "</s>"]
    (turn,), broken = ControlTokens(TOKENS).neutralise([user("<ima", RED, "ge>")])
    assert (turn, broken) == (user("< ima", RED, "ge>"), ["<image>"])
    turns = [user("a < b > c | image <|x|> <ima ge>", RED, "<imag"), user("e>")]
    assert ControlTokens(TOKENS).neutralise(turns) == (turns, [])
    spaces = [user("a\n\n  b")]
    tokens = ["\n", "\n\n", "  ", "a", ""]
    assert ControlTokens(tokens).neutralise(spaces) == (spaces, [])


pieces = st.lists(
    st.one_of(
        st.sampled_from(TOKENS),
        st.sampled_from(["<", "<|", "<|im", "_end|>", "<ima", "ge>", "a", " ", ""]),
        st.just(RED),
    ),
    max_size=12,
)


@given(pieces)
@example(["<|im_<|im_end|>end|>"])
@example(["aaa"])
@example(["<<image>image>"])
def test_no_token_survives_and_nothing_but_spaces_is_added(content):
    (turn,), _ = ControlTokens(TOKENS).neutralise([user(*content)])
    assert len(turn.content) == len(content)
    texts = [s.text for s in turn.content if isinstance(s, Text)]
    assert not re.search("|".join(map(re.escape, TOKENS)), "".join(texts))
    before = "".join(c for c in content if isinstance(c, str))
    assert "".join(texts).replace(" ", "") == before.replace(" ", "")
    assert [s for s in turn.content if s is RED] == [c for c in content if c is RED]

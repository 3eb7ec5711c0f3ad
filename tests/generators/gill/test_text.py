"""Prompts, ids and answers in text, with expected values worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from generators.document import Image, Text, Turn
from generators.errors import CheckpointError
from generators.gill.draft import first_sentence, pieces
from generators.gill.models import toy_tokenizer
from generators.gill.settings import GillDraftSettings
from generators.gill.tokens import GillTokens

SETTINGS = GillDraftSettings()
NAMES = "".join(f"[IMG{i}]" for i in range(8))
A, B = Image.of(b"a"), Image.of(b"b")


@pytest.fixture(scope="module")
def tokens() -> GillTokens:
    return GillTokens(toy_tokenizer(), 8)


def user(*content: str | Image) -> Turn:
    return turn("user", *content)


def turn(role, *content: str | Image) -> Turn:
    return Turn(role, tuple(Text(c) if isinstance(c, str) else c for c in content))


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([user("Why?")], ["Q: Why?\nA:"]),
        ([user(A, "Why?")], [A, "Q: Why?\nA:"]),
        ([user(A, B, "Why?")], [A, B, "Q: Why?\nA:"]),
        ([user("See", A, "and", B)], ["Q: See", A, "and", B, "\nA:"]),
        ([user("One.", " Two?")], ["Q: One.", " Two?\nA:"]),
        ([user(A)], [A, "Q: \nA:"]),
        (
            [turn("system", "Be kind."), user("Hi"), turn("assistant", " Yes", A), user(B)],
            ["Be kind.", "Q: Hi\nA:", " Yes", A, "\n", B, "Q: \nA:"],
        ),
    ],
)
def test_prompts(turns, expected):
    assert pieces(turns, SETTINGS, NAMES) == expected


def test_templates_may_be_others():
    """Names of image tokens instead of images, as upstream has them; or no template."""
    settings = GillDraftSettings(history_images="vokens")
    turns = [user("Hi"), turn("assistant", " Yes.", A, " no"), user("So?")]
    assert pieces(turns, settings, NAMES) == [
        "Q: Hi\nA:",
        f" Yes. {NAMES} no\n",
        "Q: So?\nA:",
    ]
    settings = GillDraftSettings(question="", answer="")
    assert pieces([user("", A)], settings, NAMES) == [A]


def test_ids_follow_the_vocabulary(tokens):
    """As OPT's 50265 are followed by <|image|> and [IMG0] to [IMG7], 50266 to 50273."""
    own = tokens.tokenizer.get_vocab_size()
    assert tokens.cls == own
    assert tokens.vokens == tuple(range(own + 1, own + 9))
    assert tokens.size == own + 9
    assert tokens.bos == 2


def test_special_names_stand_for_their_tokens_and_are_not_decoded(tokens):
    ids = tokens.encode("a</s><pad>b")
    assert ids[1:3] == [2, 1]
    assert tokens.decode(ids) == "ab"
    assert tokens.decode([tokens.cls, *tokens.encode(" red")]) == " red"


def test_decoding_spells_as_slow_tokenizers_did(tokens):
    first, second = tokens.vokens[:2]
    ids = [*tokens.encode(" red"), first, second, *tokens.encode(" boat")]
    assert tokens.decode(ids) == " red [IMG0] [IMG1]  boat"
    assert tokens.decode(tokens.encode(" it is n't so , they 're !")) == (
        " it isn't so, they're!"
    )


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="[<")))
def test_text_survives(text):
    tokens = GillTokens(toy_tokenizer(), 8)
    assert tokens.tokenizer.decode(tokens.encode(text)) == text


def test_a_vocabulary_without_special_tokens_is_refused():
    with pytest.raises(CheckpointError, match=r"lacks '</s>'"):
        GillTokens(Tokenizer(models.BPE(vocab={"a": 0}, merges=[])), 8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" a bird. a boat.", " a bird."),
        ("\n\na bird. So\nand\n", "a bird. So\n"),
        ("a bird", "a bird"),
        ("...", "."),
        ("\n", ""),
        ("", ""),
    ],
)
def test_first_sentence(text, expected):
    assert first_sentence(text) == expected


def test_settings_that_contradict_each_other():
    with pytest.raises(ValueError, match=r"top_p 0\.9 has no effect at temperature 0"):
        GillDraftSettings(top_p=0.9)

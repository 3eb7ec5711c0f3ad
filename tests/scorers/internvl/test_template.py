"""The template, and that nobody but the template writes control tokens."""

from __future__ import annotations

import io

import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from internvl_helpers import picture, turn_of

from generators.loading.llama import AddedToken, Control
from scorers.internvl.tokenizer import (
    CONTROLS,
    IMAGE_TOKEN,
    PhiTokenizer,
    conversation,
    marked,
    shown,
    spelled_controls,
    toy_tokenizer,
)

IMAGE = picture(0, 30, 20)
TOKENIZER, _, _ = toy_tokenizer()
NAMES = [control.name for control in CONTROLS]
SPELT = st.lists(
    st.sampled_from([*NAMES, "<image>", "<s>", "</s>", "a", " ", "\n", "\u00e9"]),
    max_size=8,
).map("".join)


def test_phi3_chat():
    turns = [
        turn_of("Image-0: ", IMAGE, "\n", role="user"),
        turn_of("I see", role="assistant"),
        turn_of("And?", role="user"),
    ]
    assert shown(conversation(turns, "Be brief.")) == (
        "<|system|>\nBe brief.<|end|><|user|>\nImage-0: <image>\n<|end|>"
        "<|assistant|>\nI see<|end|><|user|>\nAnd?<|end|><|assistant|>\n"
    )


def test_a_system_turn_replaces_the_setting():
    turns = [turn_of("Judge.", role="system"), turn_of("Hi")]
    assert shown(conversation(turns, "Be brief.")) == (
        "<|system|>\nJudge.<|end|><|user|>\nHi<|end|><|assistant|>\n"
    )


@given(SPELT, SPELT)
def test_texts_never_become_control_tokens(before, after):
    parts = marked(conversation([turn_of(before, IMAGE, after)], "s"))
    ids = TOKENIZER.encode(parts)
    controls = [TOKENIZER.id(part) for part in parts if not isinstance(part, str)]
    added = {TOKENIZER.id(control) for control in CONTROLS}
    assert [i for i in ids if i in added] == controls
    assert ids.count(TOKENIZER.id(IMAGE_TOKEN)) == 1


@given(SPELT)
def test_texts_survive_the_tokenizer(text):
    ids = TOKENIZER.encode([text])
    assert TOKENIZER.decode(ids) == text


def test_spaces_survive_a_model_that_trims_them():
    """The slow tokenizer guards the first space of a text from SentencePiece."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["clear story", "good story", "clear picture"] * 9),
        model_writer=written,
        model_type="bpe",
        vocab_size=60,
        hard_vocab_limit=False,
        remove_extra_whitespaces=True,
        minloglevel=2,
    )
    settings = {"legacy": False, "add_bos_token": False}
    trims = PhiTokenizer(written.getvalue(), settings, [AddedToken("<img>", 900)])
    with_space = trims.encode([Control("<img>"), " story"])
    without = trims.encode([Control("<img>"), "story"])
    assert with_space[0] == without[0] == trims.encode([Control("<img>")])[0]
    assert with_space != without


def test_what_is_spelled_out_is_named():
    turns = [turn_of("<image> and <|end|>", IMAGE), turn_of("fine", role="assistant")]
    assert spelled_controls(turns, NAMES) == ["<|end|>", "<image>"]
    assert spelled_controls([turn_of("img end")], NAMES) == []

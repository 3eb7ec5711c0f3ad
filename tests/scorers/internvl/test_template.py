"""The template, and that nobody but the template writes control tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from internvl_helpers import picture, turn_of

from scorers.internvl.tokenizer import (
    CONTROLS,
    IMAGE_TOKEN,
    conversation,
    marked,
    shown,
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


@given(SPELT, SPELT)
def test_texts_never_become_control_tokens(before, after):
    parts = marked(conversation([turn_of(before, IMAGE, after)], "s"))
    ids = TOKENIZER.encode(parts)
    controls = [TOKENIZER.id(part) for part in parts if not isinstance(part, str)]
    added = {TOKENIZER.id(control) for control in CONTROLS}
    assert [i for i in ids if i in added] == controls
    assert ids.count(TOKENIZER.id(IMAGE_TOKEN)) == 1

"""Tokenizers as checkpoints store them, and the marks that end an answer."""

from __future__ import annotations

import functools
import json

import minigpt5_helpers as tiny
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from generators.decoding.drafting import NativePrompt, Stop
from generators.loading.files import Files
from generators.loading.llama import LlamaPieces
from generators.minigpt5.draft import MiniGPT5Track
from generators.minigpt5.models import toy_tokenizer
from generators.minigpt5.settings import MiniGPT5DraftSettings
from generators.minigpt5.tokens import (
    MiniGPT5Vocabulary,
    stored_bos,
    stored_tokenizer,
)

pytestmark = pytest.mark.models


def test_a_tokenizer_json_is_read_too(tmp_path):
    toy_tokenizer().save(str(tmp_path / "tokenizer.json"))
    tokenizer = stored_tokenizer(Files(str(tmp_path)))
    ids = tokenizer.encode("the old river </s>###")
    assert tokenizer.decode(ids) == "the old river </s>###"
    assert not {0, 1, 2} & set(ids)
    assert tokenizer.id_of("no such piece") is None


@example("a</s>b")
@example("<s>a<unk>[IMG0]<ImageHere>")
@given(st.text())
def test_any_text_comes_back(text):
    """Also through bytes, and names of special tokens, which in a question are text.

    LLaMA itself writes a space as U+2581.
    """
    assume("\u2581" not in text)
    tokenizer = _sentencepiece()
    ids = tokenizer.encode(text)
    assert not {0, 1, 2} & set(ids)
    assert tokenizer.decode(ids) == text


@functools.cache
def _sentencepiece() -> LlamaPieces:
    return LlamaPieces.stored(tiny.TOKENIZER)


def test_both_spellings_of_the_mark_end_an_answer():
    """`###` in one piece, and in the two that follow a line break."""
    vocabulary = MiniGPT5Vocabulary.of(_sentencepiece(), tiny.ROWS, bos=1)
    assert set(vocabulary.stops) == set(tiny.MARKS)
    prompt = NativePrompt(([1] * 5,), "", 5, 0, 1)
    for mark in tiny.MARKS:
        track = MiniGPT5Track(prompt, 512, vocabulary, MiniGPT5DraftSettings())
        for token in (300, *mark):
            assert track.stop is None
            track.take(token)
        assert track.stop is Stop.MARK
        assert track.parts() == [vocabulary.text([300])]


@pytest.mark.parametrize(
    ("files_", "expected"),
    [
        ({}, 1),
        ({"tokenizer_config.json": {"bos_token": {"content": "</s>"}}}, 2),
        ({"special_tokens_map.json": {"bos_token": "</s>"}}, 2),
        ({"special_tokens_map.json": {"bos_token": ""}}, 0),
        ({"special_tokens_map.json": {"pad_token": "x"}}, 1),
        (
            {
                "special_tokens_map.json": {"bos_token": "<s>"},
                "tokenizer_config.json": {"bos_token": "</s>"},
            },
            1,
        ),
    ],
)
def test_prompts_begin_with_the_bos_the_checkpoint_names(files_, expected, tmp_path):
    for name, content in files_.items():
        (tmp_path / name).write_text(json.dumps(content))
    tokenizer = _sentencepiece()
    assert stored_bos(Files(str(tmp_path)), tokenizer) == expected

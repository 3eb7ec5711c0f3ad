"""MiniGPT-5's prompts and tokens, and where its images and answers begin and end."""

import functools
import json

import minigpt5_helpers as upstream
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from natives import asked, tiny, turn
from picture_helpers import smooth

from plait.generators.decoding import batch_writer
from plait.generators.decoding.drafting import NativePrompt, Stop
from plait.generators.document import Image, Request
from plait.generators.loading.files import Files
from plait.generators.loading.llama import LlamaPieces
from plait.generators.minigpt5.draft import MiniGPT5Track, prompt_parts
from plait.generators.minigpt5.models import (
    MiniGPT5Vocabulary,
    load_tokenizer,
    read_bos,
    toy_tokenizer,
)
from plait.generators.minigpt5.settings import MiniGPT5DraftSettings
from plait.generators.minigpt5.vision import encoder_pixels

pytestmark = pytest.mark.models

VIST = (
    "Give the following images in <Img>ImageContent</Img> format. You will be able to see "
    "the images once I provide it to you. Please understanding images and generate story."
)
SHORT = {"system_prompt": "S", "request": "R"}


def shown(request: Request, /, **settings) -> str:
    parts = prompt_parts(request, MiniGPT5DraftSettings(**settings))
    return "".join("<ImageHere>" if isinstance(p, Image) else p for p in parts)


def test_the_template_of_each_checkpoint():
    """Written out from VISTDataset, MMDialogDataset and CC3MDataset (dataloader.py)."""
    image, mmdialog = "<Img><ImageHere></Img>", "generate conversations with appropriate"
    conversing = VIST.replace("understanding images and generate story", mmdialog)
    expected = {
        "vist": f"{VIST}###Human:first{image}then{image}\n Tell me the next scene with "
        "image. ###Assistant:",
        "mmdialog": f"{conversing.removesuffix('.')} images. ###Human: first{image}then"
        f"{image} ###Assistant:",
        "none": "You will be able to generate image according to command.###Human: first"
        f"{image}then{image} ###Assistant:",
    }
    asking = asked("first", smooth(), "then", smooth())
    assert {k: shown(asking, finetuned=k) for k in expected} == expected


def test_texts_are_stripped_beside_images_and_not_elsewhere():
    """As upstream's slow tokenizer does beside its added token."""
    settings = {"before_image": " ", "after_image": "\n", "system_prompt": "S"}
    request = asked(" a ", smooth(), smooth(1), " b ", smooth(2), "the river")
    parts = prompt_parts(request, MiniGPT5DraftSettings(**settings))
    ending = "the river Tell me the next scene with image. ###Assistant:"
    assert [p for p in parts if isinstance(p, str)] == ["S###Human: a", "b", ending]


def test_every_text_of_the_template_is_a_setting():
    texts = {"human": "H", "assistant": "A", "after_last_image": "E"}
    texts |= {"before_image": "(", "after_image": ")"}
    assert shown(asked("x", smooth()), **SHORT, **texts) == "SHx(<ImageHere>)ERA"
    assert shown(asked(smooth(), "x"), **SHORT, **texts) == "SH(<ImageHere>)xRA"
    plain = shown(asked("x"))
    assert shown(asked("x"), system_prompt="") == plain.removeprefix(VIST)


def test_turns_of_a_conversation_and_an_answer_begun():
    turns = (
        turn("system", "Be brief."),
        turn("user", "one"),
        turn("assistant", "two", smooth()),
        turn("user", "three"),
    )
    assert shown(Request(turns), **SHORT) == (
        "S Be brief.###Human:one ###Assistant: two<Img><ImageHere></Img> ###Human:three"
        "R###Assistant:"
    )
    begun = Request((turn("user", "one"), turn("assistant", "two")))
    assert shown(begun, **SHORT) == "S###Human:oneR ###Assistant: two"


def test_images_of_any_shape_are_made_square():
    for width, height in ((1, 1), (3, 700), (20_000, 9)):
        for fit in ("pad", "crop"):
            image = smooth(0, width=width, height=height)
            assert encoder_pixels(image, 28, fit).shape == (3, 28, 28)


def test_ids_that_are_not_text_are_noted():
    """[IMG3] and <ImageHere> are neither words nor images."""
    stage, prompt = tiny("minigpt5"), tiny("minigpt5").prompt(asked("x"))
    track = stage.track(prompt)
    for token in (300, stage.vocabulary.vokens[3], stage.vocabulary.rows - 1, 301):
        track.take(token)
    result = stage.result(prompt, track)
    assert result.notes["left out"] == {"[IMG3]": 1, "<ImageHere>": 1}
    assert "IMG" not in result.value.text


def test_the_template_enters_the_key():
    defaults = MiniGPT5DraftSettings()
    keyed = defaults.key_fields("tiny")
    assert keyed["system_prompt"] == VIST
    assert MiniGPT5DraftSettings(system_prompt=VIST).key_fields("tiny") == keyed
    assert MiniGPT5DraftSettings(finetuned="mmdialog").key_fields("tiny")["request"] == " "
    rebuilt = MiniGPT5DraftSettings(**keyed, **defaults.options("tiny"))
    assert rebuilt.wording == defaults.wording


def test_a_tokenizer_json_is_read_too(tmp_path):
    toy_tokenizer().save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(Files(str(tmp_path)))
    ids = tokenizer.encode("the old river </s>###")
    assert tokenizer.decode(ids) == "the old river </s>###"
    assert not {0, 1, 2} & set(ids)
    assert tokenizer.id_of("no such piece") is None


@example("a</s>b")
@example("<s>a<unk>[IMG0]<ImageHere>")
@settings(max_examples=30)
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
    return LlamaPieces.read(upstream.TOKENIZER)


def test_both_spellings_of_the_mark_end_an_answer():
    """`###` in one piece, and in the two that follow a line break."""
    vocabulary = MiniGPT5Vocabulary.of(_sentencepiece(), upstream.ROWS, bos=1)
    assert set(vocabulary.stops) == set(upstream.MARKS)
    prompt = NativePrompt(([1] * 5,), "", 5, 0, 1)
    for mark in upstream.MARKS:
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
    assert read_bos(Files(str(tmp_path)), tokenizer) == expected


LENGTHS = (3, 40, 1, 17, 8, 25)
GREEDY = {"greedy": True, "max_new_tokens": 30}


def prompts(count: int = 6, seed: int = 0) -> list[NativePrompt]:
    """Ragged runs of words."""
    generator = torch.Generator().manual_seed(5)
    runs = [torch.randint(300, 400, (n,), generator=generator).tolist() for n in LENGTHS]
    numbered = list(enumerate(runs[:count], start=seed))
    return [NativePrompt((ids,), "", len(ids), 0, i) for i, ids in numbered]


def tracks(count: int = 6, seed: int = 0, **settings):
    return tiny("minigpt5", **settings).tracks(prompts(count, seed))


def test_an_image_begun_by_the_last_token_has_its_states():
    """Upstream fails with an IndexError there."""
    (cut,) = tracks(1, force_image=True, max_new_tokens=1)
    (whole,) = tracks(1, force_image=True, max_new_tokens=9)
    assert cut.ids == [tiny("minigpt5").vocabulary.begin_image]
    assert cut.stop is Stop.TOKENS
    assert [len(states) for states in cut.images] == [8]
    for a, b in zip(cut.images[0], whole.images[0], strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("count", "behind", "passes"),
    [
        (1, 0, [1, 8, 1, 1]),
        (1, 1, [1, 1, 7, 1, 1, 1]),
        (6, 0, [1, 8, 1, 1]),
        (6, 1, [1, 1, 7, 1, 1, 1]),
    ],
)
def test_an_image_is_read_in_one_pass(count, behind, passes, monkeypatch):
    """As soon as the host knows of it; ids and states are those of one pass for each."""
    monkeypatch.setattr(batch_writer, "steps_behind", lambda device: behind)
    settings = {"force_image": True, "max_images": 1, "max_new_tokens": 4}
    decoder = tiny("minigpt5", **settings).decoder
    tokens: list[int] = []
    usual = decoder.forward

    def noted(*, inputs_embeds, past_key_values, **options):
        is_prefill = past_key_values.columns_in_use == 0
        tokens.append(0 if is_prefill else inputs_embeds.shape[1])
        return usual(
            inputs_embeds=inputs_embeds, past_key_values=past_key_values, **options
        )

    monkeypatch.setattr(decoder, "forward", noted)
    together = tracks(count, **settings)
    assert [number for number in tokens if number] == passes
    monkeypatch.setattr(batch_writer._Runs, "take", lambda runs, records: 1)
    for one, other in zip(together, tracks(count, **settings), strict=True):
        assert (one.ids, one.stop) == (other.ids, other.stop)
        for states, others in zip(one.images, other.images, strict=True):
            pairs = (torch.stack(states), torch.stack(others))
            torch.testing.assert_close(*pairs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("context", [47, 48, 59])
def test_no_answer_passes_the_context_and_images_are_whole(context):
    settings = {"force_image": True, "end_id": 3, "repetition_penalty": 1.0}
    answers = tracks(context=context, **settings)
    full = [t for t in answers if t.stop is Stop.CONTEXT]
    assert full
    assert all(t.length == context for t in full)
    assert all(t.length <= context for t in answers)
    assert all(len(states) == 8 for t in answers for states in t.images)
    assert bool(answers[1].images) == (context >= 40 + 8)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_images_are_limited(limit):
    begin = tiny("minigpt5").vocabulary.begin_image
    answers = tracks(seed=30, max_images=limit, repetition_penalty=1.0)
    assert max(len(t.images) for t in answers) == limit
    assert all(t.ids.count(begin) == len(t.images) for t in answers)


def test_the_leading_id_is_penalised_like_a_generated_one():
    settings = GREEDY | {"repetition_penalty": 1e6}
    (track,) = tracks(1, **settings)
    assert len(set(track.ids)) == len(track.ids)
    (other,) = tracks(1, **settings, leading_id=track.ids[0])
    assert other.ids[0] != track.ids[0]


def test_an_end_id_ends_the_answer():
    (free,) = tracks(1, **GREEDY)
    (ended,) = tracks(1, **GREEDY, end_id=free.ids[2])
    assert ended.ids == free.ids[:3]
    assert ended.stop is Stop.END

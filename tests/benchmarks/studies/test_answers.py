"""Texts by token, images by pixel: against known numbers and torchmetrics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from paths import CHECKOUT
from picture_helpers import saved
from PIL import Image as Pillow

from benchmarks.studies.answers import (
    WORDS,
    AnswerDifferences,
    ImageMeter,
    answer_pair,
    splitter_of,
    tables,
)
from cluster.walks import Pending
from generators.base import Failure, Kind, Result, Skip, StageSpec
from generators.document import Document, Image, Text
from generators.pictures import PictureError, encode

MINI = CHECKOUT / "generators" / "mini" / "weights" / "qwen2-vl"


def noise(seed: int, side: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


def png(pixels: np.ndarray) -> Image:
    return encode(Pillow.fromarray(pixels))


def draft(**about: object) -> StageSpec:
    return StageSpec(name="m", kind=Kind.DRAFT, target="m:M", **about)


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [
        ("", "", None),
        ("a red cat", "a red cat", None),
        ("a red cat", "a red dog", 2),
        ("a red cat", "a red", 2),
        ("a red cat", "a red  cat", 2),
        ("", "a", 0),
        ("a", "a ", 1),
    ],
)
def test_the_first_difference_in_words(one: str, other: str, at: int | None) -> None:
    assert WORDS.first_difference(one, other) == at
    assert WORDS.first_difference(other, one) == at


def test_positions_are_tokens_where_the_tokenizer_is_at_hand() -> None:
    from tokenizers import Tokenizer

    there = draft(weights="pretrained", options={"model": str(MINI)})
    # Behind a server, with random weights, not downloaded: the next one is asked.
    without = [
        None,
        draft(options={"model": "gpt-4o"}),
        draft(weights="tiny", options={"model": str(MINI)}),
        draft(weights="pretrained", options={"model": "nobody/nothing"}),
    ]
    splitter = splitter_of([*without, there])
    assert splitter.unit == "tokens"
    one, other = "a red circle left of a square", "a red circle left of a triangle"
    tokenizer = Tokenizer.from_file(str(MINI / "tokenizer.json"))
    ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in (one, other)]
    at = splitter.first_difference(one, other)
    assert at is not None
    assert ids[0][:at] == ids[1][:at]
    assert ids[0][at] != ids[1][at]
    assert splitter_of(without) == WORDS


def test_pixels_differ_alike_in_both_directions() -> None:
    one = np.zeros((20, 20, 3), np.uint8)
    other = one.copy()
    other[0, 0] = (255, 0, 3)
    for pair in ((one, other), (other, one)):
        found = ImageMeter()(*map(png, pair))
        assert found is not None
        assert found.mean_difference == pytest.approx(258 / 1200)
        assert found.largest_difference == 255
        error = (255**2 + 3**2) / 1200
        assert found.psnr == pytest.approx(10 * np.log10(255**2 / error))


def test_the_same_pixels_in_another_file_are_identical() -> None:
    pixels = noise(1)
    bitmap = Image.of(saved(Pillow.fromarray(pixels), "BMP"))
    assert ImageMeter()(png(pixels), bitmap) is None


def test_structure_is_that_of_torchmetrics() -> None:
    import torch
    from torchmetrics.functional.image import structural_similarity_index_measure

    one = noise(1, 320)
    mixed = (0.7 * one + 0.3 * noise(2, 320)).astype(np.uint8)
    found = ImageMeter()(png(one), png(mixed))
    inputs = (torch.tensor(p.transpose(2, 0, 1)[None]) / 255 for p in (one, mixed))
    theirs = structural_similarity_index_measure(*inputs, data_range=1.0)
    assert found is not None
    assert found.ssim == pytest.approx(float(theirs), abs=5e-3)


def test_what_cannot_be_measured_has_no_number() -> None:
    other_size = ImageMeter()(png(noise(1)), png(noise(1, 32)))
    assert other_size is not None
    assert (other_size.same_size, other_size.psnr) == (False, None)
    small = ImageMeter()(png(noise(1, 8)), png(noise(2, 8)))
    assert small is not None
    assert small.ssim is None
    assert small.psnr is not None
    with pytest.raises(PictureError):
        ImageMeter()(png(noise(1)), Image.of(b"GIF89a"))


@pytest.mark.models
def test_lpips_only_with_its_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch
    from torchmetrics.functional.image import learned_perceptual_image_patch_similarity
    from torchvision.models import alexnet

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    place = tmp_path / "hub" / "checkpoints" / "alexnet-owt-7be5be79.pth"
    one, other = noise(1, 96), noise(2, 96)
    without = ImageMeter()
    found = without(png(one), png(other))
    assert found is not None
    assert found.lpips is None
    assert str(place) in without.note
    place.parent.mkdir(parents=True)
    torch.save(alexnet(weights=None).state_dict(), place)
    inputs = (torch.tensor(p.transpose(2, 0, 1)[None]) / 255 for p in (one, other))
    expected = learned_perceptual_image_patch_similarity(
        *inputs, net_type="alex", normalize=True
    )
    meter = ImageMeter()
    found = meter(png(one), png(other))
    assert found is not None
    assert found.lpips == pytest.approx(float(expected), rel=1e-5)
    small = meter(png(noise(1, 32)), png(noise(2, 32)))
    assert small is not None
    assert small.lpips is None


def test_every_pair_is_counted_once() -> None:
    white, grey = (np.full((16, 16, 3), n, np.uint8) for n in (255, 250))
    text, other = Text("a red cat"), Text("a red dog")
    answers = {
        "same": (Document((text, png(white))), Document((text, png(white)))),
        "text": (Document((text,)), Document((other,))),
        "image": (Document((png(white),)), Document((png(grey),))),
        "more": (Document((text, png(white))), Document((text,))),
        "order": (Document((text, png(white))), Document((png(white), text))),
    }
    outcomes = {
        **{name: (Result(a), Result(b)) for name, (a, b) in answers.items()},
        "lost": (Result(answers["text"][0]), Failure("died")),
        "made": (Skip("several images"), Result(answers["text"][0])),
        "neither": (Failure("died"), Failure("died")),
        "waits": (Pending([], []), Failure("died")),
    }
    pairs = [answer_pair(n, 1, o, WORDS, ImageMeter()) for n, o in outcomes.items()]
    found = AnswerDifferences.of(("a", "b"), "words", pairs)
    about = json.loads(json.dumps(found.as_json()))
    assert (about["compared"], about["equal"], about["other_order"]) == (5, 1, 2)
    assert (about["only_first"], about["only_second"]) == (1, 1)
    assert about["texts"]["n"] == 4
    assert about["texts"]["equal"] == 3
    assert about["texts"]["first_difference"]["median"] == 2
    assert about["images"]["n"] == 3
    assert about["images"]["identical"] == 2
    assert about["images"]["unpaired"] == 1
    assert about["images"]["mean_difference"]["mean"] == 5
    differing = [pair["query"] for pair in about["differing"]]
    assert differing == ["text", "image", "more", "order", "lost", "made", "waits"]
    texts, images = tables([found], "")
    assert [cell.text for cell in texts.rows[0]][:5] == ["a -> b", "5", "1", "4", "3"]
    assert [cell.text for cell in images.rows[0]][:5] == ["a -> b", "3", "2", "0", "1"]

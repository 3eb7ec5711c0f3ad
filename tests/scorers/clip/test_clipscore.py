"""The scorers of CLIP: pairs, settings, what names a record, and likeness of images."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
from clipscore_helpers import candidate, picture, pixels, tiny
from contents import document as document_of
from contents import query_of

from plait.cluster.walks import drive
from plait.generators.base import Unscored
from plait.generators.checkpoints import pinning
from plait.generators.document import Image, Text
from plait.scorers import resolve_scorer
from plait.scorers.clipscore import clean_text, pairs_of
from plait.scorers.embeddings.settings import PUBLISHED, ClipSettings

I0, I1, I2, I3 = (picture(i) for i in range(4))


@pytest.mark.parametrize(
    ("segments", "texts"),
    [
        ([], []),
        (["a"], []),
        (["a", I0], ["a"]),
        (["a", I0, "b", I1], ["a", "b"]),
        (["a", I0, "b", I1, "c"], ["a", "b"]),
        (["a", I0, I1, "b", I2], ["a", "a", "b"]),
        ([I0, "a"], ["a"]),
        ([I0, "a", I1, "b"], ["a", "a"]),
        ([I0, I1, "a", I2, I3], ["a", "a", "a", "a"]),
        ([I0, "a", "b", I1, "c"], ["a\nb", "a\nb"]),
        (["a", "b", I0], ["a\nb"]),
        (["a", "  \n", "b", I0], ["a\nb"]),
        (["a", I0, " ", I1], ["a", "a"]),
        ([" ", I0, "a", I1], ["a", "a"]),
        ([I0, "", I1], ["", ""]),
        ([I0], [""]),
        ([" a ", I0], ["a"]),
        (["a", I0, "b", I0], ["a", "b"]),
        (["a", I0, "&nbsp;", I1], ["a", "a"]),
    ],
)
def test_pairing(segments, texts):
    document = candidate(*segments).document
    pairs = pairs_of(document, clean_text)
    assert [p.text for p in pairs] == texts
    assert tuple(p.image for p in pairs) == document.images
    assert [p.position for p in pairs] == list(range(len(texts)))


ASKED, ANSWER = query_of("A cat"), document_of("my cat", picture(1))


@pytest.mark.parametrize(
    "change", [{"prefix": ""}, {"long_text": "mean"}, {"model": "ViT-L-14:openai"}]
)
def test_settings_that_change_results_change_the_key(change):
    usual, changed = (
        [
            job.key
            for job in next(resolve_scorer("clipscore", "dummy", s).judge(ASKED, ANSWER))
        ]
        for s in ({}, change)
    )
    assert usual[0] != changed[0]


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_published_names_and_hub_ids_are_pinned_to_a_commit():
    named = ClipSettings(revision=COMMIT)
    assert named.identity("pretrained") == (
        f"hub:timm/vit_base_patch32_clip_224.openai@{COMMIT}"
    )
    assert named.spec("clipscore", "pretrained").options["revision"] == COMMIT
    by_id = ClipSettings(model="openai/clip-vit-base-patch32", revision=COMMIT)
    assert by_id.identity("pretrained") == f"hub:openai/clip-vit-base-patch32@{COMMIT}"


def test_weights_file_is_named_by_its_content_and_needs_an_architecture(tmp_path):
    path = tmp_path / "clip.pt"
    path.write_bytes(b"one")
    with pytest.raises(ValueError, match="set `architecture`"):
        ClipSettings(model=str(path))
    settings = ClipSettings(model=str(path), architecture="ViT-B-32")
    first = settings.identity("pretrained")
    path.write_bytes(b"two")
    assert settings.identity("pretrained") != first


@pytest.mark.models
def test_published_table_agrees_with_open_clip():
    import open_clip

    for name, published in PUBLISHED.items():
        architecture, tag = name.split(":")
        theirs = open_clip.get_pretrained_cfg(architecture, tag)
        assert theirs["hf_hub"] == published.repo + "/"
        quick = "-quickgelu" if theirs.get("quick_gelu") else ""
        assert published.architecture == architecture + quick
        config = open_clip.get_model_config(published.architecture)
        assert config.get("quick_gelu", False) == bool(quick)


def test_only_the_repository_behind_a_name_is_pinned() -> None:
    repo = "timm/vit_base_patch32_clip_224.openai"
    with pinning({f"{repo}@main": f"hub:{repo}@{COMMIT}"}) as pins:
        options = ClipSettings().options("pretrained")
    assert set(pins.known) == {f"{repo}@main"}
    assert not pins.missing
    assert options["revision"] == COMMIT


TOLERANCE = 2e-6
"""Of cosines: float32 towers against float64 ones."""


def reference(seeds: list[int]) -> float:
    """Mean pairwise cosine in float64, pair by pair."""
    import torch
    from open_clip.transform import image_transform

    model = copy.deepcopy(tiny().model).double()
    transform = image_transform(model.visual.image_size, is_train=False)
    with torch.no_grad():
        rows = [
            model.encode_image(transform(pixels(s))[None].double())[0].numpy()
            for s in seeds
        ]
    cosines = [
        a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in itertools.combinations(rows, 2)
    ]
    return float(np.mean(cosines))


@pytest.mark.models
@pytest.mark.parametrize("seeds", [[1, 2], [1, 2, 3, 4], [5, 5, 6]])
def test_consistency_is_the_mean_pairwise_cosine_in_float64(seeds):
    answer = document_of(*(picture(s) for s in seeds))
    walk = resolve_scorer("consistency", "tiny", {}).judge(ASKED, answer)
    result = drive(walk, lambda jobs: tiny().stage([job.input for job in jobs]))
    assert result.value.value == pytest.approx(reference(seeds), abs=TOLERANCE)
    assert result.value.parts == {"images": len(seeds)}


def test_images_are_set_against_the_whole_question_alone():
    asked = query_of("A cat", picture(9), "on a mat")
    scorer = resolve_scorer("clipscore-prompt", "tiny", {"prefix": ""})
    answer = document_of("my cat", picture(1), "and a dog", picture(2))
    given = [job.input for job in next(scorer.judge(asked, answer))]
    assert given == [Text("A cat\non a mat"), picture(1), picture(2)]
    walk = scorer.judge(asked, document_of("no image"))
    assert isinstance(drive(walk, list), Unscored)


@pytest.mark.models
def test_no_image_is_encoded_twice_by_one_model():
    answer = document_of("a", picture(1), "b", picture(2))
    asked = replace(ASKED, reference=document_of(picture(3)))
    names = ("clipscore", "clipscore-prompt", "consistency", "clip-fid", "diversity")
    jobs = [next(resolve_scorer(n, "tiny", {}).judge(asked, answer)) for n in names]
    assert {job.spec.folder for own in jobs for job in own} == {jobs[0][0].spec.folder}
    images = {job.key for own in jobs for job in own if isinstance(job.input, Image)}
    assert len(images) == 3

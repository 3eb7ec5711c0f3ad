"""The scorers of CLIP: pairs, settings, what names a result, and likeness of images."""

from __future__ import annotations

import copy
import html
import itertools

import numpy as np
import pytest
from clipscore_helpers import candidate, picture, pixels, tiny
from contents import document as document_of
from contents import query_of

from cluster.walks import Pending, read
from generators.base import Unscored
from generators.checkpoints import pinning
from generators.document import Candidate
from scorers import resolve_scorer
from scorers.clipscore import PUBLISHED, ClipScorer, ClipSettings, pairs_of

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
    ],
)
def test_pairing(segments, texts):
    document = candidate(*segments).document
    pairs = pairs_of(document)
    assert [p.text for p in pairs] == texts
    assert tuple(p.image for p in pairs) == document.images
    assert [p.position for p in pairs] == list(range(len(texts)))


def test_text_that_cleans_to_nothing_parts_no_pictures():
    def clean(text: str) -> str:
        return html.unescape(text).strip()

    document = candidate("a", I0, "&nbsp;", I1).document
    assert [p.text for p in pairs_of(document, clean)] == ["a", "a"]
    assert [p.text for p in pairs_of(document)] == ["a", "&nbsp;"]


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": ""},
        {"long_text": "mean"},
        {"dtype": "float16"},
        {"architecture": "ViT-L-14"},
        {"model": "ViT-L-14:openai"},
    ],
)
def test_settings_that_change_results_change_the_key(change):
    usual = ClipScorer.of("clipscore", "dummy", {})
    assert ClipScorer.of("clipscore", "dummy", change).stage.digest != usual.stage.digest


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


def judged(*segments):
    answer = candidate(*segments).document
    walk = resolve_scorer("consistency", "tiny", {}).judge(query_of("Go on."), answer)
    return read(walk, lambda job: tiny()([job.input])[0])


def reference(seeds: list[int]) -> float:
    """Mean pairwise cosine in float64, pair by pair."""
    import torch
    from open_clip.transform import image_transform

    model = copy.deepcopy(tiny().encoder._clip.model).double()
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
def test_value_is_the_mean_pairwise_cosine_in_float64(seeds):
    segments = [part for s in seeds for part in (f"text {s}", picture(s))]
    result = judged(*segments)
    assert result.value.value == pytest.approx(reference(seeds), abs=TOLERANCE)
    assert result.value.parts == {"pictures": len(seeds)}


def test_images_are_set_against_the_whole_question_alone():
    asked = query_of("A cat", picture(9), "on a mat")
    document = candidate("my cat", picture(1), "and a dog", picture(2)).document
    scorer = resolve_scorer("clipscore-prompt", "tiny", {})
    wanted = document_of("A cat\non a mat", picture(1), picture(2))
    assert scorer.candidate(asked, document) == Candidate(wanted)
    assert scorer.stage == resolve_scorer("clipscore", "tiny", {}).stage
    assert isinstance(scorer.candidate(asked, document_of("no image")), Unscored)


def test_clipscore_and_consistency_share_every_record():
    document = candidate("a", picture(1), "b", picture(2)).document
    walks = [
        resolve_scorer(name, "tiny", {}).judge(query_of("Go on."), document)
        for name in ("clipscore", "consistency")
    ]
    pending = [read(walk, lambda job: None) for walk in walks]
    assert all(isinstance(p, Pending) for p in pending)
    first, second = (p.missing[0] for p in pending)
    assert first.key == second.key
    assert first.spec.folder == second.spec.folder
    assert first.spec.version == 2

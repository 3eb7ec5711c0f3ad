"""The scorer and its settings: who is judged, what names a result, what stays light."""

from __future__ import annotations

import pytest

from generators.checkpoints import pinning
from scorers.clipscore import PUBLISHED, ClipSettings, clipscore


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
    assert clipscore("dummy", change).stage.digest != clipscore("dummy", {}).stage.digest


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

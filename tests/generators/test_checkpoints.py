"""Which weights exactly: fingerprints of folders, pins of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plait.generators.checkpoints import fingerprint, identity, pinning, with_revision
from plait.generators.errors import CheckpointError

LARGE = 3 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "weights"
    (made / "unet").mkdir(parents=True)
    (made / "config.json").write_text("{}")
    (made / "unet" / "model.safetensors").write_bytes(bytes(LARGE))
    return made


def test_a_fingerprint_is_of_content_and_not_of_place(folder: Path, tmp_path: Path) -> None:
    before = fingerprint(folder)
    moved = folder.rename(tmp_path / "elsewhere")
    (moved / ".cache").mkdir()
    (moved / ".cache" / "lock").touch()
    assert fingerprint(moved) == before


def test_names_sizes_small_files_and_the_ends_of_large_ones_count(folder: Path) -> None:
    config, large = folder / "config.json", folder / "unet" / "model.safetensors"
    first, last = bytearray(LARGE), bytearray(LARGE)
    first[0] = last[-1] = 1
    seen = [fingerprint(folder)]
    for change in (
        lambda: config.write_text('{"a": 1}'),
        lambda: config.rename(folder / "other.json"),
        lambda: large.write_bytes(first),
        lambda: large.write_bytes(last),
        lambda: large.write_bytes(bytes(LARGE + 1)),
    ):
        change()
        seen.append(fingerprint(folder))
    assert len(set(seen)) == 6


def test_a_run_keeps_the_weights_it_was_made_with(folder: Path) -> None:
    with pinning({}) as pins:
        first = identity(str(folder))
    assert first == f"folder:{fingerprint(folder)}"
    (folder / "config.json").write_text("changed")
    with pinning(pins.known):
        assert identity(str(folder)) == first
    with pinning({}):
        assert identity(str(folder)) != first


def test_missing_weights_are_named_in_a_line_for_each_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusals: dict[str, Exception] = {"b/gated": PermissionError("401 (request 7)")}

    def refused(_: object, repo_id: str, **__: object) -> None:
        raise refusals.get(repo_id, ConnectionError(f"no route; request {len(repo_id)}"))

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refused)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match="/nowhere"):
        identity("/nowhere")
    with pinning({}) as pins:
        for model in ("a/one", "b/gated", "/nowhere", "c/another"):
            assert identity(model) == f"unpinned:{model}@main"
        identity("a/one", "v2")
    for names, line in zip(
        (["a/one", "c/another", "a/one@v2"], ["b/gated"], ["/nowhere"]),
        pins.missing,
        strict=True,
    ):
        found = re.search(r"cache: (.+)\. Download|'(.+)':", line)
        assert next(filter(None, found.groups())).split(", ") == names


@pytest.mark.parametrize(
    ("name", "model", "revision"),
    [
        ("org/x", "org/x", None),
        ("org/x@v1", "org/x", "v1"),
        ("./x@v1", "./x@v1", None),
        ("/some/folder@home", "/some/folder@home", None),
    ],
)
def test_revisions_are_read_of_hub_ids_only(name, model, revision):
    assert with_revision(name) == (model, revision)

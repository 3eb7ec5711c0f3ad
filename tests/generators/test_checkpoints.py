"""Which weights exactly: fingerprints of folders, pins of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generators.checkpoints import fingerprint, identity, pinning
from generators.errors import CheckpointError

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


@pytest.mark.parametrize("at", [0, LARGE - 1])
def test_either_end_of_a_large_file_counts(folder: Path, at: int) -> None:
    before = fingerprint(folder)
    content = bytearray(LARGE)
    content[at] = 1
    (folder / "unet" / "model.safetensors").write_bytes(content)
    assert fingerprint(folder) != before


def test_names_sizes_and_small_files_count(folder: Path) -> None:
    found = {fingerprint(folder)}
    (folder / "config.json").write_text('{"a": 1}')
    found.add(fingerprint(folder))
    (folder / "config.json").rename(folder / "other.json")
    found.add(fingerprint(folder))
    (folder / "unet" / "model.safetensors").write_bytes(bytes(LARGE + 1))
    found.add(fingerprint(folder))
    assert len(found) == 4


def test_a_run_keeps_the_weights_it_was_made_with(folder: Path) -> None:
    with pinning({}) as pins:
        first = identity(str(folder))
    assert first == f"folder:{fingerprint(folder)}"
    (folder / "config.json").write_text("changed")
    with pinning(pins.known):
        assert identity(str(folder)) == first
    with pinning({}):
        assert identity(str(folder)) != first


def test_weights_that_are_missing_are_listed_within_a_plan_and_raise_without() -> None:
    with pinning({}) as pins:
        assert identity("./nowhere/at/all") == "unpinned:./nowhere/at/all@main"
    assert pins.missing == ("checkpoint './nowhere/at/all': no such file or folder",)
    with pytest.raises(CheckpointError, match="no such file"):
        identity("./nowhere/at/all")


def test_weights_that_miss_for_the_same_reason_are_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusals: dict[str, Exception] = {"b/gated": PermissionError("401 (request 7)")}

    def refused(_: object, repo_id: str, **__: object) -> None:
        raise refusals.get(repo_id, ConnectionError(f"no route; request {len(repo_id)}"))

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refused)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pinning({}) as pins:
        for model in ("a/one", "b/gated", "/nowhere", "c/another"):
            identity(model)
        identity("a/one", "v2")
    for names, line in zip(
        (["a/one", "c/another", "a/one@v2"], ["b/gated"], ["/nowhere"]),
        pins.missing,
        strict=True,
    ):
        assert re.findall(r"'([^']+)'", line) == names

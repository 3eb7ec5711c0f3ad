"""Pictures are decoded once; what was found is kept, and never trusted too far."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from mmie_helpers import at_hand, folder, good, loaded, png, reasons, row

from benchmarks.tasks.reading import checks
from benchmarks.tasks.reading import pictures as images
from benchmarks.tasks.task_set import load
from generators.document import Image


@pytest.fixture
def looked(monkeypatch):
    """Names of the files that are read and decoded, as they are."""
    seen = []
    lock = threading.Lock()
    real = images._check_file

    def look(path):
        with lock:
            seen.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(images, "_check_file", look)
    return seen


def hundred(root):
    """A hundred rows on thirty pictures, two of them broken."""
    names = [f"{i}.png" for i in range(30)]
    pictures = {name: png(f"#0000{i:02x}") for i, name in enumerate(names)}
    pictures |= {"7.png": b"broken", "8.png": b""}
    rows = [row(f"SA-{i}", image=f"images/{names[i % 30]}") for i in range(100)]
    return folder(root, rows, pictures)


def test_each_picture_is_read_once_and_not_again_at_the_next_start(tmp_path, looked):
    root = hundred(tmp_path / "d")
    first = loaded(root)
    assert sorted(looked) == sorted(f"{i}.png" for i in range(30))
    looked.clear()
    second = loaded(root)
    assert looked == []
    assert second.samples == first.samples
    assert [s.question[-1].place for s in good(second)] == [
        s.question[-1].place for s in good(first)
    ]
    assert len(reasons(second)) == 8  # rows 7, 8, 37, 38, 67, 68, 97, 98


def test_a_picture_that_has_changed_is_looked_at_again(tmp_path, looked):
    root = hundred(tmp_path / "d")
    loaded(root)
    looked.clear()
    (root / "images" / "3.png").write_bytes(png("white", (3, 3)))
    # As many bytes as before: only the time of change tells.
    same_size = (root / "images" / "4.png").read_bytes().replace(b"IEND", b"IENX")
    (root / "images" / "4.png").write_bytes(same_size)
    (root / "images" / "7.png").write_bytes(png("white"))
    task = loaded(root)
    assert sorted(looked) == ["3.png", "4.png", "7.png"]
    by_id = {s.id: s for s in good(task)}
    assert by_id["SA-3"].question[-1] == Image.of(png("white", (3, 3)))
    assert by_id["SA-7"].question[-1] == Image.of(png("white"))


def cache_files(folder):
    return list((folder / "pictures").glob("*"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"version": "0", "checks": {}}',
        json.dumps({"version": checks.VERSION}).encode(),
        json.dumps({"version": checks.VERSION, "checks": {"x": [1]}}).encode(),
        json.dumps({"version": checks.VERSION, "checks": {"x": "abcde"}}).encode(),
        json.dumps({"version": checks.VERSION, "checks": [1]}).encode(),
    ],
)
def test_a_corrupt_cache_costs_only_time(tmp_path, looked, content):
    root = hundred(tmp_path / "d")
    first = loaded(root)
    (file,) = cache_files(tmp_path / "cache")
    file.write_bytes(content)
    looked.clear()
    assert loaded(root).samples == first.samples
    assert len(looked) == 30
    looked.clear()
    loaded(root)
    assert looked == []


def test_a_cache_that_cannot_be_written_breaks_nothing(tmp_path, looked):
    root = hundred(tmp_path / "d")
    (tmp_path / "file").write_text("in the way")
    for cache in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        task = load(str(root), cache=cache)
        assert len(good(task)) == 92


def test_the_cache_of_an_older_decoder_is_not_used(tmp_path, looked, monkeypatch):
    root = hundred(tmp_path / "d")
    loaded(root)
    looked.clear()
    monkeypatch.setattr(checks, "VERSION", "another Pillow")
    loaded(root)
    assert len(looked) == 30


def test_what_has_been_checked_is_kept_when_the_start_is_interrupted(tmp_path, looked):
    root = hundred(tmp_path / "d")

    def interrupt(done, total):
        assert total == 30
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(str(root), cache=tmp_path / "cache", on_progress=interrupt)
    looked.clear()
    loaded(root)
    assert len(looked) == 10


def test_progress_counts_pictures(tmp_path):
    root = hundred(tmp_path / "d")
    told: list[tuple[int, int]] = []
    load(str(root), cache=tmp_path / "cache", on_progress=lambda *now: told.append(now))
    assert told == [(i, 30) for i in range(1, 31)]
    told.clear()
    load(str(root), cache=tmp_path / "cache", on_progress=lambda *now: told.append(now))
    assert told == []


def test_the_default_cache_is_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load(str(folder(tmp_path / "d", [row()])))
    assert cache_files(tmp_path / "xdg" / "plait")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/not/allowed")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert checks.default_folder() == tmp_path / "home" / ".cache" / "plait"


def test_a_huge_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_BYTES", 1000)
    root = folder(
        tmp_path / "d", [row("SA-1", image="images/big.png")], {"big.png": bytes(1001)}
    )
    assert (
        "decompression bomb: 'images/big.png': the file has 1,001 bytes"
        in (reasons(loaded(root))["SA-1"])
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_picture_that_may_not_be_read(tmp_path):
    root = folder(tmp_path / "d", [row("SA-1")])
    (root / "images" / "a.png").chmod(0)
    assert "Permission denied" in reasons(loaded(root))["SA-1"]


def test_an_unreadable_picture_is_tried_again_at_the_next_start(tmp_path):
    root = folder(tmp_path / "d", [row("SA-1", image="images/late.png")])
    assert "missing picture" in reasons(loaded(root))["SA-1"]
    (root / "images" / "late.png").write_bytes(png("blue"))
    (sample,) = good(loaded(root))
    assert isinstance(sample.question[-1], Image)
    assert at_hand(sample.question[-1]) == png("blue")

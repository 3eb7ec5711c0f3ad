"""Task sets by name, from the Hub's cache and from archives, and parts of them."""

from __future__ import annotations

import io
import os
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mmie_helpers import at_hand, folder, good, loaded, png, row

from benchmarks.tasks.mmie.prompts import prompts
from benchmarks.tasks.task_set import TaskError, limited, load, selected
from generators.document import Image, Malformed, Sample, Text, Turn
from generators.errors import UsageError


def test_what_a_task_set_says_of_itself(tmp_path):
    root = folder(tmp_path / "d", [row("SA-1"), 3])
    task = loaded(root)
    assert task.name == "mmie"
    assert dict(task.categories) == {"SA": 5005, "PBL": 11482, "MSR": 3616}
    assert sum(task.categories.values()) == 20103
    assert len(task.fields) == len(set(task.fields)) == 12
    about = dict(task.about)
    assert about.pop("digest") == Image.of((root / "data.json").read_bytes()).digest
    assert about == {
        "name": "mmie",
        "source": str(root),
        "revision": None,
        "rows": 2,
        "malformed": {"wrong type": 1},
        "prompts": prompts().digest,
    }
    other = load(str(root), cache=tmp_path / "cache", prompts={"SA": {"text": "x"}})
    assert other.about["prompts"] != about["prompts"]
    assert (
        other.prompt(good(other)[0], "text")[0].content[0].text.startswith("x\nQuestion:")
    )
    with pytest.raises(UsageError, match="unknown prompt category"):
        load(str(root), prompts={"X": {"text": "x"}})


def sample(id, category="SA"):
    return Sample(id=id, category=category, field="x", turns=(Turn("user", (Text("q"),)),))


COUNTS = st.dictionaries(
    st.sampled_from(["SA", "PBL", "MSR"]), st.integers(1, 60), min_size=1
).flatmap(lambda counts: st.permutations([c for c, n in counts.items() for _ in range(n)]))


@given(categories=COUNTS, seed=st.integers(0, 1000), data=st.data())
def test_a_limit_draws_in_proportion_and_in_file_order(categories, seed, data):
    samples = [sample(f"{c}-{i}", c) for i, c in enumerate(categories)]
    limit = data.draw(st.integers(1, len(samples) + 3))
    drawn = limited(samples, limit, seed)
    assert len(drawn) == min(limit, len(samples))
    positions = [samples.index(s) for s in drawn]
    assert positions == sorted(set(positions))
    whole, part = Counter(categories), Counter(s.category for s in drawn)
    for category, n in whole.items():
        share = len(drawn) * n / len(samples)
        assert abs(part[category] - share) < 2
        if limit >= len(whole):
            assert part[category] >= 1
    smaller = limited(samples, data.draw(st.integers(1, limit)), seed)
    assert {s.id for s in smaller} <= {s.id for s in drawn}
    mixed = data.draw(st.permutations(samples))
    assert {s.id for s in limited(mixed, limit, seed)} == {s.id for s in drawn}


def test_a_limit_of_the_published_size():
    categories = ["SA"] * 5005 + ["PBL"] * 11482 + ["MSR"] * 3616
    samples = [sample(f"{c}-{i}", c) for i, c in enumerate(categories)]
    drawn = limited(samples, 1000, seed=0)
    # 1000 * 5005 / 20103 = 249.0, 1000 * 11482 / 20103 = 571.2, 1000 * 3616 / 20103 = 179.9
    assert Counter(s.category for s in drawn) == {"SA": 249, "PBL": 571, "MSR": 180}
    assert drawn == limited(samples, 1000, seed=0)
    other = limited(samples, 1000, seed=1)
    assert len({s.id for s in other} - {s.id for s in drawn}) > 800


def test_a_limit_does_not_insist_on_rows_without_a_category():
    broken = Malformed(id="row-0", row=0, reason="row 0")
    samples = [broken, *(sample(f"SA-{i}") for i in range(50)), sample("MSR-1", "MSR")]
    assert [s.category for s in limited(samples, 2, seed=3)] == ["SA", "MSR"]
    assert len(limited(samples, 52, seed=3)) == 52


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_is_refused(limit):
    with pytest.raises(TaskError, match="at least 1"):
        limited([sample("SA-1")], limit, 0)


def test_ids_select_in_file_order():
    samples = [sample("SA-1"), sample("SA-2"), Malformed(id="SA-3", row=2, reason="x")]
    assert selected(samples, ["SA-3", "SA-1", "SA-1"]) == (samples[0], samples[2])
    assert selected(samples, []) == ()


def test_unknown_ids_are_named_with_the_nearest_valid_one():
    samples = [sample("SA-100"), sample("PBL-77")]
    with pytest.raises(TaskError) as caught:
        selected(samples, ["SA-100", "PBL-7", "sa100"])
    assert "'PBL-7'; the nearest one is 'PBL-77'" in str(caught.value)
    assert "'sa100'; the nearest one is 'SA-100'" in str(caught.value)
    with pytest.raises(TaskError, match=r"no query 'x'$"):
        selected([], ["x"])


def archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if isinstance(data, bytes):
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, data
                tar.addfile(info)


def packed(root, members, rows):
    """A folder whose pictures are still in their archive."""
    folder(root, rows)
    (root / "images" / "a.png").unlink()
    (root / "images").rmdir()
    archive(root / "images.tar.gz", members)
    return root


@pytest.mark.parametrize("prefix", ["images/", "./images/", "", "./"])
def test_packed_pictures_are_unpacked_once(tmp_path, prefix):
    members = [(f"{prefix}a.png", png()), (f"{prefix}deep/b.png", png("blue"))]
    rows = [row("SA-1"), row("SA-2", image="images/deep/b.png")]
    root = packed(tmp_path / "d", members, rows)
    first, second = good(loaded(root))
    assert at_hand(second.question[-1]) == png("blue")
    place = Path(first.question[-1].place)
    assert place.is_relative_to(tmp_path / "cache" / "unpacked")
    place.with_name("mark").write_text("not unpacked again")
    loaded(root)
    assert place.with_name("mark").exists()
    assert len(list((tmp_path / "cache" / "unpacked").iterdir())) == 1


def test_links_in_an_archive_are_not_made(tmp_path):
    (tmp_path / "secret.png").write_bytes(png())
    members = [("images/a.png", png()), ("images/link.png", str(tmp_path / "secret.png"))]
    root = packed(tmp_path / "d", members, [row("SA-1", image="images/link.png")])
    assert "missing picture" in loaded(root).samples[0].reason


@pytest.mark.parametrize(
    "name", ["../evil.png", "/tmp/evil-plait.png", "images/../../evil.png"]
)
def test_an_archive_that_names_files_outside_is_refused(tmp_path, name):
    root = packed(tmp_path / "d", [(name, png())], [row("SA-1")])
    with pytest.raises(TaskError, match="names a file outside"):
        loaded(root)
    assert not list(tmp_path.rglob("evil*"))
    assert not list((tmp_path / "cache" / "unpacked").iterdir())


def test_a_damaged_archive_is_refused_and_nothing_is_left(tmp_path):
    noise = os.urandom(100_000)
    root = packed(tmp_path / "d", [("images/a.png", noise)], [row("SA-1")])
    whole = (root / "images.tar.gz").read_bytes()
    for data in (
        whole[:50_000],
        b"no archive",
        whole[:60_000] + bytes(1000) + whole[61_000:],
    ):
        (root / "images.tar.gz").write_bytes(data)
        with pytest.raises(TaskError, match="cannot be unpacked"):
            loaded(root)
        assert not list((tmp_path / "cache" / "unpacked").iterdir())


def test_no_room_to_unpack(tmp_path):
    root = packed(tmp_path / "d", [("images/a.png", png())], [row("SA-1")])
    (tmp_path / "file").write_text("")
    with pytest.raises(TaskError, match=r"cannot be unpacked into .*XDG_CACHE_HOME"):
        load(str(root), cache=tmp_path / "file")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The Hub's cache folder, and no network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def snapshot(hub, files):
    """A cached snapshot as the Hub's client lays it out: links to blobs."""
    repo = hub / "datasets--some--data"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    (repo / "blobs").mkdir()
    for name, data in files.items():
        blob = repo / "blobs" / Image.of(data).digest
        blob.write_bytes(data)
        path = repo / "snapshots" / COMMIT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(blob, path.parent))


def rows_file(tmp_path, rows):
    return (folder(tmp_path / "made", rows) / "data.json").read_bytes()


@pytest.mark.parametrize(
    "data", ["hf:some/data", f"hf:some/data@{COMMIT}", "hf:some/data@main"]
)
def test_a_cached_snapshot_is_read_offline_and_its_commit_recorded(tmp_path, hub, data):
    archive(tmp_path / "images.tar.gz", [("images/a.png", png())])
    files = {
        "data.json": rows_file(tmp_path, [row("SA-1")]),
        "images.tar.gz": (tmp_path / "images.tar.gz").read_bytes(),
    }
    snapshot(hub, files)
    task = load(data, cache=tmp_path / "cache")
    assert task.about["revision"] == COMMIT
    assert task.about["source"] == data
    assert at_hand(good(task)[0].question[-1]) == png()


def test_pictures_that_lie_loose_in_a_snapshot_may_link_to_its_blobs(tmp_path, hub):
    rows = [row("SA-1"), row("SA-2", image="images/out.png")]
    snapshot(hub, {"data.json": rows_file(tmp_path, rows), "images/a.png": png()})
    images = hub / "datasets--some--data" / "snapshots" / COMMIT / "images"
    (tmp_path / "secret.png").write_bytes(png())
    (images / "out.png").symlink_to(tmp_path / "secret.png")
    first, second = load("hf:some/data", cache=tmp_path / "cache").samples
    assert isinstance(first, Sample)
    assert at_hand(first.question[-1]) == png()
    assert isinstance(second, Malformed)
    assert "leaves the data folder" in second.reason


@pytest.mark.usefixtures("hub")
def test_data_that_neither_the_hub_nor_the_cache_has():
    with pytest.raises(TaskError, match=r"'some/other' \(revision v1\).*hf auth login"):
        load("hf:some/other@v1")


@pytest.mark.parametrize("data", ["hf:", "hf:name", "hf:a/b/c", "hf:/x", "hf:a b/c"])
def test_names_that_are_no_data_set(data):
    with pytest.raises(
        TaskError, match=r"hf:ORG/NAME@REVISION|is not the name of a data set"
    ):
        load(data)

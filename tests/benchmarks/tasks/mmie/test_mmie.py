"""MMIE's rows become samples; its data by folder, archive and Hub; images checked once."""

from __future__ import annotations

import base64
import io
import os
import shutil
import tarfile
import threading
from pathlib import Path

import pytest
from mmie_helpers import at_hand, folder, good, gpt, human, loaded, png, reasons, row

from plait.benchmarks.tasks.mmie.prompts import prompts
from plait.benchmarks.tasks.reading import images as checks
from plait.benchmarks.tasks.task_set import TaskError, load
from plait.generators.document import Document, Image, Malformed, Query, Text, Turn
from plait.generators.errors import UsageError


def test_a_row_becomes_a_sample_in_the_order_of_its_content(tmp_path):
    blue, green = png("blue"), png("green")
    rows = [
        row(
            "PBL-7",
            field="health",
            conversations=[
                human(("one", "./images/a.png"), (None, "images/b.png"), ("two", None)),
                gpt(("three", "./images/c.png"), ("four", None)),
            ],
            subfield="Sleep",
            options=["x", "y"],
        )
    ]
    task = loaded(folder(tmp_path / "d", rows, {"b.png": blue, "c.png": green}))
    a, b, c = (Image.of(data) for data in (png(), blue, green))
    assert task.samples == (
        Query(
            id="PBL-7",
            category="PBL",
            field="Health",
            turns=(Turn("user", (Text("one"), a, b, Text("two"))),),
            reference=Document((Text("three"), c, Text("four"))),
            metadata={"subfield": "Sleep", "options": '["x", "y"]'},
        ),
    )


@pytest.mark.parametrize("key", ["catagory", "category"])
@pytest.mark.parametrize(
    ("id", "stated", "category"),
    [
        ("SA-1", "Situational analysis", "SA"),
        ("SA-1", "vist", "SA"),
        ("MSR-1", "multi_step reasoning", "MSR"),
        ("17", "Project-based Learning", "PBL"),
        ("17", "msr", "MSR"),
    ],
)
def test_the_category_comes_from_the_id_or_else_from_its_key(
    tmp_path, key, id, stated, category
):
    rows = [row(id, **{"catagory": None, key: stated})]
    (sample,) = good(loaded(folder(tmp_path / "d", rows)))
    assert (sample.category, sample.wants_images) == (category, category != "MSR")


def test_conversations_of_several_turns(tmp_path):
    talk = [human(("a", None)), gpt(("b", None)), human(("c", None)), gpt(("d", None))]
    rows = [row("SA-1", conversations=talk), row("SA-2", conversations=talk[:3])]
    first, second = good(loaded(folder(tmp_path / "d", rows)))
    asked = (
        Turn("user", (Text("a"),)),
        Turn("assistant", (Text("b"),)),
        Turn("user", (Text("c"),)),
    )
    assert first.turns == second.turns == asked
    assert first.reference == Document((Text("d"),))
    assert second.reference is None


def test_items_may_lack_texts_and_images_and_hold_them_as_objects(tmp_path):
    held = {"path": None, "bytes": base64.b64encode(png("blue")).decode()}
    content = [{"text": " kept \n", "image": ""}, {"image": {"path": "images/a.png"}}]
    talk = [{"from": "human", "content": content}, gpt((None, None))]
    rows = [row("SA-1", conversations=talk), row("SA-2", image=held)]
    first, second = good(loaded(folder(tmp_path / "d", rows)))
    assert first.question == (Text(" kept \n"), Image.of(png()))
    assert first.reference is None
    assert second.question[-1].read() == png("blue")


def test_what_a_task_set_says_of_itself(tmp_path):
    root = folder(tmp_path / "d", [row("SA-1"), 3])
    task = loaded(root)
    assert (task.name, len(set(task.fields))) == ("mmie", 12)
    assert dict(task.categories) == {"SA": 5005, "PBL": 11482, "MSR": 3616}
    assert task.about == {
        "name": "mmie",
        "source": str(root),
        "revision": None,
        "digest": Image.of((root / "data.json").read_bytes()).digest,
        "rows": 2,
        "malformed": {"wrong type": 1},
        "prompts": prompts().digest,
    }
    other = load(str(root), cache=tmp_path / "cache", prompts={"SA": {"text": "x"}})
    assert other.about["prompts"] != task.about["prompts"]
    with pytest.raises(UsageError):
        load("creation:/nowhere", prompts={"SA": {"text": "x"}})


# --------------------------------------------------------------- images are decoded once


@pytest.fixture
def looked(monkeypatch):
    """Names of the files that are read and decoded, as they are."""
    seen, lock, real = [], threading.Lock(), checks._check_file

    def look(path):
        with lock:
            seen.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(checks, "_check_file", look)
    return seen


def hundred(root):
    """A hundred rows on thirty images, two of them broken."""
    names = [f"{i}.png" for i in range(30)]
    images = {name: png(f"#0000{i:02x}") for i, name in enumerate(names)}
    images |= {"7.png": b"broken", "8.png": b""}
    rows = [row(f"SA-{i}", image=f"images/{names[i % 30]}") for i in range(100)]
    return folder(root, rows, images)


def test_an_image_is_read_once_and_again_only_when_it_has_changed(tmp_path, looked):
    root = hundred(tmp_path / "d")
    first = loaded(root)
    assert sorted(looked) == sorted(f"{i}.png" for i in range(30))
    assert len(reasons(first)) == 8
    looked.clear()
    assert loaded(root).samples == first.samples
    assert looked == []
    (root / "images" / "3.png").write_bytes(png("white", (3, 3)))
    # As many bytes as before: only the time of change tells.
    same_size = (root / "images" / "4.png").read_bytes().replace(b"IEND", b"IENX")
    (root / "images" / "4.png").write_bytes(same_size)
    (root / "images" / "7.png").write_bytes(png("white"))
    by_id = {s.id: s for s in good(loaded(root))}
    assert sorted(looked) == ["3.png", "4.png", "7.png"]
    assert by_id["SA-3"].question[-1] == Image.of(png("white", (3, 3)))
    assert by_id["SA-7"].question[-1] == Image.of(png("white"))


def test_what_has_been_checked_is_kept_when_the_start_is_interrupted(tmp_path, looked):
    root, told = hundred(tmp_path / "d"), []

    def interrupt(*now):
        told.append(now)
        if now[0] == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(str(root), cache=tmp_path / "cache", on_progress=interrupt)
    assert told == [(i, 30) for i in range(1, 21)]
    looked.clear()
    loaded(root)
    assert len(looked) == 10


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"version": "0", "checks": {}}',
        b'{"version": "V", "checks": 3}',
    ],
)
def test_a_corrupt_cache_costs_only_time(tmp_path, looked, content):
    root = hundred(tmp_path / "d")
    first = loaded(root)
    (file,) = (tmp_path / "cache" / "pictures").glob("*")
    file.write_bytes(content.replace(b"V", checks.VERSION.encode()))
    looked.clear()
    assert loaded(root).samples == first.samples
    assert len(looked) == 30
    (tmp_path / "file").write_text("in the way")
    assert len(good(load(str(root), cache=tmp_path / "file" / "below"))) == 92


def test_a_huge_file_is_not_read_and_a_missing_one_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "MAX_BYTES", 1000)
    rows = [row("SA-1", image="images/big.png"), row("SA-2", image="images/late.png")]
    root = folder(tmp_path / "d", rows, {"big.png": bytes(1001)})
    told = reasons(loaded(root))
    assert ["bomb" in told["SA-1"], "missing" in told["SA-2"]] == [True, True]
    (root / "images" / "late.png").write_bytes(png("blue"))
    assert [at_hand(s.question[-1]) for s in good(loaded(root))] == [png("blue")]


# ------------------------------------------------------------------ archives and the Hub


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
    """A folder whose images are still in their archive."""
    folder(root, rows)
    shutil.rmtree(root / "images")
    archive(root / "images.tar.gz", members)
    return root


@pytest.mark.parametrize("prefix", ["images/", "./images/", "", "./"])
def test_packed_images_are_unpacked_once_and_links_are_not_made(tmp_path, prefix):
    (tmp_path / "secret.png").write_bytes(png())
    members = [
        (f"{prefix}a.png", png()),
        (f"{prefix}deep/b.png", png("blue")),
        (f"{prefix}link.png", str(tmp_path / "secret.png")),
    ]
    names = ("a.png", "deep/b.png", "link.png")
    rows = [row(f"SA-{i}", image=f"images/{name}") for i, name in enumerate(names)]
    root = packed(tmp_path / "d", members, rows)
    first, second, third = loaded(root).samples
    assert at_hand(second.question[-1]) == png("blue")
    assert isinstance(third, Malformed)
    place = Path(first.question[-1].place)
    assert place.is_relative_to(tmp_path / "cache" / "unpacked")
    place.with_name("mark").write_text("not unpacked again")
    loaded(root)
    assert place.with_name("mark").exists()


NOISE = os.urandom(100_000)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("../evil.png", lambda whole: whole),
        ("/tmp/evil-plait.png", lambda whole: whole),
        ("images/../../evil.png", lambda whole: whole),
        ("images/a.png", lambda whole: whole[:50_000]),
        ("images/a.png", lambda whole: b"no archive"),
        ("images/a.png", lambda whole: whole[:60_000] + bytes(1000) + whole[61_000:]),
    ],
)
def test_a_hostile_or_damaged_archive_is_refused_and_nothing_is_left(
    tmp_path, name, damage
):
    root = packed(tmp_path / "d", [(name, NOISE)], [row("SA-1")])
    file = root / "images.tar.gz"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(TaskError):
        loaded(root)
    assert not list(tmp_path.rglob("evil*"))
    assert not list((tmp_path / "cache" / "unpacked").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(TaskError, match="XDG_CACHE_HOME"):
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
    return repo / "snapshots" / COMMIT


@pytest.mark.parametrize(
    "data", ["hf:some/data", f"hf:some/data@{COMMIT}", "hf:some/data@main"]
)
def test_a_cached_snapshot_is_read_offline_and_its_commit_recorded(tmp_path, hub, data):
    archive(tmp_path / "images.tar.gz", [("images/a.png", png())])
    rows = (folder(tmp_path / "made", [row("SA-1")]) / "data.json").read_bytes()
    packed_images = (tmp_path / "images.tar.gz").read_bytes()
    snapshot(hub, {"data.json": rows, "images.tar.gz": packed_images})
    task = load(data, cache=tmp_path / "cache")
    assert (task.about["revision"], task.about["source"]) == (COMMIT, data)
    assert at_hand(good(task)[0].question[-1]) == png()


def test_loose_images_of_a_snapshot_may_link_to_its_blobs_alone(tmp_path, hub):
    rows = [row("SA-1"), row("SA-2", image="images/out.png")]
    data = (folder(tmp_path / "made", rows) / "data.json").read_bytes()
    made = snapshot(hub, {"data.json": data, "images/a.png": png()})
    (tmp_path / "secret.png").write_bytes(png())
    (made / "images" / "out.png").symlink_to(tmp_path / "secret.png")
    first, second = load("hf:some/data", cache=tmp_path / "cache").samples
    assert at_hand(first.question[-1]) == png()
    assert isinstance(second, Malformed)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    "data", ["hf:", "hf:name", "hf:a/b/c", "hf:/x", "hf:a b/c", "hf:some/other@v1"]
)
def test_data_sets_that_do_not_exist(data):
    with pytest.raises(TaskError):
        load(data)

"""Rows of an MMIE folder become samples; broken rows become failures that say why."""

from __future__ import annotations

import base64
import json
import os
import shutil

import pytest
from mmie_helpers import at_hand, folder, good, gpt, human, loaded, png, reasons, row
from picture_helpers import NOISE, png_header, saved
from PIL import Image as Pillow

from benchmarks.tasks.task_set import TaskError, load
from generators.document import Document, Image, Malformed, Sample, Text, Turn


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
    (sample,) = task.samples
    assert isinstance(sample, Sample)
    assert (sample.id, sample.category, sample.field) == ("PBL-7", "PBL", "Health")
    a, b, c = (Image.of(data) for data in (png(), blue, green))
    assert sample.turns == (Turn("user", (Text("one"), a, b, Text("two"))),)
    assert sample.reference == Document((Text("three"), c, Text("four")))
    assert sample.wants_images
    assert sample.metadata == {"subfield": "Sleep", "options": '["x", "y"]'}


def test_pictures_stay_in_their_files(tmp_path):
    task = loaded(folder(tmp_path / "d", [row()]))
    (image,) = good(task)[0].question[2:]
    assert isinstance(image, Image)
    assert image.data is None
    assert os.path.isabs(image.place or "")
    assert at_hand(image) == png()
    assert image.digest == Image.of(png()).digest


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
    assert good(loaded(folder(tmp_path / "d", rows)))[0].category == category


def test_reasoning_wants_no_images(tmp_path):
    rows = [row("SA-1"), row("MSR-1"), row("PBL-1")]
    samples = good(loaded(folder(tmp_path / "d", rows)))
    assert [s.wants_images for s in samples] == [True, False, True]


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


@pytest.mark.parametrize("image", [None, ""])
def test_items_without_a_picture(tmp_path, image):
    rows = [
        row("SA-1", conversations=[human((" kept  as is\n", image)), gpt((None, image))])
    ]
    (sample,) = good(loaded(folder(tmp_path / "d", rows)))
    assert sample.question == (Text(" kept  as is\n"),)
    assert sample.reference is None


def test_an_item_may_lack_one_of_its_keys(tmp_path):
    content = [{"text": "only text"}, {"image": "images/a.png"}]
    rows = [row("SA-1", conversations=[{"from": "human", "content": content}])]
    (sample,) = good(loaded(folder(tmp_path / "d", rows)))
    assert sample.question == (Text("only text"), Image.of(png()))


def test_pictures_written_as_objects(tmp_path):
    data = png("blue")
    held = {"path": None, "bytes": base64.b64encode(data).decode()}
    rows = [
        row("SA-1", image={"path": "images/a.png", "bytes": None}),
        row("SA-2", image=held),
    ]
    first, second = good(loaded(folder(tmp_path / "d", rows)))
    assert first.question[-1] == Image.of(png())
    assert second.question[-1] == Image.of(data)
    assert isinstance(second.question[-1], Image)
    assert second.question[-1].read() == data


LONE = "\ud800"
# Each row breaks one rule: the row, the rule, and what the message must show.
HOSTILE = {
    "not an object": ("nonsense", "wrong type", "'nonsense'"),
    "null": (None, "wrong type", "None"),
    "no id": (row(None), "missing key", "'id'"),
    "id is a number": (row(5), "wrong type", "id must be a string, not 5"),
    "empty id": (row("  "), "unusable id", "'  '"),
    "id with a line break": (row("SA-1\n2"), "unusable id", r"'SA-1\n2'"),
    "no field": (row("SA-2", field=None), "missing key", "'field'"),
    "field is a list": (row("SA-3", field=["Art"]), "wrong type", "['Art']"),
    "category is a number": (row("SA-4", catagory=3), "wrong type", "3"),
    "categories disagree": (row("SA-5", catagory="PBL"), "unreadable category", "PBL"),
    "no category at all": (row("X-6", catagory="vist"), "unreadable category", "'vist'"),
    "no conversations": (row("SA-7", conversations=None), "missing key", "'conversations'"),
    "conversations is a string": (row("SA-8", conversations="hi"), "wrong type", "'hi'"),
    "no turn": (row("SA-9", conversations=[]), "no human turn", ""),
    "only an answer": (row("SA-10", conversations=[gpt(("x", None))]), "no human turn", ""),
    "turn is a string": (
        row("SA-11", conversations=["x"]),
        "wrong type",
        "conversations[0]",
    ),
    "no speaker": (row("SA-12", conversations=[{"content": []}]), "missing key", "'from'"),
    "other speaker": (
        row("SA-13", conversations=[{"from": "bird", "content": []}]),
        "unknown speaker",
        "'bird'; valid are human",
    ),
    "no content": (
        row("SA-14", conversations=[{"from": "human"}]),
        "missing key",
        "'content'",
    ),
    "content is a string": (
        row("SA-15", conversations=[{"from": "human", "content": "x"}]),
        "wrong type",
        "conversations[0].content",
    ),
    "item is a string": (
        row("SA-16", conversations=[{"from": "human", "content": ["x"]}]),
        "wrong type",
        "content[0]",
    ),
    "item has no keys": (
        row("SA-17", conversations=[{"from": "human", "content": [{}]}]),
        "missing key",
        "content[0]",
    ),
    "text is a number": (
        row("SA-18", conversations=[human((3, None))]),
        "wrong type",
        "text",
    ),
    "text is no Unicode": (
        row("SA-19", conversations=[human(("ok" + LONE, None))]),
        "text is not Unicode",
        "character 2",
    ),
    "content is empty": (row("SA-20", conversations=[human()]), "empty content", ""),
    "content is blank": (
        row("SA-21", conversations=[human((" \n", None), (None, None))]),
        "empty content",
        "conversations[0]",
    ),
    "image is a number": (row("SA-22", image=3), "wrong type", "image"),
    "image has no path": (row("SA-23", image={"bytes": None}), "missing key", "'path'"),
    "image is no base64": (
        row("SA-24", image={"bytes": "*"}),
        "undecodable picture",
        "base64",
    ),
    "image bytes are none": (
        row("SA-25", image={"bytes": "AAAA"}),
        "undecodable picture",
        "format",
    ),
    "no such picture": (
        row("SA-26", image="images/no.png"),
        "missing picture",
        "images/no.png",
    ),
    "picture is a folder": (row("SA-27", image="images"), "missing picture", "not a file"),
    "picture is a pipe": (
        row("SA-28", image="images/pipe"),
        "missing picture",
        "not a file",
    ),
    "null character": (row("SA-29", image="a\0b"), "missing picture", "null"),
    "long name": (row("SA-30", image="x" * 5000), "missing picture", "too long"),
    "surrogate in a path": (row("SA-31", image=LONE), "text is not Unicode", "image"),
    "truncated PNG": (row("SA-32", image="images/t.png"), "undecodable picture", "t.png"),
    "truncated JPEG": (
        row("SA-33", image="images/t.jpg"),
        "undecodable picture",
        "truncated",
    ),
    "text as picture": (
        row("SA-34", image="images/x.png"),
        "undecodable picture",
        "format",
    ),
    "bomb": (
        row("SA-35", image="images/bomb.png"),
        "decompression bomb",
        "400000000 pixels",
    ),
    "traversal": (row("SA-36", image="../secret.png"), "leaves the data folder", "'..'"),
    "traversal in the middle": (
        row("SA-37", image="images/../../secret.png"),
        "leaves the data folder",
        "'..'",
    ),
    "absolute": (row("SA-38", image="/etc/passwd"), "leaves the data folder", "absolute"),
    "absolute on Windows": (
        row("SA-39", image="C:\\x.png"),
        "leaves the data folder",
        "absolute",
    ),
    "backslash traversal": (
        row("SA-40", image="..\\x.png"),
        "leaves the data folder",
        "'..'",
    ),
    "link to outside": (
        row("SA-41", image="images/link.png"),
        "leaves the data folder",
        "link",
    ),
    "folder link to outside": (
        row("SA-42", image="images/out/secret.png"),
        "leaves the data folder",
        "link",
    ),
    "broken picture in the answer": (
        row("SA-43", conversations=[human(("x", None)), gpt(("y", "images/t.png"))]),
        "undecodable picture",
        "t.png",
    ),
    "answer before the question": (
        row("SA-44", conversations=[gpt(("x", None)), human(("y", None))]),
        "no human turn",
        "begin with a human turn",
    ),
    "the id of another row": (row("PBL-1"), "duplicate id", "row 0"),
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A good row, one row per rule, and another good row."""
    root = tmp_path_factory.mktemp("hostile") / "data"
    rows = [row("PBL-1"), *(value for value, _, _ in HOSTILE.values()), row("PBL-2")]
    noise = Pillow.fromarray(NOISE)
    pictures = {
        "t.png": saved(noise, "PNG")[:3000],
        "t.jpg": saved(noise, "JPEG")[:3000],
        "x.png": b"this is text",
        "bomb.png": png_header(20_000, 20_000),
    }
    folder(root, rows, pictures)
    (root.parent / "secret.png").write_bytes(png())
    (root / "images" / "link.png").symlink_to(root.parent / "secret.png")
    (root / "images" / "out").symlink_to(root.parent)
    os.mkfifo(root / "images" / "pipe")
    return loaded(root)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_row_names_its_number_its_rule_and_the_value(hostile, name):
    position = 1 + list(HOSTILE).index(name)
    value, rule, shown = HOSTILE[name]
    failure = hostile.samples[position]
    assert isinstance(failure, Malformed)
    assert failure.row == position
    assert failure.reason.startswith(f"row {position}")
    assert rule in failure.reason
    assert shown in failure.reason
    assert failure.reason.isascii()
    own = isinstance(value, dict) and str(value.get("id")).startswith("SA-")
    if own and rule != "unusable id":
        assert failure.id == value["id"]
        assert f"({failure.id})" in failure.reason
    elif name != "no category at all":
        assert failure.id == f"row-{position}"


def test_the_other_rows_go_on_and_failures_are_counted(hostile):
    assert [s.id for s in good(hostile)] == ["PBL-1", "PBL-2"]
    assert len(hostile.samples) == len(HOSTILE) + 2
    ids = [s.id for s in hostile.samples]
    assert len(set(ids)) == len(ids)
    counts = hostile.about["malformed"]
    assert sum(counts.values()) == len(HOSTILE)
    assert counts["picture path leaves the data folder"] == 7
    assert counts["duplicate id"] == 1
    assert counts["decompression bomb"] == 1
    assert hostile.about["rows"] == len(HOSTILE) + 2


def test_failures_keep_the_category_and_field_that_can_be_read(hostile):
    broken = {s.id: s for s in hostile.samples if isinstance(s, Malformed)}
    assert (broken["SA-26"].category, broken["SA-26"].field) == ("SA", "Art")
    assert (broken["SA-3"].category, broken["SA-3"].field) == ("SA", "unknown")
    assert (broken["row-1"].category, broken["row-1"].field) == ("unknown", "unknown")


def test_a_picture_folder_may_lie_on_another_disk(tmp_path):
    root = folder(tmp_path / "d", [row("SA-1")])
    shutil.move(root / "images", tmp_path / "disk")
    (root / "images").symlink_to(tmp_path / "disk")
    assert not reasons(loaded(root))


def test_no_picture_is_sought_outside_when_the_folder_name_is_a_prefix(tmp_path):
    root = folder(tmp_path / "data", [row("SA-1", image="images/link.png")])
    (tmp_path / "data-secret").mkdir()
    (tmp_path / "data-secret" / "s.png").write_bytes(png())
    (root / "images" / "link.png").symlink_to(tmp_path / "data-secret" / "s.png")
    assert "leaves the data folder" in reasons(loaded(root))["SA-1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"id": 1}', "must hold a list"),
        (b"[" * 200_000, "not JSON"),
    ],
)
def test_a_file_that_holds_no_rows_is_one_clear_error(tmp_path, content, message):
    root = folder(tmp_path / "d", [])
    (root / "data.json").write_bytes(content)
    with pytest.raises(TaskError, match=message) as caught:
        loaded(root)
    assert "data.json" in str(caught.value)


def test_a_number_too_long_to_be_read_is_the_fault_of_its_row_alone(tmp_path):
    digits = "9" * 5000
    root = folder(tmp_path / "d", [])
    placed = [
        digits,
        json.dumps(row("SA-1")),
        json.dumps(row("SA-2", conversations="HERE")).replace('"HERE"', digits),
        json.dumps(row("SA-3", source=["HERE"])).replace('"HERE"', f"-{digits}"),
    ]
    (root / "data.json").write_text(f"[{', '.join(placed)}]")
    task = loaded(root)
    assert [s.id for s in good(task)] == ["SA-1"]
    assert task.about["malformed"] == {"wrong type": 3}
    assert reasons(task)["SA-2"].endswith("not a number of 5,000 digits")
    assert reasons(task)["SA-3"].endswith("the row holds a number of 5,000 digits")


def test_data_that_is_not_there(tmp_path):
    with pytest.raises(TaskError, match=r"no data at .*nowhere.*hf:ORG"):
        load(str(tmp_path / "nowhere"))
    with pytest.raises(TaskError, match=r"neither data.json nor overview.json"):
        load(str(tmp_path))


def test_other_ways_to_name_local_data(tmp_path, monkeypatch):
    root = folder(tmp_path / "d", [row("SA-1")])
    (root / "data.json").rename(root / "overview.json")
    assert good(loaded(root))[0].id == "SA-1"
    named = load(str(root / "overview.json"), cache=tmp_path / "cache")
    assert [s.id for s in named.samples] == ["SA-1"]
    monkeypatch.chdir(tmp_path)
    assert [s.id for s in load("./d", cache=tmp_path / "cache").samples] == ["SA-1"]


def test_a_byte_order_mark_is_passed_over(tmp_path):
    root = folder(tmp_path / "d", [])
    (root / "data.json").write_bytes(b"\xef\xbb\xbf" + json.dumps([row("SA-1")]).encode())
    assert good(loaded(root))[0].id == "SA-1"

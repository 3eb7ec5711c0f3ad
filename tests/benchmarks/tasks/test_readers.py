"""What every reader does: order, named failures for broken rows, images, parts of a set."""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from comparing_helpers import (
    base64_of,
    creation_row,
    mllm_row,
    mmrb2_pair,
    probench_row,
    write_mllm,
    write_mmrb2,
    write_parquet,
    write_tsv,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from mmie_helpers import at_hand, folder, gpt, human, png
from mmie_helpers import row as mmie_row
from opening_helpers import item
from opening_helpers import row as opening_row
from opening_helpers import written as write_opening
from pairwise_helpers import sample as query
from picture_helpers import NOISE, png_header, saved
from PIL import Image as Pillow
from specv_helpers import CHECKLIST
from task_rows import GEU, ISG, UEVAL, write_isg, write_realunify, write_ueval

from plait.benchmarks.tasks.reading.rules import Row, RowError, TaskError
from plait.benchmarks.tasks.reading.sources import load_rows
from plait.benchmarks.tasks.task_set import limit_queries, load, select_queries
from plait.generators.document import Image, Malformed, Query

pytestmark = pytest.mark.contract

LONE = "\ud800"
NOISY = Pillow.fromarray(NOISE)
OUTSIDE, MISSING, BROKEN = (
    "picture path leaves the data folder",
    "missing picture",
    "undecodable picture",
)


def mmie(root, rows):
    images = {
        "t.png": saved(NOISY, "PNG")[:3000],
        "t.jpg": saved(NOISY, "JPEG")[:3000],
        "x.png": b"this is text",
        "bomb.png": png_header(20_000, 20_000),
    }
    folder(root, rows, images)
    (root.parent / f"{root.name}-secret.png").write_bytes(png())
    links = {"link.png": root.parent / f"{root.name}-secret.png", "out": root.parent}
    for name, target in links.items():
        (root / "images" / name).symlink_to(target)
    os.mkfifo(root / "images" / "pipe")
    return str(root)


def talk(*turns):
    return {"conversations": list(turns)}


def said(content):
    return talk({"from": "human", "content": content})


MMIE: dict[str, list[Any]] = {
    "wrong type": [
        *("nonsense", None, mmie_row(5), mmie_row("SA-3", field=["Art"])),
        *(mmie_row("SA-4", catagory=3), mmie_row("SA-8", conversations="hi")),
        *(mmie_row("SA-11", conversations=["x"]), mmie_row("SA-15", **said("x"))),
        *(mmie_row("SA-16", **said(["x"])), mmie_row("SA-22", image=3)),
        mmie_row("SA-18", **talk(human((3, None)))),
    ],
    "missing key": [
        *(mmie_row(None), mmie_row("SA-2", field=None)),
        *(mmie_row("SA-7", conversations=None), mmie_row("SA-17", **said([{}]))),
        mmie_row("SA-12", **talk({"content": []})),
        mmie_row("SA-14", **talk({"from": "human"})),
        mmie_row("SA-23", image={"bytes": None}),
    ],
    "unusable id": [mmie_row("  "), mmie_row("SA-1\n2")],
    "unreadable category": [mmie_row("SA-5", catagory="PBL"), mmie_row("X-6")],
    "unknown speaker": [mmie_row("SA-13", **talk({"from": "bird", "content": []}))],
    "no human turn": [
        *(mmie_row("SA-9", **talk()), mmie_row("SA-10", **talk(gpt(("x", None))))),
        mmie_row("SA-44", **talk(gpt(("x", None)), human(("y", None)))),
    ],
    "empty content": [
        mmie_row("SA-20", **talk(human())),
        mmie_row("SA-21", **talk(human((" \n", None), (None, None)))),
    ],
    "text is not Unicode": [
        mmie_row("SA-19", **talk(human(("ok" + LONE, None)))),
        mmie_row("SA-45") | {"criteria": LONE},
        mmie_row("SA-31", image=LONE),
    ],
    MISSING: [
        mmie_row(f"SA-26{i}", image=path)
        for i, path in enumerate(
            ("images/no.png", "images", "images/pipe", "a\0b", "x" * 5000)
        )
    ],
    BROKEN: [
        mmie_row("SA-24", image={"bytes": "*"}),
        mmie_row("SA-25", image={"bytes": "AAAA"}),
        *(mmie_row(f"SA-3{p}", image=f"images/{p}") for p in ("t.png", "t.jpg", "x.png")),
        mmie_row("SA-43", **talk(human(("x", None)), gpt(("y", "images/t.png")))),
    ],
    "decompression bomb": [mmie_row("SA-35", image="images/bomb.png")],
    OUTSIDE: [
        mmie_row(f"SA-36{i}", image=path)
        for i, path in enumerate(
            (
                *("../secret.png", "images/../../secret.png", "/etc/passwd", "C:\\x.png"),
                *("..\\x.png", "images/link.png", "images/out/secret.png"),
            )
        )
    ],
}


def creation(root, rows):
    root.mkdir()
    return f"creation:{write_tsv(root / 'Creation.tsv', rows)}"


CREATION: dict[str, list[Any]] = {
    MISSING: [creation_row(1, image=""), creation_row(4, image="77")],
    BROKEN: [
        creation_row(2, image="?" * 80),
        creation_row(3, image=base64_of(b"not a picture " * 9)),
        creation_row(11, image="3"),
    ],
    "wrong type": [creation_row(10, image="[" + "1," * 50 + "]")],
    "unreadable category": [creation_row(5, task_name="cooking")],
    "empty content": [creation_row(6, question=" ")],
    "missing key": [creation_row(7, criteria=repr({"other": "x"}))],
    "unusable id": [creation_row(9) | {"index": ""}],
}


def mllm(root, rows):
    return f"mllm-bench:{write_mllm(root, rows, {})}"


MLLM: dict[str, list[Any]] = {
    MISSING: [mllm_row(1, image_path="data/images/nowhere.png")],
    OUTSIDE: [mllm_row(2, image_path="../nowhere.png")],
    "unusable id": [mllm_row(" ")],
    "wrong type": [mllm_row(3, meta=None), "no row", mllm_row(True)],
    "empty content": [mllm_row(4, question="")],
}


def mmrb2(root, rows):
    return f"mmrb2:{write_mmrb2(root, {'interleaved': rows})}"


def asked(*parts):
    return {"prompt_content": list(parts)}


MMRB2: dict[str, list[Any]] = {
    "wrong type": [
        *("no pair", mmrb2_pair("m1", **asked("text")), mmrb2_pair("m2", response_a=None)),
        *(mmrb2_pair("m3", **asked(["sound", "x"])), mmrb2_pair("m4", chosen=None)),
    ],
    "missing key": [mmrb2_pair("m5", response_b={"model_name": "x"})],
    "unusable id": [mmrb2_pair(" ")],
    "unreadable category": [mmrb2_pair("m6", chosen="a"), mmrb2_pair("m7", chosen="")],
    "empty content": [
        mmrb2_pair("m8", **asked()),
        mmrb2_pair("m9", **asked(["text", " "])),
    ],
    MISSING: [mmrb2_pair("m10", **asked(["image", "images/none.png"]))],
    OUTSIDE: [mmrb2_pair("m11", **asked(["image", "../secret.png"]))],
    BROKEN: [mmrb2_pair("m12", **asked(["image", "interleaved.json"]))],
}


def probench(root, rows):
    write_parquet(root / "x.parquet", rows)
    return f"probench:{root / 'x.parquet'}"


def image(path, data=None):
    return {"image": {"bytes": data, "path": path}}


PROBENCH: dict[str, list[Any]] = {
    OUTSIDE: [probench_row("u2", "a", "b", **image("../a.png"))],
    MISSING: [probench_row("u3", "a", "b", **image("b.png"))],
    BROKEN: [probench_row("u4", "a", "b", **image(None, b"no"))],
    "unreadable category": [probench_row("u5", "a", "b", chat_type="poem")],
    "no human turn": [probench_row("u6")],
    "unknown speaker": [
        probench_row("u7") | {"conversations": [{"from": "robot", "value": "a"}]}
    ],
    "unusable id": [probench_row("", "a", "b")],
}


def changed(row, *changes):
    return [row(i) | change for i, change in enumerate(changes)]


def isg(i):
    return ISG | {"id": f"i{i}"}


ISGS: dict[str, list[Any]] = {
    "wrong type": [
        *changed(isg, {"id": 3}, {"Golden": None}, {"Query": [{"type": "x"}]}),
        isg(3) | {"predict": {"image_qa": ["x"]}},
    ],
    "unreadable category": [isg(4) | {"Category": ""}],
    "empty content": [isg(5) | {"Query": []}],
    "missing key": [isg(6) | {"Golden": [{"type": "text"}]}],
    MISSING: [isg(7) | {"Query": [{"type": "image", "content": "images/y.png"}]}],
}
PICTURE = "./images/Recipes/1-i-1.jpg"


def opening(root, rows):
    image = write_opening(root, rows) / "OpenING-benchmark" / PICTURE
    image.parent.mkdir(parents=True)
    image.write_bytes(png())
    return f"opening:{root}"


def opened(i):
    return opening_row(f"o{i}", item("Cook.", PICTURE))


def inputs(*items):
    return {"conversations": [{"input": list(items)}]}


OPENING: dict[str, list[Any]] = {
    "wrong type": [
        *changed(opened, {"total_uid": 7}, {"subtask_name": None}, {"conversations": [3]}),
        opened(3) | {"conversations": [{"input": [item("x")]}, {"output": ["y"]}]},
    ],
    "missing key": [
        opened(4) | {"conversations": []},
        opened(5) | {"conversations": [{"output": []}]},
    ],
    "empty content": [opened(6) | inputs(), opened(7) | inputs(item("<image>"))],
    MISSING: [opened(8) | inputs(item("x", "./images/no.jpg"))],
    OUTSIDE: [opened(9) | inputs(item("x", "../a.jpg"))],
}


def ueval(i):
    return UEVAL | {"id": i}


UEVALS: dict[str, list[Any]] = {
    "unreadable category": changed(ueval, {"task": "cooking"}, {"question_type": "ajar"}),
    "empty content": [ueval(3) | {"prompt": " "}],
    "wrong type": [
        *(ueval(4) | {"prompt": None}, ueval(5) | {"text_rubrics": "one"}),
        ueval(6) | {"id": True},
    ],
    "missing key": [ueval(7) | {"text_rubrics": [{"tags": []}]}],
    MISSING: [ueval(8) | {"image_ref": ["gone.png"]}],
}


def geu(i):
    return GEU | {"index": i}


GEUS: dict[str, list[Any]] = {
    "unreadable category": [geu(1) | {"answer": "E"}],
    "wrong type": changed(geu, {"option": "a, b"}, {"index": None}),
    "empty content": [geu(3) | {"evaluation_prompt": " "}],
    OUTSIDE: [geu(4) | {"input_image": "../x.png"}],
}


def specv(root, rows):
    data = root / "eval_data" / "edit"
    (data / "images").mkdir(parents=True)
    (data / "images" / "a.png").write_bytes(png())
    (data / "attribute.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    checklists = root / "eval_checklist" / "edit" / "attribute"
    checklists.mkdir(parents=True)
    for row in rows:
        if isinstance(row, dict) and "/" not in str(row.get("id")):
            (checklists / f"{row.get('id')}.json").write_text(json.dumps(CHECKLIST))
    return f"specv:{root}"


def edited(i):
    return {"id": f"e{i}", "question": "Make it blue.", "question_img": ["images/a.png"]}


SPECV: dict[str, list[Any]] = {
    "wrong type": [
        *("no row", None, edited(1) | {"id": 3}, edited(2) | {"question": None}),
        *(edited(3) | {"question_img": "images/a.png"}, edited(4) | {"question_img": [3]}),
    ],
    "missing key": [{"id": "e5"}],
    "unusable id": [edited(6) | {"id": "a/b"}, edited(7) | {"id": " "}],
    "empty content": [edited(8) | {"question": " "}, edited(9) | {"question_img": []}],
    MISSING: [edited(10) | {"question_img": ["images/no.png"]}],
    OUTSIDE: [edited(11) | {"question_img": ["../a.png"]}],
}


def gedit(root, rows):
    (root / "images").mkdir(parents=True)
    (root / "images" / "a.png").write_bytes(png())
    (root / "gedit.json").write_text(json.dumps(rows))
    return f"gedit:{root}"


def gedit_row(i):
    return {
        "key": f"g{i}",
        "task_type": "style_change",
        "instruction": "Make it blue.",
        "instruction_language": "en",
        "input_image": "images/a.png",
        "Intersection_exist": True,
    }


GEDIT: dict[str, list[Any]] = {
    "wrong type": [
        *("no row", None),
        *changed(gedit_row, {"key": None}, {"instruction": None}, {"input_image": 3}),
        gedit_row(4) | {"Intersection_exist": "yes"},
    ],
    "missing key": [{"key": "g5"}],
    "unusable id": [gedit_row(6) | {"key": "a/b"}, gedit_row(7) | {"key": " "}],
    "empty content": [gedit_row(8) | {"instruction": " "}],
    "unreadable category": [
        gedit_row(9) | {"task_type": "poem"},
        gedit_row(10) | {"instruction_language": "zh"},
    ],
    MISSING: [gedit_row(11) | {"input_image": "images/no.png"}],
    OUTSIDE: [gedit_row(12) | {"input_image": "../a.png"}],
}


@dataclass(frozen=True)
class Reader:
    """How a benchmark's files are written, a valid row, and rows by the rule they break."""

    write: Callable[[Path, list[Any]], str]
    row: Callable[[int], Any]
    id: str
    faults: Mapping[str, list[Any]]
    where: str
    """The file under the folder."""
    shows: bool = True
    """Whether questions hold an image."""


READERS = {
    "mmie": Reader(mmie, lambda i: mmie_row(f"PBL-{i}"), "PBL-{}", MMIE, "data.json"),
    "creation": Reader(creation, lambda i: creation_row(i), "{}", CREATION, "Creation.tsv"),
    "mllm-bench": Reader(mllm, lambda i: mllm_row(i), "{}", MLLM, "data/questions.json"),
    "mmrb2": Reader(mmrb2, lambda i: mmrb2_pair(f"m{i}"), "m{}", MMRB2, "interleaved.json"),
    "probench": Reader(
        probench, lambda i: probench_row(f"u{i}", "a", "b"), "u{}", PROBENCH, "x.parquet"
    ),
    "isg": Reader(
        lambda *data: f"isg:{write_isg(*data)}", isg, "i{}", ISGS, "ISG-Bench.jsonl"
    ),
    "opening": Reader(opening, opened, "o{}", OPENING, "OpenING-benchmark/test_data.jsonl"),
    "ueval": Reader(
        lambda *data: f"ueval:{write_ueval(*data)}",
        ueval,
        "{}",
        UEVALS,
        "ueval.json",
        False,
    ),
    "specv": Reader(specv, edited, "edit-e{}", SPECV, "eval_data/edit/attribute.jsonl"),
    "gedit": Reader(gedit, gedit_row, "en-g{}", GEDIT, "gedit.json"),
    "realunify": Reader(
        lambda *data: f"realunify:{write_realunify(*data)}",
        geu,
        "GEU_{}_mental_tracking",
        GEUS,
        "GEU_direct.json",
    ),
}


@pytest.fixture(params=READERS)
def reader(request):
    return READERS[request.param]


def test_a_broken_row_is_a_failure_that_names_it_and_the_others_run(reader, tmp_path):
    rules = [rule for rule, rows in reader.faults.items() for _ in rows]
    broken = [row for rows in reader.faults.values() for row in rows]
    rows = [reader.row(90), *broken, reader.row(91)]
    task = load(reader.write(tmp_path / "d", rows), cache=tmp_path / "cache")
    first, *failures, last = task.samples
    assert [first.id, last.id] == [reader.id.format(i) for i in (90, 91)]
    assert all(isinstance(s, Malformed) for s in failures)
    assert [f.row for f in failures] == list(range(1, len(rows) - 1))
    assert [f.reason.split(": ")[1] for f in failures] == rules
    assert all(f.reason.startswith(f"row {f.row}") and f.reason.isascii() for f in failures)
    assert len({s.id for s in task.samples}) == len(rows) == task.about["rows"]
    assert task.about["malformed"] == Counter(rules)


def test_of_rows_with_one_id_the_first_is_used(reader, tmp_path):
    rows = [reader.row(90), reader.row(91), reader.row(90), reader.row(90)]
    task = load(reader.write(tmp_path / "d", rows), cache=tmp_path / "cache")
    ids = [reader.id.format(90), reader.id.format(91), "row-2", "row-3"]
    assert [s.id for s in task.samples] == ids
    assert [type(s) for s in task.samples] == [Query, Query, Malformed, Malformed]
    assert task.about["malformed"] == {"duplicate id": 2}
    known = {(s.category, s.field) for s in task.samples}
    assert len(known) <= 2, "a duplicate keeps its category and field"


def test_images_stay_out_of_memory_and_are_kept_once(reader, tmp_path):
    rows = [reader.row(90), reader.row(91)]
    data = reader.write(tmp_path / "d", rows)
    tasks = [load(data, cache=tmp_path / "cache") for _ in range(2)]
    assert tasks[0].samples == tasks[1].samples
    assert tasks[0].about == tasks[1].about
    for sample in tasks[1].samples:
        shown = sample.question if reader.shows else sample.reference.segments
        (found,) = (s for s in shown if isinstance(s, Image))
        assert found.data is None
        assert os.path.isabs(found.place or "")
        assert Image.of(at_hand(found)).digest == found.digest
        assert at_hand(found) == png()


def test_a_file_that_cannot_be_read_is_one_error_that_names_it(reader, tmp_path):
    data = reader.write(tmp_path / "d", [reader.row(90)])
    lists = () if reader.where.endswith(".jsonl") else (b"", b'{"id": 1}')
    for content in (b"{", b"\xff\xfe\x00", b"[" * 200_000, *lists):
        (tmp_path / "d" / reader.where).write_bytes(content)
        with pytest.raises(TaskError) as caught:
            load(data, cache=tmp_path / "cache")
        assert Path(reader.where).name in str(caught.value)


LINES = [name for name, own in READERS.items() if own.where.endswith(".jsonl")]


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_line_that_is_no_json_breaks_its_row_alone(name, place, tmp_path):
    reader = READERS[name]
    data = reader.write(tmp_path / "d", [reader.row(90), reader.row(91)])
    file = tmp_path / "d" / reader.where
    lines = file.read_text().splitlines()
    lines.insert(place, lines[0][:-9])
    file.write_text("\n\n".join(lines))
    task = load(data, cache=tmp_path / "cache")
    broken = [row for row in task.samples if isinstance(row, Malformed)]
    assert [row.row for row in broken] == [place]
    assert f"line {2 * place + 1} is not JSON" in broken[0].reason
    rest = [row.id for row in task.samples if isinstance(row, Query)]
    assert rest == [reader.id.format(90), reader.id.format(91)]


MARK = "question?"
PROSE = (
    *("text", "content", "value", "question", "prompt", "evaluation_prompt"),
    "instruction",
)


def with_marks(value, key=""):
    """A row whose prose, or what begins a list with "text", is MARK."""
    if isinstance(value, dict):
        return {name: with_marks(own, name) for name, own in value.items()}
    if isinstance(value, list) and value[:1] == ["text"]:
        return ["text", MARK]
    if isinstance(value, list):
        return [with_marks(own) for own in value]
    return MARK if isinstance(value, str) and key in PROSE else value


def test_a_byte_that_is_no_utf8_breaks_its_row_alone(reader, tmp_path):
    rows = [reader.row(90), with_marks(reader.row(91)), reader.row(92)]
    data = reader.write(tmp_path / "d", rows)
    file = tmp_path / "d" / reader.where
    content = file.read_bytes()
    assert MARK.encode() in content
    file.write_bytes(content.replace(MARK.encode(), MARK.encode()[:-1] + b"\xe9"))
    first, broken, last = load(data, cache=tmp_path / "cache").samples
    assert [first.id, last.id] == [reader.id.format(i) for i in (90, 92)]
    assert isinstance(broken, Malformed)
    assert "text is not Unicode" in broken.reason
    assert "0xe9" in broken.reason


def with_images(value, change):
    """A row with every path of an image, or image in base64, changed."""
    if isinstance(value, dict):
        return {name: with_images(own, change) for name, own in value.items()}
    if isinstance(value, list):
        return [with_images(own, change) for own in value]
    is_image = isinstance(value, str) and value.endswith((".png", ".jpg", PNG64))
    return change(value) if is_image else value


PNG64 = base64_of(png())
LINES64 = "".join(f"{PNG64[i : i + 76]}\n" for i in range(0, len(PNG64), 76))


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.replace("/", "\\"),
        lambda path: f".\\{path}".replace("/", "\\") if path != PNG64 else path,
        lambda path: f"data:image/png;base64,{PNG64}",
        lambda path: f"DATA:image/PNG;name=a.png;charset=utf-8;BASE64,\n{LINES64}",
        lambda path: LINES64 if path == PNG64 else path,
    ],
    ids=["backslashes", "from here", "data URL", "data URL in lines", "base64 in lines"],
)
def test_images_as_other_systems_name_them(reader, tmp_path, change):
    rows = [reader.row(90), with_images(reader.row(91), change)]
    first, second = load(
        reader.write(tmp_path / "d", rows), cache=tmp_path / "cache"
    ).samples
    assert isinstance(second, Query), second
    assert digests(first) == digests(second) != []


def digests(sample):
    """Of the images of a query and of its ground truth."""
    parts = [s for turn in sample.turns for s in turn.content]
    parts += sample.reference.segments if sample.reference else ()
    return [s.digest for s in parts if isinstance(s, Image)]


NFC, NFD = (unicodedata.normalize(form, "caf\u00e9.png") for form in ("NFC", "NFD"))
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n"


@pytest.mark.parametrize(
    ("file", "named"),
    [
        (NFC, f"images/{NFD}"),
        (NFD, f".\\images\\{NFC}"),
        ("a\\b.png", "images/a\\b.png"),
        ("a.png", " ./images/a.png\n"),
        ("a.png", {"bytes": PNG64.translate(str.maketrans("+/", "-_")).rstrip("=")}),
        ("data:x.png", "./images/data:x.png"),
        ("a.png", {"bytes": f"data:image/png;base64,{PNG64}"}),
        ("a.png", {"bytes": None, "path": "images\\a.png"}),
        ("a.png", {"path": f"data:;base64,{PNG64}"}),
    ],
)
def test_images_are_found_by_names_as_people_have_them(tmp_path, file, named):
    root = folder(tmp_path / "d", [mmie_row("SA-1", image=named)], {file: png()})
    (sample,) = load(str(root), cache=tmp_path / "cache").samples
    assert isinstance(sample, Query), sample
    assert Image.of(png()).digest in digests(sample)


@pytest.mark.parametrize(
    ("content", "named", "said"),
    [
        (b"", "images/a.png", "the file is empty"),
        (POINTER, "images/a.png", "run git lfs pull"),
        (b"<html>", "images/a.png", "in no known image format"),
        (png(), "https://example.org/a.png", "not fetched"),
        (png(), "file:///a.png", "not fetched"),
        (png(), "images\\b.png", "No such file"),
        (png(), "images\\..\\a.png", "contains '..'"),
        (png(), "\\\\host\\a.png", "an absolute path"),
        (png(), "c:images\\a.png", "an absolute path"),
        (png(), " ../d-secret.png", "contains '..'"),
        (png(), " /etc/passwd", "an absolute path"),
        (png(), "data:text/html;base64,AAAA", "not an image"),
        (png(), "data:image/png;base64,*", "not valid base64"),
        (png(), "data:image/png;base64", "no comma"),
        (png(), f"data:image/png;base64,{base64_of(POINTER)}", "run git lfs pull"),
        (png(), {"bytes": ""}, "the file is empty"),
    ],
)
def test_what_is_no_image_says_why(tmp_path, content, named, said):
    root = folder(tmp_path / "d", [mmie_row("SA-1", image=named)], {"a.png": content})
    (broken,) = load(str(root), cache=tmp_path / "cache").samples
    assert said in broken.reason


@pytest.mark.parametrize("prefix", ["mmie", "parquet", "prompts"])
def test_data_that_git_lfs_has_not_fetched(tmp_path, prefix):
    names = {"mmie": "data.json", "parquet": "x.parquet", "prompts": "p.jsonl"}
    forms = {"mmie": "", "parquet": "probench:", "prompts": "prompts:"}
    file = tmp_path / names[prefix]
    file.write_bytes(POINTER)
    with pytest.raises(TaskError, match=rf"{file.name} is a Git LFS pointer"):
        load(f"{forms[prefix]}{file}", cache=tmp_path / "cache")


def test_data_that_is_not_there(reader, tmp_path):
    data = reader.write(tmp_path / "d", [reader.row(90)])
    with pytest.raises(TaskError, match="no data at"):
        load(data.replace("/d", "/nowhere"), cache=tmp_path / "cache")
    (tmp_path / "d" / reader.where).unlink()
    with pytest.raises(TaskError):
        load(data, cache=tmp_path / "cache")


# ------------------------------------------------------------------- parts of a task set


def test_text_that_is_not_unicode_is_malformed_wherever_it_stands():
    whole, *broken = load("users_own:halves").samples
    assert [type(s) for s in broken] == [Malformed] * 5
    assert [s.id for s in broken] == ["q0", "q1", "q2", "q3", "row-5"]
    assert [s.category for s in broken] == [whole.category] * 4 + ["unknown"]
    assert all(s.reason.isascii() for s in broken)


def sample(id, category="SA"):
    return query("q", id=id, category=category)


COUNTS = st.dictionaries(
    st.sampled_from(["SA", "PBL", "MSR"]), st.integers(1, 60), min_size=1
).flatmap(lambda counts: st.permutations([c for c, n in counts.items() for _ in range(n)]))


@settings(max_examples=40)
@given(categories=COUNTS, seed=st.integers(0, 1000), data=st.data())
def test_a_limit_draws_in_proportion_and_in_file_order(categories, seed, data):
    samples = [sample(f"{c}-{i}", c) for i, c in enumerate(categories)]
    limit = data.draw(st.integers(1, len(samples) + 3))
    drawn = limit_queries(samples, limit, seed)
    assert len(drawn) == min(limit, len(samples))
    positions = [samples.index(s) for s in drawn]
    assert positions == sorted(set(positions))
    whole, part = Counter(categories), Counter(s.category for s in drawn)
    for category, n in whole.items():
        assert abs(part[category] - len(drawn) * n / len(samples)) < 2
        if limit >= len(whole):
            assert part[category] >= 1
    smaller = limit_queries(samples, data.draw(st.integers(1, limit)), seed)
    assert {s.id for s in smaller} <= {s.id for s in drawn}
    mixed = data.draw(st.permutations(samples))
    assert {s.id for s in limit_queries(mixed, limit, seed)} == {s.id for s in drawn}


def test_a_limit_of_the_published_size():
    categories = ["SA"] * 5005 + ["PBL"] * 11482 + ["MSR"] * 3616
    samples = [sample(f"{c}-{i}", c) for i, c in enumerate(categories)]
    drawn = limit_queries(samples, 1000, seed=0)
    # 1000 * 5005 / 20103 = 249.0, 1000 * 11482 / 20103 = 571.2, 1000 * 3616 / 20103 = 179.9
    assert Counter(s.category for s in drawn) == {"SA": 249, "PBL": 571, "MSR": 180}
    other = limit_queries(samples, 1000, seed=1)
    assert len({s.id for s in other} - {s.id for s in drawn}) > 800


def test_a_limit_does_not_insist_on_rows_without_a_category():
    broken = Malformed(id="row-0", row=0, reason="row 0")
    samples = [broken, *(sample(f"SA-{i}") for i in range(50)), sample("MSR-1", "MSR")]
    assert [s.category for s in limit_queries(samples, 2, seed=3)] == ["SA", "MSR"]
    assert len(limit_queries(samples, 52, seed=3)) == 52
    for limit in (0, -1):
        with pytest.raises(TaskError):
            limit_queries(samples, limit, 0)


def test_ids_may_be_whole_numbers_where_files_have_them():
    assert Row({"id": 3}).id(numbers=True) == "3"
    with pytest.raises(RowError, match="must be a string, not 3"):
        Row({"id": 3}).id()
    with pytest.raises(RowError, match="must be a string or a whole number, not True"):
        Row({"id": True}).id(numbers=True)


def test_ids_select_in_file_order_and_unknown_ones_are_named():
    samples = [sample("SA-100"), sample("PBL-77"), Malformed(id="SA-3", row=2, reason="x")]
    assert select_queries(samples, ["SA-3", "SA-100", "SA-100"]) == (samples[0], samples[2])
    assert select_queries(samples, []) == ()
    with pytest.raises(TaskError, match=r"'PBL-7'.*'PBL-77'.*'sa100'.*'SA-100'"):
        select_queries(samples, ["SA-100", "PBL-7", "sa100"])
    with pytest.raises(TaskError):
        select_queries([], ["x"])


SPACED = ' \t[ 1 ,\r\n{"a": [2, "]"]}, null ]\n'


@pytest.mark.parametrize("text", ["[]", " [ ] ", "[[]]", "\ufeff[0]", SPACED])
def test_rows_are_those_of_the_file_as_often_as_they_are_asked_for(text, tmp_path):
    (tmp_path / "rows.json").write_text(text)
    rows, digest = load_rows(tmp_path / "rows.json")
    whole = json.loads(text.removeprefix("\ufeff"))
    assert [list(rows), list(rows)] == [whole, whole]
    assert digest == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "text",
    ["", "[", "[1", "[1,]", "[1 2]", "[] []", "[1] 2", "oops", "[" * 100_000, '{"a": 1}'],
)
def test_a_file_that_is_no_list_of_rows_is_refused(text, tmp_path):
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(TaskError, match=r"rows\.json"):
        list(load_rows(tmp_path / "rows.json")[0])


def test_rows_are_decoded_one_by_one(tmp_path):
    (tmp_path / "rows.json").write_text("[1, oops]")
    rows = iter(load_rows(tmp_path / "rows.json")[0])
    assert next(rows) == 1
    with pytest.raises(TaskError, match="is not JSON"):
        next(rows)

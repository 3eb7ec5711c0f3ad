"""Users' own queries: the same rows in every kind of file, and what is refused by line."""

from __future__ import annotations

import base64
import csv
import json
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mmie_helpers import folder, row
from picture_helpers import flat

from plait.benchmarks.tasks import own_data
from plait.benchmarks.tasks.changes import data_rows
from plait.benchmarks.tasks.reading.columns import DataReading
from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import limit_queries, load, select_queries
from plait.generators import spool
from plait.generators.document import Document, Image, Malformed, Query, Text
from plait.generators.errors import UsageError
from plait.generators.system import Session
from plait.pipelines.endpoints.media import MediaError
from plait.scorers.answers import KNOWN
from plait.scorers.judging.criteria import QUERY_CRITERIA, criteria_of
from plait.scorers.turns import TURNS, session_turns

RED, BLUE = flat(), flat("blue")
NAMES = {Image.of(RED).digest: "red", Image.of(BLUE).digest: "blue"}
ROWS: list[dict[str, Any]] = [
    {"id": "a", "question": "What is <image>?", "images": "red.png", "answer": "Red."},
    {"id": "b", "question": "Draw a boat.", "category": "boats", "images": None},
]
SAID = {"a": "What is |red|?", "b": "Draw a boat."}
"""Questions of ROWS; images stand by name between bars."""


@pytest.fixture(autouse=True)
def pictures(tmp_path, monkeypatch):
    """The current folder holds red.png and images/blue.png."""
    monkeypatch.chdir(tmp_path)
    Path("red.png").write_bytes(RED)
    Path("images").mkdir()
    Path("images/blue.png").write_bytes(BLUE)


def read(rows, name="q.jsonl", **reading):
    """The task set of rows, of a text, or of what is there."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(rows, list):
        rows = "".join(f"{json.dumps(one)}\n" for one in rows)
    if rows is not None:
        path.write_text(rows)
    options = DataReading.model_validate(reading)
    return load(str(path.absolute()), reading=options, cache=Path("cache").absolute())


def said(content):
    return "|".join(s.text if isinstance(s, Text) else NAMES[s.digest] for s in content)


def told(task):
    """Each question, or where a row is refused and by which rule."""
    return {
        s.id: said(s.question) if isinstance(s, Query) else s.reason.rpartition(": ")[0]
        for s in task.samples
    }


def query_of(**columns):
    (sample,) = read([{"question": "Q", **columns}]).samples
    assert isinstance(sample, Query), sample.reason
    return sample


# ------------------------------------------------------------------------------- files


def as_table(separator):
    def text():
        names = ["id", "question", "images", "answer", "category"]
        with Path("made").open("w", newline="") as file:
            writer = csv.DictWriter(file, names, delimiter=separator)
            writer.writeheader()
            writer.writerows(ROWS)
        return Path("made").read_text()

    return text


def arrow(path):
    table = pa.Table.from_pylist(ROWS)
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)


KINDS = {
    "q.jsonl": lambda: "".join(f"{json.dumps(one)}\n" for one in ROWS),
    "q.ndjson": lambda: "".join(f"\n{json.dumps(one)}\n" for one in ROWS),
    "q.json": lambda: json.dumps(ROWS, indent=1),
    "listed.json": lambda: json.dumps({"version": 1, "data": ROWS}),
    "by-id.json": lambda: json.dumps({one["id"]: one for one in ROWS}),
    "q.CSV": as_table(","),
    "q.csv": as_table(";"),
    "q.tsv": as_table("\t"),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_same_rows_in_every_kind_of_text(name):
    task = read(KINDS[name](), name)
    assert told(task) == SAID
    assert [s.category for s in task.samples] == ["unknown", "boats"]
    assert [s.reference for s in task.samples] == [Document((Text("Red."),)), None]
    assert [s.wants_images for s in task.samples] == [False, True]


def test_parquet_and_folders_of_data_sets(tmp_path):
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, "q.parquet")
    assert told(read(None, "q.parquet")) == SAID
    arrow(Path("saved/data-00000-of-00001.arrow"))
    Path("saved/state.json").write_text('{"_data_files": []}')
    Path("saved/red.png").write_bytes(RED)
    assert told(read(None, "saved")) == SAID
    for split in ("train", "test"):
        Path("hub/data").mkdir(parents=True, exist_ok=True)
        own = table if split == "train" else table.slice(1)
        pq.write_table(own, f"hub/data/{split}-00000-of-00001.parquet")
    Path("hub/red.png").write_bytes(RED)
    assert told(read(None, "hub")) == {"b": SAID["b"]}
    assert told(read(None, "hub", files="data/train*")) == SAID
    with pytest.raises(TaskError, match=r"nothing in .* matches 'dev\*'"):
        read(None, "hub", files="dev*")


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (("test.json",), ""),
        (("test.json", "train.json"), " (1 file of other splits not read)"),
        (("test.JSON", "train.JSON"), " (1 file of other splits not read)"),
    ],
)
def test_files_without_rows_are_no_other_split(names, left):
    Path("x").mkdir()
    for name in names:
        Path("x", name).write_text(json.dumps(ROWS))
    Path("x/config.json").write_text("{}")
    Path("x/red.png").write_bytes(RED)
    how = read(None, "x").about["by_columns"]["read"]
    assert how.startswith(f"by columns of {names[0]}{left}: ")


def test_numbers_of_rows_go_on_from_file_to_file():
    for name in ("x/1.jsonl", "x/2.jsonl"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text('{"question": "one"}\n\n{"question": "two"}\n')
    assert told(read(None, "x")) == {
        "0001": "one",
        "0002": "two",
        "0003": "one",
        "0004": "two",
    }


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "holds no file of rows"),
        (["a/q.jsonl", "b/q.jsonl"], "several files of rows"),
        (["a.jsonl", "b.csv", "c.csv", "d.jsonl"], "several files of rows"),
    ],
)
def test_a_folder_without_rows_or_of_several_sets_is_refused(names, said):
    Path("x").mkdir()
    for name in names:
        (Path("x") / name).parent.mkdir(exist_ok=True)
        (Path("x") / name).write_text('{"question": "q"}\n')
    with pytest.raises(TaskError, match=said):
        read(None, "x")


def test_mmie_is_told_by_its_marks_and_either_is_forced():
    data = str(folder(Path("mmie"), [row("SA-1")]).absolute())
    cache = Path("cache").absolute()
    assert "by_columns" not in load(data, cache=cache).about
    assert load(f"mmie:{data}", cache=cache).about["rows"] == 1
    assert "by_columns" in load(f"rows:{data}", cache=cache).about
    talk = [{"from": "human", "value": "Hi <image>"}, {"from": "gpt", "value": "Ho"}]
    llava = [{"id": "l", "image": "red.png", "conversations": talk}]
    task = read(json.dumps(llava), "llava.json")
    assert told(task) == {"l": "Hi |red"}
    assert task.samples[0].reference == Document((Text("Ho"),))
    forced = load(f"mmie:{Path('llava.json').absolute()}", cache=cache)
    assert isinstance(forced.samples[0], Malformed)


def test_answers_in_the_layout_of_mmies_scorer_are_no_ground_truth():
    rows = [{"id": "1", "question": [], "answer": [], "model": "m", "gt_answer": []}]
    with pytest.raises(TaskError, match="official:"):
        read(json.dumps(rows), "data.json")


def test_a_data_set_of_the_hub_is_read_by_columns_from_its_cache(tmp_path, monkeypatch):
    commit = "0" * 40
    snapshot = tmp_path / "hub/datasets--me--mine/snapshots" / commit
    blobs = snapshot.parents[1] / "blobs"
    for place in (snapshot / "data", blobs, snapshot.parents[1] / "refs"):
        place.mkdir(parents=True)
    (snapshot.parents[1] / "refs/main").write_text(commit)
    (blobs / "1").write_bytes(RED)
    (snapshot / "red.png").symlink_to(blobs / "1")
    pq.write_table(pa.Table.from_pylist(ROWS), snapshot / "data/test-0.parquet")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    task = load("hf:me/mine", cache=tmp_path / "cache")
    assert told(task) == SAID
    assert (task.name, task.about["revision"]) == ("mine", commit)
    assert told(load("rows:hf:me/mine", cache=tmp_path / "cache")) == SAID


# ----------------------------------------------------------------------------- contents

CODED = base64.b64encode(RED).decode()
URL = f"data:image/png;base64,{CODED}"
IMAGE_FORMS: dict[str, Any] = {
    "path": "red.png",
    "windows": ".\\red.png",
    "data URL": URL,
    "base64": CODED,
    "list": ["red.png"],
    "list in a text": '["red.png"]',
    "struct with base64": {"bytes": CODED, "path": None},
    "struct with a path": {"bytes": None, "path": "red.png"},
    "part of a chat": {"type": "image_url", "image_url": {"url": URL}},
}


@pytest.mark.parametrize("form", IMAGE_FORMS)
def test_an_image_in_every_form(form):
    assert said(query_of(images=IMAGE_FORMS[form]).question) == "red|Q"


def test_images_in_bytes_and_as_hugging_face_holds_them():
    rows = [{"question": "Q", "image": {"bytes": RED, "path": "x.png"}, "n": {"b": RED}}]
    pq.write_table(pa.Table.from_pylist(rows), "q.parquet")
    task = read(None, "q.parquet")
    assert told(task) == {"0001": "red|Q"}
    assert task.samples[0].metadata == {}, "bytes are no metadata"
    pq.write_table(pa.table({"question": ["Q"], "image": [RED]}), "q.parquet")
    assert told(read(None, "q.parquet")) == {"0001": "red|Q"}


def test_rows_of_vlmevalkit_name_the_image_of_another_row():
    cells = [["index", "image", "question", "A", "B", "answer"]]
    cells += [["7", CODED, "Q", "x", "y", "B"], ["8", "7", "R", "x", "y", "A"]]
    task = read("\n".join(map("\t".join, cells)), "q.tsv")
    below = "\n\nA. x\nB. y\nAnswer with the letter of the right option."
    assert told(task) == {"7": f"red|Q{below}", "8": f"red|R{below}"}
    known = [json.loads(s.metadata[KNOWN]) for s in task.samples]
    assert known == [{"form": "letter", "truth": t, "of": 2} for t in "BA"]


BOTH = ["red.png", "images/blue.png"]
PARTS = [{"type": "text", "text": "a"}, {"type": "image"}]
CHAT = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "One <image>"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": [{"type": "text", "text": "Two "}, {"type": "image"}]},
]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"images": BOTH}, "red|blue|Q"),
        ({"question": "<image> or <image>", "images": BOTH}, "red| or |blue"),
        ({"question": "2nd <image 2><image_1>", "images": BOTH}, "2nd |blue|red"),
        ({"question": "See <image 1>", "image_1": "red.png", "image_2": None}, "See |red"),
        ({"question": ["See", "red.png", {"image": BOTH[1]}]}, "See|red|blue"),
        ({"question": PARTS, "images": "red.png"}, "a|red"),
        ({"question": [{"text": "a", "image": "red.png"}, "red.png or not"]}, None),
        ({"question": "[1, 2] is a list"}, "[1, 2] is a list"),
        ({"question": '["up", "down"]'}, '["up", "down"]'),
        ({"question": 7}, "7"),
    ],
)
def test_marks_lists_and_parts(columns, expected):
    assert said(query_of(**columns).question) == (expected or "a|red|red.png or not")


def test_a_chat_is_asked_up_to_its_last_question():
    task = read([{"messages": CHAT, "images": BOTH}])
    turns = [(turn.role, said(turn.content)) for turn in task.samples[0].turns]
    assert turns == [
        ("system", "Be kind."),
        ("user", "One |red"),
        ("assistant", "Yes."),
        ("user", "Two |blue"),
    ]
    said_last = [*CHAT, {"role": "assistant", "content": "No."}]
    task = read([{"prompt": said_last, "images": BOTH}])
    assert task.samples[0].reference == Document((Text("No."),))


@pytest.mark.parametrize(
    ("answer", "letter"),
    [("B", "B"), ("(b)", "B"), ("dog", "B"), (1, "B"), ("0", None), ("cow", None)],
)
def test_an_answer_to_choices_is_a_letter_a_text_or_an_index(answer, letter):
    rows = [{"question": "Q", "choices": ["cat", "dog"], "answer": answer}]
    (sample,) = read(rows).samples
    if letter is None:
        assert "answer is none of the choices" in sample.reason
        return
    assert json.loads(sample.metadata[KNOWN]) == {"form": "letter", "truth": "B", "of": 2}
    assert (sample.reference, sample.wants_images) == (Document((Text("B"),)), False)


def test_an_answer_that_may_be_two_choices_is_refused():
    """Choices that are numbers, or letters in another order."""
    for choices, answer in ((["1", "2", "3"], 2), (["B", "A"], "A")):
        rows = [{"question": "Q", "choices": choices, "answer": answer}]
        assert "may be the choice" in read(rows).samples[0].reason
    rows = [{"question": "Q", "choices": ["1", "2"], "answer": "2"}]
    assert json.loads(read(rows).samples[0].metadata[KNOWN])["truth"] == "B"


def test_choices_are_shown_below_a_question_that_does_not_hold_them():
    held = "Which? (A) cat (B) dog"
    assert said(query_of(question=held, choices=["cat", "dog"]).question) == held
    below = "Q\n\nA. cat\nB. dog\nAnswer with the letter of the right option."
    assert said(query_of(options="['cat', 'dog']").question) == below
    task = read("id,question,A,B,C,answer\n1,Q,cat,dog,,dog\n2,Q,cat,,cow,C\n", "q.csv")
    assert told(task) == {"1": below, "2": "q.csv, line 3 (2): empty content"}


def session(*turns, **columns):
    """The query of a chat of these turns of user and assistant, by turns."""
    messages = [
        {
            "role": ("user", "assistant")[i % 2],
            **({"content": t} if isinstance(t, str) else t),
        }
        for i, t in enumerate(turns)
    ]
    return query_of(question=messages, **columns)


def test_a_chat_that_says_which_turns_look_back_is_a_session():
    asked = {"content": "What did you draw?", "looks_back": True}
    read_as = session(
        {"content": "Draw a boat.", "looks_back": False},
        "<image>",
        asked | {"choices": ["A boat.", "A car."], "criteria": ["It is right."]},
        "A boat.",
        {"content": "Why?", "answer": "Since."},
        images=["red.png"],
    )
    draw, look, why = session_turns(read_as)
    assert (draw.looks_back, draw.wants_images, draw.metadata) == (False, True, {})
    assert (look.looks_back, look.wants_images) == (True, False)
    assert json.loads(look.metadata[KNOWN]) == {"form": "letter", "truth": "A", "of": 2}
    assert json.loads(look.metadata[QUERY_CRITERIA]) == ["It is right."]
    assert (why.looks_back, why.wants_images) == (False, False)
    assert [said(a.segments) for a in read_as.reference.answers] == ["red", "A", "Since."]
    assert [said(given) for given in read_as.given_answers] == ["red", "A boat.", ""]
    assert "A. A boat.\nB. A car." in said(read_as.turns[2].content)
    assert read_as.wants_images
    assert criteria_of(read_as) == ()


def test_the_answer_of_a_turn_stands_where_the_assistant_says_nothing():
    first = {"role": "user", "content": "Draw.", "looks_back": False, "answer": ["red.png"]}
    then = {"role": "user", "content": "Look.", "looks_back": True}
    query = query_of(question=[first, then], answer="Seen.")
    assert [said(given) for given in query.given_answers] == ["red", ""]
    assert [said(a.segments) for a in query.reference.answers] == ["red", "Seen."]
    alone = query_of(question=[{**first, "answer": None}, then])
    assert (alone.reference, alone.given_answers) == (None, ((), ()))
    assert [turn.wants_images for turn in session_turns(alone)] == [True, False]


def test_a_chat_without_a_word_of_looking_back_is_read_as_ever():
    plain = session("Draw.", "No.", {"content": "Well?", "choices": ["a", "b"]}, "a")
    assert TURNS not in plain.metadata
    assert said(plain.turns[2].content) == "Well?"
    assert said(plain.reference.segments) == "a"
    for broken in ({"looks_back": "perhaps"}, {"looks_back": True, "choices": ["one"]}):
        task = read([{"question": [{"role": "user", "content": "Hm?", **broken}]}])
        assert isinstance(task.samples[0], Malformed)


def test_sessions_are_asked_turn_by_turn():
    chat = [{"role": "user", "content": "Draw.", "looks_back": False}]
    chat += [{"role": "user", "content": "Look.", "looks_back": True}]
    task = read([{"question": chat}, {"question": "Draw a boat."}])
    (first, second), plain = task.samples[0].turns, task.samples[1]
    ask = task.prompt.next_query
    assert ask(replace(task.samples[0], turns=(first,))).wants_images
    assert not ask(task.samples[0]).wants_images
    assert ask(plain) is plain
    assert task.prompt(task.samples[0], "plain") == (first, second)
    assert not isinstance(read([{"question": "Draw a boat."}]).prompt, Session)


def test_criteria_reach_judges_once():
    red = {"criterion": "", "question": "It is red", "about": "image", "weight": 2}
    own = ["It rhymes", red]
    query = query_of(criteria=own)
    assert criteria_of(query) == (("image", "It is red"), ("answer", "It rhymes"))
    kept = ["It rhymes", {"criterion": "It is red", "about": "image", "weight": 2}]
    assert json.loads(query.metadata["criteria"]) == kept
    assert (query.criteria, query.wants_images) == (None, True)
    alone = query_of(criteria="It rhymes", answer="x")
    assert criteria_of(alone) == (("answer", "It rhymes"),)
    assert (alone.criteria, alone.metadata, alone.wants_images) == ("It rhymes", {}, False)


def test_everything_else_is_metadata_but_what_scorers_read():
    query = query_of(level=3, tags=["x"], note="", known_answer="Paris", wants_images="no")
    assert query.metadata == {"level": "3", "tags": '["x"]'}
    assert not query.wants_images


# ----------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        ({"question": ""}, "empty content"),
        ({"question": None}, "empty content"),
        ({"question": {"no": "image"}}, "missing key"),
        ({"question": "See <image>"}, "marks and pictures differ in number"),
        ({"question": "<image>", "images": BOTH}, "marks and pictures differ in number"),
        ({"question": "<image 3>", "images": BOTH}, "marks and pictures differ in number"),
        ({"images": "gone.png"}, "missing picture"),
        ({"images": "../red.png"}, "picture path leaves the data folder"),
        ({"images": "/red.png"}, "picture path leaves the data folder"),
        ({"images": "https://example.org/x.png"}, "missing picture"),
        ({"images": "q.jsonl"}, "undecodable picture"),
        ({"images": "data:image/png;base64,AAAA"}, "undecodable picture"),
        ({"images": 3}, "wrong type"),
        ({"question": ["gone.png"]}, "missing picture"),
        ({"question": [{"type": "video", "video": "x"}]}, "wrong type"),
        ({"question": [{"role": "boss", "content": "x"}]}, "unknown speaker"),
        ({"question": [{"role": "system", "content": "x"}]}, "no human turn"),
        ({"question": CHAT[1:3], "images": "red.png", "answer": "x"}, "wrong type"),
        ({"choices": "red"}, "wrong type"),
        ({"choices": ["one"]}, "answer is none of the choices"),
        ({"criteria": [{"weight": 1}]}, "missing key"),
        ({"criteria": [{"criterion": "x", "about": "tone"}]}, "wrong type"),
        ({"wants_images": "perhaps"}, "wrong type"),
        ({"id": ""}, "unusable id"),
        ({"id": 1.5}, "wrong type"),
        ({"id": "first"}, "duplicate id"),
        ({"answer": True}, "wrong type"),
    ],
)
def test_a_row_that_breaks_a_rule_is_named_by_its_line(broken, rule):
    first = {"id": "first", "question": "Q"}
    rows = [first, {"id": "second", "question": "Q"} | broken, first | {"id": "third"}]
    good, bad, last = read(rows).samples
    assert isinstance(good, Query)
    assert isinstance(last, Query)
    assert bad.reason.startswith("q.jsonl, line 2")
    assert f": {rule}: " in bad.reason
    assert "\n" not in bad.reason


def test_lines_that_are_no_rows_are_named_and_the_others_read():
    text = '{"question": "one"}\n\n{"question": "tw\n7\n{"question": "three"}\n'
    task = read(text)
    places = [s.reason.split(":")[0] for s in task.samples if isinstance(s, Malformed)]
    assert places == ["q.jsonl, line 3", "q.jsonl, line 4"]
    task = read('[\n {"question": "one"},\n {"question": ""}\n]', "q.json")
    assert task.samples[1].reason.startswith("q.json, row 2, line 3: ")


@pytest.mark.parametrize(
    ("columns", "stated", "said"),
    [
        (["question", "prompt"], {}, "'question' and 'prompt' both mean the question"),
        (["Question", "question"], {}, "both mean the question"),
        (["question", "messages"], {}, "both mean the question"),
        (["question", "answer", "reference"], {}, "both mean the answer"),
        (["question", "image", "images"], {}, "both mean the images"),
        (["ask"], {}, "no column of the question"),
        (["question"], {"question": ""}, "no column of the question"),
        (["ask"], {"question": "asked"}, "did you mean 'ask'"),
        (["ask"], {"question": "ask", "answer": "ask"}, "cannot be both"),
    ],
)
def test_a_column_that_means_two_things_is_refused(columns, stated, said):
    rows = [dict.fromkeys(columns, "x")]
    with pytest.raises((TaskError, UsageError), match=said) as refused:
        read(rows, columns=stated)
    assert "\n" not in str(refused.value)


def test_a_column_without_a_name_as_of_an_index_means_nothing():
    task = read(",question\n0,What?\n", "q.csv")
    assert told(task) == {"0001": "What?"}
    assert task.about["by_columns"]["columns"] == {"question": "question"}


def test_columns_are_those_that_the_config_names():
    rows = [{"instruction": "Q", "question": "other", "answer": "x", "key": "k"}]
    stated = {"question": "instruction", "id": "key", "answer": ""}
    (query,) = read(rows, columns=stated).samples
    assert (query.id, said(query.question), query.reference) == ("k", "Q", None)
    assert query.metadata == {"question": "other", "answer": "x"}


def test_an_image_named_by_url_is_fetched_once_from_a_listed_host(monkeypatch):
    fetched = []

    async def fetch(reader, media):
        fetched.append(media.source)
        if "gone" in media.source:
            raise MediaError("no image in 60 s")
        return Image.of(RED)

    monkeypatch.setattr("plait.pipelines.endpoints.media.MediaReader.read", fetch)
    rows = [{"question": "Q", "images": "https://example.org/x.png"}]
    for _ in range(2):
        assert told(read(rows, image_hosts=["example.org"])) == {"0001": "red|Q"}
    assert fetched == ["https://example.org/x.png"]
    gone = [{"question": "Q", "images": "https://example.org/gone.png"}]
    (refused,) = read(gone, image_hosts=["example.org"]).samples
    assert "missing picture: no image in 60 s" in refused.reason
    assert len(fetched) == 2
    assert isinstance(read(rows).samples[0], Malformed)


# ----------------------------------------------------------------------------- many rows


def many(kind, rows):
    """Write rows to a file of a kind; its name."""
    path = Path(f"many.{kind}")
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=100)
    elif kind == "jsonl":
        path.write_text("".join(f"{json.dumps(one)}\n\n" for one in rows))
    else:
        with path.open("w", newline="") as file:
            separator = "\t" if kind == "tsv" else ","
            table = csv.DictWriter(file, [*rows[0]], delimiter=separator)
            table.writeheader()
            table.writerows(rows)
    return path.name


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_many_queries_are_those_that_few_would_be(kind, monkeypatch):
    rows = [
        {
            "id": f"q{i % 450}",
            "question": f"Q {i}" if i % 7 else "",
            "category": f"c{i % 3}",
        }
        for i in range(500)
    ]
    name = many(kind, rows)
    whole = read(None, name)
    monkeypatch.setattr(spool, "MOST_IN_MEMORY", 50)
    task = read(None, name)
    assert isinstance(task.samples, spool.Spool)
    assert [*task.samples] == [*whole.samples]
    assert task.about == whole.about
    assert task.about["malformed"] == {"duplicate id": 50, "empty content": 65}
    first = "row" if kind == "parquet" else "line"
    again = [s.reason for s in task.samples if isinstance(s, Malformed)][-1]
    assert again.endswith(f"duplicate id: {again_of(name, first, kind)} has 'q49' already")
    for limit in (3, 49, 200):
        assert [*limit_queries(task.samples, limit, 7)] == [
            *limit_queries(whole.samples, limit, 7)
        ]
    ids = [f"q{i}" for i in range(300, 3, -2)]
    assert [*select_queries(task.samples, ids)] == [*select_queries(whole.samples, ids)]
    assert data_rows(task) == data_rows(whole)


def again_of(name, what, kind):
    """Where the 50th row stands."""
    return f"{name}, {what} {99 if kind == 'jsonl' else 50 if kind == 'parquet' else 51}"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_what_is_in_memory_does_not_grow_with_the_rows(kind, monkeypatch):
    monkeypatch.setattr(spool, "MOST_IN_MEMORY", 100)
    rows = [{"id": f"{i:06}", "question": f"{i} " + "why " * 500} for i in range(2_000)]
    name = many(kind, rows)
    del rows
    read(None, name)  # what is imported when it is needed
    peak = math.inf
    for _ in range(3):  # threads of earlier tests may take memory meanwhile
        if peak < 1_500_000:
            break
        tracemalloc.start()
        task = read(None, name)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(task.samples) == 2_000
    assert peak < 1_500_000, "of 4 MB"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_file_that_changes_while_it_is_read_is_refused(kind, monkeypatch):
    rows = [{"id": str(i), "question": "Why?"} for i in range(20)]
    name = many(kind, rows)
    query = own_data._Queries.query

    def change(self, row):
        if row.id == "0003":
            with Path(name).open("ab") as file:
                file.write(b"\n")
        return query(self, row)

    monkeypatch.setattr(own_data._Queries, "query", change)
    with pytest.raises(TaskError, match=f"{name} has changed while it was read"):
        read(None, name)

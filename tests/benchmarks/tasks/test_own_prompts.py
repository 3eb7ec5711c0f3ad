"""`prompts:FILE`: the same prompts in every kind of file, and what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_helpers import invoke

from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.document import Query

pytestmark = pytest.mark.contract

CUBE, CATS, SIGN = "A red cube.", "Two cats, one dog.", 'A "quoted" sign.'
ALL = [CUBE, CATS, SIGN]
NUMBERED = dict(zip(("0001", "0002", "0003"), ALL, strict=True))
OBJECTS = [{"prompt": prompt} for prompt in ALL]
LINES = "".join(f"{json.dumps(row)}\n" for row in OBJECTS)
QUOTED = f'prompt\n{CUBE}\n"{CATS}"\n"A ""quoted"" sign."\n'
PARTI = "Prompt\tCategory\tChallenge\tNote\n" + "".join(f"{p}\tX\tBasic\t\n" for p in ALL)


def read(tmp_path, name, content):
    """The task set of a file, of text or bytes."""
    data = content.encode() if isinstance(content, str) else content
    (tmp_path / name).write_bytes(data)
    return load(f"prompts:{tmp_path / name}", cache=tmp_path / "cache")


def told(task):
    """The prompt of each query, or the rule that a row breaks, by id."""
    return {
        s.id: s.question[0].text if isinstance(s, Query) else s.reason.split(": ")[1]
        for s in task.samples
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", "\n".join(ALL)),
        ("p.TXT", "\r\n".join(["\ufeff" + CUBE, CATS, SIGN])),
        ("prompts", "\n".join(ALL)),
        ("prompts-v1.5", "\n".join(ALL)),
        ("p.Prompts", "\r".join(ALL)),
        ("p.txt", LINES),
        ("p.txt", json.dumps(ALL, indent=1)),
        ("p.jsonl", LINES),
        ("p.JSONL", LINES.replace("\n", "\r\n")),
        ("p.jsonl", json.dumps(OBJECTS)),
        ("p.ndjson", "\ufeff" + LINES),
        ("p.jsonl", "".join(f"{json.dumps(prompt)}\n" for prompt in ALL)),
        ("p.json", json.dumps(ALL, indent=1)),
        ("p.json", "\ufeff" + json.dumps(OBJECTS, indent=1)),
        ("p.json", json.dumps({"version": 2, "prompts": ALL})),
        ("p.json", json.dumps({"about": "mine", "data": OBJECTS})),
        ("p.json", json.dumps({"tags": ["x"], "Prompts": OBJECTS})),
        ("p.json", json.dumps({id: {"Prompt": p} for id, p in NUMBERED.items()})),
        ("p.Json", LINES),
        ("p.csv", QUOTED),
        ("p.csv", "\ufeff" + QUOTED.replace("\n", "\r\n")),
        ("p.csv", f'id,PROMPT\n0001,{CUBE}\n0002, "{CATS}"\n0003,{SIGN}\n'),
        ("p.csv", f'n;text\n1;{CUBE}\n2;"{CATS}"\n\n;\n3;{SIGN}\n'),
        ("p.csv", f"sep=;\ntext;n\n{CUBE};1\n{CATS};2\n{SIGN};3\n"),
        ("p.csv", f'caption,note,\n{CUBE},x,\n"{CATS}",,\n{SIGN},,\n'),
        ("p.tsv", PARTI),
        ("p.TSV", PARTI.replace("\n", "\r\n")),
        (
            "p.tsv",
            f'"prompt"\t"n"\n"{CUBE}"\t"1"\n"{CATS}"\t"2"\n"A ""quoted"" sign."\t"3"\n',
        ),
    ],
)
def test_prompts_in_every_kind_of_file(tmp_path, name, content):
    assert told(read(tmp_path, name, content)) == NUMBERED


def test_prompts_of_parquet(tmp_path):
    pq.write_table(pa.table({"Prompt": ALL, "n": [1, 2, 3]}), tmp_path / "p.parquet")
    task = load(f"prompts:{tmp_path / 'p.parquet'}", cache=tmp_path / "cache")
    assert told(task) == NUMBERED


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("p.txt", "a cat\n\n a dog \n", {"0001": "a cat", "0003": "a dog"}),
        (
            "p.txt",
            "# mine\n#1 cat\na\tdog",
            {"0001": "# mine"} | {"0002": "#1 cat"} | {"0003": "a\tdog"},
        ),
        ("p.txt", '{a|b} cat\n"A sign."', {"0001": "{a|b} cat", "0002": '"A sign."'}),
        (
            "p.txt",
            '{"neon"} cat\n{"prompt": "x"}',
            {"0001": '{"neon"} cat'} | {"0002": '{"prompt": "x"}'},
        ),
        ("p.txt", '"quoted"\n[red] cube\n', {"0001": '"quoted"', "0002": "[red] cube"}),
        ("p.txt", "[red] cube\n{a|b}\n", {"0001": "[red] cube", "0002": "{a|b}"}),
        ("p.txt", "poster, text\ncaption\n", {"0001": "poster, text", "0002": "caption"}),
        ("p.txt", "a\u2028b\x1cc\n", {"0001": "a\u2028b\x1cc"}),
        ("p.txt", b"a cat\nca\xe9\n", {"0001": "a cat", "row-1": "text is not Unicode"}),
        (
            "p.jsonl",
            LINES + '{"prompt": "a dog", "id": "dog"}\n\n{}\n{"prompt": 5}\n{"prom\n'
            '{"prompt": "a cat", "id": 7}\n{"Prompt": "again", "ID": "dog"}\n',
            NUMBERED
            | {"dog": "a dog", "row-4": "missing key", "row-5": "wrong type"}
            | {"row-6": "wrong type", "7": "a cat", "row-8": "duplicate id"},
        ),
        ("p.jsonl", '{"tags": ["x"]}\n', {"row-0": "missing key"}),
        (
            "p.jsonl",
            b'{"prompt": "a cat"}\n{"prompt": "ca\xe9"}\n',
            {"0001": "a cat", "row-1": "text is not Unicode"},
        ),
        (
            "p.json",
            '["a cat", 5, ""]',
            {"0001": "a cat"} | {"row-1": "wrong type", "row-2": "empty content"},
        ),
        (
            "p.csv",
            'prompt\n"a\ncat"\nx, y\na dog\n',
            {"0001": "a\ncat", "row-1": "wrong type", "0003": "a dog"},
        ),
        (
            "p.csv",
            b"prompt,n\na cat,1\nca\xe9,2\n",
            {"0001": "a cat", "row-1": "text is not Unicode"},
        ),
        (
            "p.tsv",
            'prompt\tn\n"A sign\t1\nA cat\t2\n"B" says\t3\nA\tB\tC\n',
            {"0001": '"A sign', "0002": "A cat", "0003": '"B" says', "row-3": "wrong type"},
        ),
        (
            "p.tsv",
            "prompt\tn\tnote\nA\tcat\t1\t\nA dog\t2\t\n",
            {"row-0": "wrong type", "0002": "A dog"},
        ),
        (
            "p.csv",
            "prompt,n,,\nA, cat,1,,\nA dog,2,,\n",
            {"row-0": "wrong type", "0002": "A dog"},
        ),
        ("p.tsv", 'prompt\tn\n"Stop"\t1\nGo\t2\n', {"0001": '"Stop"', "0002": "Go"}),
        (
            "p.tsv",
            'prompt\tn\n"a\ncat"\t1\n"a ""b"""\t2\n',
            {"0001": "a\ncat", "0002": 'a "b"'},
        ),
    ],
)
def test_rows_are_read_or_named(tmp_path, name, content, expected):
    assert told(read(tmp_path, name, content)) == expected


def test_categories_and_the_first_of_several_columns(tmp_path):
    task = read(tmp_path, "p.csv", "Text,Prompt,Category\nno,yes,Food\nno,yes too,\n")
    assert told(task) == {"0001": "yes", "0002": "yes too"}
    assert [sample.category for sample in task.samples] == ["Food", "unknown"]
    task = read(tmp_path, "p.jsonl", '{"Prompt": "no", "prompt": "yes"}')
    assert told(task) == {"0001": "yes"}


def test_a_column_without_a_name_is_no_category(tmp_path):
    task = read(tmp_path, "p.csv", ",prompt\n0,a cat\n1,a dog\n")
    assert [sample.category for sample in task.samples] == ["unknown", "unknown"]


def test_a_broken_row_names_its_line(tmp_path):
    task = read(tmp_path, "p.csv", '\nprompt\n"a\ncat"\nx, y\n')
    assert "line 5 has 2 cells" in task.samples[1].reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.xlsx", b"PK\3\4"),
        ("p.yaml", "- a cat\n"),
        ("p.json5", "- a cat\n"),
        ("p.json", "[\n"),
        ("p.json", '["a cat",\n"a dog"\n'),
        ("p.txt", '[\n"a cat",\n'),
        ("p.txt", '{"prompt": "a cat\n'),
        ("p.txt", "Prompt\tCategory\na cat\tx\n"),
        ("p.txt", "id,prompt\n1,a cat\n"),
        ("p.csv", "a cat\na dog\n"),
        ("p.csv", 'prompt\n"a cat\na dog\n'),
        ("p.csv", 'prompt\n"a" cat\n'),
        ("p.csv", ""),
        ("p.tsv", "name\tn\na cat\t1\n"),
        ("p.jsonl", "a cat\na dog\n"),
        ("p.json", ""),
        ("p.txt", "a cat\n".encode("utf-16")),
        ("p.csv", "prompt\na cat\n".encode("utf-16-le")),
        ("p.parquet", "prompt\na cat\n"),
    ],
)
def test_what_is_no_file_of_prompts_is_refused_by_name(tmp_path, name, content):
    with pytest.raises(TaskError) as refused:
        read(tmp_path, name, content)
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ["", "\n\n", " \n\t"])
def test_an_empty_file_is_refused(tmp_path, content):
    (tmp_path / "p.txt").write_text(content)
    words = ["--data", f"prompts:{tmp_path / 'p.txt'}", "--out", str(tmp_path / "run")]
    with pytest.raises(TaskError, match="holds no queries"):
        invoke("run", *words, "--system", "gt", "--weights", "tiny")

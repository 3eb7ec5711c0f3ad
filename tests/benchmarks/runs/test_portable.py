"""What a run that is sent to others says of its maker's machine: no path and no key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.benchmarks.runs.portable import Portable

NOTHING_KNOWN = Portable(())
PARTS = st.text("abcXYZ019_.-+é漢@#=%()", min_size=1, max_size=8).filter(
    lambda part: part.strip(".")
)
SPACED = st.lists(PARTS, min_size=1, max_size=3).map(lambda own: f"{' '.join(own)}z")
"""After `=` or `(` a path could begin."""
STARTS = st.sampled_from(["/", "C:\\", "d:/", "\\\\", "s3://", "file:///"])
WORDS = st.sampled_from(
    [
        *("no", "and/or", "1/2", "https://example.org/a/b?c=/d", "hf:ORG/NAME@v1", "</b>"),
        *("relative/x.png", "./here", "../up/x", "~/x", "(a+b)/c", "µ/漢", "a:b", "%"),
    ]
)


@st.composite
def paths(draw: st.DrawFn, parts: st.SearchStrategy[str]) -> tuple[str, str, str]:
    """An absolute path, what must be gone of it, and its last part."""
    start = draw(STARTS)
    separator = "\\" if "\\" in start else "/"
    folders = draw(st.lists(parts.map(lambda p: f"of-{p}"), min_size=2, max_size=4))
    last = draw(PARTS.map(lambda p: f"z{p}"))
    return start + separator.join([*folders, last]), start + folders[0], last


@given(
    st.lists(st.one_of(WORDS, paths(PARTS)), min_size=1),
    st.sampled_from([" ", "\n", ", ", " - ", ' "']),
)
def test_paths_in_a_text_lose_their_folders_and_all_else_stays(pieces, between):
    text = between.join(p if isinstance(p, str) else p[0] for p in pieces)
    expected = between.join(p if isinstance(p, str) else p[2] for p in pieces)
    assert NOTHING_KNOWN.text(text) == expected
    assert NOTHING_KNOWN.text(expected) == expected


@given(paths(SPACED), st.sampled_from("\"'`"))
def test_quoted_paths_may_hold_spaces(path, quote):
    whole, _, last = path
    text = f"No such file: {quote}{whole}{quote}: see there"
    assert NOTHING_KNOWN.text(text) == f"No such file: {quote}{last}{quote}: see there"


@given(st.lists(SPACED, min_size=2, max_size=4), SPACED, PARTS)
def test_of_what_is_in_a_known_folder_the_path_from_there_is_left(folders, below, name):
    data = f"/of {'/'.join(folders)}"
    manifest = {"config": {"out": None, "data": f"ueval:{data}"}, "argv": [f"--x={data}"]}
    portable = Portable.of(Path("run"), manifest)
    last = folders[-1]
    rest = f"{below}/{name}"
    assert portable.text(f"bad: {data}/{rest}") == f"bad: {last}/{rest}"
    assert portable.text(f"bad: {data}") == f"bad: {last}"
    assert portable.data(manifest)["config"]["data"] == f"ueval:{last}"


@given(st.text())
def test_any_text_is_settled_after_one_pass(text):
    once = NOTHING_KNOWN.text(text)
    assert NOTHING_KNOWN.text(once) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/x/a.png", "a.png"),
        ("ours=mmie:/data/x y", "ours=mmie:x y"),
        ("FileNotFoundError: '/srv/jane doe/x y.png'", "FileNotFoundError: 'x y.png'"),
        ('File "C:\\Users\\jane\\m.py", line 3', 'File "m.py", line 3'),
        ("/a/x.parquet#3 and (/b/c)", "x.parquet#3 and (c)"),
        ("postgres://user:secret@host/db", "postgres://host/db"),
        ("gs://bucket/runs/r", "r"),
        ("/", "/"),
    ],
)
def test_texts(text, expected):
    assert NOTHING_KNOWN.text(text) == expected


def test_a_manifest_is_left_with_what_tells_others_how_a_run_was_made(tmp_path):
    root = tmp_path / "jane doe" / "runs" / "r"
    config = {
        "data": f"ueval:{tmp_path}/jane doe/data",
        "out": str(root),
        "answers": {"ours": f"mmie:{tmp_path}/jane doe/given"},
        "models": {"qwen": {"path": "/models/qwen 3", "key": "sk-123456789012"}},
        "prompts": {"outline": {"system": "Use <b> and a /b /c."}},
        "cluster": {"environment": {"TOKEN": "x"}, "account": "jane"},
        "servers": {"own": {"command": "vllm", "env": {"A": "b"}}},
        "address": "ray://10.0.0.1:10001",
    }
    argv = [f"{tmp_path}/bin/plait", "run", f"--ids={tmp_path}/jane doe/ids.txt"]
    reason = f"cannot read {tmp_path}/jane doe/data/a b/1.png; {root}/stages/x.parquet"
    manifest = {"config": config, "argv": argv, "weights": "tiny", "notes": [reason, 3]}
    portable = Portable.of(root, manifest)
    cleaned = portable.about(manifest)
    assert cleaned == {
        "config": {
            "data": "ueval:data",
            "out": "r",
            "answers": {"ours": "mmie:given"},
            "models": {"qwen": {"path": "qwen 3", "key": "***"}},
            "prompts": {"outline": {"system": "Use <b> and a /b /c."}},
            "cluster": {},
            "servers": {},
            "address": None,
        },
        "argv": ["plait", "run", "--ids=ids.txt"],
        "weights": "tiny",
        "notes": ["cannot read data/a b/1.png; stages/x.parquet", 3],
    }
    assert portable.about(cleaned) == cleaned

"""What counts as a key, and where none may be read."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from endpoint_helpers import KEY, MODEL, Answer, completion, error, serving
from trial import painter, plan_of, run, sample

from plait.benchmarks.runs.requirements import key_problems
from plait.generators import secrets
from plait.generators.base import Failure, Fault, Kind, Result, Skip, StageSpec
from plait.generators.document import Draft, Image, ImageRequest, Text
from plait.generators.secrets import (
    key_trouble,
    know,
    print_error,
    without_keys,
    without_keys_in,
    without_known_keys,
)
from plait.pipelines.chat.settings import EndpointSettings
from plait.pipelines.endpoints.chat import ChatEndpoint
from plait.pipelines.endpoints.errors import EndpointError

pytestmark = pytest.mark.contract

OWN = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_variables", set())
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OTHER_API_KEY", "anything")
    monkeypatch.setenv("THIRD_API_KEY", "none")
    monkeypatch.setenv("FOURTH_API_KEY", f"{KEY}-and-more")
    monkeypatch.setenv("MINE", OWN)


@pytest.mark.parametrize(
    "piece",
    [
        *("sk-FAKE12****", "sk-FAKE1***********************6789", "sk-...6789"),
        *("sk-proj-ab…yz", "sk-abcdefgh12345678", "hf_abcdefgh12345678"),
        *("AIzaSyA0123456789abcdef", KEY, f"{KEY}-and-more"),
    ],
)
def test_pieces_of_keys_are_no_part_of_a_reason(piece: str) -> None:
    masked = without_keys(f"Incorrect API key provided: {piece}. See the docs.")
    assert masked == "Incorrect API key provided: ***. See the docs."


BROKEN = "sk-first-half-0123\nsecond<half>/4567\u00e9"


@pytest.mark.parametrize(
    "quoted",
    [
        *(BROKEN, repr(BROKEN), ascii(BROKEN), repr(BROKEN.encode()), json.dumps(BROKEN)),
        *(json.dumps(BROKEN, ensure_ascii=False), html.escape(BROKEN), quote(BROKEN)),
        *(quote(BROKEN, safe=""), " ".join(BROKEN.split()), *BROKEN.split("\n")),
    ],
)
def test_a_key_is_masked_in_every_form_in_which_it_is_quoted(
    monkeypatch: pytest.MonkeyPatch, quoted: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", BROKEN)
    masked = without_known_keys(f"Illegal header value: Bearer {quoted}")
    assert not {"first-half", "4567"} & set(re.findall(r"first-half|4567", masked))


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (KEY, None),
        (f" {KEY}\n", None),
        ("", None),
        (f"{KEY}\nmore", "a line break"),
        (f"{KEY}\u2026", "U+2026"),
        ("\ufeff" + KEY, "character 1 of"),
    ],
)
def test_a_key_that_cannot_be_sent_is_refused_by_its_variables_name(
    monkeypatch: pytest.MonkeyPatch, key: str, what: str | None
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    trouble = key_trouble("OPENAI_API_KEY")
    stage = EndpointSettings(model=MODEL, base_url="http://127.0.0.1:1/v1")
    problems = key_problems([stage.spec("openai:m", "pretrained")])
    if what is None:
        assert (trouble, problems) == (None, [])
        return
    assert trouble is not None
    assert what in trouble
    assert "OPENAI_API_KEY" in trouble
    assert KEY not in trouble
    assert problems == [f"openai:m: {trouble}"]
    with pytest.raises(EndpointError, match="OPENAI_API_KEY"):
        ChatEndpoint(model=MODEL, base_url="http://127.0.0.1:1/v1")


def test_a_traceback_holds_neither_keys_nor_what_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error(ValueError(f"{KEY}\x1b[2J\x1b]0;title\x07\nsecond line"))
    assert capsys.readouterr().err == (
        "ValueError: ***\\x1b[2J\\x1b]0;title\\x07\nsecond line\n"
    )


def test_words_are_no_keys_and_a_variable_that_a_stage_names_holds_one() -> None:
    words = "sk-learn is missing; hf_hub_download failed; anything at all; none; 2**8"
    assert without_keys(words) == words
    assert without_known_keys(OWN) == OWN
    know(["MINE"])
    assert without_known_keys(f"{OWN} {KEY}") == "*** ***"


def test_long_words_are_searched_in_one_pass() -> None:
    """Their square would take longer than any test may: 10^10 steps."""
    data = "a" * 100_000
    assert without_keys(f"{data} {data}***b") == f"{data} ***"


def test_all_text_of_an_outcome_is_searched_and_all_else_stays() -> None:
    image = Image(KEY, data=KEY.encode())
    draft = Draft((Text(KEY), image, ImageRequest(prompt=f"a {KEY}")))
    notes = {"prompt": [{"content": KEY}], "attempts": 2, "text": "sk-FAKE12****"}
    failure = Failure(f"{KEY} sk-FAKE12****", Fault.REFUSED)
    made = without_keys_in([Result(draft, {"images": 1.0}, notes), failure, Skip(KEY)])
    masked = Draft((Text("***"), image, ImageRequest(prompt="a ***")))
    kept = notes | {"prompt": [{"content": "***"}]}
    assert made == [
        Result(masked, {"images": 1.0}, kept),
        Failure("*** ***", Fault.REFUSED),
        Skip("***"),
    ]
    assert made[1].fault is Fault.REFUSED


@pytest.mark.usefixtures("worker_threads")
def test_no_file_of_a_run_holds_a_key(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of good replies, errors, and exceptions of a user's own stage."""
    answers = [
        Answer(completion(f"your key is {OWN}")),
        Answer(completion(None, refusal=f"not with {OWN}")),
        Answer(error(f"bad request: {'x' * 278} {OWN}"), 400),
        Answer(f"<html>{'x' * 120}{OWN}".encode()),
    ]
    own = StageSpec(name="own", kind=Kind.DRAFT, target="users_own:Careless")
    stored = ""
    with serving() as server:
        server.script = lambda body: answers[len(server.bodies) % len(answers)]
        once = {"concurrency": 1, "max_attempts": 1}
        asked = EndpointSettings(
            model=MODEL, base_url=server.url, api_key_env="MINE", **once
        )
        for stage, failed in ((asked.spec("openai:m", "pretrained"), 3), (own, 4)):
            root = tmp_path / stage.folder
            plan = plan_of([sample(i) for i in range(4)], write=stage, paint=[painter()])
            assert run(plan, root).counts["failed"] == failed
            stored += str([pq.read_table(p).to_pylist() for p in root.rglob("*.parquet")])
            logs = [p for p in root.rglob("*") if p.suffix in (".log", ".json", ".jsonl")]
            stored += "".join(p.read_text() for p in logs)
    assert stored.count("***") >= 7, "that many records hold one"
    out, err = capfd.readouterr()
    assert "logging in with ***\n" in err
    for text in (stored, out, err):
        assert OWN[:7] not in text
        assert KEY[:12] not in text

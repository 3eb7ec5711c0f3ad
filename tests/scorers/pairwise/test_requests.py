"""What judges are shown: both orders, pictures in their places, criteria, turns."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pairwise_helpers import (
    ONE,
    OTHER,
    PICTURE,
    flat,
    sample,
    shown,
)

from generators.document import Document, Text, Turn
from generators.errors import UsageError
from scorers.judging.sources import Mode
from scorers.pairwise import (
    PROTOCOLS,
    creation,
    pairs,
    probench,
    prompts,
    resolve_protocol,
)
from scorers.pairwise.games import FactualityScores, Verdict
from scorers.pairwise.prompts import text_only

ALL = [(name, mode) for name in PROTOCOLS for mode in ("corrected", "official")]


@pytest.mark.parametrize(("name", "mode"), ALL)
def test_both_orders_are_asked_and_differ_in_nothing_else(name: str, mode: Mode) -> None:
    protocol, query = resolve_protocol(name, mode), sample("See", PICTURE)
    forward, swapped = protocol.requests(query, ONE, OTHER)
    assert (forward.swapped, swapped.swapped) == (False, True)
    other_way = protocol.requests(query, OTHER, ONE)
    assert forward.turns == other_way[1].turns
    assert swapped.turns == other_way[0].turns
    assert forward.turns != swapped.turns


@pytest.mark.parametrize(
    ("name", "mode", "expected"),
    [
        ("creation", "corrected", "See\n<Q>\nand write"),
        ("mllm-bench", "corrected", "See\n<Q>\nand write"),
        ("probench", "corrected", "See\n<Q>\nand write"),
        ("creation", "official", "See\nand write"),
        ("mllm-bench", "official", "See\nand write"),
        ("probench", "official", "['See\\nand write']"),
    ],
)
def test_pictures_of_questions(name: str, mode: Mode, expected: str) -> None:
    text = shown(resolve_protocol(name, mode))
    assert expected in text
    assert text.count("<Q>") == 1
    if mode == "official":
        at_end = name == "mllm-bench"
        assert text.endswith("<Q>") if at_end else text.startswith("<Q>")


def test_factuality_is_asked_where_it_has_criteria_and_without_pictures() -> None:
    protocol = resolve_protocol("creation")
    about = {creation.FACTUALITY: "a red hat", creation.TRUTH: "the hat is red"}
    asks = protocol.requests(sample("See", PICTURE, metadata=about), ONE, OTHER)
    assert [(a.aspect, a.swapped) for a in asks] == [
        ("preference", False),
        ("preference", True),
        ("factuality", False),
        ("factuality", True),
    ]
    text = flat(asks[2].turns[0].content)
    assert "<Q>" not in text
    assert "a red hat" in text
    assert "the hat is red" in text
    untold = sample("See", metadata={creation.FACTUALITY: "a red hat"})
    assert "What is true" not in flat(
        protocol.requests(untold, ONE, OTHER)[2].turns[0].content
    )


def conversation() -> tuple[Turn, ...]:
    return (
        Turn("user", (PICTURE, Text("who?"))),
        Turn("assistant", (Text("a cat"),)),
        Turn("user", (Text("where?"),)),
    )


@pytest.mark.parametrize("mode", ["corrected", "official"])
def test_answers_of_several_turns_are_shown_turn_by_turn(mode: Mode) -> None:
    protocol = resolve_protocol("probench", mode)
    first = Document.of([(Text("Tom"),), (Text("here"),)])
    second = Document.of([(Text("Tim"),), (Text("there"),)])
    (forward, _) = protocol.requests(sample(turns=conversation()), first, second)
    text = flat(forward.turns[1].content)
    order = ["<Q>", "who?", "Tom", "Tim", "</turn0>", "where?", "here", "there", "</turn1>"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "a cat" not in text
    assert forward.turns[0].content[0] == Text(prompts.LIKERT["multi-round"])


@pytest.mark.parametrize(
    ("track", "expected"),
    [
        ("multi-linguistic", "multi-linguistic"),
        ("singleround", "singleround"),
        ("", "singleround"),
    ],
)
def test_the_track_chooses_the_task(track: str, expected: str) -> None:
    query = sample("See", metadata={probench.TRACK: track})
    (forward, _) = resolve_protocol("probench").requests(query, ONE, OTHER)
    assert forward.turns[0] == Turn("system", (Text(prompts.LIKERT[expected]),))
    assert len(set(prompts.LIKERT.values())) == 3


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_form_that_is_asked_for_can_be_read(name: str) -> None:
    protocol, form = resolve_protocol(name), prompts.FORMS[name]
    head, *_, last = form.splitlines()
    verdict = last.split(" - ")[0]
    filled = head.replace("[[...]]", verdict) if "[[...]]" in head else verdict
    assert isinstance(protocol.read(filled), Verdict)
    marks = prompts.FACTUALITY_FORM.replace("X", "7").replace("Y", "3")
    if name == "creation":
        assert protocol.read(marks, "factuality") == FactualityScores(7, 3)


def test_a_text_only_sample_has_the_description_for_its_pictures() -> None:
    query = sample("See", PICTURE, "and write", metadata={"image_description": "a cat"})
    turned = text_only(query)
    assert turned.id == query.id
    assert not Document(turned.question).images
    text = flat(turned.question)
    assert text.startswith("See\nand write\nThis question does not provide images")
    assert text.endswith("Description of the image: a cat")
    assert text_only(turned) == turned
    with pytest.raises(ValueError, match="image_description"):
        text_only(sample("See", PICTURE))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_published_prompts_are_read_as_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "creation.py"
    names = ("subjective", "objective_without_gt", "objective_with_gt")
    lines = [
        "import nothing_of_the_kind",
        "prompt_dict = {}",
        "prompt_dict['Creation_MMBench'] = {",
        *(f"  {n!r}: 'PRE {{instructions}} {{prediction}} {n}'," for n in names),
        "}",
        "raise SystemExit(prompt_dict)",
    ]
    file.write_text("\n".join(lines))
    expected = {n: digest(f"PRE {{instructions}} {{prediction}} {n}") for n in names}
    monkeypatch.setattr(creation, "_DIGESTS", expected)
    protocol = resolve_protocol("creation", official=file)
    assert shown(protocol) == "PRE See\n<Q>\nand write Another {story} subjective"
    monkeypatch.setattr(creation, "_DIGESTS", expected | {"subjective": "0" * 64})
    with pytest.raises(UsageError, match=r"'subjective'.* not the published one"):
        resolve_protocol("creation", official=file)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_copy_without_the_prompts_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="official prompts"):
        resolve_protocol(name, official=tmp_path)
    (tmp_path / "empty.py").write_text("x = 1")
    with pytest.raises(UsageError, match="has no prompt"):
        resolve_protocol(name, official=tmp_path / "empty.py")


def test_names_and_baselines_are_checked() -> None:
    with pytest.raises(UsageError, match="did you mean 'probench'"):
        resolve_protocol("probensh")
    assert pairs(["a", "b", "c"]) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert pairs(["a", "b", "c"], "b") == [("b", "a"), ("b", "c")]
    with pytest.raises(UsageError, match="unknown baseline 'x'"):
        pairs(["a"], "x")

"""What judges are shown: both orders, pictures in their places, criteria, turns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pairwise_helpers import CHAT, DRAWN, PICTURE, document, draft_of, sample, walked

from generators.base import Failure, Fault, Outcome, Result, Skip, Unscored, Walk
from generators.document import Content, Document, Text, Turn
from generators.errors import UsageError
from generators.keys import derived_seed
from scorers.judging.sources import Mode
from scorers.pairwise import (
    PROTOCOLS,
    creation,
    mllm_bench,
    pairs,
    probench,
    prompts,
    resolve_protocol,
)
from scorers.pairwise.games import FactualityScores, Verdict
from scorers.pairwise.prompts import describe, text_only
from scorers.pairwise.protocol import Pairwise, most_questions

ONE = document("Once", DRAWN, "the end")
OTHER = document("Another {story}")
ALL = [(name, mode) for name in PROTOCOLS for mode in ("corrected", "official")]


def flat(content: Content) -> str:
    """`content` with its pictures as marks."""
    marks = {PICTURE.digest: "<Q>", DRAWN.digest: "<D>"}
    return "".join(s.text if isinstance(s, Text) else marks[s.digest] for s in content)


def shown(protocol: Pairwise, number: int = 0, **about: str) -> str:
    asks = protocol.requests(sample("See", PICTURE, "and write", **about), ONE, OTHER)
    return flat(asks[number].turns[-1].content)


@pytest.mark.parametrize(("name", "mode"), ALL)
def test_both_orders_are_asked_and_differ_in_nothing_else(name: str, mode: Mode) -> None:
    protocol, query = resolve_protocol(name, mode), sample("See", PICTURE)
    forward, swapped = protocol.requests(query, ONE, OTHER)
    assert (forward.swapped, swapped.swapped) == (False, True)
    other_way = protocol.requests(query, OTHER, ONE)
    assert forward.turns == other_way[1].turns
    assert swapped.turns == other_way[0].turns
    assert forward.turns != swapped.turns


@pytest.mark.parametrize(("name", "mode"), ALL)
def test_pictures_of_answers_stand_where_the_answers_have_them(
    name: str, mode: Mode
) -> None:
    text = shown(resolve_protocol(name, mode))
    if (name, mode) == ("probench", "official"):
        assert "Once\n<D>\nthe end" in text
        assert "['Another {story}']" in text
    else:
        assert text.index("Once\n<D>\nthe end") < text.index("Another {story}")


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


@pytest.mark.parametrize("name", ["creation", "mllm-bench"])
def test_criteria_are_those_of_the_sample(name: str) -> None:
    protocol = resolve_protocol(name)
    assert "look at the {hat}" in shown(protocol, criteria="look at the {hat}")
    assert "look at the" not in shown(protocol)
    without = prompts.NO_CRITERIA if name == "creation" else "compound\n\n# Answer1"
    assert without in shown(protocol, metadata={mllm_bench.QUESTION_TYPE: "compound"})


def test_every_protocol_asks_for_exactly_its_own_verdicts() -> None:
    for form in ("[[A>>B]]", "[[A>B]]", "[[A=B]]", "[[B>A]]", "[[B>>A]]"):
        assert form in prompts.CREATION
        assert all(form in text for text in prompts.LIKERT.values())
    assert "Final Verdict is: [[...]]" in prompts.CREATION
    for vote in ("Answer1\n", "Answer2\n", "situation one\n", "situation two\n"):
        assert vote in prompts.VOTE
    assert "Response B Visual Factuality Score: Y/10" in prompts.FACTUALITY_WITH_TRUTH


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


def test_the_kind_of_question_is_told() -> None:
    kind = {mllm_bench.QUESTION_TYPE: "close-ended"}
    assert "close-ended\n" in shown(resolve_protocol("mllm-bench"), metadata=kind)


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


def test_one_answer_to_a_conversation_is_judged_as_the_last_turn() -> None:
    query = sample(turns=conversation())
    (forward, _) = resolve_protocol("probench").requests(query, ONE, OTHER)
    text = flat(forward.turns[1].content)
    order = ["<Q>", "who?", "a cat", "<inst/>\nwhere?", "Once", "Another"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    walk = resolve_protocol("probench", "official").judge(query, ONE, OTHER, CHAT)
    _, outcome = walked(walk, [])
    assert isinstance(outcome, Failure)
    assert outcome.fault is Fault.BAD_INPUT
    assert "2 user turns and an answer of 1" in outcome.reason


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


def conversed(walk: Walk[Any], *rounds: Sequence[Outcome[Any]]) -> tuple[list[Any], Any]:
    """The jobs of each step of a walk, and its outcome on these rounds of replies."""
    questions, given = [next(walk)], iter(rounds)
    try:
        while True:
            questions.append(walk.send(list(next(given))))
    except StopIteration as stop:
        assert not list(given)
        return questions, stop.value


TIMEOUT = Failure("no reply", Fault.TIMEOUT)
FACTS = sample("See", metadata={creation.FACTUALITY: "a red hat"})
HALF_READ = [draft_of("[[A>B]]"), draft_of("well"), TIMEOUT, draft_of("none")]


def test_replies_become_readings_and_keep_their_outcomes() -> None:
    protocol = resolve_protocol("creation", "official")
    replies = [draft_of("Final Verdict is: [[A>B]]"), *HALF_READ[1:]]
    jobs, outcome = walked(protocol.judge(FACTS, ONE, OTHER, CHAT), replies)
    assert [j.input.turns for j in jobs] == [
        a.turns for a in protocol.requests(FACTS, ONE, OTHER)
    ]
    assert isinstance(outcome, Result)
    result = [r.outcome for r in outcome.value.readings]
    assert result[0] == Result(Verdict("A>B", 1))
    assert isinstance(result[1], Unscored)
    assert result[2] == TIMEOUT
    assert isinstance(result[3], Unscored)
    assert outcome.value.verdict(swapped=True) is None


def test_what_cannot_be_read_is_asked_for_once_more() -> None:
    protocol = resolve_protocol("creation")
    asks = protocol.requests(FACTS, ONE, OTHER)
    walk = protocol.judge(FACTS, ONE, OTHER, CHAT)
    rounds = (HALF_READ, [draft_of("[[B>A]]"), draft_of("none")])
    (first, again), outcome = conversed(walk, *rounds)
    assert [j.input.turns for j in first] == [a.turns for a in asks]
    assert len(again) == 2, "what was read or failed is not asked for again"
    for job, i, reply in zip(again, (1, 3), ("well", "none"), strict=True):
        *before, their, ours = job.input.turns
        assert tuple(before) == asks[i].turns
        assert their == Turn("assistant", (Text(reply),))
        assert ours.role == "user"
        assert job.group == first[i].group
    assert "no verdict" in flat(again[0].input.turns[-1].content)
    assert "[[A>>B]]" in flat(again[0].input.turns[-1].content)
    assert "score of response A" in flat(again[1].input.turns[-1].content)
    assert "Response B Visual Factuality Score: Y/10" in flat(
        again[1].input.turns[-1].content
    )
    result = [r.outcome for r in outcome.value.readings]
    assert result[:3] == [Result(Verdict("A>B", 1)), Result(Verdict("B>A", -1)), TIMEOUT]
    assert isinstance(result[3], Unscored)
    assert [r.swapped for r in outcome.value.readings] == [False, True, False, True]


def test_a_failed_second_question_is_the_readings_outcome() -> None:
    protocol, query = resolve_protocol("mllm-bench"), sample("See")
    rounds = [draft_of(""), draft_of("Answer1")], [TIMEOUT]
    (_, again), outcome = conversed(protocol.judge(query, ONE, OTHER, CHAT), *rounds)
    assert again[0].input.turns[-2] == Turn("assistant", (Text("(empty reply)"),))
    assert [r.outcome for r in outcome.value.readings] == [
        TIMEOUT,
        Result(Verdict("Answer1", 1)),
    ]


def test_second_questions_have_seeds_of_their_own() -> None:
    protocol, chat = resolve_protocol("creation"), replace(CHAT, seeded=True)
    unread = [draft_of("")] * 4
    steps, _ = conversed(protocol.judge(FACTS, ONE, OTHER, chat), unread, unread)
    seeds = [{j.input.seed for j in jobs} for jobs in steps]
    assert [len(s) for s in seeds] == [2, 2], "one for each aspect"
    assert not seeds[0] & seeds[1]
    assert seeds[0] == {derived_seed(0, "q1", 0, i) for i in (0, 1)}
    assert len({j.key for jobs in steps for j in jobs}) == 8
    assert most_questions(protocol) >= 1 + 4
    assert most_questions(resolve_protocol("creation", "official")) == 1


@pytest.mark.parametrize(
    ("name", "unread", "expected"),
    [
        ("mllm-bench", "no vote", 3),
        ("probench", "no verdict", 3),
        ("probench", "[[A>B]] or [[B>A]]", 1),
        ("probench", "[[B=A]]", 1),
        ("creation", "no verdict", 1),
    ],
)
def test_official_mode_asks_as_often_as_the_released_program(
    name: str, unread: str, expected: int
) -> None:
    """`--max_retry 3` of MLLM-Bench, `range(3)` of ProBench after a reply without any."""
    protocol, chat = resolve_protocol(name, "official"), replace(CHAT, seeded=True)
    replies = [[draft_of(unread)] * 2] * expected
    steps, outcome = conversed(protocol.judge(sample("See"), ONE, OTHER, chat), *replies)
    assert [[j.input.turns for j in jobs] for jobs in steps] == [
        [j.input.turns for j in steps[0]]
    ] * expected
    assert len({j.key for jobs in steps for j in jobs}) == 2 * expected
    assert all(isinstance(r.outcome, Unscored) for r in outcome.value.readings)
    assert most_questions(protocol) >= 1 + 2 * (expected - 1)
    # A greedy judge would say the same again.
    steps, _ = conversed(protocol.judge(sample("See"), ONE, OTHER, CHAT), replies[0])
    assert len(steps) == 1


def test_only_what_is_unread_is_repeated_officially() -> None:
    protocol = resolve_protocol("mllm-bench", "official")
    chat = replace(CHAT, seeded=True)
    rounds = [draft_of("Answer1"), draft_of("?")], [draft_of("Answer2")]
    steps, outcome = conversed(protocol.judge(sample("See"), ONE, OTHER, chat), *rounds)
    assert [len(jobs) for jobs in steps] == [2, 1]
    votes = [r.outcome.value.word for r in outcome.value.readings]
    assert votes == ["Answer1", "Answer2"]


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


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_pair_named_the_other_way_asks_for_the_same_records(
    name: str, seeded: bool
) -> None:
    protocol, chat = resolve_protocol(name), replace(CHAT, seeded=seeded)
    query = sample("See", PICTURE)
    keys = []
    for first, second in ((ONE, OTHER), (OTHER, ONE)):
        jobs, _ = walked(protocol.judge(query, first, second, chat), [Skip("-")] * 2)
        keys.append({job.key for job in jobs})
    assert keys[0] == keys[1]
    assert len(keys[0]) == 2
    jobs, _ = walked(protocol.judge(query, ONE, OTHER, chat, repeat=1), [Skip("-")] * 2)
    assert ({job.key for job in jobs} == keys[0]) is not seeded


def test_style_is_measured_with_pictures() -> None:
    walk = resolve_protocol("probench").judge(sample("See"), ONE, OTHER, CHAT)
    _, outcome = walked(walk, [draft_of("[[A>B]]")] * 2)
    first, second = outcome.value.styles
    assert (first.images, second.images) == (1, 0)
    assert (first.tokens, second.tokens) == (3, 4)


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


def test_a_description_is_asked_of_any_chat_stage() -> None:
    jobs, outcome = walked(describe(sample("See", PICTURE), CHAT), [draft_of("a cat")])
    assert jobs[0].input.images == (PICTURE,)
    assert outcome == Result("a cat")
    assert walked(describe(sample("See", PICTURE), CHAT), [TIMEOUT])[1] == TIMEOUT


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


def test_pairs_on_one_question_are_judged_together() -> None:
    protocol, query = resolve_protocol("creation"), sample("See", id="q1")
    jobs = [
        job
        for pair in ((ONE, OTHER), (OTHER, document("third")))
        for job in walked(protocol.judge(query, *pair, CHAT), [Skip("-")] * 2)[0]
    ]
    assert [job.group for job in jobs] == ["preference q1"] * 4
    elsewhere = protocol.judge(sample("See", id="q2"), ONE, OTHER, CHAT)
    assert {job.group for job in walked(elsewhere, [Skip("-")] * 2)[0]} == {"preference q2"}

"""What judges are asked about a pair, what comes of their replies, and pairs in a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pairwise_helpers import CHAT, ONE, OTHER, PICTURE, draft_of, flat, sample, shown

from plait.cluster.plan import Plan, iter_comparisons
from plait.generators.base import Failure, Fault, Outcome, Result, Skip, Unscored, Walk
from plait.generators.catalogue import Named, by_name
from plait.generators.document import Document, Malformed, Text, Turn
from plait.generators.errors import UsageError
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise import creation, probench, resolve_protocol
from plait.scorers.pairwise.games import FactualityScores, Judgement, ReplyReading, Verdict
from plait.scorers.pairwise.matchup import ComparedPair, Matchup, PairComparison
from plait.scorers.pairwise.prompts import OWN, text_only

ALL = [
    (name, mode)
    for name in by_name(Named.PAIRWISE)
    for mode in ("corrected", "official")
    # OpenING asks about each pair in one order: `test_opening.py`.
    if (name, mode) != ("opening", "official")
]


def conversed(walk: Walk[Any], *rounds: Sequence[Outcome[Any]]) -> tuple[list[Any], Any]:
    """The jobs of each step of a walk, and its outcome on these rounds of replies."""
    questions, given = [next(walk)], iter(rounds)
    try:
        while True:
            questions.append(walk.send(list(next(given))))
    except StopIteration as stop:
        assert not list(given), "asked less often than there are replies"
        return questions, stop.value


# ------------------------------------------------------------------------ what is asked


@pytest.mark.parametrize(("name", "mode"), ALL)
def test_both_orders_are_asked_and_differ_in_nothing_else(name: str, mode: Mode) -> None:
    protocol, query = resolve_protocol(name, mode), sample("See", PICTURE)
    forward, swapped = protocol.requests(query, ONE, OTHER)
    assert (forward.swapped, swapped.swapped) == (False, True)
    other_way = protocol.requests(query, OTHER, ONE)
    assert (forward.turns, swapped.turns) == (other_way[1].turns, other_way[0].turns)
    assert forward.turns != swapped.turns


@pytest.mark.parametrize(("name", "mode"), ALL)
def test_images_of_questions(name: str, mode: Mode) -> None:
    """In their places in corrected mode; officially before or after all text, or there."""
    text = shown(resolve_protocol(name, mode))
    assert text.count("<Q>") == 1
    if mode == "corrected" or name == "unified-reward-think":
        number = " <IMG_0></IMG_0>" if name == "opening" else ""
        assert f"See{number}\n<Q>\nand write" in text
        return
    if name == "mmrb2":
        assert "]See<Q>and write[" in text
        return
    asked = "['See\\nand write']" if name == "probench" else "See\nand write"
    assert asked in text
    assert text.endswith("<Q>") if name == "mllm-bench" else text.startswith("<Q>")


def test_factuality_is_asked_where_it_has_criteria_and_without_images() -> None:
    protocol = resolve_protocol("creation")
    about = {creation.FACTUALITY: "a red hat", creation.TRUTH: "the hat is red"}
    asks = protocol.requests(sample("See", PICTURE, metadata=about), ONE, OTHER)
    both = [(aspect, s) for aspect in ("preference", "factuality") for s in (False, True)]
    assert [(a.aspect, a.swapped) for a in asks] == both
    text = flat(asks[2].turns[0].content)
    assert "<Q>" not in text
    assert "a red hat" in text
    assert "the hat is red" in text
    untold = sample("See", metadata={creation.FACTUALITY: "a red hat"})
    text = flat(protocol.requests(untold, ONE, OTHER)[2].turns[0].content)
    assert "What is true" not in text


@pytest.mark.parametrize("mode", ["corrected", "official"])
def test_answers_of_several_turns_are_shown_turn_by_turn(mode: Mode) -> None:
    turns = (
        Turn("user", (PICTURE, Text("who?"))),
        Turn("assistant", (Text("a cat"),)),
        Turn("user", (Text("where?"),)),
    )
    protocol = resolve_protocol("probench", mode)
    first = Document.of([(Text("Tom"),), (Text("here"),)])
    second = Document.of([(Text("Tim"),), (Text("there"),)])
    (forward, _) = protocol.requests(sample(turns=turns), first, second)
    text = flat(forward.turns[1].content)
    order = ["<Q>", "who?", "Tom", "Tim", "</turn0>", "where?", "here", "there", "</turn1>"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "a cat" not in text
    assert forward.turns[0].content[0] == Text(OWN["probench"]["multi-round"])
    with pytest.raises(ValueError, match="2 user turns"):
        protocol.requests(sample(turns=turns), first, Document.of([(Text("x"),)]))


def test_the_track_chooses_the_task() -> None:
    assert len(set(OWN["probench"].values())) == 3
    for track in ("multi-linguistic", "singleround", ""):
        query = sample("See", metadata={probench.TRACK: track})
        (forward, _) = resolve_protocol("probench").requests(query, ONE, OTHER)
        task = OWN["probench"][track or "singleround"]
        assert forward.turns[0] == Turn("system", (Text(task),))


def test_the_split_chooses_the_task_and_every_segment_is_a_part() -> None:
    protocol = resolve_protocol("mmrb2", "official")
    assert len(set(OWN["mmrb2"].values())) == 4
    for split in ("t2i", "edit", "interleaved", "reasoning", "another benchmark's"):
        query = sample("See", PICTURE, "and write", category=split)
        (turn,) = protocol.requests(query, ONE, OTHER)[0].turns
        task, *parts = (flat((segment,)) for segment in turn.content)
        assert task == OWN["mmrb2"].get(split, OWN["mmrb2"]["interleaved"])
        assert parts == [
            *("[ORIGINAL PROMPT TO MODEL:]", "See", "<Q>", "and write"),
            *("[RESPONSE A:]", "Once", "<D>", "the end"),
            *("[RESPONSE B:]", "Another {story}"),
        ]


@pytest.mark.parametrize("name", by_name(Named.PAIRWISE))
def test_the_form_that_is_asked_for_can_be_read(name: str) -> None:
    protocol = resolve_protocol(name)
    form = protocol.form("preference")
    lines = form.replace('"A" or "B"', '"B"').splitlines()
    head, verdict = lines[0], lines[-1].split(" - ")[0]
    filled = head.replace("[[...]]", verdict) if "[[...]]" in head else verdict
    assert isinstance(protocol.read(filled), Verdict)
    marks = OWN["forms"]["factuality"].replace("X", "7").replace("Y", "3")
    if name == "creation":
        assert protocol.read(marks, "factuality") == FactualityScores(7, 3)


def test_a_text_only_query_has_the_description_for_its_images() -> None:
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


@pytest.mark.parametrize("name", by_name(Named.PAIRWISE))
def test_prompts_that_are_not_the_published_ones_are_refused(
    name: str, tmp_path: Path
) -> None:
    """They are read as data: nothing of the file is run."""
    texts = dict.fromkeys(creation._DIGESTS, "PRE {instructions}")
    other = f"raise SystemExit\nprompt_dict = {{'Creation_MMBench': {texts!r}}}"
    (tmp_path / "empty.py").write_text("x = 1")
    (tmp_path / "other.py").write_text(other)
    for file in (tmp_path, tmp_path / "empty.py", tmp_path / "other.py"):
        with pytest.raises(UsageError, match="prompt"):
            resolve_protocol(name, official=file)


# -------------------------------------------------------------- what becomes of replies


TIMEOUT = Failure("no reply", Fault.TIMEOUT)
FACTS = sample("See", metadata={creation.FACTUALITY: "a red hat"})
HALF_READ = [
    draft_of("Final Verdict is: [[A>B]]"), draft_of("well"), TIMEOUT, draft_of("none")
]  # fmt: skip


def test_what_cannot_be_read_is_asked_for_once_more() -> None:
    protocol = resolve_protocol("creation")
    asks = protocol.requests(FACTS, ONE, OTHER)
    walk = protocol.judge(FACTS, ONE, OTHER, CHAT)
    second = [draft_of("[[B>A]]"), draft_of("none")]
    (first, again), outcome = conversed(walk, HALF_READ, second)
    assert len(again) == 2, "what was read or failed is not asked for again"
    for job, i, reply in zip(again, (1, 3), ("well", "none"), strict=True):
        *before, their, ours = job.input.turns
        assert tuple(before) == asks[i].turns
        assert their == Turn("assistant", (Text(reply),))
        assert ours.role == "user"
        assert job.group == first[i].group
    assert "[[A>>B]]" in flat(again[0].input.turns[-1].content)
    assert OWN["forms"]["factuality"] in flat(again[1].input.turns[-1].content)
    result = [r.outcome for r in outcome.value.readings]
    assert result[:3] == [Result(Verdict("A>B", 1)), Result(Verdict("B>A", -1)), TIMEOUT]
    assert isinstance(result[3], Unscored)
    assert [r.swapped for r in outcome.value.readings] == [False, True, False, True]
    official = resolve_protocol("creation", "official")
    _, outcome = conversed(official.judge(FACTS, ONE, OTHER, CHAT), HALF_READ)
    types = [type(r.outcome) for r in outcome.value.readings]
    assert types == [Result, Unscored, Failure, Unscored]
    assert outcome.value.verdict(swapped=True) is None


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
    turns = [[job.input.turns for job in jobs] for jobs in steps]
    assert turns == [turns[0]] * expected
    assert len({job.key for jobs in steps for job in jobs}) == 2 * expected
    assert all(isinstance(r.outcome, Unscored) for r in outcome.value.readings)
    assert protocol.rounds >= expected
    # A greedy judge would say the same again.
    steps, _ = conversed(protocol.judge(sample("See"), ONE, OTHER, CHAT), replies[0])
    assert len(steps) == 1


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("name", by_name(Named.PAIRWISE))
def test_a_pair_named_the_other_way_asks_for_the_same_records(
    name: str, seeded: bool
) -> None:
    protocol, chat = resolve_protocol(name), replace(CHAT, seeded=seeded)

    def keys(first: Document, second: Document, repeat: int = 0) -> set[str]:
        walk = protocol.judge(sample("See", PICTURE), first, second, chat, repeat=repeat)
        (jobs,), _ = conversed(walk, [Skip("-")] * 2)
        return {job.key for job in jobs}

    assert keys(ONE, OTHER) == keys(OTHER, ONE)
    assert len(keys(ONE, OTHER)) == 2
    assert (keys(ONE, OTHER, 1) == keys(ONE, OTHER)) is not seeded


# ------------------------------------------------------------------- pairs in a plan


def test_a_pair_that_cannot_be_judged_says_why() -> None:
    malformed = Malformed(id="row-3", row=3, reason="row 3: duplicate id")
    for query, answer, why in (
        (FACTS, Failure("died", Fault.TIMEOUT), Failure("b: died", Fault.TIMEOUT)),
        (FACTS, Skip("one image"), Skip("b: one image")),
        (malformed, Result(ONE), Failure(malformed.reason, Fault.BAD_INPUT)),
    ):
        answers = (Result(ONE), answer)
        matchup = Matchup(query=query, repeat=0, first="a", second="b", answers=answers)
        protocol = resolve_protocol("creation")
        item = PairComparison(matchup=matchup, protocol=protocol, chat=CHAT)
        plan = Plan(systems=(), queries=(), scorers=(), prompt=None, comparisons=[item])
        (found,) = iter_comparisons(plan, None)  # nothing is looked up
        assert found.judgement == why
        # A missing answer failed elsewhere.
        judged = isinstance(answer, Result)
        assert found.verdicts == ((why,) if judged else ())
        assert isinstance(found.subject, Result if judged else Skip)


def test_one_failed_reply_makes_the_judgement_a_failure() -> None:
    """Else the command would end as if nothing had failed."""
    refused = Failure("will not judge", Fault.REFUSED)
    pair = Result((ONE, OTHER))

    def score(*outcomes: Any) -> Any:
        orders = zip((False, True), outcomes, strict=True)
        readings = tuple(ReplyReading("preference", s, o) for s, o in orders)
        (verdict,) = ComparedPair(pair, Result(Judgement(readings))).verdicts
        return verdict

    better, unread = Result(Verdict("A>>B", 2)), Unscored("?")
    assert score(better, refused) == refused
    assert score(unread, unread) == unread
    assert score(better, unread) == Result(-2.0)
    assert score(better, Result(Verdict("B>A", -1))) == Result(-1.5)
    assert score(better, Result(Verdict("A=B", 0))) == Result(-1.0)

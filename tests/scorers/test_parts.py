"""What a score is made of: every scorer's parts, their units and scales, and a user's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from boards import stored_board
from contents import document, query_of
from judging_helpers import GOOD, chat_spec, converse, picture, sample
from judging_helpers import judge_of as rubric_judge
from picture_helpers import flat
from scorer_helpers import STAGES, first, made, scored, truth_of
from specv_helpers import CHECKLIST
from unison_helpers import WORST_AND_BEST, session

from plait.cluster.local import LocalStages
from plait.cluster.plan import Evaluation
from plait.cluster.walks import drive
from plait.generators.base import Failure, Job, Outcome, Result, Unread
from plait.generators.catalogue import Named, by_name, by_prefix
from plait.generators.document import Document, Draft, LogprobsRequest, Query, Score, Text
from plait.generators.errors import UsageError
from plait.generators.given import GroundTruth
from plait.generators.logprobs import AnswerTokens, Logprobs
from plait.scorers import resolve_scorer
from plait.scorers.answers import CHOICE, KNOWN, LETTER, MOVES
from plait.scorers.base import UNBOUNDED, CustomScorer, Scorer, bounds
from plait.scorers.judging.aspects import ASPECTS, AspectsJudge
from plait.scorers.judging.criteria import ABOUTS, CriteriaJudge
from plait.scorers.judging.gedit import GeditJudge
from plait.scorers.judging.imgedit import ASPECTS as EDIT_MARKS
from plait.scorers.judging.imgedit import EDIT_TYPE, ImgEditJudge
from plait.scorers.judging.isg import BLOCK, IMAGE, IsgJudge
from plait.scorers.judging.judge import RubricJudge
from plait.scorers.judging.mmie import Released
from plait.scorers.judging.rubrics import Rubric
from plait.scorers.judging.specifications import SPECIFICATIONS, TRACK
from plait.scorers.judging.unison import UnisonJudge
from plait.scorers.kept import MASK, mask_text
from plait.scorers.parts import RULED, PartScale, PartTable, ScorePart
from plait.scorers.vqa import is_vqa
from plait.scorers.vqa.dpg import PROPOSITIONS
from plait.scorers.vqa.geneval2 import ATOMS


class Judged(NamedTuple):
    """A scorer, and a judgement that it gave."""

    scorer: Scorer
    judged: Score | Unread

    @classmethod
    def of(cls, scorer: Scorer, outcome: Outcome[Score]) -> Judged:
        if isinstance(outcome, Unread):
            return cls(scorer, outcome)
        assert isinstance(outcome, Result), outcome
        return cls(scorer, outcome.value)


def by_stage(name: str) -> Judged:
    """With random weights, on the ground truth of a query."""
    query = first("PBL")
    answer = truth_of(query)
    if name == "editreward" or name.startswith("kept-"):
        before, after, *_ = answer.images
        metadata = {MASK: mask_text(flat("black"))}
        query = query_of(before, "Change it.", metadata=metadata)
        answer = Document((after,))
    return Judged.of(made(name), scored(name, query, answer))


STORY = document("So it went.", picture("a0"))


def by_replies(scorer: Any, query: Query, *replies: Any, answer: Document = STORY) -> Any:
    return Judged.of(scorer, converse(scorer, query, answer, replies)[1])


def by_rubric(**notes: Any) -> Judged:
    usage = {"input_tokens": 4100, "output_tokens": 80}
    reply = Result(Draft((Text(GOOD),)), usage, notes)
    return by_replies(rubric_judge(), sample("SA-1"), reply)


def by_released_rubric() -> Judged:
    examiner = Released({"SA": Rubric("official:SA", "{question}{answer}", "")})
    judge = RubricJudge(name="judge:chatty", stage=chat_spec(), examiner=examiner)
    return by_replies(judge, sample("SA-1"), "### Score\n5")


def by_criteria(*replies: str) -> Judged:
    told = {"text": ["a", "b"], "image": ["c"]}
    metadata = {key: json.dumps(told[about]) for about, key in ABOUTS.items()}
    judge = CriteriaJudge(name="criteria:chatty", stage=chat_spec(), retries=0)
    return by_replies(judge, query_of("Q", metadata=metadata), *replies)


def by_aspects() -> Judged:
    judge = AspectsJudge(name="aspects:chatty", stage=chat_spec())
    return by_replies(judge, query_of("Q"), json.dumps(dict.fromkeys(ASPECTS, 7)))


def by_isg(level: str, *replies: str, answer: Document = STORY) -> Judged:
    about_image = {"image": "<gen_img1>", "Question": "Red?"}
    images = [
        {**about_image, "id": 1, "Preliminary": []},
        {**about_image, "id": 2, "Preliminary": [1]},
    ]
    blocks = [{"subject": "<gen_text1>", "object": "<gen_img1>", "Question": "Told?"}]
    metadata = {IMAGE: json.dumps(images), BLOCK: json.dumps(blocks)}
    query = query_of("Q", metadata=metadata, reference=STORY)
    judge = IsgJudge(name=f"isg-{level}:chatty", stage=chat_spec(), retries=0)
    return by_replies(judge, query, *replies, answer=answer)


def by_probabilities(prefix: str) -> Judged:
    """Asking a stage to which all answers are as likely."""
    metadata = {
        ATOMS: json.dumps([["Red?", "Yes", "colour"], ["How many?", "two", "count"]]),
        PROPOSITIONS: json.dumps([[1, [], "entity", "A cup?"], [2, [1], "count", "Two?"]]),
        **{key: json.dumps(["a", "b"]) for key in ABOUTS.values()},
        SPECIFICATIONS: json.dumps(CHECKLIST),
        TRACK: "interleave",
    }

    def told(pending: Sequence[Job]) -> list[Outcome[Any]]:
        return [Result(_likely(job)) for job in pending]

    scorer = (
        by_prefix(Named.SCORER)[prefix].load().asking(f"{prefix}:chatty", chat_spec(), {})
    )
    query = query_of("Two cups", metadata=metadata)
    return Judged.of(scorer, drive(scorer.judge(query, STORY), told))


def _likely(job: Job) -> Logprobs:
    assert isinstance(job.input, LogprobsRequest)
    answers = enumerate(job.input.answers)
    return Logprobs({text: AnswerTokens((i,), (-3.0,)) for i, text in answers})


def by_marks(judge: type[GeditJudge | ImgEditJudge], reply: str) -> Judged:
    query = query_of(picture("q0"), "Change it.", metadata={EDIT_TYPE: "add"})
    scorer = judge(name="edits:chatty", stage=chat_spec())

    def told(pending: Sequence[Job]) -> list[Outcome[Any]]:
        return [Result(Draft((Text(reply),))) for _ in pending]

    answer = document(picture("a0"))
    return Judged.of(scorer, drive(scorer.judge(query, answer), told))


def by_session(kind: str) -> Judged:
    query, answer = session(kind)
    judge = UnisonJudge(name="unison:chatty", stage=chat_spec())
    _, reply = WORST_AND_BEST[kind]
    return by_replies(judge, query, reply, answer=answer)


def by_comparison(name: str, text: str, known: Mapping[str, Any]) -> Judged:
    query = query_of("Which?", metadata={KNOWN: json.dumps(known)})
    scorer = resolve_scorer(name, "tiny", {})
    return Judged.of(scorer, drive(scorer.judge(query, document(text)), STAGES.outcomes))


MET, NOT_MET = '{"criteria_met": true}', '{"criteria_met": false}'
COMPARED = ("isg-structure", "known-answer")
BY_STAGE = [n for n in by_name(Named.SCORER) if n not in COMPARED and not made(n).of_sets]
VQA_PREFIXES = [p for p in by_prefix(Named.SCORER) if is_vqa(f"{p}:model")]
JUDGED: Mapping[str, Callable[[], Judged]] = {
    **{name: partial(by_stage, name) for name in BY_STAGE},
    **{prefix: partial(by_probabilities, prefix) for prefix in VQA_PREFIXES},
    "judge": partial(
        by_rubric,
        image_sizes=[[64, 48]],
        tiles=[7],
        max_tiles=12,
        over_context=True,
        finish="stop",
    ),
    "judge, as released": by_released_rubric,
    "criteria": partial(by_criteria, MET, NOT_MET, MET),
    "criteria, unread": partial(by_criteria, MET, "hm", MET),
    "aspects": by_aspects,
    "isg-image": partial(by_isg, "image", '{"Judge": "Yes"}', '{"Judge": "No"}'),
    "isg-image, unread": partial(by_isg, "image", "hm", '{"Judge": "No"}'),
    "isg-block": partial(by_isg, "block", '{"Judge": 8}'),
    "isg-block, at the floor": partial(by_isg, "block", answer=document("No image.")),
    "isg-holistic": partial(
        by_isg, "holistic", '{"overall_score": 6, "coherence": 3, "creativity": 1}'
    ),
    "gedit": partial(by_marks, GeditJudge, '{"score": [8, 9]}'),
    "imgedit": partial(
        by_marks, ImgEditJudge, json.dumps(dict.fromkeys(EDIT_MARKS["add"], 4))
    ),
    "unison, of a drawing": partial(by_session, "check"),
    "unison, of an edit": partial(by_session, "edit"),
    "unison, of mismatches": partial(by_session, "match"),
    "a letter": partial(
        by_comparison, "known-answer", "B", {"form": LETTER, "truth": "B", "of": 4}
    ),
    "a choice": partial(
        by_comparison,
        "known-answer",
        '<FINAL_ANSWER_JSON>{"choice": 1}</FINAL_ANSWER_JSON>',
        {"form": CHOICE, "truth": 1},
    ),
    "moves": partial(
        by_comparison,
        "known-answer",
        '<ANSWER_JSON>["up", "left"]</ANSWER_JSON>',
        {"form": MOVES, "truth": ["up", "down"]},
    ),
}


def numbers_in(value: Any) -> Iterator[float]:
    """All numbers of a JSON value, in its order."""
    if isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from numbers_in(inner)
    elif isinstance(value, int | float):
        yield float(value)


def at(parts: Any, part: ScorePart) -> Any:
    """What stands where the name of a part says."""
    if part.kind == "criterion":
        return parts["criteria"][part.name]
    for step in part.name.split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        parts = parts[int(key)] if isinstance(parts, list) else parts[key]
    return parts


@pytest.mark.models
@pytest.mark.parametrize("case", JUDGED)
def test_every_number_of_a_score_is_a_part_with_its_unit_and_scale(case: str) -> None:
    scorer, judged = JUDGED[case]()
    # As records hold them.
    known = json.loads(json.dumps(judged.parts))
    parts = scorer.parts_of(Score(0.0, known))
    assert parts == scorer.parts_of(judged)
    assert sorted(part.value for part in parts) == sorted(numbers_in(known))
    assert len({(part.kind, part.name) for part in parts}) == len(parts)
    for part in parts:
        assert float(at(known, part)) == part.value
        assert part.unit, f"{part.name} is not declared"
        ends = bounds(part.scale)
        assert ends or part.scale == UNBOUNDED
        if ends:
            assert ends[0] - 1e-5 <= part.value <= ends[1] + 1e-5, part
    assert scorer.parts_of(judged, RULED) == tuple(p for p in parts if p.kind in RULED)


def test_no_scorer_with_parts_is_left_out() -> None:
    """Those that declare some are all tried above, and the others' scores have none."""
    tried = {type(JUDGED[case]().scorer) for case in JUDGED if case not in BY_STAGE}
    tried |= {type(made(name)) for name in BY_STAGE}
    classes = {type(resolve_scorer(name, "tiny", {})) for name in by_name(Named.SCORER)}
    classes |= {by_prefix(Named.SCORER)[prefix].load() for prefix in VQA_PREFIXES}
    untried = classes - tried
    assert {cls.__name__ for cls in untried} == {"SetScorer", "StructureScorer"}
    assert not any(cls.declared_parts.rows for cls in untried)


@pytest.mark.models
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (
            "judge",
            [
                ("Context Consistency", "criterion", 0, "ruling", "0-1"),
                ("penalty", "penalty", 0, "ruling", "0-1"),
                ("raw", "raw", 4, "points", "0-6"),
                ("images", "other", 2, "images", UNBOUNDED),
                ("image_sizes/0/1", "other", 48, "pixels", UNBOUNDED),
                ("consistent", "other", 1, "boolean", "0-1"),
            ],
        ),
        ("judge, as released", [("raw", "raw", 5, "points", "0-6")]),
        (
            "criteria",
            [
                ("text", "criterion", 0.5, "share", "0-1"),
                ("image", "criterion", 1, "share", "0-1"),
                ("rulings/1/met", "other", 0, "ruling", "0-1"),
                ("not_met", "other", 1, "criteria", UNBOUNDED),
            ],
        ),
        ("criteria, unread", [("unscored", "other", 1, "criteria", UNBOUNDED)]),
        ("aspects", [("Correctness", "criterion", 0.7, "share", "0-1")]),
        ("isg-image", [("verdicts/1/verdict", "other", 0, "ruling", "0-1")]),
        ("isg-block", [("verdicts/0/verdict", "other", 8, "rating", "1-10")]),
        ("isg-block, at the floor", [("floor", "other", 1, "boolean", "0-1")]),
        ("isg-holistic", [("aspects/coherence", "other", 3, "rating", "1-10")]),
        (
            "unison, of a drawing",
            [
                ("Und.", "criterion", 1, "share", "0-1"),
                ("details/questions", "other", 1, "questions", UNBOUNDED),
            ],
        ),
        (
            "unison, of an edit",
            [
                ("Gen.", "criterion", 1, "share", "0-1"),
                ("rulings/0/mark", "other", 1, "mark", "0-1"),
            ],
        ),
        (
            "unison, of mismatches",
            [
                ("Uni.", "criterion", 0.5, "share", "0-1"),
                ("details/recall", "other", 1, "share", "0-1"),
                ("details/missed", "other", 0, "changes", UNBOUNDED),
            ],
        ),
        ("a letter", [("chance", "criterion", 0.25, "probability", "0-1")]),
        ("a choice", [("read", "other", 1, "choice", "0-1")]),
        ("moves", [("steps", "criterion", 0.5, "share", "0-1")]),
        ("consistency", [("images", "other", 2, "images", UNBOUNDED)]),
    ],
)
def test_parts_say_what_they_are(case: str, expected: Sequence[tuple[Any, ...]]) -> None:
    parts = JUDGED[case]().scorer.parts_of(JUDGED[case]().judged)
    assert {*(ScorePart(*row) for row in expected)} <= {*parts}


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "path", "unit", "scale"),
    [
        ("clipscore", "pairs/0/cos", "cosine", "-1-1"),
        ("clipscore", "clipscore_hessel", "2.5 * cosine", "0-2.5"),
        ("pickscore", "images/0", "cosine times the learned scale", "-100-100"),
        ("imagereward", "images/0", "standard deviations of rewards", UNBOUNDED),
        ("ssim", "pairs/0", "SSIM", "-1-1"),
        ("lpips", "pairs/0", "LPIPS (AlexNet)", UNBOUNDED),
        ("bertscore", "recall", "cosine", "-1-1"),
        ("rouge1", "rougeL/f1", "F1", "0-1"),
        ("truth:answer", "each/0", "F1", "0-100"),
    ],
)
def test_what_is_on_the_scale_of_the_score_has_its_unit(
    name: str, path: str, unit: str, scale: str
) -> None:
    found = by_stage(name)
    (part,) = (p for p in found.scorer.parts_of(found.judged) if p.name == path)
    assert (part.kind, part.unit, part.scale) == ("other", unit, scale)


# --------------------------------------------------------------------------- a user's own

MESSY: Mapping[str, Any] = {
    "raw": 3,
    "words": 7,
    "wrong": [math.nan, math.inf, 10**400, None, "5", b"5", {}],
    "a/b": {"c~d": [[True]]},
    "criteria": {"in/out": 1, "Style": None, "deep": {"er": 2}, "why": "so"},
    "penalty": False,
}


def users(*rows: PartScale) -> CustomScorer:
    return CustomScorer("own:Own", chat_spec(), "0-10", own_parts=PartTable(rows))


def test_numbers_that_are_not_declared_are_parts_without_a_unit() -> None:
    expected = [
        ("in/out", "criterion", 1.0),
        ("penalty", "penalty", 0.0),
        ("raw", "raw", 3.0),
        ("words", "other", 7.0),
        ("a~1b/c~0d/0/0", "other", 1.0),
        ("criteria/deep/er", "other", 2.0),
    ]
    parts = users().parts_of(Score(1.0, MESSY))
    assert [(p.name, p.kind, p.value) for p in parts] == expected
    assert {(p.unit, p.scale) for p in parts} == {("", UNBOUNDED)}
    assert users().parts_of(Score(1.0, MESSY), RULED) == parts[:3]
    without = {"raw": 3, "penalty": 1, "criteria": [1]}
    assert {p.kind for p in users().parts_of(Score(1.0, without))} == {"other"}
    assert users().parts_of(Score(1.0)) == ()


def test_parts_may_be_nested_as_deep_as_json_goes() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    (part,) = users().parts_of(Score(1.0, {"deep": deep}))
    assert part.value == 1


def test_a_users_scorer_says_what_its_parts_are() -> None:
    scorer = users(
        PartScale("words", "words", "0-100"),
        PartScale("a~1b/*/*/0", "boolean", "0-1"),
        PartScale("criteria/in~1out", "stars", "1-5"),
        PartScale("raw"),
        PartScale("criteria/deep/*", "stars", "1-5", "criterion"),
    )
    parts = {p.name: p for p in scorer.parts_of(Score(1.0, MESSY))}
    assert parts["words"] == ("words", "other", 7.0, "words", "0-100")
    assert parts["a~1b/c~0d/0/0"][3:] == ("boolean", "0-1")
    assert parts["in/out"] == ("in/out", "criterion", 1.0, "stars", "1-5")
    assert parts["deep/er"] == ("deep/er", "criterion", 2.0, "stars", "1-5")
    # Without a unit of its own, that of the score.
    assert parts["raw"] == ("raw", "raw", 3.0, "", "0-10")


def test_tables_have_rows_of_what_is_declared_as_ruled() -> None:
    scorer = users(
        PartScale("quality/*", "stars", "1-5", "criterion"),
        PartScale("fine", kind="penalty"),
    )
    score = Score(1.0, {"quality": {"Style": 4, "Wit": 2}, "fine": 1, "words": 7})
    evaluation = Evaluation(
        "a", query_of("Q"), 0, Result(STORY), {scorer.name: Result(score)}
    )
    board = stored_board(
        [evaluation],
        systems=[GroundTruth(name="a")],
        scorers=[scorer],
        categories={},
        fields=(),
        weights="tiny",
    )
    rows = board.table.select(["criterion", "value"]).to_pylist()
    assert [(row["criterion"], row["value"]) for row in rows] == [
        (None, None),
        (None, 1.0),
        ("Style", 4.0),
        ("Wit", 2.0),
        ("penalty", 1.0),
    ]


def test_declared_parts_of_a_users_class_are_read_and_wrong_ones_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import users_own

    assert resolve_scorer("users_own:Plain", "pretrained", {}).part_scales.rows == ()
    rows = [PartScale("words", "words", "0-10")]
    monkeypatch.setattr(users_own.Plain, "part_scales", rows, raising=False)
    found = resolve_scorer("users_own:Plain", "pretrained", {})
    assert found.part_scales.rows == tuple(rows)
    wrong: list[tuple[Any, str]] = [
        ({"words": ("words", "0-10")}, "PartScale"),
        ([("words", "0-10")], "PartScale"),
        ([PartScale(3)], "PartScale"),  # type: ignore[arg-type]
        ([PartScale("words", "words", "10-0")], "'10-0'.*'words'"),
        ([PartScale("words", kind="criteria")], "criteria.*criterion"),  # type: ignore[arg-type]
    ]
    for declared, why in wrong:
        monkeypatch.setattr(users_own.Plain, "part_scales", declared)
        with pytest.raises(UsageError, match=why):
            resolve_scorer("users_own:Plain", "pretrained", {})


# ------------------------------------------------------ parts returned in place of a score


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("ab", "Layout", 8.5),
        ("abc", "Layout", 1.0),
        ("ab", "Harsh", 7.0),
        ("", "Layout", "'layout', 'style'"),
        ("a", "Layout", "'style' is no number on the declared scale 0-10"),
    ],
)
def test_a_users_scorer_may_return_its_parts(
    text: str, name: str, expected: float | str
) -> None:
    scorer = resolve_scorer(f"users_own:{name}", "pretrained", {})
    assert scorer.scale == "0-10"
    outcome = drive(
        scorer.judge(query_of("Q"), Document((Text(text),))), LocalStages().outcomes
    )
    if isinstance(expected, str):
        assert isinstance(outcome, Failure)
        assert expected in outcome.reason
    else:
        assert isinstance(outcome, Result)
        assert outcome.value.value == expected
        parts = scorer.parts_of(outcome.value)
        assert [part[:2] for part in parts] == [
            ("layout", "criterion"),
            ("style", "criterion"),
        ]
        assert {part.scale for part in parts} == {"0-10"}


def test_parts_on_other_scales_make_a_score_of_100(monkeypatch: pytest.MonkeyPatch) -> None:
    import users_own

    monkeypatch.setattr(users_own.Layout, "parts", {"layout": "0-10", "style": "yes/no"})
    assert resolve_scorer("users_own:Layout", "pretrained", {}).scale == "0-100"
    monkeypatch.setattr(users_own.Layout, "parts", {"layout": "up to 10"})
    with pytest.raises(UsageError, match=r"'layout'.*'up to 10' is not a scale"):
        resolve_scorer("users_own:Layout", "pretrained", {})

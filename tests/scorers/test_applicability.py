"""Which answers a scorer can score, known before there are any, and as scoring has it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from scorer_helpers import SAMPLES, first, made, scored, truth_of

from plait.benchmarks.runs.planning import ExpectedAnswers
from plait.generators.base import NotApplicable, StageSpec
from plait.generators.catalogue import Named, by_name
from plait.generators.document import (
    AnswerForm,
    Document,
    Image,
    Malformed,
    Query,
    Text,
    Turn,
)
from plait.generators.given import GivenAnswers
from plait.generators.system import System
from plait.pipelines.systems import Models, chat_spec, resolve
from plait.scorers import resolve_scorer
from plait.scorers.applicability import Applicability, applicability, group_lines
from plait.scorers.base import Scorer

TINY = Models(weights="tiny")
LVLM = "qwen2-vl-7b"
PROMPT = Query(
    id="prompt",
    category="prompts",
    field="",
    turns=(Turn("user", (Text("a red cat"),)),),
)
SILENT = replace(PROMPT, id="silent", turns=(Turn("user", (Image.of(b"image"),)),))
TALK = replace(PROMPT, turns=(*PROMPT.turns, Turn("assistant", ()), *PROMPT.turns))
FORMS = {
    f"{LVLM}@text": AnswerForm(images=0),
    "sdxl-turbo@t2i": AnswerForm(text=False, images=1),
    f"{LVLM}+sdxl-turbo": AnswerForm(images=1),
    f"{LVLM}+sdxl-turbo@outline": AnswerForm(images=4),
    "anole": AnswerForm(images=inf),
    "gemini:gemini-3-image": AnswerForm(images=inf),
}
"""What answers of a system to one question may hold."""


def system(name: str) -> System:
    return resolve(name, TINY)


def scorer_of(name: str) -> Scorer:
    def stage(lvlm: str) -> StageSpec:
        return chat_spec(lvlm, TINY)

    return resolve_scorer(name, "tiny", {}, chat=stage, answers=stage)


def found(name: str, systems: list[str], queries: list[Query]) -> Applicability:
    planned = ExpectedAnswers([*map(system, systems)], queries)
    (applies,) = applicability([scorer_of(name)], planned)
    return applies


@pytest.mark.parametrize("name", FORMS)
def test_what_answers_of_a_system_may_hold(name: str) -> None:
    form = FORMS[name]
    assert system(name).answer_form(PROMPT) == form
    assert system(name).answer_form(TALK) == replace(form, images=2 * form.images)


def test_given_answers_hold_what_they_hold_and_others_are_not_given() -> None:
    (pbl, msr) = (first("PBL"), first("MSR"))
    truth = system("gt")
    assert truth.answer_form(pbl) == AnswerForm(images=2)
    assert truth.answer_form(msr) == AnswerForm(images=0)
    assert truth.answer_form(PROMPT) is None
    own = GivenAnswers(name="own", answers={"prompt": Document((Text(" "),))})
    assert own.answer_form(PROMPT) == AnswerForm(text=False, images=0)
    drawing = system("sdxl-turbo@t2i")
    assert drawing.answer_form(SILENT) is None
    assert drawing.answer_form(msr) is None


T2I, TEXT, PAIR = "sdxl-turbo@t2i", f"{LVLM}@text", f"{LVLM}+sdxl-turbo"
MINIATURE = [first("SA"), first("PBL"), first("MSR"), first("MSR", 1)]


@pytest.mark.parametrize(
    ("name", "systems", "queries", "scorable", "answers"),
    [
        ("clipscore", [T2I], [PROMPT, PROMPT], 0, 2),
        ("clipscore", [T2I, PAIR], [PROMPT], 1, 2),
        ("clipscore", [PAIR], MINIATURE, 2, 4),
        ("clipscore", [TEXT], MINIATURE, 0, 4),
        ("clipscore", ["gt", "anole"], [*MINIATURE, PROMPT], 5, 9),
        ("clipscore-prompt", [T2I, TEXT], [PROMPT, SILENT], 1, 3),
        ("consistency", [PAIR, f"{PAIR}@outline"], [PROMPT], 1, 2),
        ("consistency", [PAIR], [TALK], 1, 1),
        ("bleu", [T2I], [PROMPT], 0, 1),
        ("bleu", ["anole"], [PROMPT, *MINIATURE], 4, 5),
        ("known-answer", [TEXT], [PROMPT], 0, 1),
        ("truth:image", ["anole"], MINIATURE, 2, 4),
        ("truth:answer", ["anole"], [*MINIATURE, PROMPT], 4, 5),
        ("fid", ["anole"], [*MINIATURE, PROMPT], 2, 5),
        ("diversity", ["anole"], [*MINIATURE, PROMPT], 3, 5),
        (f"judge:{LVLM}", [T2I], [PROMPT], 0, 1),
        (f"judge:{LVLM}", [PAIR], [*MINIATURE, PROMPT], 4, 5),
        (f"criteria:{LVLM}", [PAIR], [*MINIATURE, PROMPT], 4, 5),
        (f"aspects:{LVLM}", [TEXT, T2I], [PROMPT], 2, 2),
        (f"geneval2:{LVLM}", [T2I], [PROMPT], 0, 1),
        (f"vqascore:{LVLM}", [T2I, TEXT], [PROMPT], 1, 2),
        ("clipscore", [T2I], [SILENT], 0, 0),
    ],
)
def test_how_many_answers_a_scorer_can_score(
    name: str, systems: list[str], queries: list[Query], scorable: int, answers: int
) -> None:
    applies = found(name, systems, queries)
    assert (applies.scorable, applies.answers) == (scorable, answers)
    assert bool(applies.refused) == bool(answers and not scorable)
    assert bool(applies.instead) == bool(applies.refused)


@pytest.mark.parametrize(
    ("name", "systems", "instead"),
    [
        ("clipscore", [T2I], ["clipscore-prompt"]),
        (f"geneval2:{LVLM}", [T2I], [f"vqascore:{LVLM}"]),
        (f"dpg:{LVLM}", [T2I], [f"vqascore:{LVLM}"]),
        (f"criteria:{LVLM}", [T2I], [f"aspects:{LVLM}"]),
        (f"criteria-probability:{LVLM}", [T2I], [f"vqascore:{LVLM}"]),
        ("clipscore", [TEXT], ["aspects:LVLM"]),
        ("judge:mmie-score", [TEXT], [None, "aspects:LVLM"]),
        (f"judge:{LVLM}", [TEXT], [None, f"aspects:{LVLM}"]),
    ],
)
def test_what_can_score_answers_that_a_scorer_cannot(
    name: str, systems: list[str], instead: list[str | None]
) -> None:
    """None stands for the same judge with a rubric for these queries."""
    own = found(name, systems, [PROMPT]).instead
    assert len(own) == len(instead)
    for one, expected in zip(own, instead, strict=True):
        assert one == expected if expected else one.startswith(name)


def test_repeats_are_counted_and_rows_without_a_query_are_not() -> None:
    broken = Malformed(id="broken", row=1, reason="empty")
    planned = ExpectedAnswers([system(PAIR)], [PROMPT, broken], repeats=3)
    assert [(p.form.images, p.number) for p in planned] == [(1, 3)]


def test_scorers_of_the_same_part_share_a_line() -> None:
    planned = ExpectedAnswers([system(PAIR)], MINIATURE)
    names = ("clipscore", "diversity", "bleu", "truth:match", "truth:image")
    lines = group_lines(applicability(map(scorer_of, names), planned))
    assert len(lines) == 1
    assert lines[0].startswith("clipscore, diversity, truth:match, truth:image can score")


@pytest.mark.models
@pytest.mark.parametrize("name", by_name(Named.SCORER))
def test_what_a_plan_refuses_is_what_scoring_refuses(name: str) -> None:
    queries = [*SAMPLES[:4], PROMPT, replace(first("SA"), wants_images=False), SILENT]
    answers = [
        truth_of(first("PBL")),
        Document(),
        Document((Text("a cat"),)),
        Document(truth_of(first("PBL")).images),
    ]
    for query in queries:
        for answer in answers:
            refused = made(name).refusal(query, answer.form)
            if refused is not None:
                assert scored(name, query, answer) == refused
            elif query in SAMPLES:
                # Whatever else keeps it from a score is found in the answer alone.
                assert type(scored(name, query, answer)) is not NotApplicable

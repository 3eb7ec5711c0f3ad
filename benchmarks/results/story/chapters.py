"""The story in five pictures: what was asked, answered and judged, and where judges err."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.results.board import Board
from benchmarks.results.story.answers import (
    StoryAnswer,
    StoryScorers,
    best,
    most_different,
    story_answers,
    worse,
    written,
    wrong_order,
)
from benchmarks.results.wording import decimals
from benchmarks.tasks.controls import TRUTH as GROUND_TRUTH
from generators.document import Content, Sample
from generators.errors import UsageError
from generators.mini.table import ABOUT_JUDGE
from scorers.base import Scorer

KINDS = {
    "SA": "a situation: go on with the story, in text and picture",
    "PBL": "a project: give each next step, with a picture of it",
    "MSR": "a problem: look at the picture and answer in words",
}
"""What a category asks for."""
SMALL = 0.1
"""Scores that differ by less of their scale are called alike."""


@dataclass(frozen=True, slots=True)
class StoryPanel:
    """One picture of the story: content under a heading, with scores and facts."""

    heading: str
    content: Content
    marks: tuple[tuple[str, str], ...] = ()
    """(scorer, score with its scale)."""
    facts: tuple[tuple[str, str], ...] = ()
    """What a scorer saw or said, in its words."""


@dataclass(frozen=True, slots=True)
class StoryChapter:
    """A heading, a few sentences, and one or two panels side by side."""

    title: str
    words: tuple[str, ...]
    panels: tuple[StoryPanel, ...]


def chapters_of(board: Board) -> list[StoryChapter]:
    """All chapters that the run has answers for; UsageError where it has none."""
    scorers = StoryScorers.of(board)
    answers = story_answers(board, scorers)
    own = written(answers)
    if not own:
        raise UsageError(
            f"no answer of a system has a score of {scorers.truth.name}: nothing to tell"
        )
    good = best(own, scorers)
    told = (
        _asked(good.sample),
        _answered(good, scorers),
        _mistaken(own, good, scorers),
        _clip(answers, own, scorers),
        _judge(board, answers, own, scorers),
    )
    return [chapter for chapter in told if chapter is not None]


# ------------------------------------------------------------------- query and answer


def _asked(sample: Sample) -> StoryChapter:
    kind = KINDS.get(sample.category, sample.category)
    words = (
        f"A query is text and pictures. This one is {kind} ({sample.field}).",
        "Its right answer is known: the picture was drawn from a description of shapes, "
        "and the story says exactly what changes.",
    )
    panels = [StoryPanel("What is asked", sample.question)]
    if sample.reference is not None:
        panels.append(StoryPanel("A right answer", sample.reference.segments))
    return StoryChapter("A query", words, tuple(panels))


def _answered(good: StoryAnswer, scorers: StoryScorers) -> StoryChapter:
    writer, _, artist = good.system.partition("+")
    how = "wrote the text and drew the pictures itself"
    if artist:
        how = f"wrote the text ({writer}), and had the pictures drawn from it ({artist})"
    words = (
        f"{good.system} {how}. Nothing of the right answer was shown to it.",
        _agreement(good, scorers),
    )
    return StoryChapter("A good answer", words, (_panel(good, scorers),))


def _agreement(answer: StoryAnswer, scorers: StoryScorers) -> str:
    others = [s for s in scorers.all[1:] if answer.mark(s) is not None]
    if not others:
        return f"Truth gives it {_score(answer, scorers.truth)}."
    scores = " and ".join(f"{s.name} {_score(answer, s)}" for s in others)
    return f"Truth gives it {_score(answer, scorers.truth)}, {scores}."


def _panel(
    answer: StoryAnswer, scorers: StoryScorers, seen: Scorer | None = None
) -> StoryPanel:
    """An answer with its scores, and what one scorer saw in it."""
    heading = "The ground truth" if answer.system == GROUND_TRUTH else answer.system
    marks = tuple((s.name, _score(answer, s)) for s in scorers.all)
    facts = () if seen is None else tuple(_facts(answer, seen))
    return StoryPanel(heading, answer.document.segments, marks, facts)


def _score(answer: StoryAnswer, scorer: Scorer) -> str:
    if scorer.name not in answer.scores:
        return "no score"
    top = scorer.scale.rpartition("-")[2]
    return f"{answer.scores[scorer.name].value:.{decimals(scorer.scale)}f} of {top}"


# ------------------------------------------------------------------------------ truth


def _mistaken(
    own: Sequence[StoryAnswer], good: StoryAnswer, scorers: StoryScorers
) -> StoryChapter | None:
    wrong = worse(own, good, scorers)
    if wrong is None:
        return None
    same = wrong.sample.id == good.sample.id
    words = (
        "Truth reads the text with a grammar and the pictures by their pixels, and counts "
        "which colours, shapes, sizes and places are right. It uses no model, and works "
        "in this world alone; what it cannot read it leaves unscored.",
        f"Here {wrong.system} answers {'the same' if same else 'another'} query, and truth "
        f"gives {_score(wrong, scorers.truth)}.",
    )
    panels = [_panel(wrong, scorers, scorers.truth)]
    if not same:
        panels.insert(0, StoryPanel("What was asked", wrong.sample.question))
    elif wrong.sample.reference is not None:
        panels.append(StoryPanel("A right answer", wrong.sample.reference.segments))
    return StoryChapter("What truth sees", words, tuple(panels))


def _facts(answer: StoryAnswer, scorer: Scorer) -> Iterator[tuple[str, str]]:
    """What a score is made of: attributes that are right, or verdicts on criteria."""
    parts = answer.scores[scorer.name].parts if scorer.name in answer.scores else {}
    for name, (right, _, true) in dict(parts.get("attributes", {})).items():
        yield f"{name} right", f"{right:g} of {true:g}"
    verdicts = dict(parts.get("criteria", {}))
    yield from ((name, _VERDICTS[verdict]) for name, verdict in verdicts.items())


_VERDICTS = {1: "met", 0: "not met", None: "no verdict"}


# ------------------------------------------------------------------- CLIPScore, judge


def _clip(
    answers: Sequence[StoryAnswer], own: Sequence[StoryAnswer], scorers: StoryScorers
) -> StoryChapter | None:
    if scorers.clip is None:
        return None
    about = (
        "CLIPScore asks a small CLIP model how well each picture fits the text beside it. "
        "It reads neither the query nor the order of the pictures, and hardly sees where "
        "things stand."
    )
    return _erring("Where CLIPScore is fooled", about, answers, own, scorers, scorers.clip)


def _judge(
    board: Board,
    answers: Sequence[StoryAnswer],
    own: Sequence[StoryAnswer],
    scorers: StoryScorers,
) -> StoryChapter | None:
    if scorers.judge is None:
        return None
    about = (
        "The judge is a vision-language model. It reads the query, the answer with "
        "its pictures and what to look for, gives a verdict on six criteria, and never "
        "sees what truth says."
    )
    if scorers.judge.name in board.mini_weights:
        about += f" It was trained in this world: {ABOUT_JUDGE}."
    title = "What the judge says, and where it errs"
    return _erring(title, about, answers, own, scorers, scorers.judge)


def _erring(
    title: str,
    about: str,
    answers: Sequence[StoryAnswer],
    own: Sequence[StoryAnswer],
    scorers: StoryScorers,
    scorer: Scorer,
) -> StoryChapter | None:
    """Two answers that a scorer puts in the wrong order; else where it differs most."""
    pair = wrong_order(answers, scorers.truth, scorer)
    if pair is not None:
        words = (
            about,
            f"Two answers to one query: {scorer.name} prefers the second, and truth knows "
            "that the first has more right.",
        )
        seen = scorers.truth if scorer is scorers.clip else scorer
        panels = (
            StoryPanel("What was asked", pair.better.sample.question),
            _panel(pair.better, scorers, seen),
            _panel(pair.preferred, scorers, seen),
        )
        return StoryChapter(title, words, panels)
    return _differing(title, about, own, scorers, scorer)


def _differing(
    title: str,
    about: str,
    own: Sequence[StoryAnswer],
    scorers: StoryScorers,
    scorer: Scorer,
) -> StoryChapter | None:
    answer = most_different(own, scorers.truth, scorer)
    if answer is None:
        return None
    words = (
        about,
        f"In this run {scorer.name} puts no two answers to one query in another order than "
        "truth. This is the answer on which the two are furthest apart on their scales.",
    )
    asked = StoryPanel("What was asked", answer.sample.question)
    seen = scorers.truth if scorer is scorers.clip else scorer
    return StoryChapter(title, words, (asked, _panel(answer, scorers, seen)))

"""What a user's own program may look like; a type checker sees what everything is."""

from pathlib import Path
from typing import assert_type

from PIL.Image import Image

import plait


def first_images(run: plait.RunData, system: str) -> list[Image]:
    """Return the first image of each answer that has one."""
    found = []
    for answer in run.answers(system=system, outcome="done"):
        assert_type(answer, plait.QueryAnswer)
        if answer.images:
            found.append(answer.images[0])
    return found


def mean_of(run: plait.RunData, scorer: str) -> float:
    """Return the mean of a scorer's values."""
    values = []
    for answer in run.answers():
        verdict = answer.scores.get(scorer)
        if verdict is not None and verdict.value is not None:
            values.append(verdict.value)
    return sum(values) / len(values)


def main(folder: Path) -> None:
    """Run, score again, read and compare."""
    plan = plait.plan(data="sample", systems=["gt"], weights="tiny", limit=4)
    assert_type(plan, plait.RunPlan)
    assert_type(plan.ready(), bool)
    run = plait.run(
        data="sample",
        systems=["gt", "anole"],
        scorers=["bleu"],
        weights="tiny",
        limit=4,
        executor="local",
        out=folder / "run",
    )
    assert_type(run, plait.RunData)
    assert_type(run.outcome.made, int)
    assert_type(run.outcome.counts["done"], int)
    run = plait.score(run, scorers=["chrf"], executor="local")
    run = plait.open_run(run.root)

    answer = run.answer(next(iter(run.queries)), "gt")
    assert_type(answer.text, str)
    assert_type(answer.images, list[Image])
    assert_type(answer.scores["bleu"].value, float | None)
    assert_type(run.answers(category="SA"), plait.Answers)
    assert_type(run.answers()[:2], plait.Answers)
    assert_type(mean_of(run, "bleu"), float)
    first_images(run, "gt")

    compared = run.compare("gt", "anole")
    assert_type(compared["bleu"], plait.PairedMeans)
    assert_type(compared["bleu"].difference.value, float | None)
    assert_type(compared["bleu"].difference.ci95, tuple[float, float] | None)
    assert_type(run.show(answer.query.id), plait.QueryView)
    assert_type(run.sheet(2), Image)
    assert_type(run.scores, plait.Frame)
    assert_type(len(run.scores), int)

    truth = plait.system("gt")
    assert_type(truth, plait.LocalSystem)
    (answered,) = truth.answers([answer.query])
    assert_type(answered, plait.QueryAnswer)
    judge = plait.scorer("bleu", weights="tiny")
    assert_type(judge(answer.query, answered), plait.ScorerVerdict)
    try:
        plait.system("anloe")
    except plait.UsageError as error:
        assert_type(error.exit_status, int)

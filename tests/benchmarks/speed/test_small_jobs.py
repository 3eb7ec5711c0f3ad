"""`plait bench small-jobs`: what the scripts answer, what is compared and what is shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.speed.measured import JOBS
from benchmarks.speed.measured_pages import summary
from benchmarks.speed.small_jobs import careful, command, job, naive
from benchmarks.speed.small_jobs.answers import JobAnswers, agreements, answers_of_script
from benchmarks.speed.small_jobs.report import SmallJobsReport
from benchmarks.speed.small_jobs.timing import (
    QUICKSTART,
    ProcessTime,
    SmallJobsMeasurement,
)
from generators.document import Text
from generators.errors import PlaitError, UsageError


def answers(text: str = "a cat", grey: int = 7, score: float = 0.5) -> JobAnswers:
    names = ("w", "a", "q")
    picture = np.full((4, 4, 3), grey, np.uint8)
    return JobAnswers(
        texts={("w", "q"): text}, pictures={names: picture}, scores={names: score}
    )


def equal(one: JobAnswers, other: JobAnswers) -> list[int]:
    return [agreement.equal for agreement in agreements(one, other)]


def test_answers_are_equal_within_the_tolerances_and_not_beyond() -> None:
    assert equal(answers(), answers(grey=9, score=0.509)) == [1, 1, 1]
    assert equal(answers(grey=250), answers(grey=1)) == [1, 0, 1]
    assert equal(answers(), answers("a dog", 10, 0.52)) == [0, 0, 0]


def test_an_answer_that_only_one_way_has_is_not_equal() -> None:
    nothing = JobAnswers(texts={}, pictures={}, scores={})
    for pair in ((answers(), nothing), (nothing, answers())):
        assert [(a.answers, a.equal) for a in agreements(*pair)] == [(1, 0)] * 3


def test_queries_beyond_the_sample_set_are_worded_anew(tmp_path: Path) -> None:
    samples = job.samples_of(job.task_of(job.write_queries(tmp_path / "q", 85)))
    texts = {
        "".join(s.text for s in sample.question if isinstance(s, Text))
        for sample in samples
    }
    assert len({sample.id for sample in samples}) == len(texts) == len(samples) == 85


def measurement(*, equal: bool = True) -> SmallJobsMeasurement:
    times = [
        ProcessTime(way=way, queries=40, round=i, wall_s=wall, cpu_s=2 * wall)
        for i, walls in enumerate([(9, 10, 4), (9, 20, 12), (9, 30, 9)])
        for way, wall in zip((QUICKSTART, "careful", "plait"), walls, strict=True)
    ]
    other = answers() if equal else answers("a dog")
    return SmallJobsMeasurement(times, {40: {"plait": agreements(answers(), other)}})


def test_ratios_are_taken_round_by_round_to_the_first_way() -> None:
    report = SmallJobsReport(measurement(), ("small-jobs",))
    by_way = {row["way"]: row for row in report.rows}
    assert [by_way[way]["wall_s"] for way in (QUICKSTART, "careful", "plait")] == [9, 20, 9]
    assert by_way["plait"]["wall_ratio"] == pytest.approx(0.4)
    assert by_way["careful"]["wall_ratio"] == by_way[QUICKSTART]["wall_ratio"] == 1
    assert "1 of 1 texts, 1 of 1 pictures, 1 of 1 scores" in report.markdown


def test_answers_that_differ_are_said_so() -> None:
    assert SmallJobsReport(measurement(), ()).answers_equal
    report = SmallJobsReport(measurement(equal=False), ())
    assert not report.answers_equal
    assert "0 of 1 texts" in report.markdown


def test_the_summary_of_all_measurements_shows_the_table(tmp_path: Path) -> None:
    report = SmallJobsReport(measurement(), ("small-jobs",))
    (tmp_path / "small-jobs.md").write_text(report.markdown)
    page = summary(tmp_path, list(JOBS))
    assert "| queries" in page
    assert page.count("| careful") == page.count("| plait") == 1
    assert JOBS["small-jobs"].words[0] == "small-jobs"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--queries", "0"], "must be numbers such as"),
        (["--way", "carefull"], "careful"),
        (["--out", "x.txt"], "must end in .json or .md"),
    ],
)
def test_wrong_options_are_refused_at_once(words: list[str], message: str) -> None:
    with pytest.raises((UsageError, PlaitError), match=message):
        command.main(words, Console())


@pytest.mark.slow
def test_both_scripts_give_the_same_answers(tmp_path: Path) -> None:
    data = job.write_queries(tmp_path / "queries", 2)
    for script in (careful, naive):
        script.main(data, tmp_path / script.__name__)
    one, other = (answers_of_script(tmp_path / s.__name__) for s in (careful, naive))
    assert len(one.texts) == 2 * len(job.WRITERS)
    assert len(one.pictures) == len(one.scores) == 2 * len(job.systems())
    assert all(a.equal == a.answers for a in agreements(one, other))

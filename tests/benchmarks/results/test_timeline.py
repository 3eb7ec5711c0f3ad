"""The page's section on time: words, chart, and what it says of runs without a trace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser_helpers import MISSING, browser
from report_helpers import board, evaluation, sample
from trace_helpers import SECOND, each, session, worker, write_sessions

from benchmarks.results.report import write_report
from benchmarks.results.timeline import timeline_section
from benchmarks.results.timeline.lanes import COLUMNS, MOST_LANES, lanes_of, marks_of
from benchmarks.results.timeline.words import duration, words_of
from cluster.tracing.sessions import STARTING_RAY, Interval
from cluster.tracing.summary import summarise
from generators.document import Blob


def a_run() -> list:
    """10 s of loading, then a writer for 60 s and an artist for 80 s, on GPUs."""
    write = worker("writer", each(1, 60, begin=10), ready=10, gpus=1)
    paint = worker("artist", each(2, 40, begin=12), ready=10, gpus=1, number=1)
    whole = session(write, paint)
    whole.phases.append(Interval(STARTING_RAY, 0, 3 * SECOND))
    # The artist has begun one batch in two seconds, the writer made three of its batches.
    left = [160 * min(t - 10, 60) / 60 - 2 * (t - 12) for t in range(12, 92)]
    whole.queues = [
        (t * SECOND, {"artist": max(0, round(n))}) for t, n in enumerate(left, 12)
    ]
    return [whole]


def test_the_words_name_the_limit_idle_hours_and_what_one_more_would_save() -> None:
    time, idle, advice = words_of(summarise(a_run()[0]))
    assert time.startswith("Time: 1 min 40 s, of which 1 min 20 s (80%) limited by artist")
    assert "10 s (10%) with nothing to do but load models" in time
    assert idle == (
        "Workers held 0.0556 GPU-hours, of which 0.0167 (30%) computed nothing; "
        "starting and loading took 10%."
    )
    # Two artists are done with the writer's last batch, 22 s earlier.
    assert advice.startswith("One more worker of artist with a GPU of its own would save")
    seconds = float(re.search(r"about ([\d.]+) s", advice)[1])
    assert 19 <= seconds <= 23


def test_words_where_nothing_can_be_gained_or_nothing_was_done() -> None:
    alone = session(worker("a", [(0, 100)]))
    assert words_of(summarise(alone))[-1] == (
        "One more worker of a would save next to nothing."
    )
    remote = session(worker("gpt", each(1, 100), remote=True))
    assert "is an endpoint" in words_of(summarise(remote))[-1]
    assert words_of(summarise(remote))[1] == "All work was done by endpoints."
    idle = session(worker("a", [], ready=100))
    assert words_of(summarise(idle)) == ["No worker computed anything in 1 min 40 s."]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.7, "1 min 00 s"),
        (125, "2 min 05 s"),
        (11_400, "3 h 10 min"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_lane_holds_the_share_of_each_state() -> None:
    sessions = a_run()
    writer, artist = lanes_of(sessions, marks_of(sessions))
    assert (writer.stage, artist.stage) == ("writer", "artist")
    shares = {state: round(share, 2) for state, share in writer.shares.items()}
    assert shares == {"load": 0.1, "compute": 0.6, "lost": 0, "transfer": 0, "wait": 0.3}
    assert writer.states["compute"][: COLUMNS // 10].sum() == 0
    assert writer.states["load"][: COLUMNS // 10] == pytest.approx(1)


def test_a_worker_that_replaces_another_goes_on_in_its_lane() -> None:
    first = worker("a", each(1, 40), end=40)
    second = worker("a", each(1, 50, begin=45), begin=40, ready=45, number=1)
    sessions = [session(first, second), session(worker("a", each(1, 10), end=10), end=10)]
    (lane,) = lanes_of(sessions, marks_of(sessions))
    assert lane.shares["load"] == pytest.approx(5 / 110, abs=0.01)


def test_many_workers_are_drawn_by_stage() -> None:
    many = [worker("a", each(1, 50), number=i) for i in range(MOST_LANES + 1)]
    sessions = [session(*many)]
    (lane,) = lanes_of(sessions, marks_of(sessions))
    assert lane.label == f"{MOST_LANES + 1} workers"
    assert lane.states["compute"].sum() == pytest.approx(COLUMNS / 2)


def test_a_run_without_a_trace_has_no_such_section(tmp_path: Path) -> None:
    assert timeline_section(tmp_path) == ""


def test_the_words_are_of_the_longest_session(tmp_path: Path) -> None:
    short = session(worker("writer", each(1, 5), end=5), end=5)
    later = 10**18 + 10**12
    longer = session(worker("artist", each(1, 50)), start_ns=later)
    write_sessions(tmp_path, short, longer)
    section = timeline_section(tmp_path)
    assert "session 2 of 2, the longest" in section
    assert "(50%) limited by artist" in section
    assert "5.0 s, finished" in section


def test_states_of_a_column_stand_on_each_other(tmp_path: Path) -> None:
    # In each column of a third of a second, half is computed and half is waited.
    halves = [(i / 6, i / 6 + 1 / 12) for i in range(600)]
    write_sessions(tmp_path, session(worker("a", halves)))
    section = timeline_section(tmp_path)
    paths = dict(re.findall(r'<path class="(\w+)" d="(M0 [^"]*h300[^"]*)"', section))
    assert paths["compute"] == f"M0 10h{COLUMNS}v10h-{COLUMNS}z"
    assert paths["wait"] == f"M0 0h{COLUMNS}v10h-{COLUMNS}z"


def test_names_are_text_and_no_markup(tmp_path: Path) -> None:
    write_sessions(tmp_path, session(worker("<script>alert(1)</script>", each(1, 50))))
    section = timeline_section(tmp_path)
    assert "<script>" not in section
    assert "&lt;script&gt;alert(1)" in section


@pytest.mark.browser
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_chart_fits_the_screen_in_both_schemes(
    tmp_path: Path, width: int, phone: bool, scheme: str
) -> None:
    write_sessions(tmp_path, *a_run())
    results = board([evaluation("gill", sample(0), 3.0)])
    page = write_report(results, tmp_path, {}, _bytes)
    with browser() as window:
        window.screen(width, 900, phone=phone)
        window.media(scheme)
        window.open(page)
        boxes = window.run(
            "return [...document.querySelectorAll('.timeline .lane svg')]"
            ".map((e) => { const b = e.getBoundingClientRect();"
            " return [b.left, b.right, b.height]; })"
        )
        assert len(boxes) == 2
        for left, right, height in boxes:
            assert 0 <= left < right <= width
            assert right - left > width / 2
            assert height > 15
        scrolls = window.run("return document.documentElement.scrollWidth")
        assert scrolls <= width
        fills = window.run(
            "return ['compute', 'load', 'wait'].map((c) => getComputedStyle("
            "document.querySelector(`.timeline .lane path.${c}`)).fill)"
        )
        assert len(set(fills)) == 3
        assert not [e for e in window.logs("browser") if e["level"] == "SEVERE"]


def _bytes(blob: Blob) -> bytes:
    assert blob.data is not None
    return blob.data

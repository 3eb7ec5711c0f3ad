"""Data that have changed since a run was made: noticed, and what becomes of them."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli_helpers import invoke
from mmie_helpers import folder, gpt, human, row
from picture_helpers import flat

import plait
from plait.benchmarks.runs import joining, resolving
from plait.benchmarks.runs.config import load_config
from plait.benchmarks.tasks.changes import DataChoices
from plait.generators.errors import UsageError

pytestmark = pytest.mark.slow

Rows = list[dict[str, Any]]
POET, LENGTHS = "users_own:Poet@text", "users_own:Lengths"
WORDS = ["--weights", "tiny", "--executor", "local", "--data", "data", "--out", "run"]
RUN = ["--system", POET, "--scorer", LENGTHS, *WORDS]
NEW = flat((9, 9, 200))


def asked(id: str, question: str, truth: str = "So.", **more: Any) -> dict[str, Any]:
    return row(id, conversations=[human((question, None)), gpt((truth, None))], **more)


def queries() -> Rows:
    """Three valid queries, one with a picture, and a row without a conversation."""
    return [
        asked("SA-1", "Why?", criteria="Is it true?"),
        asked("SA-2", "Where?"),
        row("PBL-1"),
        row("SA-9", conversations=None),
    ]


@dataclass(frozen=True)
class Change:
    """What happens to the data, and what a run that takes it makes of it."""

    edit: Callable[[Rows], Any] = lambda rows: None
    needs: str = ""
    """`changed` or `new`: why a run is refused."""
    made: Sequence[int] = (0, 0)
    """Answers and scores."""
    named: str = "SA-2"
    """The query that is changed, gone or new."""
    value: float | None = None
    """Its score, where it is another one."""
    picture: bytes | None = None
    limit: int | None = None
    """Of the run before."""
    ids: Sequence[str] = ("SA-1", "SA-2", "PBL-1", "SA-9")


def put(place: int, made: dict[str, Any]) -> Callable[[Rows], Any]:
    return lambda rows: rows.__setitem__(place, made)


CHANGES = {
    "unchanged": Change(),
    "larger limit": Change(limit=2, made=(1, 1)),
    "reworded": Change(put(1, asked("SA-2", "Whence?")), "changed", (1, 1)),
    "picture": Change(needs="changed", made=(1, 1), named="PBL-1", picture=NEW),
    "reference": Change(
        put(1, asked("SA-2", "Where?", "So it is.")), "changed", (0, 1), value=9
    ),
    "criteria": Change(
        put(0, asked("SA-1", "Why?", criteria="Is it?")),
        "changed",
        (0, 1),
        "SA-1",
        value=6003,
    ),
    "field": Change(put(1, asked("SA-2", "Where?", field="Food")), "changed"),
    "removed": Change(lambda rows: rows.pop(1), "changed", ids=("SA-1", "PBL-1", "SA-9")),
    "added": Change(
        lambda rows: rows.append(asked("SA-3", "How?")),
        "new",
        (1, 1),
        "SA-3",
        ids=("SA-1", "SA-2", "PBL-1", "SA-9", "SA-3"),
    ),
    "mended": Change(put(3, asked("SA-9", "What?")), "changed", (1, 1), "SA-9", value=3),
    "reordered": Change(lambda rows: rows.reverse()),
}
ACCEPTS = {"changed": ("remake", "keep"), "new": ("add",)}


def run_of(place: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Path:
    monkeypatch.chdir(place)
    folder(place / "data", queries())
    assert invoke("run", *RUN, *words).exit_code < 2, "1 for the broken row"
    return place


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int | None, Path]:
    """Runs of all queries and of two, not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        return {
            limit: run_of(tmp_path_factory.mktemp("before"), patch, *limited(limit))
            for limit in (None, 2)
        }


def limited(limit: int | None) -> list[str]:
    return [] if limit is None else ["--limit", str(limit)]


@pytest.fixture
def begin(
    runs: dict[int | None, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Change], Path]:
    """Copy a run with its data, and edit these."""

    def begun(change: Change) -> Path:
        shutil.copytree(runs[change.limit], tmp_path, dirs_exist_ok=True)
        manifest = tmp_path / "run" / "manifest.json"
        text = manifest.read_text().replace(str(runs[change.limit]), str(tmp_path))
        manifest.write_text(text)
        rows = queries()
        change.edit(rows)
        pictures = {"a.png": change.picture} if change.picture else None
        folder(tmp_path / "data", rows, pictures)
        monkeypatch.chdir(tmp_path)
        return tmp_path / "run"

    return begun


def records(root: Path) -> tuple[int, int]:
    """How many records the drafting and the scoring stage have."""
    made = Counter[str]()
    for part in root.glob("stages/*/*.parquet"):
        made[part.parent.name.partition("-")[0]] += pq.read_metadata(part).num_rows
    return made["Poet"], made["Lengths"]


def state(root: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("choice", ["", "remake", "keep", "add"])
@pytest.mark.parametrize("name", CHANGES)
def test_changed_data_are_refused_or_taken_as_the_user_says(
    begin: Callable[[Change], Path], name: str, choice: str
) -> None:
    change = CHANGES[name]
    root = begin(change)
    flags = ["--changed-data", choice] if choice else []
    larger = limited(change.limit and change.limit + 2)
    before, (drafts, scores) = state(root), records(root)
    if change.needs and choice not in ACCEPTS[change.needs]:
        for command in ("run", "plan"):
            with pytest.raises(UsageError, match=rf"\({change.named}\).*--changed-data"):
                invoke(command, *RUN, *flags)
        assert state(root) == before
        return
    former = {a.query.id: a for a in plait.open_run(root).answers(system=POET)}
    assert invoke("plan", *RUN, *flags, *larger).exit_code == 0
    assert state(root) == before
    assert invoke("run", *RUN, *flags, *larger).exit_code < 2
    kept = bool(change.needs) and choice == "keep"
    now = records(root)
    assert (now[0] - drafts, now[1] - scores) == ((0, 0) if kept else change.made)
    run = plait.open_run(root)
    ids = CHANGES["unchanged"].ids if kept else change.ids
    assert sorted(query.sample.id for query in run.queries.values()) == sorted(ids)
    answers = {a.query.id: a for a in run.answers(system=POET)}
    if name == "reworded":
        document = answers["SA-2"].document
        assert document is not None
        assert ("Whence?" in document.text) is not kept
    if change.value is not None and kept:
        key = next(id for id in former if id.startswith(change.named))
        assert answers[key].scores == former[key].scores
    elif change.value is not None:
        assert answers[change.named].scores[LENGTHS].value == change.value
    # What was taken is not asked again; what was kept is.
    if kept:
        with pytest.raises(UsageError, match=change.named):
            invoke("run", *RUN)
    else:
        assert invoke("plan", *RUN, *larger).exit_code == 0


def test_rows_are_noticed_when_they_are_asked(place: Path) -> None:
    """A run of a few queries asks no others, and does not make them known ones."""
    ids = place / "ids.txt"
    words = [*RUN, "--ids", str(ids), "--set", "scorers=[]"]
    ids.write_text("SA-1\nSA-2")
    folder(place / "data", queries())
    assert invoke("run", *words).exit_code == 0
    (why, where, drawn, broken) = queries()
    new, other = asked("SA-3", "How?"), asked("PBL-1", "How so?")
    folder(place / "data", [new, why, where, other, broken])
    words += ["--repeats", "2"]
    assert invoke("run", *words).exit_code == 0
    ids.write_text("SA-1\nSA-2\nPBL-1\nSA-3")
    reason = r"2 rows .* \(SA-3, PBL-1\)\. --changed-data add"
    with pytest.raises(UsageError, match=reason):
        invoke("plan", *words)
    told = invoke("plan", *words, "--changed-data", "add").output
    assert "8 answers: 4 queries" in told
    folder(place / "data", [why, where, drawn])
    ids.write_text("SA-1\nSA-2\nPBL-1")
    assert "6 answers: 3 queries" in invoke("plan", *words).output


def test_ids_of_queries_that_are_gone_are_left_out(begin: Callable[[Change], Path]) -> None:
    root = begin(CHANGES["removed"])
    ids = root.parent / "ids.txt"
    ids.write_text("SA-1\nSA-2\nPBL-1\nSA-9")
    words = [*RUN, "--ids", str(ids)]
    with pytest.raises(UsageError, match=r"1 is gone \(SA-2\)"):
        invoke("plan", *words)
    told = invoke("plan", *words, "--changed-data", "remake").output
    assert "3 answers: 3 queries" in told


def test_a_run_that_keeps_its_queries_is_another_than_one_that_makes_them_anew(
    begin: Callable[[Change], Path],
) -> None:
    """Shards of both do not go together."""
    root = begin(CHANGES["reworded"])
    config = load_config(
        None,
        {"systems": (POET,), "scorers": (LENGTHS,), "weights": "tiny", "data": "data"}
        | {"out": root},
    )
    choices = (DataChoices(keep=True), DataChoices(remake=True))
    made = [joining.join(config, choices=choice).experiment for choice in choices]
    assert made[0].run_digest != made[1].run_digest


def test_several_choices_may_be_given(begin: Callable[[Change], Path]) -> None:
    def edit(rows: Rows) -> None:
        rows[1:2] = [asked("SA-3", "How?"), asked("SA-4", "When?")]

    root = begin(Change(edit))
    reason = r"(?s)1 is gone \(SA-2\).*--changed-data remake.*2 rows .*\(SA-3, SA-4\)"
    with pytest.raises(UsageError, match=reason):
        invoke("run", *RUN)
    with pytest.raises(UsageError, match="not both"):
        invoke("run", *RUN, "--changed-data", "keep", "--changed-data", "remake")
    with pytest.raises(UsageError, match="Valid: add, keep, remake"):
        invoke("run", *RUN, "--changed-data", "drop")
    options: dict[str, Any] = {"systems": [POET], "scorers": [LENGTHS], "weights": "tiny"}
    options |= {"data": "data", "out": "run"}
    with pytest.raises(UsageError, match="--changed-data add"):
        plait.plan(**options, changed_data=["remake"])
    assert plait.plan(**options, changed_data=["remake", "add"]).to_run
    flags = ["--changed-data", "remake", "--changed-data", "add"]
    told = invoke("run", *RUN, *flags).output
    assert "1 is gone (SA-2)" in told
    run = plait.open_run(root)
    assert {query.sample.id for query in run.queries.values()} == {
        *("SA-1", "SA-3", "SA-4", "PBL-1", "SA-9")
    }
    # The records of what is gone stay.
    assert records(root) == (5, 5)


def test_what_is_kept_is_asked_of_new_systems_as_it_was(
    begin: Callable[[Change], Path],
) -> None:
    """With its picture, though the data hold another one by now."""

    def edit(rows: Rows) -> None:
        rows[1] = asked("SA-2", "Whence?")

    root = begin(Change(edit, picture=NEW))
    former = plait.open_run(root).queries["PBL-1"].sample
    added = ["--system", "users_own:Looker@text", "--scorer", "users_own:Others"]
    assert invoke("run", *RUN, *added, "--changed-data", "keep").exit_code < 2
    run = plait.open_run(root)
    document = run.answer("PBL-1", "users_own:Looker@text").document
    assert document is not None
    assert document.text == f"I saw {hashlib.sha256(flat()).hexdigest()}"
    assert run.queries["PBL-1"].sample == former
    poem = run.answer("SA-2", POET)
    assert poem.document is not None
    assert "Where?" in poem.document.text
    assert poem.scores["users_own:Others"].value == 3


@pytest.mark.parametrize(
    ("name", "choice", "made"),
    [
        ("reference", "remake", 4),
        ("reference", "keep", 3),
        ("reworded", "remake", 2),
        ("removed", "keep", 3),
        ("removed", "remake", 2),
        ("added", "add", 3),
    ],
)
def test_further_scorers_score_what_is_stored_or_what_is_made_anew(
    begin: Callable[[Change], Path], name: str, choice: str, made: int
) -> None:
    """Systems are not run: what is reworded has no answer until they are."""
    root = begin(CHANGES[name])
    words = ["score", "run", "--scorer", "users_own:Others", "--executor", "local"]
    reason = rf"since the run in .*run was made.*\({CHANGES[name].named}\)"
    with pytest.raises(UsageError, match=reason):
        invoke(*words)
    drafts, scores = records(root)
    assert invoke(*words, "--changed-data", choice).exit_code < 2
    run = plait.open_run(root)
    new = [a.scores["users_own:Others"] for a in run.answers() if a.scores]
    assert records(root)[0] == drafts
    again = records(root)[1] - scores
    assert len(new) + again == made


def test_a_run_without_results_compares_data_as_a_whole(
    begin: Callable[[Change], Path],
) -> None:
    root = begin(CHANGES["reworded"])
    shutil.rmtree(root / "results")
    for flags in ([], ["--changed-data", "remake"]):
        with pytest.raises(UsageError, match=r"has changed since .* \(SHA-256 "):
            invoke("plan", *RUN, *flags)
    both = ["--changed-data", "remake", "--changed-data", "add"]
    assert invoke("plan", *RUN, *both).exit_code == 0
    folder(root.parent / "data", queries())
    assert invoke("plan", *RUN).exit_code == 0


@pytest.mark.parametrize("name", ["reworded", "picture", "removed"])
def test_results_are_not_made_anew_of_other_data(
    begin: Callable[[Change], Path], name: str
) -> None:
    root = begin(CHANGES[name])
    shutil.move(root / "results", root.parent / "results")
    for words in (["report", "run"], ["leaderboard", "run"]):
        with pytest.raises(
            UsageError, match=r"has changed since the run in .*run was made"
        ):
            invoke(*words)
    # Those of a run that goes on with its queries as they were are made of these.
    shutil.move(root.parent / "results", root / "results")
    former = {id: query.sample for id, query in plait.open_run(root).queries.items()}
    shutil.copytree(root / "results", root.parent / "results")
    added = ["--system", "users_own:Looker@text", "--changed-data", "keep"]
    assert invoke("run", *RUN, *added).exit_code < 2
    tables = (root / "leaderboard.csv").read_text()
    shutil.rmtree(root / "results")
    shutil.move(root.parent / "results", root / "results")  # it is killed before its end
    assert invoke("report", "run").exit_code == 0
    assert (root / "leaderboard.csv").read_text() == tables
    run = plait.open_run(root)
    assert len(run.systems) == 2
    assert {query.sample.id for query in run.queries.values()} == {
        sample.id for sample in former.values()
    }


def test_answers_that_the_data_hold_are_noticed_too(
    place: Path,
) -> None:
    def given(answer: str, *, reverse: bool = False) -> None:
        rows = [
            {
                "id": id,
                "question": [{"text": "Why?", "image": None}],
                "answer": own,
                "model": "theirs",
                "gt_answer": [{"text": "So.", "image": None}],
            }
            for id, own in (("SA-1", "Because."), ("SA-2", answer))
        ]
        folder(place / "data", rows[::-1] if reverse else rows)

    given("Thus.")
    words = [*WORDS, "--data", "official:data", "--scorer", LENGTHS]
    assert invoke("run", *words).exit_code == 0
    given("Thus.", reverse=True)
    assert invoke("plan", *words).exit_code == 0
    given("Hence.")
    for flags in ([], ["--changed-data", "keep"]):
        with pytest.raises(UsageError, match=r"answers of theirs in data .* have changed"):
            invoke("plan", *words, *flags)
    assert invoke("run", *words, "--changed-data", "remake").exit_code == 0
    document = plait.open_run("run").answer("SA-2", "theirs").document
    assert document is not None
    assert document.text == "Hence."


def test_names_are_resolved_once(
    begin: Callable[[Change], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(Change())
    asked = Counter[str]()
    places = {"_system_by_name": resolving, "scorer_of": resolving, "read_task": joining}
    for name, module in places.items():
        make = getattr(module, name)

        def counted(*args: Any, _name: str = name, _make: Any = make) -> Any:
            asked[_name] += 1
            return _make(*args)

        monkeypatch.setattr(module, name, counted)
    assert invoke("plan", *RUN).exit_code == 0
    assert asked == dict.fromkeys(places, 1)

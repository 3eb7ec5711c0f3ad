"""Unison as a task set: its files, the walk of a session, and a run on it."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import invoke
from endpoint_helpers import MODEL, Answer, completion, serving
from picture_helpers import flat
from task_rows import read, served_run
from trial import painter, system_of_stages, writer
from unison_helpers import (
    ANSWERS,
    EACH,
    SIZE,
    UPSTREAM,
    WORDING,
    answer_to,
    ggu_row,
    me_row,
    ugg_row,
    write,
    write_results,
    write_table,
)

from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.benchmarks.tasks.unison import verdict_of
from plait.cluster.walks import drive
from plait.generators.base import Failure, Job, Outcome, Result
from plait.generators.document import (
    Document,
    Draft,
    Image,
    ImageRequest,
    Malformed,
    Query,
    Text,
)
from plait.generators.system import Repetition
from plait.scorers.judging import unison as judging
from plait.scorers.judging.imgedit import ASPECTS
from plait.scorers.judging.unison import GGU, IC, ME, ROUNDS, TASKS, UGG, Item

pytestmark = pytest.mark.contract

GIVEN = Image.of(flat("red", SIZE)).digest
"""The image of the first row of every task."""


# ----------------------------------------------------------------------- answers of others


def test_tables_of_the_released_program_are_answers(tmp_path: Path) -> None:
    write(tmp_path / "data", each=EACH)
    write_results(tmp_path)
    task = read("unison", tmp_path)
    answers = task.answers["rich"]
    assert {*answers} == {*ANSWERS}
    for id, answer in answers.items():
        assert isinstance(answer, Document)
        expected = answer_to(id)
        assert [own.text for own in answer.answers] == [o.text for o in expected.answers]
        drawn = [image.digest for image in answer.images]
        assert drawn == [image.digest for image in expected.images]


@pytest.mark.parametrize(
    ("task", "change", "named"),
    [
        ("IC", {"status": "error: CUDA out of memory"}, "out of memory"),
        ("IC", {"question_id": "77"}, "no turn"),
        ("UGG", {"operation_index": "1.0"}, "two answers to turn 2"),
        ("GGU", {"operation_index": "5"}, "no turn"),
        ("ME", {"round_number": "11"}, "no turn"),
        ("ME", {"model_response": "result/drawn/none.png"}, "missing picture"),
        ("ME", {"model_response": "Saved to result/drawn/drawn.png, at last"}, ""),
        ("ME", {"model_response": "/etc/a.png"}, "absolute path"),
    ],
)
def test_an_answer_whose_rows_break_a_rule_is_a_failure(
    tmp_path: Path, task: str, change: dict[str, str], named: str
) -> None:
    write(tmp_path / "data", each=EACH)
    file = write_results(tmp_path)[task]
    rows = [*csv.DictReader(file.open())]
    write_table(file, [rows[0] | change, *rows[1:]])
    own = read("unison", tmp_path).answers["rich"]
    failed = {id: a.reason for id, a in own.items() if isinstance(a, Failure)}
    first = next(id for id in ANSWERS if id.startswith(task.lower()))
    assert [*failed] == ([first] if named else [])
    assert all(named in reason for reason in failed.values())


def test_an_answer_without_a_turn_that_is_always_asked_is_a_failure(tmp_path: Path) -> None:
    write(tmp_path / "data", each=EACH)
    file = write_results(tmp_path)["GGU"]
    rows = [*csv.DictReader(file.open())]
    write_table(file, rows[1:])
    own = read("unison", tmp_path).answers["rich"]
    lost = own[next(id for id in ANSWERS if id.startswith("ggu"))]
    assert isinstance(lost, Failure)
    assert "turn 1" in lost.reason


def test_rows_without_their_image_have_no_number_in_those_tables(tmp_path: Path) -> None:
    place = write(tmp_path / "data", each=EACH)
    write_results(tmp_path)
    before = read("unison", tmp_path).answers["rich"]
    (place / "Gen_Guided_Und" / "2D_Spatial" / "0.png").unlink()
    after = load(f"unison:{tmp_path}", cache=tmp_path / "cache2").answers["rich"]
    ids = [id for id in ANSWERS if id.startswith("ggu")]
    assert ids[0] not in after
    assert after[ids[1]] == before[ids[0]]


# ----------------------------------------------------------------------------------- files


@pytest.mark.parametrize("form", ["json", "csv"])
def test_all_tasks_are_read_from_either_form_of_tables(tmp_path: Path, form: str) -> None:
    task = read("unison", write(tmp_path / "data", form))
    queries = {query.id: query for query in task.samples}
    assert [*queries] == [
        *(f"ic-{i + 1}" for i in range(EACH)),
        *(f"ugg-{i + 1}" for i in range(EACH)),
        *(id for id in UPSTREAM["values"] if id.startswith("ggu")),
        *(f"me-{i + 1}" for i in range(EACH)),
    ]
    assert task.categories == dict.fromkeys(TASKS, 1)
    assert [*task.fields] == [
        *(IC, UGG, "2D_Spatial", "3D_Spatial", "Complex_Relation", ME)
    ]
    for id, turns in (("ic-4", 5), ("ugg-1", 3), ("ggu-3d_spatial-2", 3), ("me-2", 20)):
        query = queries[id]
        assert isinstance(query, Query)
        assert [turn.role for turn in query.turns] == ["user"] * turns
        item = Item.of(query)
        assert item is not None
        assert (item.turns, item.task) == (turns, query.category)
    asked = queries["ugg-1"]
    assert isinstance(asked, Query)
    assert isinstance(asked.question[0], Image)
    assert asked.question[0].digest == GIVEN
    item = Item.of(asked)
    assert item is not None
    assert item.size == SIZE
    # Pixels of the image, in thousandths of its width and height.
    assert item.text("bbox") == "[0, 12, 417, 375]"


def test_lists_in_json_are_what_texts_in_a_table_are(tmp_path: Path) -> None:
    row = ugg_row(1)
    found = []
    for name, change in (("text", {}), ("list", {"bbox": json.loads(row["bbox"])})):
        root = write(tmp_path / name)
        rows = [row | change, ugg_row(2) | {"mask": None}]
        write_table(root / "Und_Guided_Gen" / "UGG.json", rows)
        found.append([q for q in read("unison", root).samples if q.category == UGG])
    assert found[0] == found[1]


def test_a_checkout_with_the_data_and_one_task_may_be_named(tmp_path: Path) -> None:
    whole = read("unison", write(tmp_path / "Unison" / "data"))
    cache = tmp_path / "cache"
    assert load(f"unison:{tmp_path / 'Unison'}", cache=cache).samples == whole.samples
    one = load(f"unison:{tmp_path / 'Unison' / 'data' / 'Gen_Guided_Und'}", cache=cache)
    assert {query.category for query in one.samples} == {*one.categories} == {GGU}
    assert [*one.samples] == [q for q in whole.samples if q.category == GGU]
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="Und_Guided_Gen"):
        load(f"unison:{tmp_path / 'empty'}", cache=cache)


def ugg(*rows: Any) -> tuple[str, Any]:
    return "Und_Guided_Gen/UGG.json", rows


def ggu(*rows: Any) -> tuple[str, Any]:
    return "Gen_Guided_Und/2D_Spatial/2d_spatial.json", rows


def me(*rows: Any) -> tuple[str, Any]:
    return "Mutual_Enhancement/ME.json", rows


def without(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != key}


def questions(value: Any) -> tuple[str, Any]:
    return "Internal_Consistency/questions.json", {"questions": {"prompt_0": value}}


UGG_ROW = ugg_row(0)
GGU_ROW = ggu_row("2D_Spatial", 0)
ME_ROW = me_row(0)


@pytest.mark.parametrize(
    ("change", "id", "rule"),
    [
        (questions(None), "ic-1", "wrong type"),
        (questions([]), "ic-1", "wrong type"),
        (questions({}), "ic-1", "empty content"),
        (questions({"1": " "}), "ic-1", "empty content"),
        (questions({"1": 3}), "ic-1", "wrong type"),
        (ugg("no row"), "ugg-1", "wrong type"),
        (ugg(without(UGG_ROW, "instruction")), "ugg-1", "missing key"),
        (ugg(UGG_ROW | {"instruction": ""}), "ugg-1", "empty content"),
        (ugg(UGG_ROW | {"bbox": "[1, 2, 3]"}), "ugg-1", "wrong type"),
        (ugg(UGG_ROW | {"bbox": None}), "ugg-1", "wrong type"),
        (ugg(UGG_ROW | {"image_path": "images/no.png"}), "ugg-1", "missing picture"),
        (
            ugg(UGG_ROW | {"image_path": "../x.png"}),
            "ugg-1",
            "picture path leaves the data folder",
        ),
        (ugg(UGG_ROW | {"image_path": "UGG.json"}), "ugg-1", "undecodable picture"),
        (ugg(UGG_ROW | {"instruction": "\ud800"}), "ugg-1", "text is not Unicode"),
        (ggu(None), "ggu-2d_spatial-1", "wrong type"),
        (ggu(without(GGU_ROW, "options")), "ggu-2d_spatial-1", "missing key"),
        (ggu(GGU_ROW | {"options": ["a"]}), "ggu-2d_spatial-1", "wrong type"),
        (
            ggu(GGU_ROW | {"options": {"A": "a", "C": "c"}}),
            "ggu-2d_spatial-1",
            "wrong type",
        ),
        (
            ggu(GGU_ROW | {"answer": "E"}),
            "ggu-2d_spatial-1",
            "answer is none of the choices",
        ),
        (ggu(GGU_ROW | {"description": " "}), "ggu-2d_spatial-1", "empty content"),
        (ggu(GGU_ROW | {"quality_questions": "Is it?"}), "ggu-2d_spatial-1", "wrong type"),
        (ggu(GGU_ROW | {"quality_questions": [{}]}), "ggu-2d_spatial-1", "missing key"),
        (ggu(GGU_ROW | {"image_path": 3}), "ggu-2d_spatial-1", "wrong type"),
        (me(3), "me-1", "wrong type"),
        (me(ME_ROW | {"operation": "nan"}), "me-1", "empty content"),
        (me(ME_ROW | {"final_caption": ""}), "me-1", "empty content"),
        (me(without(ME_ROW, "final_caption")), "me-1", "missing key"),
        (me(ME_ROW | {"image_path": "no.png"}), "me-1", "missing picture"),
    ],
)
def test_a_broken_row_is_a_failure_that_names_it_and_the_others_run(
    tmp_path: Path, change: tuple[str, Any], id: str, rule: str
) -> None:
    root = write(tmp_path / "data", each=1)
    whole = [query.id for query in read("unison", root).samples]
    file, content = change
    (root / file).write_text(json.dumps(content))
    task = read("unison", root)
    assert [query.id for query in task.samples] == whole
    broken = {q.id: q for q in task.samples if isinstance(q, Malformed)}
    assert [*broken] == [id]
    assert broken[id].reason.split(": ")[1] == rule
    assert broken[id].category in TASKS
    assert task.about["malformed"] == Counter([rule])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("Internal_Consistency/questions.json", "{"),
        ("Internal_Consistency/questions.json", "[]"),
        ("Internal_Consistency/questions.json", '{"questions": []}'),
        ("Internal_Consistency/questions.json", None),
        ("Und_Guided_Gen/UGG.json", '{"a": 1}'),
        ("Gen_Guided_Und/3D_Spatial/spatial.json", "["),
        ("Mutual_Enhancement/ME.csv", "image_path,instruction\na.png,Go\n"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_error_that_names_it(
    tmp_path: Path, file: str, content: str | None
) -> None:
    root = write(tmp_path / "data", "csv" if file.endswith("csv") else "json", each=1)
    if content is None:
        (root / file).unlink()
    else:
        (root / file).write_text(content)
    with pytest.raises(TaskError, match=Path(file).name.replace(".", r"\.")):
        read("unison", root)


# ------------------------------------------------------------------------------- the walk

SYSTEM = system_of_stages(draft=writer(), render=painter(), max_images=1)
DRAW = "<draw>"


class Walked:
    """A session that was walked: what each turn asked, and the answer."""

    def __init__(self, query: Query, prompt: Any, reply: Callable[[int, str], str]) -> None:
        """`reply` is given which of the turns that were asked it is, and its text."""
        self.texts: list[str] = []
        self.shown: list[list[str]] = []
        """By turn the digests of the images beside its text."""
        self.keys: list[str] = []
        """By turn the name of the record of its draft."""
        self.drawn: list[str] = []

        def replied(jobs: Sequence[Job]) -> list[Outcome[Any]]:
            return [self._outcome(job, reply) for job in jobs]

        outcome = drive(SYSTEM.answer(query, Repetition(prompt, seed=5)), replied)
        assert isinstance(outcome, Result), outcome
        self.answer: Document = outcome.value

    def _outcome(self, job: Job, reply: Callable[[int, str], str]) -> Outcome[Any]:
        if isinstance(job.input, ImageRequest):
            image = Image.of(flat("blue", (20 + len(self.drawn), 8)))
            self.drawn.append(image.digest)
            return Result(image)
        (turn,) = job.input.turns
        self.texts.append("".join(s.text for s in turn.content if isinstance(s, Text)))
        self.shown.append([s.digest for s in turn.content if isinstance(s, Image)])
        self.keys.append(job.key)
        said = reply(len(self.texts) - 1, self.texts[-1])
        if said == DRAW:
            return Result(Draft((ImageRequest("cat"),)))
        return Result(Draft((Text(said),) if said else ()))


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Walked]:
    task = read("unison", write(tmp_path_factory.mktemp("unison") / "data"))
    queries = {query.id: query for query in task.samples}

    def walked(id: str, replies: Sequence[str]) -> Walked:
        query = queries[id]
        assert isinstance(query, Query)
        return Walked(query, task.prompt, lambda turn, _: replies[turn])

    return walked


def texts(document: Document) -> list[str]:
    return [Document(one.segments).text for one in document.answers]


def test_questions_show_the_given_image_and_the_drawing_is_made_from_words(
    walk: Callable[..., Walked],
) -> None:
    done = walk("ic-4", ["yes", "no", "yes", "no", DRAW])
    assert ["zz" + str(3 + q) in text for q, text in enumerate(done.texts[:4])] == [
        True
    ] * 4
    assert done.shown[:4] == [[GIVEN]] * 4
    assert (done.texts[4], done.shown[4]) == ("A scene 3", [])
    assert len(done.answer.answers) == 5


def test_the_second_edit_is_told_the_own_box(walk: Callable[..., Walked]) -> None:
    done = walk("ugg-1", ["[7, 8, 9, 10]", DRAW, DRAW])
    assert "[0, 1, 50, 30]" in done.texts[1]
    assert "[7, 8, 9, 10]" in done.texts[2]
    assert done.shown == [[GIVEN]] * 3


def test_the_question_is_asked_again_beside_the_own_drawing(
    walk: Callable[..., Walked],
) -> None:
    done = walk("ggu-2d_spatial-1", ["A", DRAW, "B"])
    assert done.shown == [[GIVEN], [], [GIVEN, *done.drawn]]
    assert all("Where is 0?" in done.texts[turn] for turn in (0, 2))
    undrawn = walk("ggu-2d_spatial-1", ["A", "I cannot draw.", "B"])
    assert undrawn.shown[2] == [GIVEN]


def test_an_edit_is_mended_as_the_look_at_it_says(walk: Callable[..., Walked]) -> None:
    looks = ["No, [make it blue]", "No.", "Move it", "Yes"]
    replies = [part for look in looks for part in (DRAW, look)]
    done = walk("me-1", [*replies, "Yes"])
    first, second, third, fourth = done.drawn
    edits = done.texts[0:8:2]
    assert edits == ["Mend zz0", "[make it blue]", "[make it blue]", "Move it"]
    assert done.shown[:8] == [
        *([GIVEN], [GIVEN, first], [first], [GIVEN, second]),
        *([second], [GIVEN, third], [third], [GIVEN, fourth]),
    ]
    # What is left out after a yes has an empty place in the answer.
    assert len(done.texts) == 9
    said = texts(done.answer)
    assert len(said) == 2 * ROUNDS
    assert said[1:8:2] == looks
    assert said[8:10] == ["", ""]
    assert said[10:] == ["Yes", *[""] * 9]


def test_mismatches_are_mended_in_the_own_image_until_there_are_none(
    walk: Callable[..., Walked],
) -> None:
    told = "No, 1.[no hat]:[add a hat], 2.[a dog]:[remove the dog]"
    done = walk("me-1", [DRAW, "Yes", told, DRAW, "No, 1.[red]:[paint]", DRAW, "Yes"])
    _, first, second = done.drawn
    assert "As it is zz0" in done.texts[2]
    assert "add a hat, remove the dog" in done.texts[3]
    assert told not in done.texts[3]
    assert "paint" in done.texts[5]
    assert done.shown[2:] == [[GIVEN], [GIVEN], [first], [first], [second]]
    assert texts(done.answer)[10:] == [
        told,
        "",
        "No, 1.[red]:[paint]",
        "",
        "Yes",
        *[""] * 5,
    ]


def test_a_talk_that_finds_something_every_time_ends_after_five_rounds(
    walk: Callable[..., Walked],
) -> None:
    mended = [DRAW, "No, [more]"] * (ROUNDS // 2)
    compared = ["No, 1.[a]:[b]", DRAW] * (ROUNDS // 2)
    done = walk("me-1", [*mended, *compared])
    assert len(done.texts) == 2 * ROUNDS
    assert len(done.drawn) == ROUNDS


def test_only_turns_that_an_answer_bears_on_are_asked_anew(
    walk: Callable[..., Walked],
) -> None:
    """A run goes on where it ended, and one changed answer costs what it changes."""
    usual = ["A", DRAW, "B"]
    first = walk("ggu-2d_spatial-1", usual)
    assert walk("ggu-2d_spatial-1", usual).keys == first.keys
    other = walk("ggu-2d_spatial-1", ["C", DRAW, "B"])
    assert other.keys == first.keys
    undrawn = walk("ggu-2d_spatial-1", ["A", "No.", "B"])
    assert undrawn.keys[:2] == first.keys[:2]
    assert undrawn.keys[2] != first.keys[2]
    box, new_box = (
        walk("ugg-1", ["[1, 2, 3, 4]", DRAW, DRAW]),
        walk("ugg-1", ["", DRAW, ""]),
    )
    assert box.keys[:2] == new_box.keys[:2]
    assert box.keys[2] != new_box.keys[2]


@pytest.mark.parametrize(
    ("look", "ends", "is_no", "instruction"),
    [
        ("Yes", True, False, ""),
        ("yes, all of it", True, False, ""),
        ("No", False, True, ""),
        ("No, [paint it]", False, True, "[paint it]"),
        ("No, 1.[red]:[paint it], 2.[big]:[shrink it]", False, True, "paint it, shrink it"),
        ("There is no hat", False, True, "hat"),
        ("No, nor yes", False, True, "nor yes"),
        ("Nothing is done", False, False, ""),
        ("", False, False, ""),
    ],
)
def test_the_first_yes_or_no_of_a_look_decides(
    look: str, ends: bool, is_no: bool, instruction: str
) -> None:
    found = verdict_of(look)
    assert (found.ends, found.is_no) == (ends, is_no)
    assert found.instruction == instruction


# ---------------------------------------------------------------------------------- a run


def best(body: Any) -> Answer:
    """The system says `Yes` to every turn, and the judge gives the best marks."""
    asked = json.dumps(body["messages"])
    if kind := re.search(r"type of edit: (\w+)", asked):
        return Answer(completion(json.dumps(dict.fromkeys(ASPECTS[kind[1]], 5))))
    is_judge = "about grading" in asked
    return Answer(completion('{"answer": "Yes"}' if is_judge else "Yes"))


@pytest.mark.models
@pytest.mark.usefixtures("worker_threads")
def test_a_run_answers_sessions_and_judges_them_once(tmp_path: Path) -> None:
    """Of the box, the letters and the mismatches there is nothing in the answers."""
    system, scorer = f"openai:{MODEL}+sdxl-turbo", f"unison:openai:{MODEL}"
    out = tmp_path / "run"
    words = ["run", "--data", f"unison:{write(tmp_path / 'data', each=1)}"]
    words += ["--system", system, "--scorer", scorer, "--weights", "tiny"]
    with serving(best) as server:
        words += ["--set", f'models."openai:{MODEL}".base_url="{server.url}"']
        done = invoke(*words, "--out", str(out))
        assert done.exit_code == 0, done.output
        asked = len(server.bodies)
        again = invoke(*words, "--out", str(out))
        assert again.exit_code == 0, again.output
        assert len(server.bodies) == asked, "a run that has ended asks nothing again"
    (row,) = json.loads((out / "leaderboard.json").read_text())
    scores = row["scores"][scorer]
    means = {name: cell["mean"] for name, cell in scores["categories"].items()}
    expected = {IC: 1, UGG: 1 / 2, GGU: (2 / 3 + 2 / 3 + 1) / 2 / 3, ME: 1 / 2}
    assert means == pytest.approx({task: 100 * own for task, own in expected.items()})
    whole = 100 * sum(expected.values()) / len(expected)
    assert scores["avg_fixed"]["mean"] == pytest.approx(whole)
    assert "as_released" not in scores


@pytest.mark.models
@pytest.mark.usefixtures("worker_threads")
def test_a_run_in_official_mode_prints_what_the_released_program_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "read_published", lambda *_: dict(WORDING.texts))
    place = write(tmp_path / "data", each=1)
    copy = place / "Evaluation_Pipeline" / "common" / "judge.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("CHECK = 'CHECK'")

    def said(body: Any) -> Answer:
        asked = json.dumps(body["messages"])
        return Answer(completion("A: 3" if "EDIT" in asked else "Yes"))

    system, scorer = f"openai:{MODEL}+sdxl-turbo", f"unison:openai:{MODEL}"
    words = ("--set", f'models."{scorer}".mode="official"')
    words += ("--set", f'models."{scorer}".rubric="official:{place}"')
    done, rows, _ = served_run(
        tmp_path / "run", f"unison:{place}", [system], [scorer], said, *words
    )
    assert done.exit_code == 0, done.output
    released = rows[system]["scores"][scorer]["as_released"]
    assert {name: released[name] for name in released if name.endswith("Uni.")} == {
        f"{IC}: Uni.": 1,
        f"{UGG}: Uni.": 0.25,
        f"{GGU}: Uni.": 0.5,
        f"{ME}: Uni.": 0.25,
    }
    assert released["Overall"] == 0.5

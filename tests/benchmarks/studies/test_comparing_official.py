"""`plait compare --mode official`: a server's replies, verdicts as released, standings."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_helpers import fill
from comparing_helpers import creation_row, write_tsv
from endpoint_helpers import MODEL, Answer, Server, completion, serving
from typer.testing import CliRunner
from typer.testing import Result as Done

from plait import app
from scorers.pairwise import creation

pytestmark = pytest.mark.usefixtures("worker_threads")

TERSE, WORDY, MIDDLING = (f"comparing_helpers:{n}" for n in ("Terse", "Wordy", "Middling"))
WORDS = {2: TERSE, 8: MIDDLING, 30: WORDY}
"""How often each system says `word`."""
PUBLISHED = "published:gpt-4o-1120"
JUDGE = f"openai:{MODEL}"
FINAL = "Final Verdict is: "
REPLIES = {
    (0, "terse first"): f"{FINAL}[[B>A]]",
    (0, "wordy first"): f"{FINAL}[[A>B]]",
    (1, "terse first"): f"Both are fine.\n{FINAL}[[ b >> a ]]",
    # Not the released line.
    (1, "wordy first"): "[[A>B]]",
    (2, "terse first"): f"{FINAL}[[A=B]]",
    # The released reader takes the first line, ours the last word.
    (2, "wordy first"): f"{FINAL}[[A>B]]\n{FINAL}[[B>A]]",
}
MARKS = {"terse first": (8, 6), "wordy first": (9, 5)}
"""Visual factuality of A and B, on question 0."""
WANTED = {"reward": 50 * (1 + 1 + 2 + 0 + 1) / 5, "win_rate": 100 * 4 / 5}
WANTED |= {"preference_parse_ok": 5 / 6, "visual_factuality": (6 + 9) / 2}
WANTED |= {"visual_factuality_of_opponent": (8 + 5) / 2, "visual_factuality_parse_ok": 1.0}
"""Of Wordy against Terse, by hand: replies are pooled, and one is not read."""


def text_of(body: dict[str, Any]) -> str:
    parts = body["messages"][-1]["content"]
    if isinstance(parts, str):
        return parts
    return "\n".join(part.get("text", "<picture>") for part in parts)


def systems_of(body: dict[str, Any]) -> list[str]:
    """The answers that were shown, in their order."""
    said = re.findall(r"((?:word )+)to request", text_of(body))
    return [WORDS[len(words.split())] for words in said]


def replied(body: dict[str, Any]) -> Answer:
    text, shown = text_of(body), systems_of(body)
    if MIDDLING in shown:
        return Answer(completion(f"{FINAL}[[A=B]]"))
    order = "terse first" if shown == [TERSE, WORDY] else "wordy first"
    if "Visual Factuality Score" in text:
        marks = zip("AB", MARKS[order], strict=True)
        lines = [f"Response {x} Visual Factuality Score: {n}/10" for x, n in marks]
        return Answer(completion("\n".join(lines)))
    question = re.search(r"request (\d)", text)
    assert question
    return Answer(completion(REPLIES[int(question[1]), order]))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        server.script = replied
        yield server


def plait(*words: str) -> Done:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def answered(root: Path, *systems: str) -> Path:
    """A run whose systems have answered three questions, one with criteria of truth."""
    rows = [creation_row(0), *(creation_row(i, criteria="vivid") for i in (1, 2))]
    tsv = write_tsv(root.parent / "Creation.tsv", rows)
    fill(root, data=f"creation:{tsv}", systems=systems, scorers=[], weights="tiny")
    return root


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return answered(tmp_path / "run", TERSE, WORDY)


def compared(
    root: Path, server: Server, *more: str, status: int = 0
) -> tuple[Done, dict[str, Any]]:
    where = f'models."{JUDGE}".base_url="{server.url}"'
    words = ["compare", str(root), "--protocol", "creation", "--judge", JUDGE]
    done = plait(*words, "--set", where, *more)
    assert done.exit_code == status, done.output
    return done, json.loads(page_of(done).with_suffix(".json").read_text())


def page_of(done: Done) -> Path:
    return Path(done.output.split("comparison ")[-1].strip())


def standings(content: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    rows = [r for r in content["table"]["rows"] if r["part"] == "overall"]
    return {(r["opponent"], r["system"]): r for r in rows}


def values(row: dict[str, Any]) -> dict[str, float]:
    return {name: estimate["value"] for name, estimate in row["values"].items()}


def test_replies_become_standings_as_the_released_program_has_them(
    root: Path, server: Server
) -> None:
    done, content = compared(root, server, "--mode", "official")
    assert "8 judgements asked" in done.output
    assert (content["mode"], content["table"]["mode"]) == ("official", "official")
    (row,) = standings(content).values()
    assert (row["opponent"], row["system"]) == (TERSE, WORDY)
    assert values(row) == pytest.approx(WANTED)
    assert all(estimate["ci95"] is None for estimate in row["values"].values())
    assert [row["counts"][n] for n in ("read", "unread", "better", "much_better")] == [
        5, 1, 3, 1,
    ]  # fmt: skip
    # Pictures go with the preference alone, before all text.
    contents = [body["messages"][-1]["content"] for body in server.bodies]
    first = [c[0]["type"] for c in contents if not isinstance(c, str)]
    assert first == ["image_url"] * 6
    assert "50.00 n=5" in page_of(done).read_text()


def test_corrected_mode_reads_the_same_replies_otherwise(
    root: Path, server: Server
) -> None:
    compared(root, server, "--mode", "official")
    done, content = compared(root, server)
    # Factuality is asked alike in both modes, preference with the picture elsewhere.
    assert "6 judgements asked" in done.output
    (row,) = standings(content).values()
    found = values(row)
    # The bare verdict counts, and of two verdicts the last: (1+1, 2+1, 0-1) halves.
    assert found["reward"] == pytest.approx(50 * (1 + 1.5 - 0.5) / 3)
    assert found["visual_factuality"] == WANTED["visual_factuality"]
    assert row["values"]["reward"]["n"] == 3, "questions, not replies"


def test_a_comparison_without_any_reply_that_can_be_read_is_a_failure(
    root: Path, server: Server
) -> None:
    server.script = lambda body: Answer(completion("Both are fine."))
    _, content = compared(root, server, status=1)
    assert (content["counts"]["scored"], content["counts"]["unscored"]) == (0, 3)
    assert content["counts"]["failed_scores"] == 0


def test_one_more_system_is_judged_in_its_own_pairs_alone(
    root: Path, server: Server
) -> None:
    _, before = compared(root, server, "--mode", "official")
    assert "0 judgements asked" in compared(root, server, "--mode", "official")[0].output
    assert len(server.bodies) == 8, "what has been judged is not asked again"
    answered(root, TERSE, WORDY, MIDDLING)
    done, content = compared(root, server, "--mode", "official")
    assert "16 judgements asked" in done.output
    new = server.bodies[8:]
    assert len(new) == 16
    assert all(MIDDLING in systems_of(body) for body in new)
    after = standings(content)
    assert list(after) == [(TERSE, WORDY), (TERSE, MIDDLING), (WORDY, MIDDLING)]
    assert after[TERSE, WORDY] == standings(before)[TERSE, WORDY]
    assert values(after[WORDY, MIDDLING])["reward"] == 0.0


def test_the_released_wording_reaches_the_judge(
    root: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a stand-in for the user's copy of creation.py."""
    names = ("subjective", "objective_without_gt", "objective_with_gt")
    fields = "{instructions} / {reference_answer_by_gpt4o} / {prediction}"
    texts = {n: f"AS RELEASED {n}: {fields}" for n in names}
    digests = {n: hashlib.sha256(t.encode()).hexdigest() for n, t in texts.items()}
    monkeypatch.setattr(creation, "_DIGESTS", digests)
    file = root.parent / "creation.py"
    file.write_text(f"prompt_dict = {{}}\nprompt_dict['Creation_MMBench'] = {texts!r}\n")
    told = f"official:{os.path.relpath(file)}"
    options = ("--mode", "official", "--rubric", told)
    done, content = compared(root, server, *options)
    assert content["rubric"] == f"official:{file}"
    asked = [re.search(r"AS RELEASED (\w+): request", text_of(b)) for b in server.bodies]
    assert [m[1] for m in asked if m].count("subjective") == 6
    assert [m[1] for m in asked if m].count("objective_without_gt") == 2
    assert "not comparable" not in done.output + page_of(done).read_text()
    _, own = compared(root, server, "--mode", "official")
    assert own["wording"] != content["wording"]
    assert len(server.bodies) == 16, "another wording is another question"


def test_only_what_ran_on_random_weights_is_warned_of(root: Path, server: Server) -> None:
    """The run's own systems did, but they do not play here, and the judge is a server."""
    done, content = compared(root, server, "--baseline", PUBLISHED, "--system", "gt")
    assert content["weights"] == "tiny"
    assert "random weights" not in done.output + page_of(done).read_text()
    done, _ = compared(root, server, "--baseline", PUBLISHED, "--system", TERSE)
    assert f"random weights (tiny: {TERSE})" in done.output


def test_questions_read_in_one_order_are_told_apart(root: Path, server: Server) -> None:
    def half(body: dict[str, Any]) -> Answer:
        shown, said = systems_of(body), f"{FINAL}[[A=B]]"
        return Answer(completion(said if shown[:1] == [TERSE] else "no"))

    server.script = half
    _, content = compared(root, server)
    (row,) = standings(content).values()
    assert row["counts"]["one_order"] == 3
    assert row["values"]["reward"]["reason"] == "no question read in both orders"
    assert row["values"]["visual_factuality"]["reason"] == "no question judged"

"""Replies of judges as a person reads them, and whose words never are a verdict."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import DATA

from plait.scorers.judging.replies import Unreadable, read_reply
from plait.scorers.judging.rubrics import OWN
from plait.scorers.pairwise.games import FactualityScores, Verdict
from plait.scorers.pairwise.readers import better, lean, level, marks, vote

ROWS = tomllib.loads((DATA / "judge_replies.toml").read_text(encoding="utf-8"))
RUBRIC = OWN["SA"]
LEAST_SHARE = 0.95
"""Of the replies that a person reads at a glance."""


def rubric(reply: str) -> Any:
    result = read_reply(reply, RUBRIC)
    return None if isinstance(result, Unreadable) else result.raw


def word(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def read_word(reply: str) -> Any:
        result = read(reply)
        return result.word if isinstance(result, Verdict) else None

    return read_word


def both_marks(reply: str) -> Any:
    result = marks(reply)
    if not isinstance(result, FactualityScores):
        return None
    return f"{result.first:g} {result.second:g}"


READERS: dict[str, Callable[[str], Any]] = {
    "rubric": rubric,
    "opening": word(lean),
    "mmrb2": word(better),
    "level": word(level),
    "mllm_bench": word(vote),
    "marks": both_marks,
}


@pytest.mark.parametrize("reader", READERS)
def test_no_reply_is_read_as_something_else(reader: str) -> None:
    readable = [row for row in ROWS[reader] if "read" in row]
    found = [
        (row["text"], row.get("read"), READERS[reader](row["text"])) for row in ROWS[reader]
    ]
    wrong = [row for row in found if row[2] is not None and row[2] != row[1]]
    unread = [row for row in found if row[2] is None and row[1] is not None]
    read = len(readable) - len(unread)
    print(f"{reader}: {read} of {len(readable)} read, {len(wrong)} wrong, of {len(found)}")
    assert wrong == []
    assert read >= LEAST_SHARE * len(readable), unread


def test_the_table_is_of_150_replies() -> None:
    assert set(ROWS) == set(READERS)
    assert sum(map(len, ROWS.values())) >= 150


# --------------------------------------------------------------------------- quotations

TEXTS = [(reader, row["text"]) for reader in READERS for row in ROWS[reader]]
UNQUOTING = [
    (reader, text) for reader, text in TEXTS if not re.search("```|~~~|^>", text, re.M)
]
PIECES = st.sampled_from(
    (
        *(
            "Score: 6",
            "### Score\n6",
            "Text Quality: 1",
            "A is better",
            "Tie (B is better)",
        ),
        *("[[A>>B]]", "Answer1", '{"better_response": "A"}', "The answer says", "if", ":"),
        *("```", "~~~", "> ", "\n", '"', "{", "}"),
    )
)
ANY_TEXT = st.one_of(
    st.text(), st.lists(PIECES).map(" ".join), st.sampled_from([text for _, text in TEXTS])
)


def cited(text: str) -> str:
    return "\n".join(f"> {line}" for line in re.split(r"\r\n?|\n", text))


def fenced(text: str) -> str:
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * max([3, *(n + 1 for n in runs)])
    return f"{fence}\n{text}\n{fence}"


@given(
    st.sampled_from(UNQUOTING),
    ANY_TEXT,
    st.sampled_from([cited, fenced]),
    st.integers(0, 99),
)
def test_a_quotation_changes_no_verdict_outside_of_it(
    own: tuple[str, str], other: str, quote: Callable[[str], str], place: int
) -> None:
    reader, text = own
    verdict = READERS[reader](text)
    lines = text.split("\n")
    lines.insert(place % (len(lines) + 1), quote(other))
    if verdict is not None:
        assert READERS[reader]("\n".join(lines)) == verdict

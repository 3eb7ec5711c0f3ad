"""What the columns of users' own rows mean: by their names, or as the config says.

A meaning has names that stand for it. Of those that exclude each other a file may have one;
where it has two, people are asked which it is. Letters may be of either case.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from plait.benchmarks.tasks.reading.rules import RowError, Rule, TaskError
from plait.generators.errors import UsageError
from plait.generators.names import unknown

_NUMBERED = re.compile(r"image[_ ]?(\d+)")
"""Columns of one image each, as MMMU has them."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""Columns of one choice each, as VLMEvalKit has them."""


class AmbiguousColumns(TaskError):
    """Two columns that mean the same."""


class Meaning(NamedTuple):
    """Names of columns that mean the same."""

    names: tuple[str, ...]
    """A file has at most one of these."""
    also: tuple[str, ...] = ()
    """Where it has none of them: the first of these."""


_ID = Meaning(("id",), ("question_id", "query_id", "sample_id", "qid", "index", "idx"))
MESSAGES = ("messages", "conversations")
"""Columns of chats."""
_IMAGES = Meaning(("images", "image"), ("image_path", "file_name"))
QUERIES: Mapping[str, Meaning] = {
    "id": _ID,
    "question": Meaning(("question", "prompt", *MESSAGES)),
    "images": _IMAGES,
    "answer": Meaning(("answer", "reference")),
    "answer_images": Meaning(("answer_images", "reference_images")),
    "edit_mask": Meaning(("edit_mask",)),
    "criteria": Meaning(("criteria",)),
    "choices": Meaning(("choices", "options")),
    "category": Meaning(("category",)),
    "field": Meaning(("field",)),
    "wants_images": Meaning(("wants_images",)),
}
ANSWERS: Mapping[str, Meaning] = {
    "id": _ID,
    # All exclude each other: beside a `prediction`, an `answer` is mostly the true one.
    "answer": Meaning(("answer", "text", *MESSAGES, "response", "prediction")),
    "images": _IMAGES,
    "system": Meaning(("system", "model")),
}


class _Columns(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def stated(self) -> dict[str, str]:
        """The columns that are named, by meaning."""
        named = self.model_dump()
        return {meaning: named[meaning] for meaning in named if named[meaning] is not None}


class QueryColumns(_Columns):
    """Names of columns of queries, where they are others; an empty one means none."""

    id: str | None = None
    question: str | None = None
    images: str | None = None
    answer: str | None = None
    answer_images: str | None = None
    edit_mask: str | None = None
    criteria: str | None = None
    choices: str | None = None
    category: str | None = None
    field: str | None = None
    wants_images: str | None = None


class AnswerColumns(_Columns):
    """The same of answers that were made elsewhere."""

    id: str | None = None
    answer: str | None = None
    images: str | None = None
    system: str | None = None


class DataReading(BaseModel):
    """How data are read by columns; none of it concerns data in another format."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: QueryColumns = QueryColumns()
    """`[data.columns]`, such as `question = "instruction"`."""
    answer_columns: AnswerColumns = AnswerColumns()
    """`[data.answer_columns]`: the same of answers made elsewhere."""
    files: str = ""
    """Which files of a folder or of a data set of the Hub: a name or a pattern, such as
    `en/test-*.parquet`."""
    image_hosts: tuple[str, ...] = ()
    """Hosts from which images named by URL are fetched: `NAME`, `*.DOMAIN` or an address;
    all others are refused."""

    @property
    def of_queries(self) -> str:
        """Name the first thing that is said of queries; empty for none."""
        if self.columns.stated:
            return f"columns.{next(iter(self.columns.stated))}"
        return "files" if self.files else ""


AS_NAMED = DataReading()
"""By the names of the columns alone."""


@dataclass(frozen=True)
class Columns:
    """The columns of a file by what they mean."""

    by_meaning: Mapping[str, tuple[str, ...]]
    """As they are written; several for choices or images of one column each."""
    others: tuple[str, ...]
    """Kept as metadata."""
    key: str = "data.columns"
    """What overrides them in a config."""
    _known: Mapping[str, Meaning] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        meanings: Mapping[str, Meaning],
        stated: Mapping[str, str],
        what: str,
        key: str = "data.columns",
    ) -> Columns:
        """Return what columns mean in the file or folder `what`.

        UsageError for a `stated` one that is not there, AmbiguousColumns where two mean the
        same.
        """
        written: dict[str, list[str]] = {}
        for name in names:
            written.setdefault(name.strip().casefold(), []).append(name)
        every = [*chain.from_iterable(written.values())]
        # What people say goes first, and leaves the rest to be told by its names.
        taken = _take_stated_columns(stated, every, what, key)
        claimed = {*chain.from_iterable(taken.values())}
        free = {}
        for low, spellings in written.items():
            left = [name for name in spellings if name not in claimed]
            if left:
                free[low] = left
        for meaning, its_names in meanings.items():
            if meaning in taken:
                continue
            own = _columns_named(its_names, free)
            if len(own) > 1:
                # To take one of them would make another benchmark of it, in silence.
                listed = " and ".join(map(repr, own))
                raise AmbiguousColumns(
                    f"{what}: columns {listed} both mean the {meaning}: say which with "
                    f"--set {key}.{meaning}={own[0]}; the other is kept as metadata"
                )
            taken[meaning] = tuple(own) or _one_each(meaning, free)
        claimed = {*chain.from_iterable(taken.values())}
        others = [name for name in every if name and name not in claimed]
        by_meaning = {meaning: taken[meaning] for meaning in taken if taken[meaning]}
        return cls(by_meaning, tuple(others), key, meanings)

    def require(self, meaning: str, what: str) -> None:
        """Raise TaskError where no column of `what` has the meaning."""
        if meaning in self.by_meaning:
            return
        names, also = self._known[meaning]
        valid = " or ".join(dict.fromkeys((*names, *also)))
        has = ", ".join(self.others) or "none"
        raise TaskError(
            f"{what} has no column of the {meaning} ({valid}); it has {has}. Name one with "
            f"--set {self.key}.{meaning}=COLUMN"
        )

    def has(self, meaning: str) -> bool:
        """Return whether the file has such a column."""
        return meaning in self.by_meaning

    def value(self, row: Mapping[str, Any], meaning: str) -> Any:
        """Return what a row has there; None where it is missing, empty or null.

        Of several columns, a list of what is there.
        """
        values = []
        names = self.by_meaning.get(meaning, ())
        for name in names:
            value = row.get(name)
            if not _is_nothing(value):
                values.append(value)
        if not values:
            return None
        return values if len(names) > 1 else values[0]

    def refuse_gaps(self, row: Mapping[str, Any]) -> None:
        """Raise RowError where one of several columns is empty, and a later one is not.

        Letters of choices, and numbers of images, would be those of others.
        """
        for names in self._several:
            first_empty = ""
            for name in names:
                if _is_nothing(row.get(name)):
                    first_empty = first_empty or name
                elif first_empty:
                    every = ", ".join(names)
                    detail = (
                        f"column {first_empty} is empty, and a later one of {every} not"
                    )
                    raise RowError(Rule.EMPTY, detail)

    @cached_property
    def _several(self) -> Sequence[tuple[str, ...]]:
        """The columns of meanings that have more than one."""
        return [names for names in self.by_meaning.values() if len(names) > 1]

    def __str__(self) -> str:
        """Name the meanings, each with its columns where these have another name."""
        told = []
        for meaning, columns in self.told.items():
            told.append(meaning if columns == meaning else f"{meaning} from {columns}")
        return ", ".join(told)

    @property
    def told(self) -> dict[str, str]:
        """The columns by meaning, for people and for the manifest."""
        return {meaning: ", ".join(own) for meaning, own in self.by_meaning.items()}


def _take_stated_columns(
    stated: Mapping[str, str], every: Sequence[str], what: str, key: str
) -> dict[str, tuple[str, ...]]:
    """Return by meaning the columns that people name; UsageError for none and for two."""
    taken: dict[str, tuple[str, ...]] = {}
    for meaning, name in stated.items():
        if name and name not in every:
            raise unknown(f"column of {what} in {key}.{meaning}:", name, every)
        taken[meaning] = (name,) if name else ()
    uses = Counter(chain.from_iterable(taken.values()))
    twice = {name for name, times in uses.items() if times > 1}
    if twice:
        both = [meaning for meaning, own in taken.items() if twice & {*own}]
        raise UsageError(
            f"{key}: column {min(twice)!r} cannot be both {' and '.join(both)}"
        )
    return taken


def _columns_named(names: Meaning, free: Mapping[str, list[str]]) -> list[str]:
    """Return the columns of a meaning by its names, else by the first of its others."""
    own: list[str] = []
    for low in names.names:
        own += free.get(low, ())
    if own:
        return own
    for low in names.also:
        if low in free:
            return free[low]
    return []


def _one_each(meaning: str, free: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Return columns that hold one image or one choice each, in order."""
    if meaning == "choices":
        letters = []
        for letter in _LETTERS:
            if letter not in free:
                break
            letters.append(free[letter][0])
        # A single column `A` is no list of choices.
        return tuple(letters) if len(letters) > 1 else ()
    if meaning != "images":
        return ()
    numbered = {}
    for low, own in free.items():
        match = _NUMBERED.fullmatch(low)
        if match:
            numbered[int(match[1])] = own[0]
    return tuple(numbered[n] for n in sorted(numbered))


def _is_nothing(value: Any) -> bool:
    """Return whether a cell is empty; a table has no other sign, and pandas writes NaN."""
    if isinstance(value, str):
        return not value or value.isspace()
    return value is None or (isinstance(value, float) and value != value)

"""Task sets: queries with their prompts; reading them, and selecting some of them."""

from __future__ import annotations

import difflib
import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plait.benchmarks.tasks import own_data
from plait.benchmarks.tasks.miniature import reader as miniature
from plait.benchmarks.tasks.miniature.queries import FIELDS as MINIATURE_FIELDS
from plait.benchmarks.tasks.mmie import reader as mmie
from plait.benchmarks.tasks.mmie.prompts import Prompts
from plait.benchmarks.tasks.mmie.prompts import prompts as mmie_prompts
from plait.benchmarks.tasks.published import UNKNOWN, TaskSet, unicode_only
from plait.benchmarks.tasks.reading.columns import AS_NAMED, DataReading
from plait.benchmarks.tasks.reading.images import default_folder
from plait.benchmarks.tasks.reading.rules import Rule, TaskError
from plait.generators.base import import_target
from plait.generators.catalogue import Named, find, forms, is_custom, prefix_of
from plait.generators.document import Malformed, Query
from plait.generators.errors import MissingInput, UsageError
from plait.generators.spool import keep, select

__all__ = ["TaskError", "TaskSet", "is_function", "limit_queries", "load", "select_queries"]

Queries = Sequence[Query | Malformed]

MMIE = "mmie:"
"""Prefix of data that are in MMIE's format, whatever they look like."""


def data_prefix(data: str) -> str | None:
    """The prefix of `data`; None for a plain name or path. UsageError when unknown."""
    if Path(data).expanduser().exists():
        return None
    return prefix_of(data, "data", Named.DATA)


def is_function(data: str) -> bool:
    """Return whether `data` is `module:function`, a user's own reader."""
    return is_custom(data) and not Path(data).exists()


def is_read_by_columns(data: str) -> bool:
    """Return whether the data are users' own rows: forced, or not in MMIE's format.

    TaskError where there are no such data.
    """
    if data == "sample" or is_function(data) or miniature.is_miniature(data):
        return False
    prefix = data_prefix(data)
    if prefix in (None, "hf"):
        return not mmie.has_marks(data)
    return prefix == own_data.NAME


def place_of(data: str) -> str:
    """Return what follows a prefix that forces the reading by columns."""
    forced = data_prefix(data) == own_data.NAME
    return data.removeprefix(own_data.ROWS) if forced else data


def load(
    data: str,
    *,
    prompts: Mapping[str, Mapping[str, str]] | None = None,
    reading: DataReading = AS_NAMED,
    cache: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> TaskSet:
    """Read the task set that `data` names: `sample`, a folder, a file, `hf:ORG/NAME@REV`.

    A folder, file or data set of the Hub is in MMIE's format where its marks are found,
    else it is read by columns, as `reading` says; `mmie:PLACE` and `rows:PLACE` force one.
    `miniature[:N]` is N queries of the miniature world, worded as MMIE's are. `NAME:PLACE`
    is another benchmark's data, by its reader; `module:function` is a user's
    function that returns the task set. Images are decoded once to find broken ones;
    `cache` (by default the user's cache folder) keeps the results. `on_progress` is called
    with (checked, of how many). A query with text that is not Unicode is malformed. Raises
    TaskError for data that cannot be read, UsageError for unknown names in `prompts`.
    """
    return _read(data, prompts, reading, cache or default_folder(), on_progress)


def _read(
    data: str,
    prompts: Mapping[str, Mapping[str, str]] | None,
    reading: DataReading,
    cache: Path,
    on_progress: Callable[[int, int], None] | None,
) -> TaskSet:
    named = None
    if not is_function(data) and data_prefix(data) is not None:
        named = find(data, Named.DATA)
    by_columns = is_read_by_columns(data)
    if reading.of_queries and not by_columns:
        raise UsageError(
            f"data.{reading.of_queries} is for data that are read by columns; {data} has a "
            "format of its own"
        )
    has_reader = named is not None and bool(named.entry.target)
    if by_columns or is_function(data) or has_reader:
        if prompts:
            raise UsageError(
                f"[prompts] words MMIE's queries; {data} has its own questions"
            )
        if by_columns:
            return own_data.load(place_of(data), cache, reading, on_progress)
        if named is None:
            return _own(data)
        read_place: Callable[[str, Path], TaskSet] = named.entry.load()
        return read_place(named.rest, cache)
    wording = mmie_prompts(prompts)
    if not miniature.is_miniature(data):
        return mmie.load(data.removeprefix(MMIE), wording, cache, on_progress)
    return _miniature(data, wording, cache)


def _miniature(data: str, wording: Prompts, cache: Path) -> TaskSet:
    queries = miniature.read_queries(miniature.number_of(data), cache)
    about: dict[str, Any] = {"name": miniature.NAME, "source": data, "revision": None}
    about |= {"digest": miniature.digest_of(queries), "rows": len(queries)}
    return TaskSet(
        name=miniature.NAME,
        samples=tuple(queries),
        prompt=wording,
        categories={},
        fields=MINIATURE_FIELDS,
        about=about | {"malformed": {}, "prompts": wording.digest},
    )


def _own(data: str) -> TaskSet:
    try:
        make: Callable[[], TaskSet] = import_target(data)
    except (ModuleNotFoundError, AttributeError) as error:
        raise MissingInput(
            f"data {data!r}: {error}. Prefixes are {', '.join(forms(Named.DATA))}"
        ) from error
    task = make()
    if not isinstance(task, TaskSet):
        kind = type(task).__name__
        raise UsageError(f"data {data!r} must return a TaskSet, not a value of type {kind}")
    own = enumerate(task.samples)
    refused = sum(unicode_only(sample, i) is not sample for i, sample in own)
    if not refused:
        return task
    queries = keep((unicode_only(s, i) for i, s in enumerate(task.samples)), "queries")
    broken = Counter(task.about.get("malformed", {}))
    broken[Rule.NOT_UNICODE.value] += refused
    return replace(task, samples=queries, about={**task.about, "malformed": dict(broken)})


def limit_queries(queries: Queries, limit: int, seed: int) -> Queries:
    """`limit` of `queries`, drawn by `seed` in proportion to the categories, in file order.

    Every category has at least one as far as `limit` goes. Which are drawn depends on
    ids and `seed` alone, and a smaller limit draws a part of what a larger one draws.
    Raises TaskError for a limit below 1.
    """
    if limit < 1:
        raise TaskError(f"a limit of {limit} leaves no queries; it must be at least 1")
    lots = bytearray()
    strata: dict[str, array[int]] = {}
    for i, query in enumerate(queries):
        lots += hashlib.sha256(f"{seed}\n{query.id}".encode()).digest()
        strata.setdefault(query.category, array("I")).append(i)
    words = np.frombuffer(lots, ">u8").reshape(-1, 4)
    places = np.empty(len(words))
    # Sainte-Lague's divisors: the k-th of the n queries of a category comes at
    # (k - 1/2) / n, so that categories fill in proportion; the first of each comes first.
    for category, rows in strata.items():
        own = np.array(rows)
        drawn = own[np.lexsort(words[own].T[::-1])]
        places[drawn] = (np.arange(len(drawn)) + 0.5) / len(drawn)
        if category != UNKNOWN:
            places[drawn[0]] = 0.0
    order = np.lexsort((*words.T[::-1], places))
    return select(queries, np.sort(order[:limit]).tolist())


def select_queries(queries: Queries, ids: Iterable[str]) -> Queries:
    """The queries with these ids, in file order; TaskError names ids that do not exist."""
    requested = dict.fromkeys(ids)
    places = array("I")
    there = set[str]()
    for i, query in enumerate(queries):
        if query.id in requested:
            places.append(i)
            there.add(query.id)
    if len(there) < len(requested):
        missing = [id for id in requested if id not in there]
        known = {query.id for query in queries}
        raise TaskError("; ".join(_unknown_id(id, known) for id in missing[:5]))
    return select(queries, places)


def _unknown_id(id: str, known: set[str]) -> str:
    near = difflib.get_close_matches(id, sorted(known), n=1, cutoff=0.0)
    hint = f"; the nearest one is {near[0]!r}" if near else ""
    return f"no query {id!r}{hint}"

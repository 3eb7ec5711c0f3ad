"""`plait annotate`: a page on which people rate answers, or compare two, without names.

    annotate(root, folder, AnnotateOptions(), console)

Raters get `page/`, a folder that opens from disk. It knows items by random tokens; what a
token stands for (answer, gold, repeated item) is in `key.json` beside it alone. An item is
an answer, or a pair of answers; a form is the questions about an item, which are answered
by single keys.
"""

from __future__ import annotations

import json
import random
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from plait.benchmarks.results.board import DONE, Board
from plait.benchmarks.results.page_files import FolderFiles
from plait.benchmarks.results.report.entries import segments_of
from plait.benchmarks.results.report.images import PACK, pack_images
from plait.benchmarks.results.report.page import sources
from plait.benchmarks.results.table import environment, json_text
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.studies.annotations import PENALTY, Unit, read_ratings
from plait.benchmarks.studies.drawing import Draw
from plait.benchmarks.terminal import progress
from plait.cluster.store import BlobReader
from plait.generators.base import Result
from plait.generators.buckets import AnyPath
from plait.generators.document import Content, Image, Query
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.names import unknown
from plait.scorers.judging.rubrics import OWN, RUBRIC, TOP, WORDING

KEY = "key.json"
PAGE = "page"
ANSWERS = "answers"
VOTES = {"1": "left", "2": "undecided", "3": "right"}
SIDE = 1024
_PAIR = "pair"
_WHOLE = "whole"
_YES_NO = {"1": "yes", "0": "no"}
_SCRIPTS = ("elements.js", "data.js", "annotate.js", "theme.js")
REPEATED = 5
"""Items that raters see twice, unless another number is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotateOptions:
    """What raters are shown."""

    pairs: bool = False
    """Two answers side by side, instead of one."""
    items: int = 50
    """Drawn at random, besides gold and repeated ones."""
    repeated: int | None = None
    """How many of them come a second time, to see whether a rater answers alike; None for
    REPEATED, or as many as there can be."""
    systems: tuple[str, ...] = ()
    gold: str | None = None
    """File of annotations that are known to be right."""
    seed: int = 0


def annotate(
    root: AnyPath, folder: Path, options: AnnotateOptions, console: Console
) -> None:
    """Write the page and its key into `folder`; UsageError where that is impossible.

    A page that is there already is kept, since answers may have been given on it.
    """
    # As they are read back from the key, where a tuple is a list.
    settings = json.loads(json.dumps(asdict(options)))
    if (folder / KEY).exists():
        if read_key(folder)["settings"] != settings:
            raise UsageError(
                f"{folder} holds a page made with other options, which raters may have "
                "begun; name another folder with --out"
            )
        return
    board = open_results(root).board
    known = sorted(units_to_show(board, options.systems, pairs=options.pairs))
    gold = _gold(Path(options.gold), options, known) if options.gold else {}
    blocks = [_by_token(units) for units in _blocks(known, gold, options)]
    shown = set[Unit]()
    for block in blocks:
        shown.update(block.values())
    contents = _contents(board, shown)
    items = _items(blocks, contents, gold, options)
    forms = {}
    for name in sorted({item["form"] for item in items.values()}):
        forms[name] = _form(name)
    _check_gold(items, forms, options)
    key = {
        "study": secrets.token_hex(8),
        "settings": settings,
        "drawn": _draw_of(board, known, gold, items, options).as_json,
        "forms": forms,
        "items": items,
    }
    # Tokens are random, so their order does not tell which item is gold or repeated.
    order = [sorted(block) for block in blocks]
    with progress(console, "preparing images") as show:
        _write_page(folder / PAGE, key, order, contents, show)
    # The last file: where it is, the page is whole.
    write_whole(folder / KEY, json_text(key))


def _by_token(block: Iterable[Unit]) -> dict[str, Unit]:
    """Return units by random tokens, which tell nothing of them."""
    return {secrets.token_hex(8): unit for unit in block}


class _Answer(NamedTuple):
    """An answer and what it was asked."""

    query: Query
    content: Content


Contents = Mapping[Unit, _Answer]
"""By answer: of a pair, each side has its own."""


def _items(
    blocks: Sequence[Mapping[str, Unit]],
    contents: Contents,
    gold: Mapping[Unit, Mapping[str, Any]],
    options: AnnotateOptions,
) -> dict[str, dict[str, Any]]:
    """Return what the key says of each item, by token."""
    items: dict[str, dict[str, Any]] = {}
    first: dict[Unit, str] = {}
    sides = random.Random(options.seed)
    for block in blocks:
        for token, unit in block.items():
            query = contents[unit.sides[0]].query
            items[token] = unit._asdict() | {
                "category": query.category,
                "form": _PAIR if options.pairs else _form_of(query),
                # The sides are turned at random, so that a preference for one cancels.
                "flipped": options.pairs and sides.random() < 0.5,
                "gold": gold.get(unit),
                "again": first.get(unit),
            }
            first.setdefault(unit, token)
    return items


def _draw_of(
    board: Board,
    known: Sequence[Unit],
    gold: Collection[Unit],
    items: Mapping[str, Mapping[str, Any]],
    options: AnnotateOptions,
) -> Draw:
    """Return how the items were drawn; what is gold or comes a second time is not one."""
    drawn = 0
    for item in items.values():
        drawn += item["gold"] is None and item["again"] is None
    names = options.systems or [system.name for system in board.systems]
    return Draw(
        items=drawn,
        of=len(known) - len(gold),
        seed=options.seed,
        systems=tuple(names),
        pairs=options.pairs,
        gold=tuple(sorted(gold)),
    )


def _form_of(query: Query) -> str:
    """Return the rubric that judges follow too, else the form of one question."""
    rubric = query.metadata.get(RUBRIC, query.category)
    return rubric if rubric in OWN else _WHOLE


def _check_gold(
    items: Mapping[str, Mapping[str, Any]],
    forms: Mapping[str, Mapping[str, Any]],
    options: AnnotateOptions,
) -> None:
    """Raise UsageError where gold answers what raters are not asked."""
    for item in items.values():
        asked = [question["name"] for question in forms[item["form"]]["questions"]]
        gold = item["gold"] or {}
        if not gold.keys() <= {*asked}:
            raise UsageError(
                f"{options.gold}: {item['id']} of {item['system']} answers "
                f"{', '.join(gold)}; raters are asked for {', '.join(asked)}"
            )


def _blocks(
    known: Sequence[Unit], gold: Collection[Unit], options: AnnotateOptions
) -> list[list[Unit]]:
    """Return what is shown in three parts, each in any order; UsageError.

    What is repeated is in the first part and again in the last one.
    """
    rng = random.Random(options.seed)
    others = [unit for unit in known if unit not in gold]
    drawn = rng.sample(others, min(options.items, len(others)))
    total = len(drawn) + len(gold)
    most = min(total // 3, len(drawn))
    repeated = min(REPEATED, most) if options.repeated is None else options.repeated
    if not total or repeated > most:
        raise UsageError(
            f"{len(known):,} items can be shown and {total:,} would be; there must be "
            f"some, and three times as many as repeated ones ({repeated})"
        )
    # A third of the items at least stands between an item and its repetition.
    third = total // 3
    again = drawn[:repeated]
    rest = [*drawn[repeated:], *gold]
    rng.shuffle(rest)
    end_of_first = third - len(again)
    end_of_second = end_of_first + third
    return [
        again + rest[:end_of_first],
        rest[end_of_first:end_of_second],
        rest[end_of_second:] + again,
    ]


def read_key(folder: Path) -> dict[str, Any]:
    """Return the key of the page in `folder`; UsageError where there is none."""
    try:
        key: dict[str, Any] = json.loads((folder / KEY).read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{folder} holds no page: it has no {KEY}") from None
    return key


def units_to_show(
    board: Board, systems: Collection[str] = (), *, pairs: bool
) -> Iterator[Unit]:
    """Yield the answers that are there, or the pairs of them; UsageError for no system.

    Of these systems, or of all.
    """
    names = [system.name for system in board.systems]
    for name in systems:
        if name not in names:
            raise unknown("system", name, names)
    chosen = systems or names
    answered: dict[tuple[str, int], list[str]] = defaultdict(list)
    done = board.is_answer & board.column["outcome"].is_(DONE)
    for id, repeat, system in board.rows(done, "query", "repeat", "system"):
        if system in chosen:
            answered[id, repeat - 1].append(system)
    for (id, repeat), answering in answered.items():
        if pairs:
            for one, other in combinations(sorted(answering), 2):
                yield Unit(id, one, repeat, other)
            continue
        for system in answering:
            yield Unit(id, system, repeat)


def _gold(
    path: Path, options: AnnotateOptions, known: Sequence[Unit]
) -> dict[Unit, dict[str, Any]]:
    """Return the right answers by item, from a file of annotations; UsageError."""
    ratings = read_ratings(path, rater="annotator", unnamed="gold", scale=f"0-{TOP}")
    form = "vote" if options.pairs else "score"
    if ratings.form != form or len(ratings.values) != 1:
        raise UsageError(f"{path} must give one {form} for each item, by one annotator")
    [(name, values)] = ratings.values.items()
    rulings = ratings.rulings.get(name, {})
    valid = {*known}
    gold: dict[Unit, dict[str, Any]] = {}
    turned = {"system": "baseline", "baseline": "system"}
    for unit, value in values.items():
        right: dict[str, Any] = {**rulings.get(unit, {})} or {form: value}
        if unit not in valid and unit.baseline:
            # The file may name the two systems of a pair the other way round.
            unit = unit.sides[1]._replace(baseline=unit.system)
            right = {form: turned.get(str(value), value)}
        if unit not in valid:
            raise UsageError(f"{path}: the run has no answer {unit.id} of {unit.system}")
        gold[unit] = right
    return gold


def _contents(board: Board, units: Collection[Unit]) -> Contents:
    """Return the query and the answer of each side of the units."""
    wanted = set[Unit]()
    for unit in units:
        wanted.update(unit.sides)
    contents = {}
    for evaluation in board.reading({unit.id for unit in units}):
        query = evaluation.query
        document = evaluation.document
        side = Unit(query.id, evaluation.system, evaluation.repeat)
        if side not in wanted:
            continue
        if isinstance(document, Result) and isinstance(query, Query):
            contents[side] = _Answer(query, document.value.segments)
    return contents


def _form(name: str) -> dict[str, Any]:
    """Return what raters are asked in a form: a vote, a score, or a rubric's criteria."""
    if name == _PAIR:
        keys = {
            "1": "the left one",
            "2": "equally good or equally bad",
            "3": "the right one",
        }
        vote = _question("vote", "Which answer is better?", keys)
        # Where the screen has no room for two answers side by side.
        vote["stacked"] = {"1": "the upper one", "3": "the lower one"}
        return {"task": "", "questions": [vote]}
    if name == _WHOLE:
        keys = {str(n): str(n) for n in range(TOP + 1)}
        about = f"How good is the answer, from 0 (useless) to {TOP} (excellent)?"
        return {"task": "", "questions": [_question("score", about, keys)]}
    rubric = OWN[name]
    meanings = WORDING["criteria"]
    asked = []
    for criterion in rubric.criteria:
        asked.append(_question(criterion, meanings[criterion], _YES_NO, criterion))
    if rubric.penalty:
        asked.append(_question(PENALTY, WORDING["penalty"], _YES_NO, rubric.penalty))
    return {"task": WORDING["categories"][name]["task"], "questions": asked}


def _question(
    name: str, about: str, keys: Mapping[str, str], title: str = ""
) -> dict[str, Any]:
    return {"name": name, "title": title, "about": about, "keys": [*keys.items()]}


class _PageItem(NamedTuple):
    """What raters see of an item."""

    query: Query
    answers: Sequence[Content]
    """Of a pair, the one on the left first."""
    truth: Content | None

    @property
    def contents(self) -> Iterator[Content]:
        """All of it, in the order of the page."""
        for turn in self.query.turns:
            yield turn.content
        yield from self.answers
        yield self.truth or ()


def _item_on_page(item: Mapping[str, Any], contents: Contents) -> _PageItem:
    """Return what raters see of an item of the key."""
    unit = Unit(item["id"], item["system"], item["repeat"], item["baseline"])
    left, right = unit.sides
    query = contents[left].query
    answers = [contents[left].content]
    if unit.baseline:
        answers.append(contents[right].content)
    if item["flipped"]:
        answers.reverse()
    truth = None
    if item["form"] == "MSR" and query.reference is not None:
        # As for judges: solutions are graded against the truth.
        truth = query.reference.segments
    return _PageItem(query, answers, truth)


def _write_page(
    folder: Path,
    key: Mapping[str, Any],
    blocks: Sequence[Sequence[str]],
    contents: Contents,
    on_progress: Any,
) -> None:
    """Write the page into `folder`; `blocks` are tokens in the order of showing."""
    shown = {}
    # By token here too, since the numbers of images follow this order.
    for token in sorted(key["items"]):
        shown[token] = _item_on_page(key["items"][token], contents)
    images: dict[str, Image] = {}
    for item in shown.values():
        for content in item.contents:
            images |= {part.digest: part for part in content if isinstance(part, Image)}
    numbers = {digest: number for number, digest in enumerate(images)}
    files = FolderFiles(folder)
    packs = pack_images(files, [*images.values()], BlobReader(), on_progress, SIDE)
    items = {}
    for token, item in shown.items():
        turns = []
        for turn in item.query.turns:
            turns.append([turn.role, segments_of(turn.content, numbers)])
        items[token] = {
            "form": key["items"][token]["form"],
            "turns": turns,
            "truth": item.truth and segments_of(item.truth, numbers),
            "answers": [segments_of(answer, numbers) for answer in item.answers],
        }
    about = {"study": key["study"], "forms": key["forms"], "pack": PACK, "packs": packs}
    files.write_data("items.js", about | {"blocks": blocks, "items": items})
    template = environment().get_template("annotate.html.j2")
    style = sources("report.css", "annotate.css")
    script = sources(*_SCRIPTS)
    write_whole(folder / "index.html", template.render(style=style, script=script))

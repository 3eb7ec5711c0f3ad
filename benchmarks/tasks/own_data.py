"""Users' own queries, by the columns of their files: `PATH`, `rows:PATH`, `hf:ORG/NAME`.

| column | it holds |
|---|---|
| `id`, else `question_id`, `index`, ... | a text or whole number; else the row's number |
| `question` or `prompt` | text with `<image>` marks, list of texts and images, or chat |
| `messages` or `conversations` | a chat: turns of `role`, `content` or `from`, `value` |
| of a turn of the user: `looks_back` | whether it asks about the system's own answers |
| beside it `answer`, `choices`, `criteria`, `wants_images` | of that turn, as below |
| `images` or `image`, `image_1`, `image_2`, ... | see `reading/content.py` |
| `answer` or `reference` | text, list, image; of `choices` a letter, text, index from 0 |
| `answer_images` | images of the answer, where it is a text |
| `edit_mask` | an image that is white where the image of the question may be edited |
| `criteria` | texts, or objects: `criterion`, and `about`: `text` or `image` |
| `choices` or `options`, or columns `A`, `B`, ... | texts; shown below the question |
| `category`, `field` | groups of the tables |
| `wants_images` | whether an answer should hold images |

A chat in which any turn says whether it `looks_back` is a session (`sessions.py`).

Everything else is kept as metadata. Images without marks stand before the question. An
answer is expected to hold images where the true one does, where a criterion is about them,
and where there is no true one. Files are JSON (a list, objects by id), lines of it, tables,
Parquet and Arrow, and folders of them, such as `datasets` saves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from plait.benchmarks.tasks.published import (
    UNKNOWN,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading.columns import (
    AS_NAMED,
    MESSAGES,
    QUERIES,
    Columns,
    DataReading,
    Meaning,
)
from plait.benchmarks.tasks.reading.content import (
    ContentReader,
    is_base64,
    is_chat,
    parse,
    parse_content,
)
from plait.benchmarks.tasks.reading.files import (
    SUFFIXES,
    TABLE_SUFFIXES,
    FileRow,
    FileRows,
    RowMarks,
    files_of,
    read_file,
)
from plait.benchmarks.tasks.reading.images import (
    IMAGE_SUFFIXES,
    ImageCache,
    ImageFolder,
    Progress,
)
from plait.benchmarks.tasks.reading.rules import (
    Row,
    RowError,
    Rule,
    TaskError,
    brief,
    id_text,
    is_id,
    of_type,
)
from plait.benchmarks.tasks.reading.sources import FilesAsFound, Located, locate
from plait.benchmarks.tasks.sessions import ask_turn_by_turn
from plait.benchmarks.wording import quantity
from plait.generators.document import Content, Document, Image, Query, Text, Turn
from plait.generators.replies import as_bool
from plait.generators.unicode import trouble
from plait.scorers.answers import KNOWN, LETTER
from plait.scorers.judging.criteria import ABOUTS, QUERY_CRITERIA
from plait.scorers.kept import MASK, mask_text
from plait.scorers.turns import TURNS, AskedTurn, turns_text

NAME = "rows"
ROWS = f"{NAME}:"
_BATCH = 256
"""Rows of Parquet whose images are checked together."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ASK = "Answer with the letter of the right option."
_LOOKS_BACK = "looks_back"
"""Key of a turn of the user, by which a chat is a session."""
_CRITERION_KEYS = ("criterion", "question", "text")
_GIVEN_ANSWERS = ("question", "answer", "model", "gt_answer")
_LONGEST_METADATA = 100_000
"""Characters of a value; images that nothing names are longer."""


@dataclass(frozen=True)
class FoundRows:
    """Files of rows, and what their columns mean."""

    found: Located
    files: list[Path]
    left: list[Path]
    """Of other splits: not read."""
    tables: list[FileRows]
    columns: Columns
    as_found: FilesAsFound

    @property
    def rows(self) -> Iterator[FileRow]:
        """All rows; of several files they are numbered as one."""
        number = 0
        for table in self.tables:
            for row in table.rows:
                number += 1
                if len(self.tables) > 1 and row.is_numbered:
                    row = row._replace(id=f"{number:04d}")
                yield row

    @property
    def in_tables(self) -> bool:
        """Whether the files are tables, whose cells are texts."""
        return self.files[0].suffix.lower() in TABLE_SUFFIXES

    def reader(self, cache: Path, reading: DataReading) -> ContentReader:
        """Return what reads the contents of rows."""
        folders = []
        # Images are looked for beside the file first; both folders may be the same.
        for folder in dict.fromkeys((self.files[0].parent, self.found.folder)):
            folders.append(ImageFolder(folder, cache, self.found.also))
        return ContentReader(
            tuple(folders),
            ImageCache(cache / NAME),
            reading.image_hosts,
            self._images_by_id,
        )

    @property
    def _images_by_id(self) -> dict[str, str]:
        """Images as base64 by id: in VLMEvalKit's tables a row may name another one's."""
        by_id: dict[str, str] = {}
        if not self.columns.has("images"):
            return by_id
        for table in self.tables:
            if not table.is_text:
                continue  # Their images are bytes, which no row refers to.
            for row in table.rows:
                if not isinstance(row.value, dict):
                    continue
                image = self.columns.value(row.value, "images")
                if is_base64(image):
                    id = str(self.columns.value(row.value, "id"))
                    by_id[id] = image
        return by_id

    def about(self) -> dict[str, Any]:
        """Return what was taken, for the manifest and for people."""
        return {
            "read": str(self),
            "files": [path.name for path in self.files],
            "columns": self.columns.told,
            "metadata": list(self.columns.others),
        }

    def __str__(self) -> str:
        first, *others = (path.name for path in self.files)
        named = f"{first} and {quantity(len(others), 'file')} more" if others else first
        left = ""
        if self.left:
            left = f" ({quantity(len(self.left), 'file')} of other splits not read)"
        return f"by columns of {named}{left}: {self.columns}"


def find_rows(
    place: str,
    meanings: Mapping[str, Meaning],
    main: str,
    reading: DataReading = AS_NAMED,
) -> FoundRows:
    """Return the files of rows at `place`; a row has the meaning `main`.

    Raises TaskError where there are none, where they cannot be read, where two columns
    mean the same, and where none has the meaning; UsageError for a stated column that is
    not there.
    """
    of_queries = meanings is QUERIES
    stated = (reading.columns if of_queries else reading.answer_columns).stated
    found = locate(place, _patterns(reading.files))
    files = [found.path]
    left = list[Path]()
    if found.path.is_dir():
        files, left = files_of(found.path, reading.files)
    elif found.path.suffix.lower() not in SUFFIXES:
        raise TaskError(f"{found.path} is none of {', '.join(SUFFIXES)}")
    as_found = FilesAsFound(files)
    named = (stated.get(main, "").casefold(), *meanings[main].names)
    marks = RowMarks(named, (str, list, dict))
    tables = [read_file(path, marks) for path in files]
    # Columns that any of the files has, in the order in which they first come.
    names: dict[str, None] = {}
    for table in tables:
        names |= dict.fromkeys(table.names)
    key = "data.columns" if of_queries else "data.answer_columns"
    columns = Columns.of(names, meanings, stated, str(found.path), key)
    columns.require(main, str(found.path))
    return FoundRows(found, files, left, tables, columns, as_found)


def remarks(about: Mapping[str, Any]) -> Iterator[str]:
    """Say of a task set how it was read, for people."""
    place = about.get("source")
    rows = about.get("by_columns")
    if rows is not None:
        others = f"; metadata: {', '.join(rows['metadata'])}" if rows["metadata"] else ""
        yield f"data {place}: {rows['read']}{others}"
    elif about.get("name") == "mmie":
        yield f"data {place}: in MMIE's format"
    broken: Mapping[str, int] = about.get("malformed", {})
    if broken and rows is not None:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in broken.items())
        yield (
            f"  {sum(broken.values()):,} of {about['rows']:,} rows are refused ({rules}); "
            "`plait check` names them"
        )


def _patterns(pattern: str) -> list[str]:
    """Return what is fetched of a data set of the Hub."""
    suffixes = [*IMAGE_SUFFIXES] if pattern else [*SUFFIXES, *IMAGE_SUFFIXES]
    patterns = [f"**/*{suffix}" for suffix in suffixes]
    return [pattern, *patterns] if pattern else patterns


def load(
    place: str,
    cache: Path,
    reading: DataReading = AS_NAMED,
    on_progress: Progress | None = None,
) -> TaskSet:
    """Return the queries of the rows at `place`: a file, a folder or `hf:ORG/NAME@REV`.

    Raises TaskError as `find_rows` does; a row that breaks a rule is a failure.
    """
    rows = find_rows(place, QUERIES, "question", reading)
    if {*_GIVEN_ANSWERS} <= {*rows.tables[0].names} and not reading.columns.stated:
        raise TaskError(
            f"{rows.files[0]} holds a model's answers in the layout of MMIE's scorer: name "
            f"it official:{place}, or say what its columns mean with data.columns"
        )
    queries = _Queries(rows.columns, rows.reader(cache, reading), rows.in_tables)
    name = rows.found.path.stem if rows.found.path.is_file() else rows.found.path.name
    if rows.found.revision is not None:
        name = place.partition("@")[0].rpartition("/")[2]
    task = task_set(
        name,
        TaskData(place, rows.found, rows.files),
        RowReader(queries.prepare(rows, on_progress), queries.query, queries.group),
        by_columns=rows.about(),
    )
    rows.as_found.refuse_changes()
    return ask_turn_by_turn(task)


class _Talk(NamedTuple):
    """What is asked, and what a chat says."""

    turns: tuple[Turn, ...]
    """Up to the last turn of the user."""
    after: Content = ()
    """What the chat says after it."""
    asked: Sequence[Row] = ()
    """The user's turns as they stand in the chat; none of a question by itself."""

    @property
    def is_session(self) -> bool:
        """Whether any turn says if it looks back."""
        return any(_LOOKS_BACK in row.values for row in self.asked)


@dataclass(frozen=True)
class _Queries:
    """Makes queries of rows."""

    columns: Columns
    reader: ContentReader
    in_table: bool
    """Whether a list can only stand in a text."""

    def prepare(self, rows: FoundRows, on_progress: Progress | None) -> Iterator[FileRow]:
        """Yield all rows, those of a batch when their images have been checked.

        Text, whose rows are small, is gone through for images first.
        """
        if all(table.is_text for table in rows.tables):
            self.reader.prepare(self._images_in(rows.rows), on_progress)
            yield from rows.rows
            return
        iterator = iter(rows.rows)
        while batch := [*islice(iterator, _BATCH)]:
            self.reader.prepare(self._images_in(batch), on_progress)
            yield from batch

    def _images_in(self, rows: Iterable[FileRow]) -> Iterator[Any]:
        """Yield the values of rows that may name images."""
        named = ("images", "question", "answer", "answer_images", "edit_mask")
        meanings = [*filter(self.columns.has, named)]
        for row in rows:
            if isinstance(row.value, dict):
                for meaning in meanings:
                    yield self.columns.value(row.value, meaning)

    def group(self, row: FileRow) -> RowGroup:
        """Return what can be told of a row that may break any rule."""
        own = row.value if isinstance(row.value, dict) else {}
        id = id_text(self.columns.value(own, "id"), numbers=True)
        category = self._label(own, "category")
        field = self._label(own, "field")
        return RowGroup(id if is_id(id) else None, category, field, row.where)

    def _label(self, own: Mapping[str, Any], meaning: str) -> str:
        value = self.columns.value(own, meaning)
        text = str(value).strip() if isinstance(value, str | int | float) else ""
        return text if text and text.isprintable() else UNKNOWN

    def query(self, row: FileRow) -> Query:
        """Return the query of a row; RowError."""
        if isinstance(row.value, RowError):
            raise row.value
        own = Row.of(row.value).values
        self.columns.refuse_gaps(own)
        category = self._label(own, "category")
        field = self._label(own, "field")
        choices = self._choices(own)
        talk = self._turns(own, choices)
        reference, known = self._answer(own, choices, talk.after)
        criteria = self._criteria(own)
        metadata = self._metadata(own) | known | self._mask(own)
        if criteria and not isinstance(criteria, str):
            metadata[QUERY_CRITERIA] = json.dumps(criteria, default=str)
        query = Query(
            id=self._id(own, row.id),
            category=category,
            field="" if field == UNKNOWN else field,
            turns=talk.turns,
            reference=reference,
            criteria=criteria if isinstance(criteria, str) else None,
            wants_images=self._wants_images(own, reference, criteria, choices),
            metadata=metadata,
        )
        return self._session(query, talk) if talk.is_session else query

    def _id(self, own: Mapping[str, Any], number: str) -> str:
        if not self.columns.has("id"):
            return number
        # The row by the name of its column, which an error is to say.
        (name,) = self.columns.by_meaning["id"]
        return Row(own).id(name, numbers=True)

    def _images(self, own: Mapping[str, Any], meaning: str) -> list[Image]:
        return self.reader.images(self.columns.value(own, meaning), meaning)

    def _mask(self, own: Mapping[str, Any]) -> dict[str, str]:
        """Return the mask of the region to edit, as scorers read it; none without one."""
        masks = self._images(own, "edit_mask")
        if not masks:
            return {}
        if len(masks) != 1:
            raise RowError(Rule.WRONG_TYPE, f"edit_mask is one image, not {len(masks)}")
        place = masks[0].place
        data = Path(place).read_bytes() if place else masks[0].read()
        return {MASK: mask_text(data)}

    # ----------------------------------------------------------------------- questions

    def _turns(self, own: Mapping[str, Any], choices: Sequence[str]) -> _Talk:
        """Return what is asked, and what a chat says after its last question."""
        (name,) = self.columns.by_meaning["question"]
        value = self.columns.value(own, "question")
        if value is None:
            raise RowError(Rule.EMPTY, f"{name} is empty")
        asked = parse_content(value, in_table=self.in_table or name.lower() in MESSAGES)
        images = self._images(own, "images")
        rows: list[Row] = []
        if is_chat(asked):
            turns = self.reader.turns(asked, images, name)
            rows = [Row.of(item, f"{name}[{i}]") for i, item in enumerate(asked)]
        else:
            is_text = isinstance(asked, str)
            below = _below(asked if is_text else "", choices)
            if is_text:
                # Part of the text itself, not a segment of its own.
                asked += below
            content = self.reader.content(asked, images, name, images_first=True)
            if below and not is_text:
                content = (*content, Text(below))
            turns = [Turn("user", content)]
        # What a chat says after its last question is its answer, not part of the query.
        end = 0
        said: list[Row] = []
        after: list[Text | Image] = []
        for number, turn in enumerate(turns):
            if turn.role != "user":
                after += turn.content
                continue
            if not any(isinstance(s, Image) or s.text.strip() for s in turn.content):
                raise RowError(Rule.EMPTY, f"{name} has a turn with neither text nor image")
            if rows:
                said.append(rows[number])
            end = number + 1
            after = []
        if not end:
            raise RowError(Rule.NO_QUESTION, f"{name} has no turn of the user")
        return _Talk(tuple(turns[:end]), tuple(after), said)

    def _choices(self, own: Mapping[str, Any]) -> list[str]:
        value = self.columns.value(own, "choices")
        return _choices_of(value, self.columns.told.get("choices", ""))

    # ------------------------------------------------------------------------ sessions

    def _session(self, query: Query, talk: _Talk) -> Query:
        """Return a query whose turns are known one by one.

        Its reference has one answer for each, and where the chat lacks the assistant's
        turn, the answer stands in its place.
        """
        given = query.given_answers
        last = query.reference.segments if query.reference else ()
        turns: list[Turn] = []
        truths: list[Content] = []
        asked: list[AskedTurn] = []
        for number, opening in enumerate(query.openings):
            row = talk.asked[number]
            is_last = number + 1 == len(talk.asked)
            choices = _choices_of(row.values.get("choices"), row.path("choices"))
            truth = self._answer_of_turn(row) or given[number] or (last if is_last else ())
            metadata: dict[str, str] = {}
            if choices and truth:
                letter = _letter_of(_choice_in(row, truth), choices, row.path("answer"))
                truth = (Text(letter),)
                metadata[KNOWN] = _known_letter(letter, choices)
            content = opening[-1].content
            if below := _below(Document(content).text, choices):
                content = (*content, Text(below))
            turns += [*opening[:-1], Turn("user", content)]
            if not is_last:
                turns.append(Turn("assistant", given[number] or truth))
            truths.append(truth)
            asked.append(_asked_turn(row, truth, choices, metadata))
        reference = Document.of(truths) if any(truths) else None
        wants_images = any(turn.wants_images for turn in asked)
        return replace(
            query,
            turns=tuple(turn for turn in turns if turn.content),
            reference=reference,
            wants_images=wants_images,
            metadata={**query.metadata, TURNS: turns_text(asked)},
        )

    def _answer_of_turn(self, row: Row) -> Content:
        value = row.values.get("answer")
        if value is None:
            return ()
        name = row.path("answer")
        found = parse_content(value, in_table=False)
        return self.reader.content(found, [], name, images_first=False)

    # ------------------------------------------------------------------------- answers

    def _answer(
        self, own: Mapping[str, Any], choices: Sequence[str], last: Content
    ) -> tuple[Document | None, dict[str, str]]:
        """Return the ground truth, and what `known-answer` reads of it."""
        value = self.columns.value(own, "answer")
        images = self._images(own, "answer_images")
        if last and value is not None:
            detail = f"{self.columns.told['answer']} and the chat's last turn both answer"
            raise RowError(Rule.WRONG_TYPE, detail)
        if value is None:
            content = (*last, *images)
            return (Document(content) if content else None), {}
        name = self.columns.told["answer"]
        if choices:
            letter = _letter_of(value, choices, name)
            truth = Document((Text(letter), *images))
            return truth, {KNOWN: _known_letter(letter, choices)}
        found = parse_content(value, in_table=self.in_table)
        if is_chat(found):
            raise RowError(Rule.WRONG_TYPE, f"{name} is a chat; give a text or a list")
        content = self.reader.content(found, images, name, images_first=False)
        return Document(content), {}

    def _criteria(self, own: Mapping[str, Any]) -> str | list[Any]:
        """Return the text that is the criteria, or the list of them; RowError."""
        value = self.columns.value(own, "criteria")
        return _criteria_of(value, self.columns.told.get("criteria", ""))

    def _wants_images(
        self,
        own: Mapping[str, Any],
        reference: Document | None,
        criteria: str | list[Any],
        choices: Sequence[str],
    ) -> bool:
        value = self.columns.value(own, "wants_images")
        stated = _flag(value, self.columns.told.get("wants_images", ""))
        if stated is not None:
            return stated
        if _about_image(criteria):
            return True
        # A letter is an answer without images; of others the reference tells, and without
        # one an answer may hold them.
        return not choices and (reference is None or bool(reference.images))

    def _metadata(self, own: Mapping[str, Any]) -> dict[str, str]:
        """Return all other values as text; none that hold bytes, or scorers read."""
        texts: dict[str, str] = {}
        for name in self.columns.others:
            value = own.get(name)
            if value is None or value == "" or name in _OF_SCORERS:
                continue
            if not isinstance(value, str) or trouble(value):
                try:
                    # JSON escapes what no file of results could hold.
                    value = json.dumps(value, default=_refuse_bytes)
                except TypeError:
                    continue
            if len(value) <= _LONGEST_METADATA:
                texts[name] = value
        return texts


_OF_SCORERS = {KNOWN, MASK, QUERY_CRITERIA, TURNS, *ABOUTS.values()}
"""Metadata by which scorers know a query's answer and criteria: made of columns alone."""


def _choices_of(value: Any, name: str) -> list[str]:
    """Return the texts of choices; RowError for more than there are letters."""
    value = parse(value)
    if value is None:
        return []
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        value = value["text"]  # as ARC and OpenBookQA have them, beside labels
    listed = of_type(value, list, name)
    texts = [str(c) if isinstance(c, int | float) else c for c in listed]
    choices = [of_type(c, str, f"{name}[{i}]") for i, c in enumerate(texts)]
    if not 2 <= len(choices) <= len(_LETTERS):
        detail = f"{name} has {len(choices)} choices; give 2 to {len(_LETTERS)}"
        raise RowError(Rule.CHOICE, detail)
    return choices


def _known_letter(letter: str, choices: Sequence[str]) -> str:
    """Return the letter of the right choice as `known-answer` reads it."""
    return json.dumps({"form": LETTER, "truth": letter, "of": len(choices)})


def _choice_in(row: Row, truth: Content) -> Any:
    """Return what names the right choice: the turn's answer, else what was said."""
    own = row.values.get("answer")
    return Document(truth).text.strip() if own is None else own


def _asked_turn(
    row: Row, truth: Content, choices: Sequence[str], metadata: Mapping[str, str]
) -> AskedTurn:
    """Return what a chat says of a turn of the user; RowError."""
    known = dict(metadata)
    criteria = _criteria_of(row.values.get("criteria"), row.path("criteria"))
    listed = [criteria] if isinstance(criteria, str) else criteria
    if listed:
        known[QUERY_CRITERIA] = json.dumps(listed, default=str)
    looks_back = bool(_flag(row.values.get(_LOOKS_BACK), row.path(_LOOKS_BACK)))
    wants_images = _flag(row.values.get("wants_images"), row.path("wants_images"))
    if wants_images is None:
        shown = any(isinstance(segment, Image) for segment in truth)
        in_words = bool(truth or choices or looks_back)
        wants_images = shown or _about_image(listed) or not in_words
    return AskedTurn(looks_back=looks_back, wants_images=wants_images, metadata=known)


def _criteria_of(value: Any, name: str) -> str | list[Any]:
    """Return the text that is the criteria, or the list of them; RowError."""
    value = parse(value)
    if value is None:
        return []
    if isinstance(value, str):
        return of_type(value, str, name)
    items = value if isinstance(value, list) else [value]
    return [_criterion(item, f"{name}[{i}]") for i, item in enumerate(items)]


def _about_image(criteria: str | list[Any]) -> bool:
    return any(isinstance(c, dict) and c.get("about") == "image" for c in criteria)


def _flag(value: Any, name: str) -> bool | None:
    """Return what is stated; None where nothing is. RowError for no truth value."""
    if value is None:
        return None
    stated = as_bool(value)
    if stated is None:
        raise RowError(Rule.WRONG_TYPE, f"{name} must be true or false, not {brief(value)}")
    return stated


def _refuse_bytes(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError("bytes")
    return str(value)


def _criterion(item: Any, where: str) -> str | dict[str, Any]:
    """Return a text, or an object with what else is said of the criterion; RowError."""
    if isinstance(item, str):
        return Row({where: item}).nonblank_text(where)
    row = Row.of(item, where)
    keys = [key for key in _CRITERION_KEYS if row.values.get(key)]
    if not keys:
        valid = ", ".join(_CRITERION_KEYS)
        raise RowError(Rule.MISSING_KEY, f"{where} has none of {valid}")
    about: Any = row.values.get("about")
    if about not in (None, *ABOUTS):
        valid = ", ".join(ABOUTS)
        detail = f"{row.path('about')} is {brief(about)}; valid are {valid}"
        raise RowError(Rule.WRONG_TYPE, detail)
    criterion: dict[str, Any] = {"criterion": row.nonblank_text(keys[0])}
    for name, value in row.values.items():
        # An empty key of the text must not take the place of the one that has it.
        if name not in (keys[0], "criterion") and value is not None:
            criterion[name] = value
    return criterion


def _below(question: str, choices: Sequence[str]) -> str:
    """Return the choices as they stand below a question that does not hold them yet."""
    lines = []
    holds_all = True
    for letter, choice in zip(_LETTERS, choices, strict=False):
        lines.append(f"{letter}. {choice}")
        holds_all = holds_all and _holds(question, letter, choice)
    return "" if holds_all else "\n".join(["\n", *lines, _ASK])


def _holds(question: str, letter: str, choice: str) -> bool:
    """Return whether a question already shows a choice under its letter."""
    signs = (f"{letter}.", f"{letter})", f"{letter}:", f"({letter})")
    return choice in question and any(sign in question for sign in signs)


def _letter_of(value: Any, choices: Sequence[str], name: str) -> str:
    """Return the letter of the right choice, which a letter, text or index names."""
    letters = _LETTERS[: len(choices)]
    # Choices may be numbers or letters themselves, so a value may name two of them.
    found = set()
    for letter, choice in zip(letters, choices, strict=True):
        if choice == str(value):
            found.add(letter)
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value < len(choices):
            found.add(letters[value])
    elif isinstance(value, str):
        plain = value.strip().strip("().:").strip().upper()
        if len(plain) == 1 and plain in letters:
            found.add(plain)
    if len(found) == 1:
        return min(found)
    if found:
        raise RowError(
            Rule.CHOICE,
            f"{name} {brief(value)} may be the choice {' or '.join(sorted(found))}; "
            "give its letter",
        )
    raise RowError(
        Rule.CHOICE,
        f"{name} {brief(value)} is neither a letter to {letters[-1]}, nor the text of a "
        f"choice, nor its index from 0 to {len(choices) - 1} as a number",
    )

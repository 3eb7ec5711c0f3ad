"""The parts of docs/ that are made of the program; run it to write them anew.

python tests/helpers/pages.py
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import pyarrow as pa
from paths import CHECKOUT
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from plait.benchmarks.results.files.schema import TABLES
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.config import (
    CompositionConfig,
    EngineConfig,
    FidelityConfig,
    ReferenceSettings,
    ReportConfig,
    RunConfig,
)
from plait.cluster.launch.settings import ClusterSettings
from plait.generators.settings import StageSettings
from plait.listing import LISTS, tables_of
from plait.pipelines.critic import CriticSettings
from plait.pipelines.servers.settings import ServerTable

DOCS = CHECKOUT / "docs"
_PART = re.compile(
    r"(?<=<!-- made by tests/helpers/pages.py: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL
)
_SECTIONS: Mapping[str, type[BaseModel]] = {
    "": RunConfig,
    "[engine]": EngineConfig,
    "[composition]": CompositionConfig,
    "[composition.critic]": CriticSettings,
    "[fidelity]": FidelityConfig,
    "[fidelity.reference]": ReferenceSettings,
    "[report]": ReportConfig,
    "[models.NAME]": StageSettings,
    "[servers.NAME]": ServerTable,
}
_ABOUT = {"[models.NAME]": "What all stages have; others depend on the model."}
_KINDS = {bool: "true or false", int: "whole number", float: "number"}


def page_of(text: str) -> str:
    """The page with all its made parts as they are today."""
    return _PART.sub(lambda part: f"{part[1]}{part[2]}\n{_MAKERS[part[1]]()}\n\n", text)


def pages() -> list[Path]:
    """All pages that have made parts."""
    return [page for page in sorted(DOCS.glob("*.md")) if _PART.search(page.read_text())]


def _names() -> str:
    tables = chain.from_iterable(map(tables_of, LISTS))
    return "\n\n".join(map(_names_table, tables))


def _names_table(table: ResultTable) -> str:
    heading, _, rest = table.title.partition(":")
    rows = [
        [f"`{row[0].text}`", *(cell.text.replace("|", r"\|") for cell in row[1:])]
        for row in table.rows
    ]
    head = [column.heading for column in table.columns]
    notes = [note.replace("<", r"\<") for note in table.notes]
    said = [rest.strip().capitalize() + "."] if rest else []
    return "\n\n".join([f"## {heading}", *said, _markdown(head, rows), *notes])


def _config() -> str:
    parts = []
    for section, model in _SECTIONS.items():
        parts += [f"## `{section}`"] if section else []
        parts += [_ABOUT[section]] if section in _ABOUT else []
        parts.append(_fields(model))
    return "\n\n".join(parts)


def _fields(model: type[BaseModel]) -> str:
    """A table of the settings of a section, without its tables that are sections too."""
    docs = dict(_docstrings(model))
    rows = []
    for name, info in model.model_fields.items():
        if not isinstance(info.default, BaseModel):
            about = docs.get(name, "").replace("|", r"\|")
            rows.append([f"`{name}`", _kind(info.annotation), _default(info), about])
    return _markdown(["key", "value", "default", ""], rows)


def _docstrings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """The docstring below each field, of base classes too."""
    for owner in reversed(model.__mro__):
        if not issubclass(owner, BaseModel) or owner is BaseModel:
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    yield name, " ".join(text.split())


def _kind(annotation: Any) -> str:
    origin = get_origin(annotation)
    choices = [choice for choice in get_args(annotation) if choice is not NoneType]
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in choices)
    if origin is tuple:
        return "list"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    if choices:
        return " or ".join(dict.fromkeys(map(_kind, choices)))
    return _KINDS.get(annotation, "text")


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value in (None, (), {}, ""):
        return ""
    written = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{written}`"


def _results() -> str:
    return "\n\n".join(map(_results_table, TABLES))


def _results_table(name: str) -> str:
    rows = [
        [f"`{column.name}`", _type(column.type), column.metadata[b"about"].decode()]
        for column in TABLES[name]
    ]
    return f"### `{name}`\n\n{_markdown(['column', 'type', ''], rows)}"


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {_type(kind.value_type)}"
    if pa.types.is_struct(kind):
        return f"({', '.join(field.name for field in kind)})"
    return str(kind)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_MAKERS: Mapping[str, Callable[[], str]] = {
    "names": _names,
    "config": _config,
    "cluster": lambda: _fields(ClusterSettings),
    "results": _results,
}


if __name__ == "__main__":
    for made in pages():
        made.write_text(page_of(made.read_text()))

"""Checks names and settings; errors list the valid ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from plait.generators.errors import UnknownName, UsageError

if TYPE_CHECKING:  # a worker has names to check, and mostly no settings
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")
_MOST_SHOWN = 30


def unknown(what: str, name: str, valid: Iterable[str]) -> UnknownName:
    """Return `unknown system 'anloe'; did you mean 'anole'? Valid: ...`."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    shown = ", ".join(names[:_MOST_SHOWN]) or "none"
    if len(names) > _MOST_SHOWN:
        shown += f", ... ({len(names):,} in all)"
    return UnknownName(f"unknown {what} {name!r}{hint} Valid: {shown}", tuple(names))


def validate(model: type[M], values: Mapping[str, Any], where: str) -> M:
    """Return `values` as `model`; UsageError names each wrong key or value and the rule."""
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        lines = [explanation(model, e, where) for e in error.errors()]
        raise UsageError("\n".join(lines)) from None


def with_overrides(settings: M, overrides: Mapping[str, Any], where: str) -> M:
    """Return `settings` with `overrides`, which are validated like any input."""
    if not overrides:
        return settings
    return validate(type(settings), settings.model_dump() | dict(overrides), where)


def explanation(model: type[BaseModel], error: Any, where: str) -> str:
    """Return one of a ValidationError's `errors()` in words: key, place, rule and value."""
    path = [str(part) for part in error["loc"]]
    place = ".".join([where, *path[:-1]] if where else path[:-1])
    inside = f" in {place}" if place else ""
    if error["type"] == "extra_forbidden":
        return str(unknown(f"key{inside}", path[-1], _fields_at(model, path[:-1])))
    message = error["msg"].removeprefix("Value error, ")
    if not path:  # a rule of several fields, whose message names them
        return f"{where}: {message}" if where else str(message)
    if error["type"] == "value_error":  # of ours, which may refuse a secret
        return f"{path[-1]}{inside}: {message}"
    return f"{path[-1]}{inside}: {message}; got {error.get('input')!r}"


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the fields of the model that a path of keys leads to, from `model` on."""
    parts = iter(path)
    for part in parts:
        field = model.model_fields.get(part)
        if (found := _model_in(field.annotation if field else None)) is not None:
            model = found.model
            if found.held:
                next(parts, None)  # the name or number of a table, of several
    return list(model.model_fields)


class _Found(NamedTuple):
    model: type[BaseModel]
    held: bool
    """Whether there are several, in a mapping or a list."""


def _model_in(annotation: Any) -> _Found | None:
    """Return the first model in an annotation, such as `Mapping[str, Model] | None`."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _Found(annotation, held=False)
    holds = get_origin(annotation) not in (Union, UnionType)
    for inner in get_args(annotation):
        if (found := _model_in(inner)) is not None:
            return found._replace(held=found.held or holds)
    return None

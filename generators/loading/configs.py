"""Values of a checkpoint's configuration files, checked where they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from generators.checkpoints import CheckpointError


def count(values: Mapping[str, Any], name: str, source: str) -> int:
    """The value `name` of a configuration file.

    Raises CheckpointError, in which `source` names the file, when it is missing or is not
    a whole number above 0.
    """
    value = _value(values, name, source)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(
            f"{source}: {name} is {value!r}; it must be a whole number above 0"
        )
    return value


def divided(whole: int, parts: int, what: str, source: str) -> int:
    """`whole` / `parts`; CheckpointError says `what` does not divide evenly."""
    if whole % parts:
        raise CheckpointError(f"{source}: {what}, but {whole} is not divisible by {parts}")
    return whole // parts


def section(values: Mapping[str, Any], name: str, source: str) -> Mapping[str, Any]:
    """The named values below `name`; CheckpointError when there are none."""
    value = _value(values, name, source)
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{source}: {name} is {value!r}; it must hold named values")
    return value


def _value(values: Mapping[str, Any], name: str, source: str) -> Any:
    if name not in values:
        raise CheckpointError(f"{source} lacks {name}")
    return values[name]


def configured(kind: Any, fields: Mapping[str, Any], source: str) -> Any:
    """The configuration of transformers' class `kind` with `fields`.

    Raises CheckpointError, in which `source` names the file, with the field that is not
    valid and the rule it breaks.
    """
    try:
        return kind.from_dict(dict(fields))
    except Exception as error:
        # Besides its own errors transformers lets those of plain arithmetic through.
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{source} is not a valid {kind.__name__}: {reason}"
        ) from None

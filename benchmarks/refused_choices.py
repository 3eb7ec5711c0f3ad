"""A choice that a command refuses is told as other unknown names are, with the nearest."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_REFUSED = re.compile(r"Value error, '(?P<given>.*)' is not one of (?P<valid>'.*')\.")
"""What typer says of a value that is none of a Literal."""


class ChoosingGroup(TyperGroup):
    """Commands of typer whose choices are refused with a suggestion."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named; a typer.BadParameter says the nearest choice."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = tell_nearest(error.message)
            raise


class ChoosingCommand(TyperCommand):
    """A command of no group whose choices are refused so."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the command's words; a typer.BadParameter says the nearest choice."""
        try:
            return super().make_context(*args, **options)
        except typer.BadParameter as error:
            error.message = tell_nearest(error.message)
            raise


def tell_nearest(message: str) -> str:
    """Return what typer says of a refused choice with the nearest one; others unchanged."""
    refused = _REFUSED.fullmatch(message)
    if refused is None:
        return message
    given = refused["given"]
    choices = re.findall(r"'([^']*)'", refused["valid"])
    near = get_close_matches(given, choices, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"{given!r} is not valid{hint} Valid: {', '.join(choices)}"

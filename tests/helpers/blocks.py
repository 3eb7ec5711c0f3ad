"""The code blocks of README.md and docs/, and the commands in them."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import typer
from paths import CHECKOUT

import plait.cli

README = CHECKOUT / "README.md"
PAGES = (README, *sorted((CHECKOUT / "docs").glob("*.md")))
_FENCE = re.compile(
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]*)")?\n(?P<text>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"\s+#\s.*$")


@dataclass(frozen=True)
class Block:
    """A code block."""

    page: Path
    line: int
    language: str
    title: str
    """The file that it is; empty for a part of one, and for commands."""
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A line of a console block, or code between backticks."""

    where: str
    text: str
    printed: str = ""
    """What stands below it in the block."""

    @property
    def words(self) -> list[str]:
        """What the shell makes of it, up to a pipe."""
        words = shlex.split(self.text)
        return words[: words.index("|")] if "|" in words else words

    def __str__(self) -> str:
        return f"{self.where} {self.text}"


def blocks(*languages: str, pages: Sequence[Path] = PAGES) -> list[Block]:
    """All code blocks of these languages, in order."""
    found = chain.from_iterable(map(_blocks, pages))
    return [block for block in found if block.language in languages]


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _FENCE.finditer(text):
        line = text[: found.start()].count("\n") + 1
        title = found["title"] or ""
        yield Block(page, line, found["language"], title, found["text"])


def commands(pages: Sequence[Path] = PAGES) -> list[Command]:
    """All commands of the console blocks, in order."""
    return [each for block in blocks("console", pages=pages) for each in _commands(block)]


def _commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, printed = part.replace("\\\n", " ").partition("\n")
        yield Command(str(block), _COMMENT.sub("", line), printed)


def inline_commands(pages: Sequence[Path] = PAGES) -> list[Command]:
    """All code between backticks that begins with `plait` and a word."""
    return [
        Command(page.name, " ".join(text.split()))
        for page in pages
        for text in re.findall(r"`(plait [a-z][^`]*)`", _FENCE.sub("", page.read_text()))
    ]


def parse(words: Sequence[str]) -> None:
    """Parse the arguments of `plait` as it does, without running anything."""
    command: Any = typer.main.get_command(plait.cli.app)
    while choices := getattr(command, "commands", None):
        name, *words = words
        assert name in choices, f"{name!r} is not one of {', '.join(choices)}"
        command = choices[name]
        if not words:  # the command is named, not given
            return
    command.make_context(command.name, list(words))


def targets() -> set[str]:
    """The targets of the Makefile."""
    makefile = (CHECKOUT / "Makefile").read_text()
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def extras() -> set[str]:
    """The extras that plait can be installed with."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"])

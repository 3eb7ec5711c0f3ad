"""What `plait bench decoding` measures, as its options name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DecodingServer:
    """A server to compare with: a program to start, or one that runs; neither for none."""

    executable: Path | None = None
    arguments: Sequence[str] = ()
    """Given to the program that is started."""
    base_url: str | None = None
    served_name: str = "model"


@dataclass(frozen=True)
class DecodingBench:
    """One measurement."""

    requests: int
    tokens: int
    rounds: int
    server: DecodingServer
    command: Sequence[str] = ()

"""Files of one component of a checkpoint, in a folder of its own and in a variant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from generators.loading.files import Files


@dataclass(frozen=True)
class Within(Files):
    """The files of a component's folder, those of a variant first.

    transformers and diffusers put the variant before the last part of a name:
    `model.safetensors.index.json` becomes `model.safetensors.index.bf16.json`.
    """

    folder: str = ""
    variant: str | None = None

    def find(self, name: str) -> Path | None:
        """The file of that name in the folder; None where there is none."""
        before, _, last = name.rpartition(".")
        names = [f"{before}.{self.variant}.{last}"] if self.variant else []
        paths = (Files.find(self, f"{self.folder}/{n}") for n in (*names, name))
        return next((path for path in paths if path is not None), None)

    def describe(self) -> str:
        """The folder and its checkpoint, for errors."""
        return f"{self.folder}/ of {Files.describe(self)}"

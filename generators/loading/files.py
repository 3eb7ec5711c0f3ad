"""A checkpoint's files by name, local or from the Hub, and the values in them, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generators.checkpoints import looks_like_path
from generators.errors import CheckpointError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Files:
    """What a model's folder or Hub repository holds."""

    model: str
    revision: str | None = None

    def find(self, name: str) -> Path | None:
        """The file of that name; None where the checkpoint has none."""
        if looks_like_path(self.model):
            path = Path(self.model).expanduser() / name
            return path if path.is_file() else None
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

        try:
            return Path(hf_hub_download(self.model, name, revision=self.revision))
        except EntryNotFoundError:
            # Also raised when the Hub does not answer and the file is not cached.
            return None
        except HfHubHTTPError as error:
            first_line = str(error).strip().partition("\n")[0]
            raise CheckpointError(f"{name} of {self.describe()}: {first_line}") from error

    def need(self, name: str) -> Path:
        """The file of that name; CheckpointError where the checkpoint has none."""
        path = self.find(name)
        if path is None:
            raise CheckpointError(f"{self.describe()} has no file {name!r}")
        return path

    def describe(self) -> str:
        """The checkpoint, for errors."""
        if looks_like_path(self.model):
            return f"the folder {self.model!r}"
        return f"the Hub repository {self.model!r} (or its cached part, when offline)"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; CheckpointError when it holds anything else."""
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path} holds a {type(content).__name__}; it must hold named values"
        )
    return content


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`; CheckpointError when the file is broken."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises plain `Exception` for whatever it cannot read.
        raise CheckpointError(f"{path} is not a valid tokenizer: {error}") from None


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

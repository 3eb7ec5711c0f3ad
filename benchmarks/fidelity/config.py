"""What `plait bench fidelity` is asked: a TOML file, and options that override it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from benchmarks.fidelity.ways import ResolvedWay, Way, resolve_ways
from benchmarks.runs.config import Names, merged
from benchmarks.tasks.published import as_asked
from benchmarks.tasks.task_set import limited, load
from generators.base import Weights
from generators.document import Malformed, Sample, Text, Turn
from generators.errors import UsageError
from generators.names import validated
from generators.system import Prompter


class FidelityConfig(BaseModel):
    """Everything that can be configured in a measurement of fidelity."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: str
    """The model or system whose ways are compared."""
    ways: tuple[Mapping[str, Any], ...] = ()
    """`[[ways]]`: `name`, `system`, `weights`, and settings; the first is the reference."""
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """`[settings]`: those of every way that runs `system` itself."""
    models: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """`[models.NAME]`: settings of one model, of scorers too."""
    weights: Weights = "pretrained"
    data: str = "sample"
    prompts: Path | None = None
    """File with one prompt a line, in place of `data`."""
    limit: int | None = Field(default=None, ge=1, strict=True)
    seed: int = Field(default=0, ge=0, strict=True)
    repeats: int = Field(default=2, ge=1, strict=True)
    """How often each way is run, to see whether it repeats itself."""
    scorers: Names = ()
    clip: str = "ViT-B-32:openai"
    """CLIP model of the distance between pictures; `off` for none."""
    lpips: Literal["alex", "vgg", "squeeze"] | None = None
    """Network of LPIPS; by default it is not measured."""
    gates: Names = ()
    worst: int = Field(default=6, ge=0, strict=True)
    """Pairs of each way on the page."""

    def resolve(self) -> list[ResolvedWay]:
        """All ways, the reference first; UsageError where one is not valid."""
        ways = [Way.of(table) for table in self.ways]
        asked = (self.system, self.weights, self.settings, self.models)
        return resolve_ways(ways, *asked)


def load_config(file: Path | None, given: Mapping[str, Any]) -> FidelityConfig:
    """The file, then the options that were given; UsageError for anything not valid."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text())
        except OSError as error:
            raise UsageError(f"config {file}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"config {file} is not valid TOML: {error}") from None
    values = merged(values, {k: v for k, v in given.items() if v not in (None, (), {})})
    if "system" not in values:
        raise UsageError("name the model or system whose ways are to be compared")
    return validated(FidelityConfig, values, "")


def queries_of(config: FidelityConfig) -> tuple[list[Sample], Prompter, list[str]]:
    """The queries, how they are worded, and remarks on those that are left out."""
    if config.prompts is not None:
        samples: Sequence[Sample | Malformed] = _prompts(config.prompts)
        prompt: Prompter = as_asked
    else:
        task = load(config.data)
        samples, prompt = task.samples, task.prompt
    if config.limit is not None:
        samples = limited(samples, config.limit, config.seed)
    valid = [s for s in samples if isinstance(s, Sample)]
    if not valid:
        raise UsageError(f"{config.prompts or config.data} holds no query")
    broken = len(samples) - len(valid)
    remarks = [f"{broken:,} malformed queries are left out"] if broken else []
    return valid, prompt, remarks


def _prompts(file: Path) -> list[Sample]:
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"prompts {file}: {error}") from None
    return [
        Sample(
            id=f"line {number}",
            category="prompt",
            field="prompt",
            turns=(Turn("user", (Text(line),)),),
        )
        for number, line in enumerate(lines, 1)
        if line
    ]

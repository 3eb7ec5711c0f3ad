"""The settings by which a model is run by an engine instead of by plait's own stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from generators.settings import ModelSettings, unkeyed
from pipelines.servers.secrets import refuse_secret_arguments, refuse_secret_names


class EngineModelSettings(ModelSettings):
    """A model that an engine may run: which engine, and how it is started.

    None of these fields is keyed: a model without an engine keeps its keys, and one with an
    engine is another stage, whose identity names the engine, its version and arguments.
    """

    engine: str | None = unkeyed(None)
    """Program that runs the model behind a server which plait starts and ends."""
    engine_executable: str | None = unkeyed(None)
    """Path of that program, as it may be in an environment of its own; by default the
    engine's name, looked up on PATH."""
    engine_arguments: tuple[str, ...] = unkeyed(())
    """Added to its command; they count as part of the model in result keys."""
    engine_env: Mapping[str, str] = Field(
        default_factory=dict, json_schema_extra={"keyed": False}
    )
    """Environment variables for it; they do not enter keys."""
    engine_version: str | None = unkeyed(None)
    """Its version, where it is not installed on the machine that plans; the servers
    must report it. By default that of the program found here."""
    engine_concurrency: int = unkeyed(64, ge=1)
    """Requests in flight at each server."""
    engine_start_timeout_s: float = unkeyed(1800.0, gt=0)
    """How long a server may load before it counts as failed."""

    engine_fields: ClassVar[frozenset[str]] = frozenset(
        {
            "engine",
            "engine_executable",
            "engine_arguments",
            "engine_env",
            "engine_version",
            "engine_concurrency",
            "engine_start_timeout_s",
        }
    )

    @field_validator("engine_arguments")
    @classmethod
    def _no_secret_arguments(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        return refuse_secret_arguments(arguments)

    @field_validator("engine_env")
    @classmethod
    def _no_secret_names(cls, env: Mapping[str, str]) -> Mapping[str, str]:
        return refuse_secret_names(env)

    @model_validator(mode="after")
    def _has_an_engine(self) -> Self:
        if self.engine is not None:
            return self
        fields = type(self).model_fields
        for name in sorted(self.engine_fields):
            if getattr(self, name) != fields[name].get_default(call_default_factory=True):
                raise ValueError(f"{name} is for an engine; name one in engine")
        return self

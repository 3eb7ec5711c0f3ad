"""Settings of servers that plait starts: a model's `engine`, and `[servers.NAME]`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from plait.generators.settings import ModelSettings, unkeyed

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SECRET_ARGUMENT = re.compile(
    r"--?[\w-]*(?:api[-_]key|token|secret|password)(?:=.*)?", re.IGNORECASE
)


def _refuse_secret_names(env: Mapping[str, str]) -> Mapping[str, str]:
    for name in env:
        if _SECRET_NAME.search(name):
            raise ValueError(
                f"{name} looks like a secret, and a config is stored with its run; set it "
                "in the environment, which servers inherit, and name it in pass_env where "
                "the cluster's nodes do not have it"
            )
    return env


def _refuse_secret_arguments(arguments: tuple[str, ...]) -> tuple[str, ...]:
    for argument in arguments:
        if _SECRET_ARGUMENT.fullmatch(argument):
            option = argument.partition("=")[0]
            raise ValueError(
                f"{option} would put a secret into a command, which is stored and shown; "
                "give it to the server as an environment variable"
            )
    return arguments


def _split(command: Any) -> Any:
    return tuple(shlex.split(command)) if isinstance(command, str) else command


Arguments = Annotated[tuple[str, ...], AfterValidator(_refuse_secret_arguments)]
"""Words of a command, none of which may hold a key: process lists show them."""
Environment = Annotated[Mapping[str, str], AfterValidator(_refuse_secret_names)]
"""Environment variables, none of which may hold a secret: configs are stored."""


class ServerTable(BaseModel):
    """One server: how it is started, on what, and what names its results."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[Arguments, BeforeValidator(_split), Field(min_length=1)]
    """A line or a list; `{port}` stands for the port and `{model}` for the model's name."""
    num_gpus: float = Field(default=0.0, ge=0)
    """GPUs of one replica; their numbers are in its CUDA_VISIBLE_DEVICES."""
    num_cpus: float = Field(default=1.0, ge=0)
    """CPU cores of one replica."""
    memory_gib: float = Field(default=0.0, ge=0)
    """Host memory that one replica reserves."""
    port: int = Field(default=0, ge=0, le=65535)
    """0 for a free one."""
    health: str = Field(default="/health", pattern="^(/.*)?$")
    """Path that answers with status 200 once it is ready; empty to wait for the port."""
    path: str = Field(default="/v1", pattern="^(/.*)?$")
    """Path of its API."""
    env: Environment = Field(default_factory=dict)
    """Environment variables that it is started with; none may hold a secret."""
    pass_env: tuple[str, ...] = ()
    """Environment variables of the driver that it gets, such as HF_TOKEN; their values
    are stored nowhere."""
    replicas: int | None = Field(default=1, ge=1)
    """Most servers at a time."""
    start_timeout_s: float = Field(default=1800.0, gt=0)
    """How long it may take until it is ready."""
    stop_timeout_s: float = Field(default=10.0, ge=0)
    """Between SIGTERM and SIGKILL."""
    version: str | None = None
    """What names the results besides the server's name, as `vllm 0.32.0`: by default what
    the environment of its program says; `any` to leave it out of keys."""

    @model_validator(mode="after")
    def _has_a_port(self) -> Self:
        if not self.port and not any("{port}" in word for word in self.command):
            raise ValueError(
                "command does not say {port}, so plait cannot choose one; write it where "
                "the port goes, as in --port {port}, or set port"
            )
        if self.port and self.replicas != 1:
            raise ValueError("replicas cannot share one port; write {port} in the command")
        return self


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
    engine_arguments: Arguments = unkeyed(())
    """Added to its command; they count as part of the model in result keys."""
    engine_env: Environment = Field(
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

    @model_validator(mode="after")
    def _has_an_engine(self) -> Self:
        fields = type(self).model_fields
        for name in sorted(ENGINE_FIELDS) if self.engine is None else ():
            if getattr(self, name) != fields[name].get_default(call_default_factory=True):
                raise ValueError(f"{name} is for an engine; name one in engine")
        return self


ENGINE_FIELDS = frozenset(EngineModelSettings.model_fields) - set(
    ModelSettings.model_fields
)
"""Not for the constructor of plait's own stage."""

"""`[servers.NAME]`: a command of the user's that serves models, started by plait."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from generators.base import Placement, ServerCommand, StageSpec
from generators.errors import UsageError
from generators.names import unknown
from pipelines.chat.settings import ServerSettings
from pipelines.servers.secrets import refuse_secret_arguments, refuse_secret_names
from pipelines.servers.software import Software, software_of

ANY = "any"
"""The `version` of a server whose version is neither recorded nor checked."""
SERVER_KEY = "PLAIT_SERVER_KEY"
"""Where requests to such a server find a key, unless the model names another variable."""
_DEFAULT_KEY: str = ServerSettings.model_fields["api_key_env"].default
_LOADING_MARGIN_S = 600.0
"""For the stage itself to load, once its server is ready."""


def _split(command: Any) -> Any:
    return tuple(shlex.split(command)) if isinstance(command, str) else command


class ServerTable(BaseModel):
    """One server: how it is started, on what, and what names its results."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[tuple[str, ...], BeforeValidator(_split), Field(min_length=1)]
    """A line or a list; `{port}` stands for the port and `{model}` for the model's name."""
    num_gpus: float = Field(default=0.0, ge=0)
    """GPUs of one replica; their numbers are in its CUDA_VISIBLE_DEVICES."""
    num_cpus: float = Field(default=1.0, ge=0)
    memory_gib: float = Field(default=0.0, ge=0)
    port: int = Field(default=0, ge=0, le=65535)
    """0 for a free one."""
    health: str = Field(default="/health", pattern="^(/.*)?$")
    """Path that answers with status 200 once it is ready; empty to wait for the port."""
    path: str = Field(default="/v1", pattern="^(/.*)?$")
    """Path of its API."""
    env: Mapping[str, str] = Field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    """Environment variables of the driver that it gets, such as HF_TOKEN; their values
    are stored nowhere."""
    replicas: int | None = Field(default=1, ge=1)
    start_timeout_s: float = Field(default=1800.0, gt=0)
    stop_timeout_s: float = Field(default=10.0, ge=0)
    """Between SIGTERM and SIGKILL."""
    version: str | None = None
    """What names the results besides the server's name, as `vllm 0.32.0`: by default what
    the environment of its program says; `any` to leave it out of keys."""

    @field_validator("command")
    @classmethod
    def _no_secret_arguments(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        return refuse_secret_arguments(command)

    @field_validator("env")
    @classmethod
    def _no_secret_names(cls, env: Mapping[str, str]) -> Mapping[str, str]:
        return refuse_secret_names(env)

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

    def software(self) -> Software | None:
        """Program and version that name the results; None where they are not to."""
        if self.version is None:
            return software_of(self.command)
        if self.version == ANY:
            return None
        name, space, version = self.version.rpartition(" ")
        return Software(name, version) if space else Software("", self.version)


def with_server(
    spec: StageSpec, settings: ServerSettings, servers: Mapping[str, ServerTable]
) -> StageSpec:
    """`spec` with the server of the config that its settings name, if they name one.

    Without a table, `server` only stands for the URL in keys. UsageError for a name that
    no table has, where the model has no URL.
    """
    table = servers.get(settings.server or "")
    if table is None:
        if servers and settings.server and settings.base_url is None:
            raise unknown(f"server of {spec.name}:", settings.server, servers)
        return spec
    if settings.base_url is not None:
        raise UsageError(
            f"{spec.name}: base_url and server = {settings.server!r} are both set, and "
            f"[servers.{settings.server}] is started by plait at a URL of its own; leave "
            "base_url out"
        )
    software = table.software()
    # Never the key of a provider, which is the default, nor the provider's address.
    own = settings.api_key_env if settings.api_key_env != _DEFAULT_KEY else SERVER_KEY
    here = {"base_url": f"http://127.0.0.1{table.path}", "api_key_env": own}
    return replace(
        spec,
        identity=f"{spec.identity} {software}" if software else spec.identity,
        options={**spec.options, **here},
        secrets=tuple(dict.fromkeys((own, *table.pass_env))),
        placement=_placed(spec.placement, settings, table, software),
    )


def _placed(
    placement: Placement,
    settings: ServerSettings,
    table: ServerTable,
    software: Software | None,
) -> Placement:
    name = str(settings.server)
    about = software or Software("", "")
    command = ServerCommand(
        name=name,
        argv=tuple(w.replace("{model}", settings.model) for w in table.command),
        env=tuple(sorted(table.env.items())),
        port=table.port,
        health=table.health,
        path=table.path,
        start_timeout_s=table.start_timeout_s,
        stop_timeout_s=table.stop_timeout_s,
        software=about.name,
        version=about.version,
    )
    return replace(
        placement,
        workers=table.replicas,
        num_gpus=table.num_gpus,
        num_cpus=table.num_cpus,
        memory_gib=table.memory_gib,
        load_timeout_s=max(
            placement.load_timeout_s, table.start_timeout_s + _LOADING_MARGIN_S
        ),
        endpoint=f"server:{name}",
        server=command,
    )

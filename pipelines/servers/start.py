"""Turn a stage that asks a server into one whose workers start that server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from generators.base import ServerCommand, StageSpec
from generators.errors import UsageError
from generators.names import unknown
from pipelines.chat.settings import ServerSettings
from pipelines.servers.settings import ServerTable
from pipelines.servers.software import Software, software_of

ANY = "any"
"""The `version` of a server whose version is neither recorded nor checked."""
SERVER_KEY = "PLAIT_SERVER_KEY"
"""Where requests to such a server find a key, unless the model names another variable."""
_DEFAULT_KEY: str = ServerSettings.model_fields["api_key_env"].default
_LOADING_MARGIN_S = 600.0
"""For the stage itself to load, once its server is ready."""


def with_server(
    spec: StageSpec, settings: ServerSettings, servers: Mapping[str, ServerTable]
) -> StageSpec:
    """`spec` with the server of the config that its settings name, if they name one.

    Without a table, `server` only stands for the URL in keys. UsageError for a name that
    no table has, where the model has no URL.
    """
    name = settings.server or ""
    table = servers.get(name)
    if table is None:
        if servers and name and settings.base_url is None:
            raise unknown(f"server of {spec.name}:", name, servers)
        return spec
    if settings.base_url is not None:
        raise UsageError(
            f"{spec.name}: base_url and server = {name!r} are both set, and "
            f"[servers.{name}] is started by plait at a URL of its own; leave "
            "base_url out"
        )
    software = _software(table)
    identity = f"{spec.identity} {software}" if software else spec.identity
    # Never the key of a provider, which is the default.
    own = settings.api_key_env if settings.api_key_env != _DEFAULT_KEY else SERVER_KEY
    named = replace(spec, identity=identity)
    return started(named, table, name, settings.model, software or Software("", ""), own)


def _software(table: ServerTable) -> Software | None:
    """Program and version that name the results; None where they are not to."""
    if table.version is None:
        return software_of(table.command)
    if table.version == ANY:
        return None
    name, space, version = table.version.rpartition(" ")
    return Software(name, version) if space else Software("", table.version)


def started(
    spec: StageSpec,
    table: ServerTable,
    name: str,
    model: str,
    software: Software,
    key_variable: str,
) -> StageSpec:
    """`spec` with the server of `table`, which each of its workers starts.

    `model` is what requests call the model; `key_variable` is where they find a key.
    """
    command = ServerCommand(
        name=name,
        argv=tuple(word.replace("{model}", model) for word in table.command),
        env=tuple(sorted(table.env.items())),
        port=table.port,
        health=table.health,
        path=table.path,
        start_timeout_s=table.start_timeout_s,
        stop_timeout_s=table.stop_timeout_s,
        software=software.name,
        version=software.version,
    )
    load_timeout_s = table.start_timeout_s + _LOADING_MARGIN_S
    # The address stands for the server's until it has a port.
    here = {"base_url": f"http://127.0.0.1{table.path}", "api_key_env": key_variable}
    return replace(
        spec,
        options={**spec.options, **here},
        secrets=tuple(dict.fromkeys((key_variable, *table.pass_env))),
        placement=replace(
            spec.placement,
            workers=table.replicas,
            num_gpus=table.num_gpus,
            num_cpus=table.num_cpus,
            memory_gib=table.memory_gib,
            load_timeout_s=max(spec.placement.load_timeout_s, load_timeout_s),
            endpoint=f"server:{name}",
            server=command,
        ),
    )

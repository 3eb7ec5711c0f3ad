"""Loads a stage from its spec, and says what an exception of a stage means.

For workers (`worker.py`), and for whoever computes with a stage in this process
(`local.py`), which starts the stage's server here, too.
"""

from __future__ import annotations

import atexit
import gc
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from plait.cluster.own_source import is_own_file
from plait.cluster.server_process import (
    ServerError,
    ServerProcess,
    bypass_proxies,
    log_path,
)
from plait.generators.base import ServerCommand, StageSpec, import_target
from plait.generators.checkpoints import on_this_machine
from plait.generators.extras import require_extra
from plait.generators.own_code import stage_of
from plait.generators.secrets import know, without_keys
from plait.generators.source import file_shown

_servers: dict[ServerCommand, ServerProcess] = {}
"""Running servers of this process, which stages of one command share."""

StageFault = Literal["raised", "out of memory", "broken"]
"""What an exception says of the process that computed a batch: a record is at fault, a
smaller batch may succeed, or the process can no longer be trusted (a CUDA error)."""


def load_class(target: str) -> Callable[..., Any]:
    """Return the class that `module:Class` names; ValueError says what is wrong with it."""
    module, separator, name = target.partition(":")
    if not separator:
        raise ValueError(f"stage {target!r} is not of the form 'module:Class'")
    try:
        return import_target(target)  # type: ignore[no-any-return]
    except AttributeError:
        raise ValueError(f"module {module!r} has no class {name!r}") from None


def load_stage(spec: StageSpec, **options: Any) -> Any:
    """Return the loaded stage of `spec`; `options` replace those of the spec.

    A server of its own is started, unless `options` name one, and ends with this process.
    """
    know(spec.secrets)
    if spec.extra is not None:
        require_extra(spec.extra, spec.name)
    code = load_class(spec.target) if spec.given is None else spec.given
    if spec.placement.server is not None and "base_url" not in options:
        options["base_url"] = _server_url(spec.placement.server)
    arguments = {**spec.settings, **on_this_machine(spec.options), **options}
    return stage_of(code, arguments)


def _server_url(command: ServerCommand) -> str:
    """The URL of a running server of this command; ServerError when it cannot be used."""
    server = _servers.get(command)
    if server is None or server.has_ended():
        bypass_proxies()
        folder = Path(tempfile.gettempdir()) / "plait"
        server = ServerProcess(command, log_path(folder, command.name))
        server.wait_ready()
        _servers[command] = server
    return server.url


@atexit.register
def stop_servers() -> None:
    """End the servers that stages of this process have started."""
    while _servers:
        _, server = _servers.popitem()
        server.stop()


def stage_fault(error: Exception) -> StageFault:
    """Return what follows from an exception of a stage; free memory where that ran out."""
    text = str(error)
    # By name: nothing of torch is imported for it.
    names = [cls.__name__ for cls in type(error).__mro__]
    if "OutOfMemoryError" in names or "out of memory" in text.lower():
        # The frames of the error still hold the batch's tensors.
        traceback.clear_frames(error.__traceback__)
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
        return "out of memory"
    return "broken" if "CUDA error" in text else "raised"


def from_own_code(error: Exception) -> Exception:
    """Return `error`; its traceback begins in a user's own file, if it goes through one."""
    part = error.__traceback__
    while part is not None and not is_own_file(part.tb_frame.f_code.co_filename):
        part = part.tb_next
    return error if part is None else error.with_traceback(part)


def error_text(error: BaseException) -> str:
    """Return kind, message and the innermost line of code of an error, without keys.

    That of a user's own files, where the error went through one: what they had called is
    not theirs to mend. One about a server ends with the server's own words instead.
    """
    if isinstance(error, ServerError):
        return without_keys(str(error))
    where = ""
    innermost_first = traceback.extract_tb(error.__traceback__)[::-1]
    if innermost_first:
        own = [frame for frame in innermost_first if is_own_file(frame.filename)]
        frame = own[0] if own else innermost_first[0]
        where = f" ({file_shown(frame.filename)}:{frame.lineno})"
    return without_keys(f"{type(error).__name__}: {error}{where}")

"""Which weights exactly: a Hub id pinned to a commit, or the fingerprint of a folder."""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from plait.generators.errors import CheckpointError
from plait.generators.loading.soundness import refuse_unless_folder, refuse_unusable

_WHOLE_FILE_BYTES = 1 << 20
_EDGE_BYTES = 1 << 16
_SHIPPED = ("generators", "mini", "weights")
"""Where the checkout has its checkpoints."""


def fingerprint(folder: Path) -> str:
    """Return a digest of a folder: names and sizes of all files, content of small ones.

    Of files over 1 MiB only the first and last 64 KiB are read: hashing 150 GB at every
    start would take minutes, and safetensors keep their tensor index at the head.
    """
    state = hashlib.sha256()
    names = {path: path.relative_to(folder) for path in sorted(folder.rglob("*"))}
    for path, name in names.items():
        # What is hidden is not the model's: `.git`, and the Hub's notes of a download.
        if not path.is_file() or any(part.startswith(".") for part in name.parts):
            continue
        size = path.stat().st_size
        state.update(f"{name.as_posix()}\n{size}\n".encode())
        with path.open("rb") as file:
            if size <= _WHOLE_FILE_BYTES:
                state.update(file.read())
                continue
            state.update(file.read(_EDGE_BYTES))
            file.seek(-_EDGE_BYTES, os.SEEK_END)
            state.update(file.read())
    return state.hexdigest()[:32]


class UnavailableWeights(CheckpointError):
    """Weights that are not in the Hub's cache, where the Hub does not answer either."""

    def __init__(self, names: Sequence[str], cause: Exception) -> None:
        self.names = names
        self.cause = cause
        super().__init__(
            f"not in the Hub cache: {', '.join(names)}. Download with `plait fetch "
            "NAME` or `plait fetch CONFIG.toml` where there is a network, or name a "
            f"folder instead ({first_line(cause)})"
        )


@dataclass
class Pins:
    """The exact weights, and programs that serve them, that a run was planned with."""

    known: dict[str, str] = field(default_factory=dict)
    """`model@revision` -> identity; a program -> its version."""
    used: dict[str, str] = field(default_factory=dict)
    """Those of `known` that were asked for, since this was last emptied."""
    errors: list[CheckpointError] = field(default_factory=list)
    """Why something could not be pinned; collected instead of raised."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be pinned, and why: a line for each cause."""
        lines: dict[object, CheckpointError] = {}
        for error in self.errors:
            # One line for all weights that a Hub that does not answer was asked for.
            if isinstance(error, UnavailableWeights):
                before = lines.get(type(error.cause))
                names = before.names if isinstance(before, UnavailableWeights) else ()
                together = UnavailableWeights([*names, *error.names], error.cause)
                lines[type(error.cause)] = together
            else:
                lines[str(error)] = error
        return tuple(map(str, lines.values()))


_pins: contextvars.ContextVar[Pins | None] = contextvars.ContextVar("pins", default=None)
_standing: contextvars.ContextVar[Mapping[str, str]]
_standing = contextvars.ContextVar("standing", default=MappingProxyType({}))


@contextlib.contextmanager
def standing_for(name: str, identity: str) -> Iterator[None]:
    """Within this context `name` has an identity that is pinned under another name."""
    token = _standing.set({**_standing.get(), name: identity})
    try:
        yield
    finally:
        _standing.reset(token)


@contextlib.contextmanager
def pinning(known: Mapping[str, str]) -> Iterator[Pins]:
    """Within this context models keep the identities `known`; new ones are added.

    Weights that cannot be pinned are listed in `Pins.missing` and get an identity that no
    record has, so that everything else can still be planned.
    """
    pins = Pins(dict(known))
    token = _pins.set(pins)
    try:
        yield pins
    finally:
        _pins.reset(token)


def identity(model: str, revision: str | None = None, index: str | None = None) -> str:
    """Return the name of the exact weights: `folder:<fingerprint>` or `hub:<id>@<commit>`.

    Raises CheckpointError when a folder is missing or holds an adapter, when a file is one
    that cannot be loaded, or when a Hub revision can be pinned neither from the local cache
    nor from the network. With an `index`, the file that its folder is known by, a model
    may not be one file.
    """
    name = f"{model}@{revision or 'main'}"
    return pin(name, lambda: _resolve(model, revision, index))


def pin(name: str, resolve: Callable[[], str]) -> str:
    """Return what `name` stood for when the run was planned, else what it does now.

    `resolve` raises CheckpointError where that cannot be known.
    """
    if name in (standing := _standing.get()):
        return standing[name]
    pins = _pins.get()
    if pins is None:
        return resolve()
    if name not in pins.known:
        try:
            pins.known[name] = resolve()
        except CheckpointError as error:
            pins.errors.append(error)
            pins.known[name] = f"unpinned:{name}"
    pins.used[name] = pins.known[name]
    return pins.known[name]


def _resolve(model: str, revision: str | None, index: str | None) -> str:
    """Return the identity of a checkpoint; CheckpointError where it cannot be pinned."""
    if "://" in model:
        # The name holds the beginning of the digest, which the download is checked against.
        return f"file:{model.rpartition('/')[2]}"
    if looks_like_path(model):
        folder = Path(model).expanduser()
        if not folder.exists():
            raise CheckpointError(f"checkpoint {model!r}: no such file or folder")
        refuse_unusable(folder)
        if folder.is_file():
            if index is not None:
                refuse_unless_folder(model, folder, index)
            return _digest_of_file(folder)
        return f"folder:{fingerprint(folder)}"
    return f"hub:{model}@{_commit(model, revision)}"


def file_identity(name: str) -> str:
    """Return the name of the weights in one file of any format, by its digest.

    Other than `identity` it takes adapters and files of GGUF, for models that apply them.
    Raises CheckpointError where there is no such file.
    """
    path = Path(name).expanduser()
    if not path.is_file():
        raise CheckpointError(f"checkpoint {name!r}: no such file")
    return pin(f"{name}@main", lambda: _digest_of_file(path))


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return f"file:{hashlib.file_digest(file, 'sha256').hexdigest()[:32]}"


def looks_like_path(model: str) -> bool:
    """Return whether `model` names a folder or file rather than a Hub repository."""
    return model.startswith((".", "/", "~")) or model.count("/") > 1 or Path(model).exists()


def on_this_machine(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stage's `options` with a checkpoint that comes with plait as it lies here.

    A cluster's workers have a checkout of their own, elsewhere than the one that planned.
    """
    model = options.get("model")
    if not isinstance(model, str) or Path(model).exists():
        return dict(options)
    place = Path(*Path(model).parts[-4:])
    if place.parts[:-1] != _SHIPPED:
        return dict(options)
    return {**options, "model": str(Path(__file__).parent.parent / place)}


def with_revision(name: str) -> tuple[str, str | None]:
    """Return model and revision of `ID@REVISION`; folders and plain ids have none."""
    model, at, revision = name.rpartition("@")
    if not at or looks_like_path(name):
        return name, None
    return model, revision


def _commit(repo_id: str, revision: str | None) -> str:
    """Return the commit of a branch or tag: of the Hub cache, else asked of the Hub.

    UnavailableWeights where the Hub does not answer, CheckpointError where it has none.
    """
    if revision and re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    from huggingface_hub import HfApi, constants

    # What is loaded later is what the cache holds, even if the branch has moved on.
    name = "models--" + repo_id.replace("/", "--")
    ref = Path(constants.HF_HUB_CACHE) / name / "refs" / (revision or "main")
    if ref.is_file():
        return ref.read_text().strip()
    try:
        sha = HfApi().model_info(repo_id, revision=revision, timeout=10).sha
    except Exception as error:
        # The errors of the Hub client's HTTP library come through unchanged.
        name = f"{repo_id}@{revision}" if revision else repo_id
        raise UnavailableWeights([name], error) from error
    if not sha:
        raise CheckpointError(f"the Hub names no commit for {repo_id!r}")
    return sha


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__

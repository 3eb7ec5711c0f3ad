"""What the page says of a run's circumstances, taken from its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a run in the order they are shown; whatever a manifest lacks is left out."""

    general: dict[str, str]
    stages: list[dict[str, str]]
    """One line per stage: what it is and what it used."""


def facts_of(manifest: Mapping[str, Any]) -> Facts:
    """The facts a reader looks for first; the page shows the whole manifest below."""
    facts = {
        "status": _text(manifest.get("status")),
        "started": _text(manifest.get("started")),
        "finished": _text(manifest.get("finished")),
        "data": _data(manifest.get("data")),
        "seed": _text(_mapping(manifest.get("config")).get("seed")),
        "code": _code(_mapping(manifest.get("git"))),
        "machine": _machine(manifest),
        "packages": _packages(_mapping(manifest.get("packages"))),
        "command": " ".join(map(str, manifest.get("argv") or [])),
    }
    return Facts({name: text for name, text in facts.items() if text}, _stages(manifest))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _data(data: Any) -> str:
    if not isinstance(data, Mapping):
        return _text(data)
    return ", ".join(f"{k} {v}" for k, v in data.items() if isinstance(v, str | int) and v)


def _code(git: Mapping[str, Any]) -> str:
    commit = _text(git.get("commit"))[:12]
    return f"{commit} with local changes" if commit and git.get("dirty") else commit


def _machine(manifest: Mapping[str, Any]) -> str:
    hardware = _mapping(manifest.get("hardware"))
    parts = [_text(manifest.get("platform"))]
    parts += [f"{hardware['cpus']} CPUs"] if hardware.get("cpus") else []
    parts += [str(gpu) for gpu in hardware.get("gpus") or []]
    parts += [f"Python {manifest['python']}"] if manifest.get("python") else []
    return ", ".join(p for p in parts if p)


def _packages(packages: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def _stages(manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    usage = _mapping(manifest.get("usage"))
    lines = []
    for folder, stage in _mapping(manifest.get("stages")).items():
        about, name = _mapping(stage), str(folder).rpartition("-")[0]
        used = _mapping(usage.get(name))
        line = {"stage": name or str(folder)}
        line |= {k: _text(about.get(k)) for k in ("kind", "weights", "identity")}
        lines.append(
            line | {"usage": ", ".join(f"{v:,} {_words(k)}" for k, v in used.items())}
        )
    return lines


def _words(name: str) -> str:
    return name.replace("_", " ")

"""On what, and with what, something was measured: the same words on every page.

Everything is taken from what `plait.cluster.manifest.environment` gives, which manifests
and measurements hold; what is absent there is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def provenance_line(about: Mapping[str, Any]) -> str:
    """Return the machine, the commit and the versions as one line of a page."""
    return "; ".join(filter(None, (machine_of(about), versions_of(about)))) + "."


def provenance_facts(about: Mapping[str, Any]) -> dict[str, str]:
    """The same by name, for a page's list of facts; without those that are unknown."""
    facts = {
        "code": _commit(about),
        "machine": machine_of(about),
        "packages": _packages(about),
    }
    return {name: fact for name, fact in facts.items() if fact}


def machine_of(about: Mapping[str, Any]) -> str:
    """Platform, CPUs and GPUs."""
    hardware = _entry(about, "hardware")
    parts = [str(about.get("platform") or "")]
    parts += [f"{hardware['cpus']} CPUs"] if hardware.get("cpus") else []
    parts += (hardware["gpus"] or ["no GPU"]) if "gpus" in hardware else []
    return ", ".join(part for part in parts if part)


def versions_of(about: Mapping[str, Any]) -> str:
    """Return the commit of plait, Python and the packages."""
    parts = (f"commit {_commit(about) or 'none'}", _packages(about))
    return ", ".join(part for part in parts if part)


def _commit(about: Mapping[str, Any]) -> str:
    """Marked where files differed from the commit; empty where there is none."""
    git = _entry(about, "git")
    commit = str(git.get("commit") or "")[:12]
    return f"{commit} with changes" if commit and git.get("dirty") else commit


def _packages(about: Mapping[str, Any]) -> str:
    python = [f"Python {about['python']}"] if about.get("python") else []
    packages = (f"{n} {version}" for n, version in _entry(about, "packages").items())
    return ", ".join((*python, *packages))


def _entry(about: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = about.get(name)
    return value if isinstance(value, Mapping) else {}

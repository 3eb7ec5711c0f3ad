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
    parts = []
    if about.get("platform"):
        parts.append(str(about["platform"]))
    if hardware.get("cpus"):
        parts.append(f"{hardware['cpus']} CPUs")
    # Without an entry nobody has looked; an empty one says that there are none.
    if "gpus" in hardware:
        parts += hardware["gpus"] or ["no GPU"]
    return ", ".join(filter(None, parts))


def versions_of(about: Mapping[str, Any]) -> str:
    """Return the commit of plait, Python and the packages."""
    parts = (f"commit {_commit(about) or 'none'}", _packages(about))
    return ", ".join(filter(None, parts))


def _commit(about: Mapping[str, Any]) -> str:
    """Marked where files differed from the commit; empty where there is none."""
    git = _entry(about, "git")
    commit = str(git.get("commit") or "")[:12]
    return f"{commit} with changes" if commit and git.get("dirty") else commit


def _packages(about: Mapping[str, Any]) -> str:
    versions = []
    if about.get("python"):
        versions.append(f"Python {about['python']}")
    for package, version in _entry(about, "packages").items():
        versions.append(f"{package} {version}")
    return ", ".join(versions)


def _entry(about: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of a manifest; an empty one where an earlier version wrote none."""
    value = about.get(name)
    return value if isinstance(value, Mapping) else {}

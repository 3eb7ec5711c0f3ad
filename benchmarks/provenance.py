"""On what, and with what, something was measured: the same words on every page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def machine_of(about: Mapping[str, Any]) -> str:
    """Platform, CPUs and GPUs, of what `cluster.manifest.environment` gives."""
    hardware = about["hardware"]
    gpus = ", ".join(hardware["gpus"]) or "no GPU"
    return f"{about['platform']}, {hardware['cpus']} CPUs, {gpus}"


def versions_of(about: Mapping[str, Any]) -> str:
    """The commit of plait, "with changes" where files differ from it, Python, packages."""
    git = about["git"]
    changed = " with changes" if git["dirty"] else ""
    commit = f"{git['commit'][:12]}{changed}" if git["commit"] else "none"
    packages = (f"{name} {version}" for name, version in about["packages"].items())
    return ", ".join((f"commit {commit}", f"Python {about['python']}", *packages))

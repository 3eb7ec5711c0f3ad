"""A data set of the Hub, from the network or from its local cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.tasks.reading.rules import TaskError


def snapshot(data: str, patterns: Sequence[str]) -> Path:
    """Folder `.../snapshots/<commit>` of `hf:ORG/NAME[@REVISION]`.

    The files that match `patterns` are there. Without a network the cached snapshot of
    the revision is taken. Raises TaskError for an id that is not valid, and when neither
    the Hub nor the cache has the data.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    name, _, revision = data.removeprefix("hf:").partition("@")
    if name.count("/") != 1 or not all(name.split("/")):
        raise TaskError(f"{data!r} is not of the form hf:ORG/NAME@REVISION")
    try:
        path = snapshot_download(
            name,
            repo_type="dataset",
            revision=revision or None,
            allow_patterns=list(patterns),
        )
    except HFValidationError as error:
        raise TaskError(f"{data!r} is not the name of a data set: {error}") from None
    except Exception as error:
        # The Hub's client raises errors of its own, of its HTTP library and of the OS.
        raise TaskError(_explained(name, revision, error)) from error
    return Path(path)


def _explained(name: str, revision: str, error: Exception) -> str:
    lines = str(error).strip().splitlines()
    access = (
        "MMIE/MMIE asks for access on its Hub page first; then log in"
        if name == "MMIE/MMIE"
        else "If it is private or asks for access, log in"
    )
    return (
        f"data set {name!r} (revision {revision or 'main'}) is neither on the Hub for this "
        f"account nor in the local cache: {lines[0] if lines else type(error).__name__}. "
        f"{access} with `hf auth login` or set HF_TOKEN."
    )

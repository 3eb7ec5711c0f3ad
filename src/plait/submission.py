"""`plait submit`: a run as a batch job of a cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from plait.benchmarks.runs.config import RunConfig, load_config
from plait.cluster.launch import kuberay, slurm
from plait.cluster.launch.settings import BatchJob
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError


def submit(
    file: Path,
    to: str,
    settings: Sequence[str],
    *,
    array: int | None = None,
    dry_run: bool,
) -> str:
    """Submit the run of a config file to `slurm` or `kuberay`; return how to go on.

    On Slurm as an `array` of so many jobs of one node, if that is given. With `dry_run` it
    is the script or manifest, and nothing is written.

    Raises:
        UsageError: For a config that is not valid, and where the job cannot be submitted.
    """
    config = load_config(file, {}, settings)
    if to == "slurm":
        job = _on_slurm(file, config, settings, array)
        return slurm.script(job) if dry_run else slurm.submit(job)
    if array is not None:
        raise UsageError(
            "--array is for Slurm: on Kubernetes the pods of a job are workers of one Ray "
            "cluster, as many as cluster.nodes"
        )
    job = _on_kubernetes(config, settings)
    text = file.read_text()
    return kuberay.manifest(job, text) if dry_run else kuberay.submit(job, text)


def _on_slurm(
    file: Path, config: RunConfig, settings: Sequence[str], array: int | None
) -> BatchJob:
    one_node = {} if array is None else {"nodes": 1}
    arguments = ["run", str(file.resolve()), *_set(settings), "--out", str(config.root)]
    return BatchJob(
        name=_name(config.root),
        arguments=tuple(arguments),
        folder=Path.cwd(),
        jobs=_jobs(config.root),
        settings=config.cluster.model_copy(update=one_node),
        root=config.root,
        reads=(file.resolve().parent, *_data_folder(config)),
        array=array,
    )


def _data_folder(config: RunConfig) -> list[Path]:
    """Return the folder of the data, where they are a file or a folder of this machine."""
    _, _, place = config.data.rpartition(":")
    path = Path(place)
    if not path.is_absolute():
        return []
    return [path if path.is_dir() else path.parent]


def _on_kubernetes(config: RunConfig, settings: Sequence[str]) -> BatchJob:
    """Paths are those that pods see, so none is made absolute here."""
    if config.out is None:
        raise UsageError(
            f"out is not set: name a folder below {config.cluster.mount_path}, where pods "
            "see the volume, or one in a bucket"
        )
    return BatchJob(
        name=_name(config.out),
        arguments=("run", str(kuberay.CONFIG_FILE), *_set(settings), "--address", "auto"),
        folder=Path(config.cluster.mount_path),
        jobs=_jobs(config.out),
        root=config.out,
        settings=config.cluster,
    )


def _jobs(root: AnyPath) -> Path:
    """Where the job's script and log are: in the run directory, or beside the command."""
    return root / "jobs" if isinstance(root, Path) else Path.cwd() / "jobs" / root.name


def _set(settings: Sequence[str]) -> list[str]:
    words: list[str] = []
    for setting in settings:
        words += ["--set", setting]
    return words


def _name(root: AnyPath) -> str:
    """Of Kubernetes' form for names, which Slurm takes too."""
    words = re.findall(r"[a-z0-9]+", root.name.lower())
    return "-".join(["plait", *words])[:47].rstrip("-")

"""A batch job on Slurm: one task on each node, with Ray over them where there are several.

The first node runs the command (`ray symmetric-run`). A job that is requeued, by plait
before its time limit or by Slurm when another takes its place, resumes its run. Jobs of
an array are requeued one by one.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from plait.cluster.launch.settings import TEMPLATES, BatchJob, ClusterSettings, output_of
from plait.cluster.run import MADE_VARIABLE
from plait.generators.errors import UsageError


def script(job: BatchJob) -> str:
    """Return the batch script of a job."""
    settings = job.settings
    return TEMPLATES.get_template("slurm.sh.j2").render(
        options=_options(job),
        lines=_lines(settings),
        folder=shlex.quote(str(job.folder)),
        jobs=shlex.quote(str(job.jobs)),
        nodes=settings.nodes,
        array=job.array,
        whole_node=settings.has_whole_nodes,
        scratch=settings.scratch,
        srun=_container(job),
        command=job.command,
        made_variable=MADE_VARIABLE,
    )


def submit(job: BatchJob) -> str:
    """Write the script, submit it, and say how to follow, stop and resume the job.

    Raises:
        UsageError: Where there is no sbatch, or it refuses the script, with its words.
    """
    job.jobs.mkdir(parents=True, exist_ok=True)
    path = job.jobs / "job.sh"
    path.write_text(script(job))
    file = shlex.quote(str(path))
    root = shlex.quote(str(job.root))
    else_do = f"on a machine of the cluster, run sbatch {file}"
    said = output_of(["sbatch", "--parsable", str(path)], str(path), else_do)
    number = said.strip().partition(";")[0]
    folder = Path(shlex.quote(str(job.jobs)))
    follow = f"follow  tail -F {_log(folder, f'{number}_*' if job.array else number)}"
    if not job.settings.has_whole_nodes and job.settings.cpus_per_node is None:
        follow += "\ncpus    the site's default; cluster.cpus_per_node asks for more"
    if job.array is None:
        return (
            f"job {number}: {path}\n"
            f"{follow}\n"
            f"stop    scancel {number}   (finished work is kept)\n"
            f"resume  sbatch {file}"
        )
    return (
        f"job {number} of {job.array} shards: {path}\n"
        f"{follow}\n"
        f"stop    scancel {number}   ({number}_1 is shard 1; finished work is kept)\n"
        f"resume  sbatch {file}   (shard 1 alone: sbatch --array=1 {file})\n"
        f"tables  by the shard that ends last, or by plait report {root}"
    )


def _log(jobs: Path, number: str) -> Path:
    return jobs / f"slurm-{number}.log"


def _pattern(job: BatchJob) -> str:
    """Return the log's path as `#SBATCH` takes it: quoted, and each of its % twice.

    Raises:
        UsageError: For a path that Slurm cannot be given.
    """
    folder = str(job.jobs)
    if "\\" in folder or "\n" in folder:
        raise UsageError(
            f"the job's log would be in {folder!r}: Slurm takes no path with a backslash "
            "or a line break; name another folder with out"
        )
    # %j is the job's number, %A that of an array, and %a that of its job.
    name = _log(Path(folder.replace("%", "%%")), "%A_%a" if job.array else "%j")
    return shlex.quote(str(name))


def _options(job: BatchJob) -> list[str]:
    """Return what follows `#SBATCH` in each line of the script's head."""
    settings = job.settings
    array = None
    if job.array:
        array = f"1-{job.array}"
        if settings.array_throttle:
            array += f"%{settings.array_throttle}"
    mail = settings.mail_type
    if settings.mail_user and not mail:
        mail = ("END", "FAIL")
    values = {
        "job-name": job.name,
        "nodes": settings.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": settings.cpus_per_node,
        "gpus-per-node": settings.gpus_per_node or None,
        "mem": settings.memory_gib and f"{settings.memory_gib}G",
        "time": settings.time,
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "array": array,
        "mail-user": settings.mail_user,
        "mail-type": ",".join(mail) or None,
        "output": _pattern(job),
        "open-mode": "append",  # what starts again after a requeue writes on
        "signal": f"B:USR1@{settings.requeue_before_s}",
    }
    options = [f"--{name}={value}" for name, value in values.items() if value is not None]
    if settings.has_whole_nodes:
        options.append("--exclusive")
    return [*options, "--requeue", *settings.options]


def _lines(settings: ClusterSettings) -> list[str]:
    """Return what the script does before all else: variables, and the site's own setup."""
    lines = [f"export {k}={shlex.quote(v)}" for k, v in settings.environment.items()]
    if settings.cpus_per_node:
        # Since Slurm 22.05 srun does not take it from the job.
        lines.append("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK")
    if not settings.image:
        programs = shlex.quote(os.path.dirname(sys.executable))
        lines.append(f"export PATH={programs}:$PATH  # for ray")
    return [*lines, *settings.setup]


def _container(job: BatchJob) -> str:
    """Return what stands between `srun` and the command that runs in an image."""
    settings = job.settings
    if not settings.image:
        return ""
    folder = str(job.folder)
    mounts = shlex.quote(",".join(_mounts(job)))
    if settings.scratch:
        mounts += ',"$TMPDIR:$TMPDIR"'
    if settings.container == "pyxis":
        options = [f"--container-image={settings.image}", f"--container-workdir={folder}"]
        return f"{shlex.join(options)} --container-mounts={mounts}"
    gpus = ["--nv"] if settings.gpus_per_node else []
    options = ["apptainer", "exec", *gpus, "--pwd", folder]
    return f"{shlex.join(options)} --bind {mounts} {shlex.quote(settings.image)}"


def _mounts(job: BatchJob) -> list[str]:
    """Return the folders that an image sees: those asked for, and those of the job.

    Raises:
        UsageError: For a path that cannot be written in such a list.
    """
    mounts = list(job.settings.mounts)
    # Folders that an image sees at their own path, with all in them.
    seen: list[Path] = []
    for mount in mounts:
        source, at = _ends(mount)
        if source == at:
            seen.append(Path(source))
    needed = [job.folder, *job.reads, job.jobs]
    if isinstance(job.root, Path):  # else it is in a bucket
        needed.insert(1, job.root)
    for folder in needed:
        if any(folder.is_relative_to(other) for other in seen):
            continue
        if {*",:"} & {*str(folder)}:
            raise UsageError(
                f"{folder} cannot be mounted in cluster.image: its name has a comma or a "
                "colon"
            )
        seen.append(folder)
        mounts.append(f"{folder}:{folder}")
    return mounts


def _ends(mount: str) -> tuple[str, str]:
    """Return a mounted folder and where an image sees it, of `FOLDER[:PLACE[:FLAGS]]`."""
    source, *place = mount.split(":")
    return source, place[0] if place else source

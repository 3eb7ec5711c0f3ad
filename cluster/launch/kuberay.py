"""A batch job on Kubernetes: a `RayJob` of KubeRay (1.5 or newer) and its config.

Fields: github.com/ray-project/kuberay, docs/reference/api.md.
"""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

from plait.cluster.launch.settings import TEMPLATES, BatchJob, output_of
from plait.generators.buckets import BucketPath
from plait.generators.errors import UsageError

CONFIG_FILE = PurePosixPath("/etc/plait/run.toml")
"""Where pods see the config."""


def manifest(job: BatchJob, config: str) -> str:
    """Return the manifest of a job, YAML; `config` is the text of its TOML file.

    Raises:
        UsageError: Where no image or no volume is named.
    """
    settings = job.settings
    if not settings.image:
        raise UsageError("cluster.image is not set: pods need plait")
    if not (settings.volume_claim or isinstance(job.root, BucketPath)):
        raise UsageError(
            "cluster.volume_claim is not set: results need a place, or out in a bucket"
        )
    # Of each worker, by their names in Kubernetes.
    resources: dict[str, str] = {}
    if settings.gpus_per_node:
        resources[settings.gpu_resource] = str(settings.gpus_per_node)
    if settings.cpus_per_node:
        resources["cpu"] = str(settings.cpus_per_node)
    if settings.memory_gib:
        resources["memory"] = f"{settings.memory_gib}Gi"
    return TEMPLATES.get_template("kuberay.yaml.j2").render(
        job=job,
        s=settings,
        config=config,
        config_name=CONFIG_FILE.name,
        config_folder=str(CONFIG_FILE.parent),
        resources=resources,
    )


def submit(job: BatchJob, config: str) -> str:
    """Create the job with kubectl, and say how to follow, stop and resume it.

    Raises:
        UsageError: Where there is no kubectl, or it refuses the manifest, with its words.
    """
    command = ["kubectl", "apply", "-f", "-"]
    else_do = "add --dry-run, and apply what it prints"
    output_of(command, "the job", else_do, manifest(job, config))
    here = f"-n {shlex.quote(job.settings.namespace)}"
    pods = f"-l ray.io/originated-from-cr-name={job.name},ray.io/node-type=head"
    return (
        f"RayJob {job.name} in {job.settings.namespace}\n"
        f"follow  kubectl logs {here} {pods} --all-containers -f\n"
        f"stop    kubectl delete rayjob {here} {job.name}   (finished work is kept)\n"
        "resume  delete it, and run this command again"
    )

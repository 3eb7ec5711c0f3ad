"""A batch job on Kubernetes: a `RayJob` of KubeRay (1.5 or newer) and its config.

Fields: github.com/ray-project/kuberay, docs/reference/api.md. Ray's head runs the command
(SidecarMode: there is no further pod that could be evicted) and has no GPU; workers have.
"""

from __future__ import annotations

import subprocess
from pathlib import PurePosixPath
from typing import Any

import yaml  # type: ignore[import-untyped]

from cluster.launch.settings import BatchJob, ClusterSettings
from generators.errors import UsageError


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Text of several lines as it is, and nothing by reference."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)
CONFIG_FILE = PurePosixPath("/etc/plait/run.toml")
"""Where pods see the config."""
_WORKERS_STAY_S = 60


def manifest(job: BatchJob, config: str) -> str:
    """The manifest of a job, YAML; `config` is the text of its TOML file.

    Raises:
        UsageError: Where no image or no volume is named.
    """
    settings = job.settings
    for key, why in [
        ("image", "pods need plait"),
        ("volume_claim", "results need a place"),
    ]:
        if not getattr(settings, key):
            raise UsageError(f"cluster.{key} is not set: {why}")
    documents = [_config_map(job, config), _ray_job(job)]
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100))


def submit(job: BatchJob, config: str) -> str:
    """Create the job with kubectl, and say how to follow, stop and resume it.

    Raises:
        UsageError: Where there is no kubectl, or it refuses the manifest, with its words.
    """
    text = manifest(job, config)
    command = ["kubectl", "apply", "-f", "-"]
    try:
        subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise UsageError(
            "there is no kubectl here: add --dry-run, and apply what it prints"
        ) from None
    except subprocess.CalledProcessError as error:
        raise UsageError(f"kubectl refuses the job: {error.stderr.strip()}") from None
    here = f"-n {job.settings.namespace}"
    pods = f"-l ray.io/originated-from-cr-name={job.name},ray.io/node-type=head"
    return (
        f"RayJob {job.name} in {job.settings.namespace}\n"
        f"follow  kubectl logs {here} {pods} --all-containers -f\n"
        f"stop    kubectl delete rayjob {here} {job.name}   (what is done is kept)\n"
        "resume  delete it, and give this command again"
    )


def _config_map(job: BatchJob, config: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job),
        "data": {CONFIG_FILE.name: config},
    }


def _ray_job(job: BatchJob) -> dict[str, Any]:
    settings = job.settings
    workers = {
        "groupName": "workers",
        "replicas": settings.nodes,
        "minReplicas": 0,
        "maxReplicas": settings.nodes,
        "rayStartParams": {},
        "template": {"spec": _pod(job, "worker", _resources(settings))},
    }
    head = {
        # No stage runs there.
        "rayStartParams": {"num-cpus": "0", "num-gpus": "0"},
        "template": {"spec": _pod(job, "head", {}) | {"restartPolicy": "Never"}},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": _metadata(job),
        "spec": {
            "submissionMode": "SidecarMode",
            "entrypoint": job.command,
            "backoffLimit": settings.retries,
            "deletionStrategy": {"deletionRules": _deletion(settings)},
            "rayClusterSpec": {"headGroupSpec": head, "workerGroupSpecs": [workers]},
        },
    }


def _metadata(job: BatchJob) -> dict[str, Any]:
    return {"name": job.name, "namespace": job.settings.namespace}


def _deletion(settings: ClusterSettings) -> list[dict[str, Any]]:
    """GPUs are given back soon, and logs stay for a while."""
    stays = {"DeleteWorkers": _WORKERS_STAY_S, "DeleteCluster": settings.keep_hours * 3600}
    return [
        {"policy": policy, "condition": {"jobStatus": status, "ttlSeconds": int(seconds)}}
        for status in ("SUCCEEDED", "FAILED")
        for policy, seconds in stays.items()
    ]


def _resources(settings: ClusterSettings) -> dict[str, Any]:
    """What each worker takes of its node."""
    wanted = {
        settings.gpu_resource: settings.gpus_per_node,
        "cpu": settings.cpus_per_node,
        "memory": settings.memory_gib and f"{settings.memory_gib}Gi",
    }
    limits = {name: str(amount) for name, amount in wanted.items() if amount}
    return {"resources": {"limits": limits, "requests": limits}} if limits else {}


def _pod(job: BatchJob, kind: str, resources: dict[str, Any]) -> dict[str, Any]:
    settings = job.settings
    mounts = {"results": settings.mount_path, "config": str(CONFIG_FILE.parent)}
    results = {"persistentVolumeClaim": {"claimName": settings.volume_claim}}
    container: dict[str, Any] = {
        "name": f"ray-{kind}",
        "image": settings.image,
        "workingDir": settings.mount_path,
        "env": [{"name": k, "value": v} for k, v in settings.environment.items()],
        "volumeMounts": [{"name": k, "mountPath": v} for k, v in mounts.items()],
        **resources,
    }
    if settings.secret:
        container["envFrom"] = [{"secretRef": {"name": settings.secret}}]
    spec: dict[str, Any] = {
        "containers": [container],
        "volumes": [
            {"name": "results"} | results,
            {"name": "config", "configMap": {"name": job.name}},
        ],
    }
    if settings.node_selector and kind == "worker":
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    return spec

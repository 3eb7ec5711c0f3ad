"""Scripts and manifests of batch jobs; one runs on a real Slurm in test_slurm."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from paths import DATA
from pydantic import ValidationError
from typer.testing import CliRunner

from plait.cli import app
from plait.cluster.launch.settings import ClusterSettings, seconds_of
from plait.generators.errors import UsageError

CONFIG = """
data = "sample"
systems = ["gt"]
scorers = []
weights = "tiny"
out = "{out}"
"""
SITE = """
[cluster]
nodes = {nodes}
gpus_per_node = 8
cpus_per_node = 64
memory_gib = 500
time = "12:00:00"
partition = "gpu"
account = "lab"
qos = "normal"
image = "lab/plait:1"
mounts = ["/shared:/shared"]
options = ["--constraint=h100"]
setup = ["module load cuda"]
environment = {{ HF_HOME = "/shared/my hub" }}
volume_claim = "shared"
secret = "keys"
node_selector = {{ gpu = "h100" }}
service_account = "plait"
"""


BUCKET = "s3://lab/MMIE_1"


def dry_run(
    folder: Path, to: str, site: str = "", *more: str, out: str = "", **values: Any
) -> str:
    out = out or str(folder / "runs" / "MMIE_1")
    (folder / "run.toml").write_text((CONFIG + site).format(out=out, **values))
    words = ["submit", str(folder / "run.toml"), "--to", to, "--dry-run", "--set", "seed=3"]
    words += more
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert not Path(out).exists()
    return done.stdout


def schema() -> dict[str, Any]:
    """Of KubeRay 1.7.0 (helm-chart/kuberay-operator/crds/ray.io_rayjobs.yaml), in which
    no key may stand that it does not know: Kubernetes drops those without a word."""
    file = DATA / "kuberay-rayjob-1.7.0.json.gz"
    return strict(json.loads(gzip.decompress(file.read_bytes())))


def strict(node: Any) -> Any:
    if isinstance(node, list):
        return [strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    inner = {key: strict(value) for key, value in node.items()}
    closed = isinstance(node.get("properties"), dict) and node.get("type") == "object"
    return inner | {"additionalProperties": False} if closed else inner


def without(key: str) -> str:
    return "".join(line for line in SITE.splitlines(True) if not line.startswith(key))


@pytest.mark.parametrize(("out", "site"), [("", SITE), (BUCKET, without("volume_claim"))])
def test_a_manifest_is_valid_for_kuberay(tmp_path: Path, out: str, site: str) -> None:
    """A run in a bucket needs no volume."""
    text = dry_run(tmp_path, "kuberay", site, out=out, nodes=4)
    config_map, job = yaml.safe_load_all(text)
    known = schema()
    known["properties"]["metadata"] = {"type": "object"}
    validator = jsonschema.Draft7Validator(known)
    assert [error.message for error in validator.iter_errors(job)] == []
    wrong = job | {"spec": job["spec"] | {"backofLimit": 3}}
    assert any("backofLimit" in e.message for e in validator.iter_errors(wrong))
    assert config_map["data"]["run.toml"] == (tmp_path / "run.toml").read_text()
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert workers["replicas"] == 4
    spec = workers["template"]["spec"]
    assert spec["nodeSelector"] == {"gpu": "h100"}
    (container,) = spec["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert (
        mounted
        == {v["name"] for v in spec["volumes"]}
        == {"config"} | (set() if out else {"results"})
    )
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert container["env"] == [{"name": "HF_HOME", "value": "/shared/my hub"}]
    entrypoint = "plait run /etc/plait/run.toml --set seed=3 --address auto"
    assert job["spec"]["entrypoint"] == entrypoint


@pytest.mark.parametrize("key", ["image", "volume_claim"])
def test_a_manifest_names_what_it_lacks(tmp_path: Path, key: str) -> None:
    (tmp_path / "run.toml").write_text(
        (CONFIG + without(key)).format(out="/shared/x", nodes=1)
    )
    words = ["submit", str(tmp_path / "run.toml"), "--to", "kuberay", "--dry-run"]
    done = CliRunner().invoke(app, words)
    assert f"cluster.{key}" in str(done.exception)


@pytest.mark.parametrize(("site", "nodes"), [("", 1), (SITE, 1), (SITE, 4)])
def test_a_script_of_slurm_is_valid(tmp_path: Path, site: str, nodes: int) -> None:
    text = dry_run(tmp_path, "slurm", site, nodes=nodes)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    options = {x.split()[1] for x in text.splitlines() if x.startswith("#SBATCH")}
    assert {f"--nodes={nodes}", "--requeue", "--signal=B:USR1@120"} <= options
    assert ("--exclusive" in options) == (site == "")
    if site:
        asked = {"--gpus-per-node=8", "--cpus-per-task=64", "--mem=500G", "--qos=normal"}
        assert {*asked, "--partition=gpu", "--constraint=h100"} <= options
        assert "export HF_HOME='/shared/my hub'" in text
    assert ("symmetric-run" in text) == (nodes > 1)


def options_of(text: str) -> set[str]:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    return {x.split()[1] for x in text.splitlines() if x.startswith("#SBATCH")}


@pytest.mark.parametrize(
    ("site", "whole"),
    [
        ("", True),
        ("gpus_per_node = 1", False),
        ("cpus_per_node = 4", False),
        ("gpus_per_node = 1\nexclusive = true", True),
        ("exclusive = false", False),
    ],
)
def test_a_job_that_needs_a_part_of_a_node_leaves_the_rest(
    tmp_path: Path, site: str, whole: bool
) -> None:
    text = dry_run(tmp_path, "slurm", f"[cluster]\nnodes = 2\n{site}")
    assert ("--exclusive" in options_of(text)) == whole
    assert ("ray stop --force" in text) == whole, "another job's Ray may be beside it"


@pytest.mark.parametrize(
    ("site", "asked", "absent"),
    [
        ("array_throttle = 4", {"--array=1-16%4"}, "--mail"),
        ("", {"--array=1-16"}, "--mail"),
        ('mail_user = "me@lab"', {"--mail-user=me@lab", "--mail-type=END,FAIL"}, "%4"),
        ('mail_type = ["FAIL", "REQUEUE"]', {"--mail-type=FAIL,REQUEUE"}, "--mail-user"),
    ],
)
def test_arrays_are_throttled_and_mail_is_sent(
    tmp_path: Path, site: str, asked: set[str], absent: str
) -> None:
    options = options_of(dry_run(tmp_path, "slurm", f"[cluster]\n{site}", "--array", "16"))
    assert asked <= options
    assert not any(absent in option for option in options)


def test_temporary_files_are_in_a_folder_of_the_node(tmp_path: Path) -> None:
    """It is made on every node of the job before anything else runs."""
    scratch = f"{tmp_path}/$SLURM_JOB_ID"
    site = f'[cluster]\ngpus_per_node = 1\nscratch = "{scratch}"'
    text = dry_run(tmp_path, "slurm", site)
    (tmp_path / "runs" / "MMIE_1" / "jobs").mkdir(parents=True)
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\n[ "$1" = mkdir ] && exec "$@"\nenv > "$TMPDIR/seen"\n')
    srun.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    subprocess.run(["bash"], input=text, text=True, check=True, env=environ)
    seen = (tmp_path / "7" / "seen").read_text().splitlines()
    assert {f"TMPDIR={tmp_path}/7", f"RAY_TMPDIR={tmp_path}/7"} <= {*seen}


@pytest.mark.parametrize("container", ["pyxis", "apptainer"])
def test_an_image_sees_the_folders_of_its_run(tmp_path: Path, container: str) -> None:
    """Of the run, the config and the command; those below a mount need no other."""
    runs, data = tmp_path / "my runs", tmp_path / "data"
    data.mkdir()
    site = (
        f'[cluster]\nimage = "lab/plait:1"\ncontainer = "{container}"\n'
        'gpus_per_node = 1\nscratch = "/local/$SLURM_JOB_ID"\n'
        f'mounts = ["{data}:{data}:ro", "/hub:/models"]\n'
    )
    asked = ("--set", f"data={data}/x.json")
    text = dry_run(tmp_path, "slurm", site, *asked, out=str(runs / "one"))
    options_of(text)
    words = next(x for x in text.splitlines() if "lab/plait:1" in x)
    shown = subprocess.run(
        ["bash", "-c", f"TMPDIR=/local/7; printf '%s\\n' {words.removesuffix(chr(92))}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    here = str(Path.cwd())
    wanted = [f"{data}:{data}:ro", "/hub:/models", f"{here}:{here}"]
    wanted += [f"{path}:{path}" for path in (runs / "one", tmp_path)]
    wanted += ["/local/7:/local/7"]
    if container == "pyxis":
        assert f"--container-mounts={','.join(wanted)}" in shown
        assert {"--container-image=lab/plait:1", f"--container-workdir={here}"} <= {*shown}
    else:
        place = shown.index("apptainer")
        command = ["apptainer", "exec", "--nv", "--pwd", here, "--bind", ",".join(wanted)]
        assert shown[place : place + 9] == [*command, "lab/plait:1", "bash"]


def test_a_folder_that_cannot_be_mounted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="comma"):
        dry_run(tmp_path, "slurm", '[cluster]\nimage = "x"', out=str(tmp_path / "a,b"))


@pytest.mark.parametrize("scratch", ["/a;b", "a/b", '/a"b', "/a b", "/`id`", "/$(id)"])
def test_a_script_holds_no_other_command(scratch: str) -> None:
    with pytest.raises(ValueError, match="whole path"):
        ClusterSettings(scratch=scratch)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("12:00:00", 43200),
        ("2-0", 172800),
        ("1-2:30", 95400),
        ("1-2:30:10", 95410),
        ("0", None),
        ("UNLIMITED", None),
    ],
)
def test_time_limits_of_slurm(time: str, seconds: int | None) -> None:
    assert seconds_of(time) == seconds


@pytest.mark.parametrize("time", ["", "tomorrow", "12h", "1:2:3:4", "-5", "1.5", "2-"])
def test_what_is_no_time_limit_is_refused(time: str) -> None:
    with pytest.raises(ValidationError, match="time limit of Slurm"):
        ClusterSettings(time=time)


@pytest.mark.parametrize(
    ("settings", "works"),
    [
        ({"time": "00:01:00"}, False),
        ({"time": "2"}, False),
        ({"time": "00:02:01"}, True),
        ({"time": "00:01:00", "requeue_before_s": 30}, True),
        ({"time": "UNLIMITED"}, True),
    ],
)
def test_a_time_limit_leaves_time_to_work(settings: dict[str, Any], works: bool) -> None:
    if works:
        ClusterSettings(**settings)
    else:
        with pytest.raises(ValueError, match="requeue_before_s"):
            ClusterSettings(**settings)


@pytest.mark.parametrize(
    ("name", "logs"),
    [
        ("50% of runs", "50%% of runs/jobs/slurm-%j.log"),
        ("the lab's", "the lab's/jobs/slurm-%j.log"),
        ("two  spaces #1", "two  spaces #1/jobs/slurm-%j.log"),
    ],
)
def test_the_log_of_a_job_may_have_any_path(tmp_path: Path, name: str, logs: str) -> None:
    text = dry_run(tmp_path, "slurm", out=str(tmp_path / name))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    (option,) = (line for line in text.splitlines() if "--output" in line)
    # Slurm splits these lines as a shell does.
    assert shlex.split(option.removeprefix("#SBATCH ")) == [f"--output={tmp_path / logs}"]


def test_a_path_that_slurm_cannot_be_given_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="backslash"):
        dry_run(tmp_path, "slurm", out=str(tmp_path / "a\\\\b"))


@pytest.mark.processes
@pytest.mark.parametrize("in_bucket", [False, True])
@pytest.mark.parametrize("nodes", [1, 4])
def test_an_array_has_a_shard_for_each_job_of_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, in_bucket: bool
) -> None:
    """The script and logs of a run in a bucket are where the command is given."""
    monkeypatch.chdir(tmp_path)
    out = BUCKET if in_bucket else f"{tmp_path}/runs/MMIE_1"
    jobs = tmp_path / "jobs" / "MMIE_1" if in_bucket else Path(out) / "jobs"
    text = dry_run(tmp_path, "slurm", SITE, "--array", "16", out=out, nodes=nodes)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    options = {x.split()[1] for x in text.splitlines() if x.startswith("#SBATCH")}
    logs = f"--output={jobs}/slurm-%A_%a.log"
    assert {"--array=1-16", "--nodes=1", "--requeue", logs} <= options
    (command,) = (line for line in text.splitlines() if "--shard" in line)
    shown = ["bash", "-c", f"SLURM_ARRAY_TASK_ID=3; echo {command.strip().rstrip('&')}"]
    said = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    assert said.endswith(f"--out {out} --shard 3/16\n")
    assert "symmetric-run" not in text
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho 7\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = ["submit", str(tmp_path / "run.toml"), "--to", "slurm", "--array", "16"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert f"plait report {out}\n" in done.stdout
    assert (jobs / "job.sh").exists()


def test_an_array_is_for_slurm(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        dry_run(tmp_path, "kuberay", SITE, "--array", "16", nodes=4)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("nodes", "more", "requeued"),
    [(1, (), "7"), (2, (), "7"), (1, ("--array", "4"), "5_4")],
)
def test_a_job_told_before_plait_has_started_is_queued_again(
    tmp_path: Path, nodes: int, more: tuple[str, ...], requeued: str
) -> None:
    """Its number, and so the file with the id of plait's process, may be a former one's.

    Of an array no other job is queued again, though one of them has the array's number.
    """
    script = tmp_path / "job.sh"
    script.write_text(dry_run(tmp_path, "slurm", f"[cluster]\nnodes = {nodes}", *more))
    told, jobs = tmp_path / "told", tmp_path / "runs" / "MMIE_1" / "jobs"
    jobs.mkdir(parents=True)
    for name, body in [("srun", "sleep 600"), ("scontrol", 'echo "$@"'), ("getent", "")]:
        (tmp_path / name).write_text(f"#!/bin/sh\n(echo {name}; {body}) >> {told}\n")
        (tmp_path / name).chmod(0o755)
    other = subprocess.Popen(["sleep", "600"])
    (jobs / "7.pid").write_text(f"{other.pid}\n")
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    environ |= {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "4"}
    job = subprocess.Popen(["bash", str(script)], env=environ, start_new_session=True)
    try:
        wait_for(told, "srun")
        job.send_signal(signal.SIGUSR1)
        wait_for(told, f"requeue {requeued}\n")
        assert other.poll() is None
    finally:
        other.kill()
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        other.wait()


@pytest.mark.parametrize(
    ("made", "queued"),
    [((0, 0), 1), (("none", "none"), 1), ((0, 5, 0, 0), 3), ((1, 1, 1), 3)],
)
def test_a_job_is_not_queued_again_after_two_starts_that_made_nothing(
    tmp_path: Path, made: tuple[int | str, ...], queued: int
) -> None:
    """A time limit may be shorter than loading, which nobody can know before."""
    script = tmp_path / "job.sh"
    told = tmp_path / "told"
    said = tmp_path / "said"
    script.write_text(dry_run(tmp_path, "slurm"))
    (tmp_path / "runs" / "MMIE_1" / "jobs").mkdir(parents=True)
    for name, body in [
        ("srun", '[ "$MADE" = none ] || echo $MADE > "$PLAIT_MADE_FILE"'),
        ("scontrol", f'echo "$@" >> {told}; exit'),
    ]:
        began = f"echo > {tmp_path}/{name}.began"
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n{began}\nsleep 600\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environ = os.environ | {"PATH": path, "SLURM_JOB_ID": "7"}
    for start, number in enumerate(made, start=1):
        (tmp_path / "srun.began").unlink(missing_ok=True)
        with said.open("a") as log:
            job = subprocess.Popen(
                ["bash", str(script)],
                env=environ | {"MADE": str(number)},
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_until(lambda: (tmp_path / "srun.began").exists())
            job.send_signal(signal.SIGUSR1)
            wait_until(lambda n=start: len(lines(told) + lines(said)) == n)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert lines(told) == ["requeue 7"] * queued


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def wait_for(file: Path, word: str) -> None:
    wait_until(lambda: file.exists() and word in file.read_text())


@pytest.mark.processes
def test_without_sbatch_the_script_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "run.toml").write_text(CONFIG.format(out=tmp_path / "out"))
    done = CliRunner().invoke(app, ["submit", str(tmp_path / "run.toml"), "--to", "slurm"])
    assert isinstance(done.exception, UsageError)
    assert "sbatch" in str(done.exception)
    assert (tmp_path / "out" / "jobs" / "job.sh").exists()


@pytest.mark.processes
@pytest.mark.parametrize(("to", "name"), [("slurm", "sbatch"), ("kuberay", "kubectl")])
def test_what_a_cluster_refuses_is_said_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, name: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / name
    program.write_text("#!/bin/sh\necho no such account >&2\nexit 1\n")
    program.chmod(0o755)
    config = (CONFIG + SITE).format(out=tmp_path / "out", nodes=1)
    (tmp_path / "run.toml").write_text(config)
    done = CliRunner().invoke(app, ["submit", str(tmp_path / "run.toml"), "--to", to])
    assert isinstance(done.exception, UsageError)
    assert "no such account" in str(done.exception)

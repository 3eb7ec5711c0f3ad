"""`plait fetch`: the command against a Hub on loopback, and what a cache then holds."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cli_helpers import plait
from cli_helpers import plait_process as process
from rich.console import Console

from plait.listing import fetch

pytestmark = pytest.mark.contract

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"model_type": "internvl_chat"}',
    "model.safetensors": b"weights" * 100,
}


class Hub(ThreadingHTTPServer):
    """Speaks as much of the Hub's protocol as its client needs to take a snapshot."""

    daemon_threads = True

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def reply(self, path: str) -> tuple[bytes, dict[str, str]] | None:
        for repo, files in self.repositories.items():
            if path in (f"/api/models/{repo}", f"/api/models/{repo}/revision/main"):
                about = {"id": repo, "modelId": repo, "sha": COMMIT, "private": False}
                listed = {"siblings": [{"rfilename": name} for name in files]}
                return json.dumps(about | listed).encode(), {}
            if path == f"/api/models/{repo}/tree/{COMMIT}":
                return json.dumps([_entry(*file) for file in files.items()]).encode(), {}
            name = path.removeprefix(f"/{repo}/resolve/{COMMIT}/")
            if name in files:
                etag = hashlib.sha256(files[name]).hexdigest()
                return files[name], {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}
        return None


def _entry(name: str, content: bytes) -> dict[str, object]:
    oid = hashlib.sha1(content).hexdigest()
    return {"type": "file", "path": name, "size": len(content), "oid": oid}


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._give(with_body=False)

    def do_GET(self) -> None:
        self._give(with_body=True)

    def _give(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        found = self.server.reply(path)
        data, headers = found or (b"", {"X-Error-Code": "RepoNotFound"})
        self.send_response(200 if found else 404)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def hub_with(*repositories: str) -> Iterator[Hub]:
    hub = Hub(dict.fromkeys(repositories, FILES))
    thread = threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """A cache of its own, and no network."""
    return {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}


def online(offline: dict[str, str], hub: Hub) -> dict[str, str]:
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    quiet |= {"HF_HUB_ETAG_TIMEOUT": "60", "HF_HUB_DOWNLOAD_TIMEOUT": "60"}
    return offline | quiet | {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub.url}


WEIGHTS = {
    "judge:mmie-score": "MMIE/MMIE-Score",
    "judge:qwen2-vl-7b": "Qwen/Qwen2-VL-7B-Instruct",
    "judge:hf:some/model": "some/model",
    "qwen2-vl-72b": "Qwen/Qwen2-VL-72B-Instruct",
}


@pytest.mark.processes
def test_weights_of_judges_and_lvlms_come_into_the_cache(
    offline: dict[str, str], tmp_path: Path
) -> None:
    judge, *names = WEIGHTS
    config = tmp_path / "run.toml"
    config.write_text(f'systems = ["gt", "gt:no-images"]\nscorers = ["{judge}"]\n')
    words = ["--system", "gt", "--weights", "pretrained", "--limit", "1", "--out", "none"]
    for name in WEIGHTS:
        words += ["--scorer", name if name.startswith("judge:") else f"judge:{name}"]
    with hub_with(*WEIGHTS.values(), "MMIE/other") as hub:
        done = process("fetch", *names, str(config), **online(offline, hub))
    assert done.returncode == 0, done.stderr
    assert not any("other" in path for path in hub.asked)
    for repo in WEIGHTS.values():
        assert f"fetching {repo} (main)" in done.stdout
        cache = Path(offline["HF_HOME"]) / "hub" / f"models--{repo.replace('/', '--')}"
        kept = {p.name: p.read_bytes() for p in (cache / "snapshots" / COMMIT).iterdir()}
        assert kept == FILES
    planned = process("plan", *words, **offline)
    assert planned.returncode == 0, planned.stderr
    assert "missing" not in planned.stdout


@pytest.mark.processes
def test_what_the_hub_does_not_have_is_told(offline: dict[str, str]) -> None:
    with hub_with("MMIE/other") as hub:
        done = process("fetch", "judge:mmie-score", **online(offline, hub))
    assert done.returncode == 2
    assert "'MMIE/MMIE-Score' cannot be fetched" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_judge_and_names_without_weights_are_told() -> None:
    done = plait("fetch", "judge:mmie-scores")
    assert done.returncode == 2
    assert "mmie-scores" in done.stderr
    done = plait("fetch", "judge:gpt-4o", "bleu")
    assert done.returncode == 0, done.stderr
    for name, line in zip(("judge:gpt-4o", "bleu"), done.stdout.splitlines(), strict=True):
        assert line == f"{name} has no weights to fetch"


@pytest.mark.models
def test_a_weights_file_is_fetched_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"net-{hashlib.sha256(b'weights').hexdigest()[:8]}.pth"
    (tmp_path / name).write_bytes(b"weights")
    config = tmp_path / "run.toml"
    lines = ['systems = ["gt"]', 'scorers = ["fid"]', 'data = "sample"']
    config.write_text("\n".join([*lines, f'models.fid.model = "file://{tmp_path}/{name}"']))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    assert fetch([str(config)], Console()) == 0
    fetched = tmp_path / "torch" / "hub" / "checkpoints" / name
    assert fetched.read_bytes() == b"weights"


@pytest.mark.parametrize(
    ("name", "words"),
    [("pytorch_lora_weights.safetensors", "holds an adapter"), ("w.ckpt", "one file")],
)
def test_folders_that_cannot_be_used_are_named(
    tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / name).write_bytes(b"weights")
    model = tmp_path if "adapter" in words else tmp_path / name
    file = tmp_path / "run.toml"
    file.write_text(
        'systems = ["openjourney@t2i"]\nscorers = []\nweights = "pretrained"\n'
        f'[models.openjourney]\nmodel = "{model}"\n'
    )
    console = Console(width=1000, record=True)
    assert fetch([str(file)], console) == 0
    assert words in console.export_text()

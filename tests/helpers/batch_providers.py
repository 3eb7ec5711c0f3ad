"""Batch APIs of providers in front of the stand-in server of `endpoint_helpers`.

Batches stay open until a test ends them; then each request is answered by the server's own
script, as if it had been sent alone.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

from endpoint_helpers import Answer, Asked, Sent, Server, error, form_of


@dataclass
class Job:
    """A batch as the provider keeps it."""

    id: str
    name: str | None
    lines: list[dict[str, Any]]
    state: str = ""
    files: dict[str, str] = field(default_factory=dict)
    """Ids of its files of replies, by what the API calls them."""
    errors: list[dict[str, Any]] = field(default_factory=list)


class Provider(ABC):
    """Files and batches of one account."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.files: dict[str, bytes] = {}
        self.jobs: dict[str, Job] = {}
        self.fault: Callable[[Sent], Answer | None] = lambda sent: None
        """What goes wrong before a request is obeyed."""
        self.after: Callable[[Sent], Answer | None] = lambda sent: None
        """What goes wrong once it has been."""
        self._numbers = count(1)
        server.beforehand = self.answer

    def answer(self, sent: Sent) -> Answer | None:
        """The provider's answer; None to what is no request of its batch API."""
        if not self.is_own(sent):
            return None
        if fault := self.fault(sent):
            return fault
        answer = self.obey(sent)
        return self.after(sent) or answer

    @abstractmethod
    def is_own(self, sent: Sent) -> bool:
        """Whether it is for the batch API."""

    @abstractmethod
    def obey(self, sent: Sent) -> Answer:
        """Do what is asked."""

    @abstractmethod
    def end(self, state: str | None = None, answered: int | None = None) -> None:
        """End all open batches, after so many replies in each."""

    def keep(self, content: bytes) -> str:
        """A new file's id."""
        name = f"file-{next(self._numbers)}"
        self.files[name] = content
        return name

    @property
    def asked(self) -> list[str]:
        """Keys of all requests that were ever handed in, in order."""
        return [self.key(line) for job in self.jobs.values() for line in job.lines]

    @abstractmethod
    def key(self, line: dict[str, Any]) -> str:
        """Of a request."""


def _lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def _written(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


class OpenAiProvider(Provider):
    """`/v1/files` and `/v1/batches`."""

    page = 2
    """Batches of one listing."""

    def is_own(self, sent: Sent) -> bool:
        return sent.path.startswith(("/v1/files", "/v1/batches"))

    def key(self, line: dict[str, Any]) -> str:
        return str(line["custom_id"])

    def obey(self, sent: Sent) -> Answer:
        parts = urlsplit(sent.path)
        _, _, kind, *rest = parts.path.split("/")
        match sent.method, kind, rest:
            case "POST", "files", []:
                return self._upload(sent)
            case "POST", "batches", []:
                return self._create(json.loads(sent.raw))
            case "GET", "files", [name, "content"] if name in self.files:
                return Answer(self.files[name])
            case "GET", "batches", [name] if name in self.jobs:
                return Answer(self._shown(self.jobs[name]))
            case "GET", "batches", []:
                return self._listed(parse_qs(parts.query))
        return Answer(error(f"no {sent.path}"), 404)

    def _upload(self, sent: Sent) -> Answer:
        form = form_of(sent.headers["content-type"], sent.raw)
        assert form["purpose"] == "batch"
        (file,) = form["file"]
        return Answer({"id": self.keep(file), "object": "file"})

    def _create(self, body: dict[str, Any]) -> Answer:
        assert body["completion_window"] == "24h"
        lines = _lines(self.files[body["input_file_id"]])
        for line in lines:
            assert (line["method"], line["url"]) == ("POST", body["endpoint"])
        name = f"batch_{next(self._numbers)}"
        job = Job(name, body["metadata"].get("plait"), lines, "validating")
        self.jobs[name] = job
        return Answer(self._shown(job))

    def _shown(self, job: Job) -> dict[str, Any]:
        errors = {"object": "list", "data": job.errors} if job.errors else None
        return {
            "id": job.id,
            "object": "batch",
            "status": job.state,
            "metadata": None if job.name is None else {"plait": job.name},
            "request_counts": {"total": len(job.lines), "completed": 0, "failed": 0},
            "errors": errors,
            "output_file_id": job.files.get("output"),
            "error_file_id": job.files.get("error"),
        }

    def _listed(self, query: dict[str, list[str]]) -> Answer:
        newest = list(self.jobs)[::-1]
        first = newest.index(query["after"][0]) + 1 if "after" in query else 0
        page = newest[first : first + self.page]
        shown = [self._shown(self.jobs[name]) for name in page]
        return Answer({"data": shown, "has_more": first + self.page < len(newest)})

    def end(self, state: str | None = None, answered: int | None = None) -> None:
        for job in self.jobs.values():
            if job.state in ("validating", "in_progress"):
                self._end(job, state or "completed", answered)

    def _end(self, job: Job, state: str, answered: int | None) -> None:
        job.state = state
        output: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        most = len(job.lines) if answered is None else answered
        for number, line in enumerate(job.lines):
            own = {"id": f"r{number}", "custom_id": line["custom_id"]}
            if number >= most:
                late = {"code": "batch_expired", "message": "it came too late"}
                if state == "expired":
                    failed.append(own | {"response": None, "error": late})
                continue
            reply = self.server.script(Asked(line["body"], line["url"], {}))
            response = {"status_code": reply.status, "body": reply.body}
            place = output if reply.status == 200 else failed
            place.append(own | {"response": response, "error": None})
        output.reverse()  # replies have no order
        if output:
            job.files["output"] = self.keep(_written(output))
        if failed:
            job.files["error"] = self.keep(_written(failed))


class GeminiProvider(Provider):
    """`batchGenerateContent`, and files of Gemini's own API."""

    def is_own(self, sent: Sent) -> bool:
        path = sent.path
        listed = path.startswith(("/upload/", "/download/", "/v1beta/batches"))
        return listed or ":batchGenerateContent" in path

    def key(self, line: dict[str, Any]) -> str:
        return str(line["key"])

    def obey(self, sent: Sent) -> Answer:
        path = urlsplit(sent.path).path
        if path == "/upload/v1beta/files":
            return self._upload(sent)
        if path.endswith(":batchGenerateContent"):
            return self._create(json.loads(sent.raw)["batch"])
        if path.startswith("/download/v1beta/files/"):
            name = path.removeprefix("/download/v1beta/files/").removesuffix(":download")
            return Answer(self.files[name])
        if path == "/v1beta/batches":
            return Answer({"operations": [self._shown(j) for j in self.jobs.values()]})
        name = path.removeprefix("/v1beta/")
        if name not in self.jobs:
            about = {"code": 404, "message": "no such batch", "status": "NOT_FOUND"}
            return Answer({"error": about}, 404)
        return Answer(self._shown(self.jobs[name]))

    def _upload(self, sent: Sent) -> Answer:
        if sent.headers["x-goog-upload-command"] == "start":
            place = f"{self.server.root}/upload/v1beta/files?upload_id=u1"
            return Answer({}, headers={"x-goog-upload-url": place})
        assert sent.headers["x-goog-upload-command"] == "upload, finalize"
        return Answer({"file": {"name": f"files/{self.keep(sent.raw)}"}})

    def _create(self, batch: dict[str, Any]) -> Answer:
        file = batch["inputConfig"]["fileName"].removeprefix("files/")
        name = f"batches/{next(self._numbers)}"
        lines = _lines(self.files[file])
        self.jobs[name] = Job(name, batch["displayName"], lines, "BATCH_STATE_PENDING")
        return Answer(self._shown(self.jobs[name]))

    def _shown(self, job: Job) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "name": job.id,
            "metadata": {"displayName": job.name, "state": job.state},
        }
        if "output" in job.files:
            file = f"files/{job.files['output']}"
            shown |= {"done": True, "response": {"responsesFile": file}}
        return shown

    def end(self, state: str | None = None, answered: int | None = None) -> None:
        for job in self.jobs.values():
            if job.state != "BATCH_STATE_PENDING":
                continue
            job.state = state or "BATCH_STATE_SUCCEEDED"
            lines: list[dict[str, Any]] = []
            for line in job.lines[:answered]:
                asked = Asked(line["request"], "models/parrot:generateContent", {})
                reply = self.server.script(asked)
                named = "response" if reply.status == 200 else "error"
                content = reply.body if reply.status == 200 else reply.body["error"]
                lines.append({"key": line["key"], named: content})
            if lines:
                job.files["output"] = self.keep(_written(lines))

"""What providers' batch APIs are sent, and what they say: OpenAI's and Gemini's."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, urlencode

import httpx2

from plait.pipelines.endpoints.client import EndpointClient, FormFile
from plait.pipelines.endpoints.errors import (
    MalformedReply,
    Redirected,
    SaidError,
    StatusError,
)
from plait.pipelines.endpoints.replies import at, of_type, read_body, text_at

_NAME = "plait"
"""Field of OpenAI's metadata that names a batch."""
_WINDOW = "24h"
_ENDED = ("completed", "failed", "expired", "cancelled")
_GEMINI_SUCCEEDED = "SUCCEEDED"
_GEMINI_LOST = ("FAILED", "CANCELLED", "EXPIRED")
"""How the states end in which no more replies will come, whatever prefix they have."""
_PAGE = 100
_CHUNK = 1 << 20
_JSONL = "application/jsonl"


@dataclass(frozen=True, slots=True)
class BatchLook:
    """What a provider says of a batch."""

    name: str | None
    """That plait gave it; None where the provider does not tell."""
    ended: bool
    """Whether no more replies will come."""
    said: str
    """Its state, for people."""
    files: tuple[str, ...] = ()
    """Where its replies are, as paths to be asked for."""


class BatchReply(NamedTuple):
    """One line of the replies to a batch."""

    key: str
    content: bytes = b""
    """What the API would have answered to the request alone."""
    error: StatusError | None = None
    """Its error, where it was one."""


class BatchApi(ABC):
    """How a provider takes requests in batches; all methods raise one of `ERRORS`."""

    def __init__(self, client: EndpointClient, path: str) -> None:
        """`path` is where each request would be sent alone."""
        self._client = client
        self._path = path

    @abstractmethod
    def line(self, key: str, body: Mapping[str, Any]) -> bytes:
        """Return a request as a line of a batch's file."""

    @abstractmethod
    async def upload(self, name: str, file: BinaryIO) -> str:
        """Return what names a file that was uploaded."""

    @abstractmethod
    async def create(self, name: str, file: str) -> str:
        """Return the id of a new batch of the requests in an uploaded file."""

    @abstractmethod
    async def find(self, name: str) -> str | None:
        """Return the id of the batch that was given a name; None where there is none."""

    @abstractmethod
    async def look(self, batch: str) -> BatchLook:
        """Return what is known of a batch."""

    @abstractmethod
    def read_line(self, line: bytes) -> BatchReply:
        """Return a line of the replies; MalformedReply for what is none."""

    async def _get(self, path: str) -> Mapping[str, Any]:
        return _read_object(await self._client.exchange(path))


def _read_object(content: bytes) -> Mapping[str, Any]:
    return read_body(dict, content)


def _id_in(content: bytes, path: str) -> str:
    found = text_at(_read_object(content), path)
    if not found:
        raise MalformedReply(f"no {path} in the reply")
    return found


class OpenAiBatches(BatchApi):
    """`/files` and `/batches` of the OpenAI API."""

    def line(self, key: str, body: Mapping[str, Any]) -> bytes:
        """Return a request under the key of its record."""
        whole = {"custom_id": key, "method": "POST", "url": f"/v1{self._path}"}
        return json.dumps(whole | {"body": body}).encode() + b"\n"

    async def upload(self, name: str, file: BinaryIO) -> str:
        """Return the id of the uploaded file."""
        purpose = {"purpose": "batch"}
        form = FormFile("file", f"{name}.jsonl", file, "application/jsonl")
        content = await self._client.upload("/files", purpose, [form])
        return _id_in(content, "id")

    async def create(self, name: str, file: str) -> str:
        """Return the id of a batch, whose metadata has the name."""
        body = {
            "input_file_id": file,
            "endpoint": f"/v1{self._path}",
            "completion_window": _WINDOW,
            "metadata": {_NAME: name},
        }
        return _id_in(await self._client.exchange("/batches", body), "id")

    async def find(self, name: str) -> str | None:
        """Return the id of the batch whose metadata has the name."""
        query: dict[str, Any] = {"limit": _PAGE}
        while True:
            listed = await self._get(f"/batches?{urlencode(query)}")
            batches = of_type(listed.get("data"), list, "data")
            for batch in batches:
                if text_at(batch, f"metadata.{_NAME}") == name:
                    return text_at(batch, "id")
            last = text_at(batches[-1], "id") if batches else None
            if not listed.get("has_more") or last is None:
                return None
            query["after"] = last

    async def look(self, batch: str) -> BatchLook:
        """Return the state of a batch, and its files of replies and of errors."""
        about = await self._get(f"/batches/{quote(batch, safe='')}")
        status = text_at(about, "status") or "no status"
        said = [status]
        if total := at(about, "request_counts.total"):
            said.append(f"{at(about, 'request_counts.completed')} of {total} done")
        errors = at(about, "errors.data")
        for error in errors if isinstance(errors, list) else ():
            said.append(f"{text_at(error, 'code')}: {text_at(error, 'message')}")
        named = (text_at(about, name) for name in ("output_file_id", "error_file_id"))
        return BatchLook(
            name=text_at(about, f"metadata.{_NAME}"),
            ended=status in _ENDED,
            said=", ".join(said),
            files=tuple(f"/files/{quote(f, safe='')}/content" for f in named if f),
        )

    def read_line(self, line: bytes) -> BatchReply:
        """Return a line of either file."""
        said = _read_object(line)
        key = str(of_type(said.get("custom_id"), str, "custom_id"))
        response = said.get("response")
        if not isinstance(response, Mapping):
            return BatchReply(key, error=SaidError(said.get("error")))
        content = json.dumps(response.get("body")).encode()
        status = response.get("status_code")
        if status == 200:
            return BatchReply(key, content)
        reply = httpx2.Response(status if isinstance(status, int) else 500)
        return BatchReply(key, error=StatusError(reply, content))


class GeminiBatches(BatchApi):
    """`batchGenerateContent` of Gemini's own API, with files of requests and replies."""

    def __init__(self, client: EndpointClient, path: str, version: str) -> None:
        """`path` is that of the model, `version` that of the API."""
        super().__init__(client, path)
        self._version = version

    def line(self, key: str, body: Mapping[str, Any]) -> bytes:
        """Return a request under the key of its record."""
        return json.dumps({"key": key, "request": body}).encode() + b"\n"

    async def upload(self, name: str, file: BinaryIO) -> str:
        """Return the name of the uploaded file: one request begins, another has it."""
        size = file.seek(0, os.SEEK_END)
        begun = await self._client.post(
            f"/upload/{self._version}/files",
            {
                "x-goog-upload-protocol": "resumable",
                "x-goog-upload-command": "start",
                "x-goog-upload-header-content-length": str(size),
                "x-goog-upload-header-content-type": _JSONL,
                "content-type": "application/json",
            },
            json.dumps({"file": {"displayName": name}}).encode(),
        )
        place = begun.headers.get("x-goog-upload-url", "")
        if not place.startswith(f"{self._client.settings.url}/"):
            # The key is for one address.
            raise Redirected(begun.status_code, place)
        sent = await self._client.post(
            place.removeprefix(self._client.settings.url),
            {
                "x-goog-upload-offset": "0",
                "x-goog-upload-command": "upload, finalize",
                "content-length": str(size),
                "content-type": _JSONL,
            },
            _chunks(file),
        )
        return _id_in(sent.content, "file.name")

    async def create(self, name: str, file: str) -> str:
        """Return the name of a batch that is shown under plait's."""
        batch = {"displayName": name, "inputConfig": {"fileName": file}}
        path = f"{self._path}:batchGenerateContent"
        return _id_in(await self._client.exchange(path, {"batch": batch}), "name")

    async def find(self, name: str) -> str | None:
        """Return the name of the batch that is shown under plait's."""
        query: dict[str, Any] = {"pageSize": _PAGE}
        while True:
            listed = await self._get(f"/{self._version}/batches?{urlencode(query)}")
            for batch in of_type(listed.get("operations") or [], list, "operations"):
                if text_at(batch, "metadata.displayName") == name:
                    return text_at(batch, "name")
            token = text_at(listed, "nextPageToken")
            if not token:
                return None
            query["pageToken"] = token

    async def look(self, batch: str) -> BatchLook:
        """Return the state of a batch, and its file of replies."""
        about = await self._get(f"/{self._version}/{quote(batch)}")
        state = text_at(about, "metadata.state | state") or "no state"
        said = [state]
        if message := text_at(about, "error.message"):
            said.append(message)
        # The documentation has it in all three places.
        file = text_at(
            about, "response.responsesFile | metadata.output.responsesFile | dest.fileName"
        )
        # A batch may be said to have succeeded a moment before its file is named.
        complete = state.endswith(_GEMINI_SUCCEEDED) and file is not None
        path = f"/download/{self._version}/{file}:download?alt=media"
        return BatchLook(
            name=text_at(about, "metadata.displayName"),
            ended=about.get("done") is True or complete or state.endswith(_GEMINI_LOST),
            said=", ".join(said),
            files=(path,) if file else (),
        )

    def read_line(self, line: bytes) -> BatchReply:
        """Return a line of the replies."""
        said = _read_object(line)
        key = str(of_type(said.get("key"), str, "key"))
        if said.get("error"):
            return BatchReply(key, error=SaidError(said["error"]))
        return BatchReply(key, json.dumps(said.get("response")).encode())


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK):
        yield chunk

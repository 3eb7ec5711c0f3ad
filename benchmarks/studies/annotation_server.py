"""The page of `plait annotate` on 127.0.0.1, for several raters, whose answers it keeps."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote

from plait.benchmarks.studies.annotate import ANSWERS, PAGE, read_key
from plait.generators.errors import UsageError
from plait.generators.files import safe_name, write_whole

HOST = "127.0.0.1"
_MOST = 8 << 20
"""Bytes of a rater's answers: some 100,000 keys."""


class _Handler(SimpleHTTPRequestHandler):
    """The page's files, and `answers/RATER`, which GET reads and PUT replaces.

    PUT needs the revision after the one that is kept, so that of two windows only one
    writes; the kept one sent again is fine, since its reply may have been lost.
    """

    lock = Lock()

    def __init__(self, *args: Any, folder: Path, study: str, **kwargs: Any) -> None:
        self.folder = folder
        self.study = study
        super().__init__(*args, directory=str(folder / PAGE), **kwargs)

    def do_GET(self) -> None:
        if not self._is_local():
            return self._reply(HTTPStatus.FORBIDDEN)
        if self.path.startswith(f"/{ANSWERS}/"):
            kept = self._answers_file()
            return self._reply(
                HTTPStatus.OK, kept.read_bytes() if kept.exists() else b"null"
            )
        if self.path == "/":
            page = (self.folder / PAGE / "index.html").read_bytes()
            page = page.replace(b"<html ", b"<html data-served ", 1)
            return self._reply(HTTPStatus.OK, page, "text/html; charset=utf-8")
        return super().do_GET()

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not self._is_local() or not self.path.startswith(f"/{ANSWERS}/"):
            return self._reply(HTTPStatus.FORBIDDEN)
        if not length.isdecimal() or int(length) > _MOST:
            # The body stays unread, and would be taken for the next request.
            self.close_connection = True
            return self._reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = self.rfile.read(int(length))
        kept = self._answers_file()
        try:
            sent = json.loads(body)
            about = sent["study"], sent["rater"], type(sent["revision"])
        except (ValueError, TypeError, KeyError):
            about = None
        if about != (self.study, self._rater(), int):
            return self._reply(HTTPStatus.BAD_REQUEST)
        with self.lock:
            known = json.loads(kept.read_bytes()) if kept.exists() else {"revision": 0}
            if sent != known and sent["revision"] != known["revision"] + 1:
                return self._reply(HTTPStatus.CONFLICT)
            write_whole(kept, body)
        return self._reply(HTTPStatus.NO_CONTENT)

    def _is_local(self) -> bool:
        """Whether the browser asked for this machine: no site elsewhere can pose as it."""
        return self.headers.get("Host", "").partition(":")[0] in (HOST, "localhost")

    def _rater(self) -> str:
        return unquote(self.path.removeprefix(f"/{ANSWERS}/"))

    def _answers_file(self) -> Path:
        name = self._rater()
        # Different names may be one in the letters of a file name.
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self.folder / ANSWERS / f"{safe_name(name)[:40]}-{digest[:8]}.json"

    def _reply(
        self, status: HTTPStatus, body: bytes = b"", kind: str = "application/json"
    ) -> None:
        self.send_response(status)
        if body:
            self.send_header("Content-Type", kind)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def server_of(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return the server of the page in `folder`, listening; 0 takes any free port.

    UsageError where the port cannot be had.
    """
    handler = partial(_Handler, folder=folder, study=read_key(folder)["study"])
    try:
        return ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        raise UsageError(f"port {port} of {HOST}: {error.strerror}") from None


def serve(server: ThreadingHTTPServer) -> None:
    """Answer until Ctrl-C."""
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()

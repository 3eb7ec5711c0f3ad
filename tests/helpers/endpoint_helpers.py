"""An OpenAI-compatible server on loopback that misbehaves on request."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from generators.document import Image, Request, Text, Turn
from pipelines.endpoints.chat import ChatEndpoint

KEY = "sk-secret-0123456789"
MODEL = "parrot"


@dataclass(frozen=True)
class Answer:
    """What the server does with one request."""

    body: Any = None
    """JSON when it is a dict, else raw bytes."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    how: str = "answer"
    """`answer`, `drop` the connection, `stall` before or after the `headers`, `drip`."""
    hold_s: float = 0.0


def completion(
    text: str | None, finish: str | None = "stop", **message: Any
) -> dict[str, Any]:
    """A chat completion of the OpenAI API."""
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text, **message},
    }
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    about = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL + "-0806",
    }
    return about | {"choices": [choice], "usage": usage}


def error(message: str, code: str | None = None) -> dict[str, Any]:
    """An error body of the OpenAI API."""
    return {"error": {"message": message, "type": "some_error", "code": code}}


def echo(body: dict[str, Any]) -> Answer:
    """The last user's text, said back."""
    content = body["messages"][-1]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return Answer(completion("".join(p.get("text", "<pic>") for p in parts)))


class Server(ThreadingHTTPServer):
    """Answers by `script` once the preflight, always answered well, is over."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: Callable[[dict[str, Any]], Answer] = echo
        self.preflight: Callable[[dict[str, Any]], Answer] = echo
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.preflights = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.guard = threading.Lock()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def in_turn(self, *answers: Answer) -> None:
        """Give these answers one after another, then echo."""
        rest = iter(answers)
        self.script = lambda body: next(rest, None) or echo(body)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections cut on purpose are no news."""


AnyServer = TypeVar("AnyServer", bound=Server)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = self._chosen(body)
        with self._counted():
            time.sleep(answer.hold_s)
        self._give(answer)

    def _chosen(self, body: dict[str, Any]) -> Answer:
        first = body["messages"][0]["content"]
        server = self.server
        with server.guard:
            server.keys.append(self.headers.get("authorization"))
            if isinstance(first, str) and first.startswith("Reply with the word"):
                server.preflights += 1
                return server.preflight(body)
            server.bodies.append(body)
            return server.script(body)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        server = self.server
        with server.guard:
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
        yield
        with server.guard:
            server.in_flight -= 1

    def _give(self, answer: Answer) -> None:
        if answer.how == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if answer.how == "stall":
            self.server.released.wait()
            return
        data = answer.body
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(answer.status)
        headers = {"content-type": "application/json", "content-length": str(len(data))}
        for name, value in (headers | answer.headers).items():
            self.send_header(name, value)
        self.end_headers()
        self._send(data, answer.how)

    def _send(self, data: bytes, how: str) -> None:
        if how == "headers":
            self.wfile.flush()
            self.server.released.wait()
        if how == "drip":
            for i in range(len(data)):
                self.wfile.write(data[i : i + 1])
                self.wfile.flush()
                if self.server.released.wait(0.05):
                    return
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server that ends with the context, its stalled requests too."""
    with running(Server()) as server:
        yield server


@contextlib.contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    """`server` in a thread, ended with the context."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def asking(server: Server, **settings: Any) -> Iterator[ChatEndpoint]:
    """A stage that asks `server`, quick to lose patience."""
    quick = {"timeout_s": 5.0, "give_up_s": 30.0, "backoff_s": 0.01, "max_attempts": 3}
    options = {"model": MODEL, "base_url": server.url, **quick, **settings}
    stage = ChatEndpoint(**options)
    try:
        yield stage
    finally:
        stage.close()


def says(*content: str | Image, seed: int | None = None) -> Request:
    """A request of one user's turn."""
    segments = tuple(Text(c) if isinstance(c, str) else c for c in content)
    return Request((Turn("user", segments),), seed)

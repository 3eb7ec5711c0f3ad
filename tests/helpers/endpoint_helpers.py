"""A model server on loopback that speaks all APIs and misbehaves on request.

`endpoint_apis` says what it answers by default, in the form of each API.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from plait.generators.document import Image, Request, Text, Turn
from plait.pipelines.endpoints.chat import ChatEndpoint

KEY = "sk-secret-0123456789"
MODEL = "parrot"
QUICK = {"timeout_s": 60.0, "give_up_s": 600.0, "backoff_s": 0.001, "max_attempts": 3}


@dataclass(frozen=True)
class Answer:
    """What the server does with one request."""

    body: Any = None
    """JSON unless it is bytes."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    how: str = "answer"
    """`answer`, `drop` the connection, `stall` before or after the `headers`, `drip`."""
    hold_s: float = 0.0
    beside: int = 0
    """It is held until so many requests are in flight, its own among them."""


@dataclass(frozen=True)
class Sent:
    """Any request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes


def form_of(content_type: str, raw: bytes) -> dict[str, Any]:
    """The fields of a form as text, and lists of the bytes of its files."""
    boundary = content_type.partition("boundary=")[2].encode()
    form: dict[str, Any] = {}
    for part in raw.split(b"--" + boundary)[1:-1]:
        head, _, content = part[2:-2].partition(b"\r\n\r\n")
        name = head.partition(b'name="')[2].partition(b'"')[0].decode()
        if b"filename=" in head:
            form.setdefault(name, []).append(content)
        else:
            form[name] = content.decode()
    return form


class Asked(dict[str, Any]):
    """The body of a POST: JSON, or a form."""

    def __init__(self, body: dict[str, Any], path: str, headers: dict[str, str]) -> None:
        super().__init__(body)
        self.path, self.headers = path, headers

    @property
    def key(self) -> str:
        sent = self.headers.get("x-goog-api-key") or self.headers.get("authorization", "")
        return sent.removeprefix("Bearer ")


def completion(
    text: Any, finish: str | None = "stop", usage: Any = None, **message: Any
) -> dict[str, Any]:
    """A chat completion of the OpenAI API."""
    message = {"role": "assistant", "content": text, **message}
    counts: dict[str, Any] = {"prompt_tokens": 11, "completion_tokens": 7}
    counts |= {"total_tokens": 18, "prompt_tokens_details": {"cached_tokens": 5}}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL + "-0806",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": counts if usage is None else usage,
    }


def error(message: str, code: str | None = None, param: str | None = None) -> Any:
    """An error body of the OpenAI API."""
    return {"error": {"message": message, "type": "t", "param": param, "code": code}}


def echo(body: dict[str, Any]) -> Answer:
    """The last user's text, said back."""
    content = body["messages"][-1]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return Answer(completion("".join(p.get("text", "<pic>") for p in parts)))


def models(path: str) -> Answer:
    """The lists of models of OpenAI and of Gemini."""
    if path.endswith("/models"):
        return Answer({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
    return Answer({"name": f"models/{MODEL}", "displayName": "Parrot"})


class Server(ThreadingHTTPServer):
    """Answers POST by `script`, first requests of chat endpoints by `preflight`."""

    daemon_threads = True

    def __init__(self, script: Callable[[Any], Answer] = echo) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.default = script
        self.guard = threading.Condition()
        self.released = threading.Event()
        self.reset()

    def reset(self) -> None:
        self.script = self.default
        self.preflight: Callable[[Any], Answer] = echo
        self.beforehand: Callable[[Sent], Answer | None] = lambda sent: None
        """Answers what is for a batch API; None for anything else."""
        self.get = models
        self.bodies: list[Asked] = []
        self.keys: list[str] = []
        self.paths: list[str] = []
        """Of GET."""
        self.preflights = 0
        self.in_flight = 0
        self.most_in_flight = 0

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def in_turn(self, *answers: Answer) -> None:
        """Give these answers one after another, then go on as usual."""
        rest = iter(answers)
        self.script = lambda body: next(rest, None) or self.default(body)

    def always(self, body: Any, status: int = 200, **about: Any) -> None:
        """Give every request this answer."""
        answer = body if isinstance(body, Answer) else Answer(body, status, **about)
        self.script = lambda _: answer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections cut on purpose are no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        answer = self.server.beforehand(self._sent(b""))
        self._give(answer or self.server.get(self.path))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        if answer := self.server.beforehand(self._sent(raw)):
            self._give(answer)
            return
        kind = self.headers["content-type"]
        read = form_of(kind, raw) if kind.startswith("multipart/") else json.loads(raw)
        body = Asked(read, self.path, {k.lower(): v for k, v in self.headers.items()})
        server = self.server
        with server.guard:
            answer = self._chosen(body)
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
            server.guard.notify_all()
            met = server.guard.wait_for(lambda: server.most_in_flight >= answer.beside, 60)
            assert met, "the others never came"
        time.sleep(answer.hold_s)
        with server.guard:
            server.in_flight -= 1
        self._give(answer)

    def _sent(self, raw: bytes) -> "Sent":
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Sent(self.command, self.path, headers, raw)

    def _chosen(self, body: Asked) -> Answer:
        server = self.server
        server.keys.append(body.key)
        if "Reply with the word" in str(body.get("messages", "")):
            server.preflights += 1
            return server.preflight(body)
        server.bodies.append(body)
        return server.script(body)

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
        if answer.how == "headers":
            self.wfile.flush()
            self.server.released.wait()
        for i in range(len(data) if answer.how == "drip" else 0):
            self.wfile.write(data[i : i + 1])
            self.wfile.flush()
            if self.server.released.wait(0.05):
                return
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving(script: Callable[[Any], Answer] = echo) -> Iterator[Server]:
    """A server that ends with the context, its stalled requests too."""
    server = Server(script)
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
def asking(server: Server, stage: Any = ChatEndpoint, **settings: Any) -> Iterator[Any]:
    """A stage that asks `server`, and soon asks again."""
    asks = stage(**{"model": MODEL, "base_url": server.url, **QUICK, **settings})
    try:
        yield asks
    finally:
        asks.close()


def says(*content: str | Image, seed: int | None = None) -> Request:
    """A request of one user's turn."""
    segments = tuple(Text(c) if isinstance(c, str) else c for c in content)
    return Request((Turn("user", segments),), seed)

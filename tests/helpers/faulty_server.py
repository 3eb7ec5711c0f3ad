"""A chat server that plait may start, with faults that its arguments ask for.

python tests/helpers/faulty_server.py --port 8000 --die-after 3
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PIXELS = (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAAAAADRSSBWAAAAC0lEQVR4nGNgOAEAAMsAyWnIw2wAAAAA"
    "SUVORK5CYII="
)
"""A PNG of two pixels."""
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--port", type=int, required=True)
    add("--exit", help="say this and exit with status 3")
    add("--never-healthy", action="store_true")
    add("--die-after", type=int, help="requests until it kills itself")
    add("--die-at", help="a word in a request that kills it")
    add("--lives", type=Path, help="file: only the first to create it dies")
    add("--hang-health-after", type=int, help="requests; health does not answer then")
    add("--ignore-sigterm", action="store_true")
    add("--grandchildren", type=Path, help="start two; write their ids here")
    add("--version", default="1.2.3")
    add("--hold-after", type=int, default=0, help="requests; others wait for --gate")
    add("--gate", type=Path, help="file")
    # The options of real engines mean nothing to it.
    return parser.parse_known_args()[0]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    given: argparse.Namespace
    count = 0
    guard = threading.Lock()

    def do_GET(self) -> None:
        given, limit = self.given, self.given.hang_health_after
        if self.path == "/health":
            if limit is not None and Handler.count >= limit:
                time.sleep(600)
            self.give(503 if given.never_healthy else 200, {})
            return
        pages = {"/version": {"version": given.version}}
        pages["/v1/models"] = {"data": [{"id": "model", "owned_by": "vllm"}]}
        missing = {"error": {"message": "no such path"}}
        self.give(200 if self.path in pages else 404, pages.get(self.path, missing))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        given = self.given
        with self.guard:
            Handler.count += 1
        if given.die_after is not None and Handler.count > given.die_after:
            print("the engine has met its end", flush=True)
            if given.lives is None or not given.lives.exists():
                if given.lives is not None:
                    given.lives.touch()
                die()
        if given.die_at and given.die_at in json.dumps(body.get("messages")):
            die()
        while given.gate and Handler.count > given.hold_after and not given.gate.exists():
            time.sleep(0.05)
        if self.path == "/v1/images/generations":
            print(json.dumps(body), flush=True)
            self.give(200, {"created": 0, "data": [{"b64_json": PIXELS}]})
            return
        text = body["messages"][-1]["content"]
        text = text if isinstance(text, str) else text[0].get("text", "")
        choice = {"message": {"content": f"echo {text}"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        self.give(200, {"model": body["model"], "choices": [choice], "usage": usage})

    def give(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    given = options()
    if given.exit:
        print(f"loading\n{given.exit}", file=sys.stderr)
        sys.exit(3)
    if given.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if given.grandchildren:
        # One in the server's process group, one that left its group and its parent.
        away = f"import subprocess as s; print(s.Popen({SLEEP!r}, stdout=-3).pid)"
        lone = subprocess.run(
            [sys.executable, "-c", away],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        near = subprocess.Popen(SLEEP)
        given.grandchildren.write_text(f"{near.pid} {lone.stdout.strip()}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    print(f"GPUs {visible} port {given.port}", flush=True)
    Handler.given = given
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()

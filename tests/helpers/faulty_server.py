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
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--exit", help="say this and exit with status 3")
    parser.add_argument("--never-healthy", action="store_true")
    parser.add_argument("--die-after", type=int, help="requests until it kills itself")
    parser.add_argument("--die-at", help="a word in a request that kills it")
    parser.add_argument("--lives", type=Path, help="file: only the first to create it dies")
    parser.add_argument(
        "--hang-health-after", type=int, help="requests; health does not answer then"
    )
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument(
        "--grandchildren", type=Path, help="start two; write their ids here"
    )
    parser.add_argument("--version", default="1.2.3")
    parser.add_argument("--sleep", type=float, default=0.0)
    # The options of real engines mean nothing to it.
    given, others = parser.parse_known_args()
    given.others = others
    return given


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    given: argparse.Namespace
    count = 0
    guard = threading.Lock()

    def do_GET(self) -> None:
        if self.path == "/health":
            limit = self.given.hang_health_after
            if limit is not None and Handler.count >= limit:
                time.sleep(600)
            self.give(503 if self.given.never_healthy else 200, {})
        elif self.path == "/version":
            self.give(200, {"version": self.given.version})
        elif self.path == "/v1/models":
            self.give(200, {"data": [{"id": "model", "owned_by": "vllm"}]})
        else:
            self.give(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.guard:
            Handler.count += 1
        if self.given.die_after is not None and Handler.count > self.given.die_after:
            print("the engine has met its end", flush=True)
            if self.given.lives is None or not self.given.lives.exists():
                if self.given.lives is not None:
                    self.given.lives.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if self.given.die_at and self.given.die_at in json.dumps(body.get("messages")):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.given.sleep)
        if self.path == "/v1/images/generations":
            print(json.dumps(body), flush=True)
            self.give(200, {"created": 0, "data": [{"b64_json": PIXELS}]})
            return
        text = body["messages"][-1]["content"]
        text = text if isinstance(text, str) else text[0].get("text", "")
        reply: dict[str, Any] = {
            "model": body["model"],
            "choices": [{"message": {"content": f"echo {text}"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        }
        self.give(200, reply)

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

"""An S3 server (moto) in a process of its own, that follows conditional writes or does not.

python tests/helpers/object_store.py [HEADER ...]

It prints its port, and ignores these headers; one named 501:HEADER it answers with 501.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

IF_NONE_MATCH, IF_MATCH = "HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"


@contextmanager
def object_store(*ignored: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a new bucket, and the environment that reaches it."""
    command = [sys.executable, __file__, *ignored]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as server:
        try:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
            bucket = f"b{uuid.uuid4().hex}"
            request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
            urllib.request.urlopen(request, timeout=30).close()
            env = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
            env |= {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests"}
            yield f"s3://{bucket}", env | {"AWS_REGION": "us-east-1"}
        finally:
            server.kill()


def main(ignored: Sequence[str]) -> None:
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    moto = DomainDispatcherApplication(create_backend_app)
    one = threading.Lock()  # moto looks at a condition and then writes

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        if any(f"501:{header}" in ignored for header in environ):
            start("501 Not Implemented", [("content-length", "0")])
            return [b""]
        with one:
            return moto({k: v for k, v in environ.items() if k not in ignored}, start)

    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])

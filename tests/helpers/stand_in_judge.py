"""A judge of the documents and examples: a server whose verdicts mean nothing.

python tests/helpers/stand_in_judge.py  # prints its address and serves
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from endpoint_helpers import Answer, Server, completion, serving

JUDGE = "gpt-6.1-sol"
"""The model of the provider for which it stands in."""
_CRITERION = re.compile(
    r"^- (?P<name>.+?) \((?:yes or no|a number from (?P<low>\S+) to (?P<high>\S+))\): ",
    re.MULTILINE,
)


def reply(body: Mapping[str, Any]) -> Answer:
    """A verdict on each criterion, which depends on what is asked alone."""
    content = body["messages"][-1]["content"]
    parts = [{"text": content}] if isinstance(content, str) else content
    asked = "\n".join(part.get("text", "") for part in parts)
    verdicts = [
        {"criterion": found["name"], "reason": "A stand-in.", "score": _score(asked, found)}
        for found in _CRITERION.finditer(asked)
    ]
    return Answer(completion(json.dumps({"verdicts": verdicts})))


def _score(asked: str, criterion: re.Match[str]) -> Any:
    chance = hashlib.sha256(f"{criterion['name']}\n{asked}".encode()).digest()[0]
    if criterion["low"] is None:
        return ["no", "yes"][chance % 2]
    low, high = int(criterion["low"]), int(criterion["high"])
    return low + chance % (high - low + 1)


@contextlib.contextmanager
def judging() -> Iterator[Server]:
    """The judge's server, for a while."""
    with serving(reply) as server:
        yield server


def settings(server: Server) -> list[str]:
    """Options of `plait run` and `plait score` that send requests to the stand-in."""
    return ["--set", f'models."{JUDGE}".base_url="{server.url}"']


if __name__ == "__main__":
    alone = Server(reply)
    print(alone.url, flush=True)
    alone.serve_forever()

"""Batch-invariant stages without models, and stages that misbehave on purpose.

What a stage should do to a record is written in the record: a sample whose text says
`!raise` makes the drafting stage raise, `!kill` ends its process, `!hang` hangs it, and
`!stop` sends its process TERM, twice, as a batch system and its script may.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plait.cluster.loading import load_stage
from plait.cluster.store import read_blob
from plait.generators.base import (
    Failure,
    Fault,
    Job,
    Outcome,
    Result,
    Skip,
    Unscored,
    import_target,
)
from plait.generators.document import (
    Blob,
    Candidate,
    Draft,
    Image,
    ImageRequest,
    LogprobsRequest,
    Payload,
    Request,
    Score,
    Text,
    with_blobs,
)
from plait.generators.images import Drawing
from plait.generators.logprobs import AnswerTokens, Logprobs


class OutOfMemoryError(RuntimeError):
    """Named as torch names it."""


def _log(path: str | None, line: str) -> None:
    if path:
        with Path(path).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line + "\n")


def _wait_for(path: str | None) -> None:
    """Wait until a file exists; not at all where none is named."""
    while path is not None and not Path(path).exists():
        time.sleep(0.05)


class Writer:
    """Drafts an answer from the question's text: words, then image requests."""

    def __init__(
        self,
        style: str = "plain",
        pictures: int = 1,
        sleep_s: float = 0.0,
        memory: int = 10**9,
        log: str | None = None,
        cost: float | None = None,
        gate: str | None = None,
        **_: Any,
    ) -> None:
        """Once it has answered a batch, others wait until the file `gate` exists."""
        self.gate, self.batches = gate, 0
        self.usage = {"tokens": 1.0} | ({} if cost is None else {"cost": cost})
        self.style, self.sleep_s, self.memory, self.log = style, sleep_s, memory, log
        self.pictures = pictures
        _log(log, f"load {os.getpid()}")

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        time.sleep(self.sleep_s)
        if self.batches:
            _wait_for(self.gate)
        if len(inputs) > self.memory:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        outcomes = [self._draft(request) for request in inputs]
        self.batches += 1
        _log(self.log, f"call {len(inputs)}")
        return outcomes

    def _draft(self, request: Request) -> Outcome[Draft]:
        content = request.turns[-1].content
        text = " ".join(s.text for s in content if isinstance(s, Text))
        if "!raise" in text:
            raise RuntimeError(f"cannot draft {text!r}")
        if "!complain" in text:
            print(f"complaint about {text!r}", file=sys.stderr)
            os.write(2, b"complaint of a native library\n")
        if "!kill" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if "!hang" in text:
            time.sleep(10_000)
        if "!stop" in text:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.2)
        if "!skip" in text:
            return Skip("reads one picture only")
        if "!refuse" in text:
            return Failure("the model refused", Fault.REFUSED)
        digests = "".join(hashlib.sha256(i.read()).hexdigest()[:4] for i in request.images)
        words = f"{self.style}: {text} {digests}"
        numbers = ("", *map(str, range(1, self.pictures)))
        requests = (ImageRequest(prompt=f"{words}{number}") for number in numbers)
        return Result(Draft((Text(words), *requests)), self.usage)


class Thinker:
    """Plans, and judges what it is shown; by its seed, some of its replies say nothing."""

    kind = "draft"
    seeded = True

    def __init__(self, steps: int = 2, log: str | None = None, **_: Any) -> None:
        """Each request and its reply is a line of the file `log`."""
        self.steps = steps
        self.log = log

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        replies = [self._reply(request) for request in inputs]
        for request, reply in zip(inputs, replies, strict=True):
            seen = len(request.images)
            _log(self.log, f"say {self.steps} {request.seed} {seen} {reply!r}")
        return [Result(Draft((Text(reply),)), {"tokens": 1.0}) for reply in replies]

    def _reply(self, request: Request) -> str:
        about = f"{request.text[:200]} {request.seed} {len(request.images)}"
        chance = hashlib.sha256(about.encode()).digest()
        if chance[0] < 80:
            return "I cannot say."
        if len(request.images) == 2:
            words = {"previous_step_success": chance[1] < 100, "refine_prompt": about[-9:]}
        else:
            numbers = range(1, self.steps + 1)
            steps = [{"prompt": f"p{n}", "auxiliary_text": f"Step {n}."} for n in numbers]
            words = {"execution_plan": steps}
        return f"<answer>{json.dumps(words)}</answer>"


class Conditioner:
    """Turns a request's prompt into the payload that is drawn from."""

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        payloads = (Payload.of(f"matrix of {r.prompt}".encode()) for r in inputs)
        return [Result(payload, notes={"conditioned": 1}) for payload in payloads]


class NoisyWriter(Writer):
    """Asks for images by states, whose last digits no key tells beforehand."""

    def __init__(self, noise: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        self.noise = noise

    def _draft(self, request: Request) -> Outcome[Draft]:
        drafted = super()._draft(request)
        assert isinstance(drafted, Result)
        draft = drafted.value
        states = (f"states of {r.prompt} {self.noise}" for r in draft.requests)
        requests = (ImageRequest(payload=Payload.of(s.encode())) for s in states)
        return Result(Draft((Text(draft.text), *requests)), drafted.usage)


class NoisyConditioner:
    """Turns a prompt or states into a payload with such digits."""

    def __init__(self, noise: int = 0, **_: Any) -> None:
        self.noise = noise

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        read = [r.payload.read() if r.payload else str(r.prompt).encode() for r in inputs]
        return [Result(Payload.of(b"matrix of %b %d" % (x, self.noise))) for x in read]


class Painter:
    """Draws one flat colour per prompt and seed."""

    def __init__(
        self,
        hue: int = 0,
        sleep_s: float = 0.0,
        pixels: int = 0,
        log: str | None = None,
        die_at: str | None = None,
        **_: Any,
    ) -> None:
        """Each image is a line of the file `log`; a prompt may kill the process."""
        self.hue, self.sleep_s, self.pixels = hue, sleep_s, pixels
        self.log, self.die_at = log, die_at

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Image]]:
        time.sleep(self.sleep_s)
        prompts = [request.prompt for request in inputs]
        # A prompt may be None as well, where a payload is drawn.
        if self.die_at is not None and self.die_at in prompts:
            os.kill(os.getpid(), signal.SIGKILL)
        outcomes: list[Outcome[Image]] = []
        for request in inputs:
            outcomes.append(Result(self._paint(request), {"images": 1}))
            before = [image.digest for image in request.context if isinstance(image, Image)]
            _log(self.log, f"draw {request.prompt} {request.seed} {before}")
        return outcomes

    def _paint(self, request: ImageRequest) -> Image:
        from PIL import Image as Picture

        payload = request.payload.read() if request.payload else b""
        about = f"{request.prompt}{request.seed}{self.hue}".encode() + payload
        if self.pixels:
            return self._noise(about)
        colour = tuple(hashlib.sha256(about).digest()[:3])
        file = io.BytesIO()
        Picture.new("RGB", (16, 16), colour).save(file, "PNG")
        return Image.of(file.getvalue())

    def _noise(self, about: bytes) -> Image:
        """An image that does not compress: `pixels` squared, 3 bytes each."""
        import numpy as np

        from plait.generators.images import Drawing

        seed = int.from_bytes(hashlib.sha256(about).digest()[:8], "big")
        shape = (self.pixels, self.pixels, 3)
        noise = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
        return Drawing(noise).encoded()


class Measure:
    """Scores a document by its digest; a document without images is unscored."""

    def __init__(self, after: str | None = None, **_: Any) -> None:
        """Nothing is scored before the file `after` exists."""
        self.after = after

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        _wait_for(self.after)
        return [self._score(c) for c in inputs]

    def _score(self, candidate: Candidate) -> Outcome[Score]:
        images = candidate.document.images
        if not images:
            return Unscored("the document holds no picture")
        data = candidate.document.text.encode() + b"".join(i.read() for i in images)
        return Result(Score(hashlib.sha256(data).digest()[0] / 255))


class Looker:
    """Says how likely the answer to a question about an image is."""

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[LogprobsRequest]) -> list[Outcome[Logprobs]]:
        return [self._look(request) for request in inputs]

    def _look(self, request: LogprobsRequest) -> Outcome[Logprobs]:
        (image,) = request.shown
        assert isinstance(image, Image)
        (answer,) = request.answers
        chance = (1 + hashlib.sha256(image.read()).digest()[0]) / 256
        tokens = AnswerTokens((1,), (math.log(chance),))
        return Result(Logprobs({answer: tokens}), {"input_tokens": 9})


class Unloadable:
    """A stage whose weights are not there."""

    def __init__(self, **_: Any) -> None:
        raise FileNotFoundError("weights.safetensors is not in the checkpoint folder")


class Constant:
    """A user's own scorer: how many images an answer has."""

    kind = "score"
    scale = "pictures"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        return [Result(Score(float(len(c.document.images)))) for c in inputs]


class Paragraphs:
    """A user's own LVLM: says which images it was shown."""

    kind = "draft"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        texts = (f"I was shown {len(r.images)} pictures." for r in inputs)
        return [Result(Draft((Text(text),))) for text in texts]


def stage_by_stage(job: Job) -> Outcome[Any]:
    """The outcome of a job, as a worker would keep it."""
    stage = import_target(job.spec.target)(**job.spec.settings, **job.spec.options)
    (outcome,) = stage([job.input])
    return _kept(outcome)


class StagesHere:
    """Answers jobs in batches in the thread that asks; torch's modes are of one thread."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def outcomes(self, jobs: Sequence[Job]) -> list[Outcome[Any]]:
        made: dict[int, Outcome[Any]] = {}
        for spec in {job.spec.digest: job.spec for job in jobs}.values():
            own = [i for i, job in enumerate(jobs) if job.spec.digest == spec.digest]
            if spec.digest not in self._loaded:
                self._loaded[spec.digest] = load_stage(spec)
            inputs = [with_blobs(jobs[i].input, _read) for i in own]
            outcomes = self._loaded[spec.digest](inputs)
            made |= dict(zip(own, map(_kept, outcomes), strict=True))
        return [made[i] for i in range(len(jobs))]


def _read(blob: Blob) -> Blob:
    return replace(blob, data=read_blob(blob))


def _kept(outcome: Outcome[Any]) -> Outcome[Any]:
    if isinstance(outcome, Result) and isinstance(outcome.value, Drawing):
        return replace(outcome, value=outcome.value.encoded())
    return outcome

"""Hands requests in to a provider's batches, and collects the replies later.

What was handed in is noted in the run directory (`generators/batches.py`): first that it
is about to be, then the batch's id. A batch is named by plait, so that one of which only
the first is noted is looked for at the provider and never handed in twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

from plait.generators.base import Failure, Fault, Outcome, StageSpec
from plait.generators.batches import (
    Asked,
    HandedBatch,
    HandedRequest,
    Waiting,
    handed_batches,
    most_usage,
)
from plait.generators.buckets import AnyPath
from plait.generators.document import Draft, Request
from plait.pipelines.chat.settings import BatchedSettings
from plait.pipelines.endpoints.batch_apis import BatchApi, BatchLook, BatchReply
from plait.pipelines.endpoints.calls import BatchedStage, PreparedCall
from plait.pipelines.endpoints.errors import ERRORS, SaidError, StatusError, describe
from plait.pipelines.endpoints.replies import EndpointReply

_TRANSFER_S = 3600.0
"""Longest transfer of one file."""
_UNSURE = 500
"""From this status on, a request may have been obeyed nevertheless."""
Answer = Outcome[Draft] | Waiting


@dataclass
class _Replies:
    """The replies to a batch, in a file of this machine; one line is read at a time."""

    api: BatchApi
    file: BinaryIO = field(default_factory=tempfile.TemporaryFile)
    places: dict[str, int] = field(default_factory=dict)
    """By key, where its line begins."""

    def add(self, lines: BinaryIO) -> None:
        """Add the lines of a file; what is no reply raises MalformedReply."""
        lines.seek(0)
        for line in lines:
            if line.strip():
                self.places[self.api.read_line(line).key] = self.file.tell()
                self.file.write(line.rstrip(b"\n") + b"\n")

    def get(self, key: str) -> BatchReply | None:
        """Return the reply to a request, where there is one."""
        if key not in self.places:
            return None
        self.file.seek(self.places[key])
        return self.api.read_line(self.file.readline())


@dataclass
class _View:
    """What was found out about a batch under this command."""

    look: BatchLook | None = None
    replies: _Replies | None = None
    trouble: str = ""
    """Why nothing could be."""


@dataclass
class _Pack:
    """Requests that are to be one batch."""

    settings: BatchedSettings
    file: BinaryIO = field(default_factory=tempfile.TemporaryFile)
    requests: dict[str, HandedRequest] = field(default_factory=dict)

    def has_room(self, line: bytes) -> bool:
        """Return whether a line keeps the file below the provider's limits."""
        size = self.file.tell() + len(line)
        return len(self.requests) < self.settings.batch_requests and size <= self.most_bytes

    @property
    def most_bytes(self) -> float:
        """The largest file of a batch."""
        return self.settings.batch_megabytes * 1e6

    def add(self, key: str, request: HandedRequest, line: bytes) -> None:
        """Add a request."""
        self.requests[key] = request
        self.file.write(line)


class BatchDesk:
    """The batches of one stage; used by one thread at a time."""

    def __init__(
        self,
        stage: BatchedStage,
        api: BatchApi,
        root: AnyPath,
        spec: StageSpec,
    ) -> None:
        """UsageError for a file of the run directory that describes no batch."""
        assert isinstance(stage.settings, BatchedSettings)
        self._stage = stage
        self._settings = stage.settings
        self._client = stage.client
        self._api = api
        self._root = root
        self._spec = spec
        self._batches: dict[str, HandedBatch] = {}
        self._where: dict[str, str] = {}
        """By key, the batch that has the request."""
        for batch in handed_batches(root):
            if batch.stage == spec.digest:
                self._batches[batch.name] = batch
                self._where |= dict.fromkeys(batch.requests, batch.name)
        self._views: dict[str, _View] = {}
        self._answered: set[str] = set()
        """Keys of requests whose batch has ended."""
        self._refused: Failure | None = None
        """Why no batch is taken any more."""

    def close(self) -> None:
        """Close the files of replies."""
        for view in self._views.values():
            if view.replies is not None:
                view.replies.file.close()

    def answer(self, asked: Mapping[str, Asked]) -> dict[str, Answer]:
        """Return by key what batches have answered, or that a request waits in one.

        What is in no batch is handed in.
        """
        answers: dict[str, Answer] = {}
        new: dict[str, Asked] = {}
        for key, request in asked.items():
            batch = self._batch_of(key)
            if batch is None:
                new[key] = request
            else:
                answers[key] = self._collect(batch, key, request)
        return answers | self._hand_in(new)

    def settle(self, keys: Iterable[str]) -> None:
        """Forget requests that have a record now: those that failed may be tried again."""
        done: dict[str, set[str]] = {}
        for key in self._answered.intersection(keys):
            done.setdefault(self._where.pop(key), set()).add(key)
            self._answered.discard(key)
        for name, settled in done.items():
            batch = self._batches[name]
            left = {}
            for key, request in batch.requests.items():
                if key not in settled:
                    left[key] = request
            self._note(replace(batch, requests=left))

    def _note(self, batch: HandedBatch) -> None:
        """Write a batch into the run directory; one without requests is forgotten."""
        batch.save(self._root)
        self._batches[batch.name] = batch
        if not batch.requests:
            del self._batches[batch.name]

    # ------------------------------------------------------------------ collecting

    def _batch_of(self, key: str) -> HandedBatch | None:
        """Return the batch that has a request, if there is one at the provider."""
        name = self._where.get(key)
        if name is None:
            return None
        batch = self._batches[name]
        if batch.id is None and name not in self._views:
            try:
                found = self._ask(lambda: self._api.find(name))
            except ERRORS as error:
                self._views[name] = _View(trouble=f"whether it exists: {describe(error)}")
                return batch
            if found is None:
                self._forget(batch)
                return None
            batch = replace(batch, id=found)
            self._note(batch)
        return batch

    def _forget(self, batch: HandedBatch) -> None:
        """Note that there is no such batch."""
        for key in batch.requests:
            del self._where[key]
        self._note(replace(batch, requests={}))

    def _collect(self, batch: HandedBatch, key: str, request: Asked) -> Answer:
        """Return what a batch has answered to one request."""
        view = self._view(batch)
        if view.look is None or view.trouble:
            place = batch.place(self._root)
            reason = f"batch {batch.id or batch.name} ({place}): {view.trouble}"
            return Failure(reason, Fault.ENDPOINT)
        if view.replies is None:
            assert batch.id is not None
            return Waiting(batch.id)
        reply = view.replies.get(key)
        if reply is None:
            self._answered.add(key)
            reason = (
                f"batch {batch.id} has ended without a reply to this request "
                f"({view.look.said})"
            )
            return Failure(reason, Fault.ENDPOINT)
        read = request.read()
        if isinstance(read, Failure):
            return read
        self._answered.add(key)
        call = self._stage.prepare(read)
        if not isinstance(call, PreparedCall):
            return call
        notes = {**call.notes, "batch": batch.id}
        accepted = self._client.accept(lambda: self._parse(reply), notes)
        if isinstance(accepted, Failure):
            return accepted
        return self._client.run(self._stage.outcome(accepted))

    def _parse(self, reply: BatchReply) -> EndpointReply:
        if reply.error is not None:
            raise reply.error
        return self._stage.parse(reply.content)

    def _view(self, batch: HandedBatch) -> _View:
        """Return what is known of a batch, which is asked for once."""
        if batch.name not in self._views:
            self._views[batch.name] = self._look(batch)
        return self._views[batch.name]

    def _look(self, batch: HandedBatch) -> _View:
        """Ask the provider how far a batch is, and for its replies where it has ended."""
        assert batch.id is not None
        number = batch.id
        try:
            look = self._ask(lambda: self._api.look(number))
        except ERRORS as error:
            trouble = f"it cannot be looked at: {describe(error)}"
            if isinstance(error, StatusError) and error.status == 404:
                trouble += (
                    ". Is it the batch of another account? Correct its id or the key, or "
                    "remove the file to have its requests handed in again"
                )
            return _View(trouble=trouble)
        if look.name is not None and look.name != batch.name:
            trouble = (
                f"the provider has {look.name!r} under this id, which is not this batch; "
                "correct the id, or remove the file to have its requests handed in again"
            )
            return _View(trouble=trouble)
        if not look.ended:
            return _View(look)
        try:
            return _View(look, self._download(look))
        except ERRORS as error:
            return _View(trouble=f"its replies cannot be read: {describe(error)}")

    def _download(self, look: BatchLook) -> _Replies:
        replies = _Replies(self._api)
        for path in look.files:
            with tempfile.TemporaryFile() as file:
                self._ask(partial(self._client.download, path, file), _TRANSFER_S)
                replies.add(file)
        return replies

    def _ask(self, attempt: Callable[[], Any], limit_s: float = 0.0) -> Any:
        return self._client.run(self._client.ask(attempt, limit_s))

    # ------------------------------------------------------------------ handing in

    def _hand_in(self, asked: Mapping[str, Asked]) -> dict[str, Answer]:
        """Hand requests in, in as few batches as the provider's limits allow."""
        answers: dict[str, Answer] = {}
        # What all requests that wait may use at most, to stay below the ceilings.
        tokens = 0.0
        cost = 0.0
        for batch in self._batches.values():
            for key, request in batch.requests.items():
                if key not in self._answered:
                    tokens += request.tokens
                    cost += request.cost or 0.0
        pack = _Pack(self._settings)
        for key, one in asked.items():
            read = one.read()
            call = read if isinstance(read, Failure) else self._stage.prepare(read)
            if not isinstance(call, PreparedCall):
                answers[key] = call
                continue
            handed = self._estimate(one.label, read)
            tokens += handed.tokens
            cost += handed.cost or 0.0
            line = self._api.line(key, call.body)
            if refusal := self._refusal(line, pack, tokens, cost, call.notes):
                answers[key] = refusal
                tokens -= handed.tokens
                cost -= handed.cost or 0.0
                continue
            if not pack.has_room(line):
                answers |= self._submit(pack)
                pack = _Pack(self._settings)
            pack.add(key, handed, line)
        return answers | self._submit(pack)

    def _estimate(self, label: str, request: Request) -> HandedRequest:
        """Return what is noted of a request: the most that it may use and cost."""
        longest = getattr(self._settings, "max_tokens", None)
        usage = most_usage(request, longest)
        cost = self._settings.cost_of(usage)
        return HandedRequest(label=label, tokens=sum(usage.values()), cost=cost)

    def _refusal(
        self, line: bytes, pack: _Pack, tokens: float, cost: float, notes: dict[str, Any]
    ) -> Failure | None:
        """Return why a request is not handed in; `tokens` and `cost` are with it."""
        if len(line) > pack.most_bytes:
            reason = (
                f"the request has {len(line) / 1e6:.1f} MB, and the file of a batch has at "
                f"most batch_megabytes = {self._settings.batch_megabytes:g}"
            )
            return Failure(reason, Fault.ERROR, notes=notes)
        spent = self._client.reason_to_refuse(tokens, cost)
        return None if spent is None else Failure(spent, Fault.BUDGET, notes=notes)

    def _submit(self, pack: _Pack) -> dict[str, Answer]:
        """Hand in the requests of one file; a failure for each where that is not taken."""
        with pack.file:
            if not pack.requests:
                return {}
            if self._refused is not None:
                return dict.fromkeys(pack.requests, self._refused)
            name = self._spec.name
            batch = HandedBatch.of(self._spec.digest, name, pack.requests)
            self._note(batch)
            self._where |= dict.fromkeys(pack.requests, batch.name)
            try:
                number = self._create(batch, pack.file)
            except ERRORS as error:
                failure = self._client.failure(error, {})
                reason = f"requests are not taken as a batch: {failure.reason}"
                self._refused = Failure(reason, failure.fault)
                return dict.fromkeys(pack.requests, self._refused)
            self._note(replace(batch, id=number))
            self._views[batch.name] = _View(BatchLook(batch.name, ended=False, said=""))
            return dict.fromkeys(pack.requests, Waiting(number))

    def _create(self, batch: HandedBatch, file: BinaryIO) -> str:
        """Return the id of a new batch; where there surely is none, its note is removed."""
        try:
            uploaded = self._ask(lambda: self._api.upload(batch.name, file), _TRANSFER_S)
        except ERRORS:
            self._forget(batch)
            raise
        tried = False

        async def create() -> str:
            nonlocal tried
            # An attempt without an answer may have been obeyed.
            if tried and (found := await self._api.find(batch.name)):
                return found
            tried = True
            return await self._api.create(batch.name, uploaded)

        try:
            return str(self._ask(create))
        except StatusError as error:
            if error.status < _UNSURE and not isinstance(error, SaidError):
                self._forget(batch)
            raise

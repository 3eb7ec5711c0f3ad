"""What is sent to a server, and what a stage does whose requests go in batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from plait.generators.base import Failure, Outcome, Skip
from plait.generators.document import Draft, Request
from plait.pipelines.chat.settings import ServerSettings
from plait.pipelines.endpoints.client import EndpointClient
from plait.pipelines.endpoints.replies import EndpointReply


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """One request, ready to be sent, and what its record notes of it."""

    body: Mapping[str, Any]
    notes: dict[str, Any]


class BatchedStage(Protocol):
    """A stage by a server that drafts and takes requests in batches."""

    settings: ServerSettings

    @property
    def client(self) -> EndpointClient:
        """What sends its requests."""

    def prepare(self, request: Request) -> PreparedCall | Skip | Failure:
        """Return what is sent for a request, or why it cannot be sent."""

    def parse(self, content: bytes) -> EndpointReply:
        """Return what the server's answer to a body says."""

    async def outcome(self, reply: EndpointReply) -> Outcome[Draft]:
        """Return what a reply holds, or the failure that it is."""

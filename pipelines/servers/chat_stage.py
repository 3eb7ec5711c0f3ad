"""Asks a chat model that an engine runs behind a server of plait's own."""

from __future__ import annotations

from typing import Any, ClassVar

from transformers import AutoProcessor

from generators.base import Weights
from pipelines.chat.turns import ControlTokens
from pipelines.endpoints.chat import ChatEndpoint
from pipelines.servers.engines import EngineChatSettings
from pipelines.vlm.prompts import control_tokens


class EngineChat(ChatEndpoint):
    """Request -> Draft of one text.

    As every endpoint; and the tokens of the checkpoint's chat template are broken in
    users' text, as plait's own stage does.
    """

    settings_class: ClassVar[type[EngineChatSettings]] = EngineChatSettings

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """`settings` are the fields of `EngineChatSettings`."""
        super().__init__(weights, **settings)
        mine = EngineChatSettings.model_validate(settings)
        source = {"revision": mine.revision, "trust_remote_code": False}
        processor = AutoProcessor.from_pretrained(mine.checkpoint, **source)
        self._control = ControlTokens(control_tokens(processor))

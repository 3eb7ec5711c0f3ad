"""How a chat model's reply ended: whole, cut, refused or broken off."""

from __future__ import annotations

from enum import StrEnum

CUT = "cut"
"""Note, and count in the usage, of a reply that reached its maximum length."""
CUT_NOTE = "the reply ends at its maximum length"
THOUGHT = "thought"
"""Note of what a model thought before its reply."""
THOUGHT_CHARACTERS = "thought_characters"
"""Length of that in the usage; its tokens are among those of the output."""


class Ending(StrEnum):
    """What a finish reason says about a reply."""

    WHOLE = "whole"
    CUT = "cut"
    """At its maximum length."""
    REFUSED = "refused"
    """By the provider; asking again is no use."""
    BROKEN = "broken"
    """For any other reason, also one that is not known."""


_WHOLE = {"STOP", "END_TURN", "EOS", "EOS_TOKEN", "STOP_SEQUENCE", "TOOL_CALLS"}
_WHOLE |= {"COMPLETED", "FINISH_REASON_UNSPECIFIED"}
_CUT = {"LENGTH", "MAX_TOKENS", "MAX_OUTPUT_TOKENS"}
_REFUSED = {"SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION"}
_REFUSED |= {"MODEL_ARMOR", "ESCALATION", "SENSITIVE", "REFUSAL", "GUARDRAIL_INTERVENED"}
_REFUSED |= {"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"}
_FILTER = "CONTENT_FILTER"
"""Some servers add to it what they found."""


def ending(finish: str | None) -> Ending:
    """Return what a server's finish reason says, in whatever case it is written.

    Only reasons that are known to end a whole reply count as such.
    """
    reason = (finish or "stop").upper()
    if reason in _WHOLE:
        return Ending.WHOLE
    if reason in _CUT:
        return Ending.CUT
    is_refused = reason in _REFUSED or reason.startswith(_FILTER)
    return Ending.REFUSED if is_refused else Ending.BROKEN

"""The `phi3-chat` template: a conversation as text, control tokens and pictures.

After internvl/conversation.py (OpenGVLab/InternVL@2410d1d; separator style MPT) and
`chat` of modeling_internvl_chat.py. Pictures stand where the request has them: upstream
looks for the letters `<image>` in the prompt, so that such letters in a question or an
answer shift all pictures after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from generators.document import Image, Role, Text, Turn
from generators.loading.llama import Control

END = Control("<|end|>")
BEGIN_IMAGE, END_IMAGE = Control("<img>"), Control("</img>")
IMAGE_TOKEN = Control("<IMG_CONTEXT>")
PLACEHOLDER = "<image>"
"""How upstream marks a picture in a prompt, and how `shown` does."""

_ROLES: Mapping[Role, Control] = {
    "system": Control("<|system|>"),
    "user": Control("<|user|>"),
    "assistant": Control("<|assistant|>"),
}
CONTROLS = (*_ROLES.values(), END, BEGIN_IMAGE, END_IMAGE, IMAGE_TOKEN)
"""Every control token a prompt may hold."""

Part = str | Control | Image


def conversation(turns: Sequence[Turn], system: str) -> list[Part]:
    """The prompt for the assistant's next turn.

    `system` is the system message unless the first turn is one.
    """
    if not turns or turns[0].role != "system":
        turns = (Turn("system", (Text(system),)), *turns)
    parts: list[Part] = []
    for turn in turns:
        parts += [_ROLES[turn.role], "\n"]
        parts += [s.text if isinstance(s, Text) else s for s in turn.content]
        parts.append(END)
    return [*parts, _ROLES["assistant"], "\n"]


def marked(parts: Iterable[Part]) -> list[str | Control]:
    """Each picture as its control tokens, with one image token in place of many."""
    found: list[str | Control] = []
    for part in parts:
        if isinstance(part, Image):
            found += [BEGIN_IMAGE, IMAGE_TOKEN, END_IMAGE]
        else:
            found.append(part)
    return found


def shown(parts: Iterable[Part]) -> str:
    """The prompt for people."""
    return "".join(
        p if isinstance(p, str) else p.name if isinstance(p, Control) else PLACEHOLDER
        for p in parts
    )


def spelled_controls(turns: Iterable[Turn], names: Iterable[str]) -> list[str]:
    """Names of control tokens that texts spell out; they are read letter by letter."""
    texts = [s.text for t in turns for s in t.content if isinstance(s, Text)]
    return [n for n in (*names, PLACEHOLDER) if any(n in text for text in texts)]

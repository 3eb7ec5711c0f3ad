"""How an LVLM's text and a text-to-image model become one interleaved document.

A protocol is a `System` without stages: what the LVLM is told, and how its draft is
composed. `_RULES` has them by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from plait.generators.base import StageSpec
from plait.generators.document import Draft, ImageRequest, Query, Text
from plait.generators.errors import UsageError
from plait.generators.system import System

CRITIC = "critic"
EDITING = "outline-edit"
"""The protocol under which each image is drawn from the last ones too."""
T2I_ALONE = "t2i"
"""The protocol of a text-to-image model alone, which composes nothing."""
EDIT_ALONE = "edit"
"""The same of one that draws from the images of the query too."""

OUTLINE_INSTRUCTION = (
    "Answer with text and pictures. You cannot draw yourself: wherever a picture belongs, "
    "write <image>what the picture shows</image> on a line of its own. It will be drawn "
    "from that description and put in this place. Describe each picture on its own, in "
    "one or two sentences, without referring to other pictures or to the text. Use at "
    "most {max_images} pictures."
)
"""Our wording. The mark is the one ISG-Bench's compositional baselines use
(Dongping-Chen/ISG, compositional_inference.py); MMIE publishes none."""

_MARK = re.compile(r"<image>(.*?)(?:</image>|(?=<image>)|$)", re.DOTALL | re.IGNORECASE)
_CLOSING = re.compile(r"</image>", re.IGNORECASE)


def text_only(draft: Draft, query: Query) -> Draft:
    """Keep no image at all: the ablation of MMIE's Table 9."""
    return Draft((Text(draft.text),))


def one_image(draft: Draft, query: Query) -> Draft:
    """Take the whole text as the prompt of one image after it (MMIE, section 4.1).

    Multi-step reasoning stays text: its answers hold no images (Table 10).
    """
    text = Text(draft.text)
    if not query.wants_images:
        return Draft((text,))
    return Draft((text, ImageRequest(prompt=draft.text.strip())))


def place_images(draft: Draft, query: Query, *, max_images: int) -> Draft:
    """Put an image in the place of each `<image>what it shows</image>`.

    A mark that is never closed ends with its line. Closing marks alone, empty marks and
    marks beyond `max_images` are dropped; the text always stays.
    """
    text = draft.text
    segments = list[Text | ImageRequest]()
    at = 0
    images = 0
    for mark in _MARK.finditer(text):
        _add_text(segments, text[at : mark.start()])
        description = mark.group(1)
        at = mark.end()
        if not _CLOSING.match(text, mark.end(1)):
            # Never closed: what follows its line is text of the answer again.
            description = description.partition("\n")[0]
            at = mark.start(1) + len(description)
        description = " ".join(description.split())
        if description and images < max_images:
            segments.append(ImageRequest(prompt=description))
            images += 1
    _add_text(segments, text[at:])
    # A draft that holds nothing but dropped marks is an empty answer, not none.
    return Draft(tuple(segments) or (Text(""),))


def _add_text(segments: list[Text | ImageRequest], text: str) -> None:
    # One closing mark inside another leaves a third when it is removed.
    while _CLOSING.search(text):
        text = _CLOSING.sub("", text)
    text = text.strip("\n")
    if text.strip():
        segments.append(Text(text))


def _text(name: str, max_images: int) -> System:
    return System(name=name, draft=None, compose=text_only, variant="text", max_images=0)


def _mmie(name: str, max_images: int) -> System:
    return System(name=name, draft=None, compose=one_image, variant="text")


def _outline(name: str, max_images: int) -> System:
    return System(
        name=name,
        draft=None,
        compose=partial(place_images, max_images=max_images),
        instruction=OUTLINE_INSTRUCTION.format(max_images=max_images),
        max_images=max_images,
    )


def _t2i_alone(name: str, max_images: int) -> System:
    return System(name=name, draft=None, variant="plain")


def _edit_alone(name: str, max_images: int) -> System:
    return System(name=name, draft=None, variant="plain", input_images=1)


_RULES: Mapping[str, Callable[[str, int], System]] = {
    "text": _text,
    "mmie": _mmie,
    # One instruction for three: what the LVLM writes is shared, and images alone differ.
    "outline": _outline,
    EDITING: _outline,
    CRITIC: _outline,
    T2I_ALONE: _t2i_alone,
    EDIT_ALONE: _edit_alone,
}
"""By name, what makes the system of a protocol of its name and of the most images."""
PROTOCOLS = tuple(_RULES)


def protocol(name: str, max_images: int = 4) -> System:
    """Return the system of that protocol, still without stages; UsageError.

    `critic` is `outline` whose images a critic has drawn again (`plait.pipelines.critic`).
    """
    if name not in _RULES:
        raise UsageError(
            f"unknown composition protocol {name!r}; valid are 'text', 'mmie', 'outline', "
            f"'outline-edit' and 'critic', and for a text-to-image model alone "
            f"{T2I_ALONE!r} and {EDIT_ALONE!r}"
        )
    return _RULES[name](name, max_images)


def text_alone(name: str, lvlm: StageSpec, label: str) -> System:
    """Return the system `LVLM@text`, which has no T2I model; `label` is its row."""
    return replace(protocol("text"), name=name, draft=lvlm, lvlm=label, t2i="no pictures")

"""How an LVLM's text and a text-to-image model become one interleaved document.

A protocol says what the LVLM is told, and how its draft is composed; `_RULES` has all by
name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from plait.generators.base import StageSpec
from plait.generators.document import Draft, ImageRequest, Query, Text
from plait.generators.errors import UsageError
from plait.generators.rendering import Rendering
from plait.generators.system import Variant
from plait.generators.writing import Compose, ComposedSystem

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


@dataclass(frozen=True, kw_only=True)
class Composition:
    """How a protocol has an LVLM asked, and its text made into texts and images."""

    compose: Compose
    variant: Variant = "interleaved"
    instruction: str | None = None
    """The system turn before questions whose answers should hold images."""
    max_images: int = 1
    """Most images of one answer."""

    def system(
        self,
        name: str,
        draft: StageSpec,
        rendering: Rendering | None,
        *,
        lvlm: str | None = None,
        t2i: str | None = None,
    ) -> ComposedSystem:
        """Return the system of a stage that writes, and of what draws."""
        return ComposedSystem(
            name=name,
            draft=draft,
            rendering=rendering,
            compose=self.compose,
            variant=self.variant,
            instruction=self.instruction,
            max_images=self.max_images,
            lvlm=lvlm,
            t2i=t2i,
        )


def _text(max_images: int) -> Composition:
    return Composition(compose=text_only, variant="text", max_images=0)


def _mmie(max_images: int) -> Composition:
    return Composition(compose=one_image, variant="text")


def _outline(max_images: int) -> Composition:
    read = partial(place_images, max_images=max_images)
    instruction = OUTLINE_INSTRUCTION.format(max_images=max_images)
    return Composition(compose=read, instruction=instruction, max_images=max_images)


_RULES: Mapping[str, Callable[[int], Composition]] = {
    "text": _text,
    "mmie": _mmie,
    # One instruction for three: what the LVLM writes is shared, and images alone differ.
    "outline": _outline,
    EDITING: _outline,
    CRITIC: _outline,
}
"""By name, how a protocol composes, given the most images of an answer."""
PROTOCOLS = (*_RULES, T2I_ALONE, EDIT_ALONE)


def protocol(name: str, max_images: int = 4) -> Composition:
    """Return how a protocol composes; UsageError for a name that is none.

    `critic` is `outline` whose images a critic has drawn again (`plait.pipelines.critic`).
    Those of a text-to-image model alone compose nothing.
    """
    if name not in _RULES:
        raise UsageError(
            f"unknown composition protocol {name!r}; valid are 'text', 'mmie', 'outline', "
            f"'outline-edit' and 'critic', and for a text-to-image model alone "
            f"{T2I_ALONE!r} and {EDIT_ALONE!r}"
        )
    return _RULES[name](max_images)


def text_alone(name: str, lvlm: StageSpec, label: str) -> ComposedSystem:
    """Return the system `LVLM@text`, which has no T2I model; `label` is its row."""
    return protocol("text").system(name, lvlm, None, lvlm=label, t2i="no pictures")

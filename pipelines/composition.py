"""How an LVLM's text and a text-to-image model become one interleaved document."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from generators.base import StageSpec
from generators.document import Draft, ImageRequest, Sample, Text
from generators.errors import UsageError
from generators.system import System, Variant

ProtocolName = Literal["text", "mmie", "outline", "outline-edit", "critic"]
CRITIC: ProtocolName = "critic"
EDITING: ProtocolName = "outline-edit"
"""The protocol under which each image is drawn from the last ones too."""
T2I_ALONE = "t2i"
"""The protocol of a text-to-image model alone, which composes nothing."""
PROTOCOLS: tuple[str, ...] = (*get_args(ProtocolName), T2I_ALONE)

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


@dataclass(frozen=True)
class CompositionProtocol:
    """A composition protocol: the LVLM's instruction, and how its reply is read.

    `critic` is `outline` whose images a critic has drawn again (`pipelines.critic`).
    """

    name: ProtocolName
    read: Callable[[Draft, Sample], Draft]
    variant: Variant
    max_images: int
    instruction: str | None = None


def text_only(draft: Draft, sample: Sample) -> Draft:
    """Keep no image at all: the ablation of MMIE's Table 9."""
    return Draft((Text(draft.text),))


def one_image(draft: Draft, sample: Sample) -> Draft:
    """Take the whole text as the prompt of one image after it (MMIE, section 4.1).

    Multi-step reasoning stays text: its answers hold no images (Table 10).
    """
    text = Text(draft.text)
    if not sample.wants_images:
        return Draft((text,))
    return Draft((text, ImageRequest(prompt=draft.text.strip())))


def outlined(draft: Draft, sample: Sample, *, max_images: int) -> Draft:
    """Put an image in the place of each `<image>what it shows</image>`.

    A mark that is never closed ends with its line. Closing marks alone, empty marks and
    marks beyond `max_images` are dropped; the text always stays.
    """
    text, segments, at = draft.text, list[Text | ImageRequest](), 0
    for mark in _MARK.finditer(text):
        _add_text(segments, text[at : mark.start()])
        description, at = _extent(mark)
        count = sum(isinstance(s, ImageRequest) for s in segments)
        if description and count < max_images:
            segments.append(ImageRequest(prompt=description))
    _add_text(segments, text[at:])
    return Draft(tuple(segments) or (Text(""),))


def _extent(mark: re.Match[str]) -> tuple[str, int]:
    """Return the description of the marked image, and where the mark ends."""
    description, end = mark.group(1), mark.end()
    if not _CLOSING.match(mark.string, mark.end(1)):
        description = description.partition("\n")[0]
        end = mark.start(1) + len(description)
    return " ".join(description.split()), end


def _add_text(segments: list[Text | ImageRequest], text: str) -> None:
    # One closing mark inside another leaves a third when it is removed.
    while _CLOSING.search(text):
        text = _CLOSING.sub("", text)
    text = text.strip("\n")
    if text.strip():
        segments.append(Text(text))


def protocol(name: str, max_images: int = 4) -> CompositionProtocol:
    """Return the protocol of that name; UsageError with the valid ones."""
    if name == "text":
        return CompositionProtocol("text", text_only, "text", 0)
    if name == "mmie":
        return CompositionProtocol("mmie", one_image, "text", 1)
    outlines: tuple[ProtocolName, ...] = ("outline", EDITING, CRITIC)
    if own := next((rule for rule in outlines if rule == name), None):
        # One instruction: what the LVLM writes is shared, and images alone differ.
        read = partial(outlined, max_images=max_images)
        instruction = OUTLINE_INSTRUCTION.format(max_images=max_images)
        return CompositionProtocol(own, read, "interleaved", max_images, instruction)
    raise UsageError(
        f"unknown composition protocol {name!r}; valid are 'text', 'mmie', 'outline', "
        f"'outline-edit' and 'critic', and for a text-to-image model alone {T2I_ALONE!r}"
    )


def composite(
    name: str,
    lvlm: StageSpec,
    t2i: StageSpec | None,
    rule: CompositionProtocol,
    labels: tuple[str, str],
    prior: StageSpec | None = None,
    input_images: int = 0,
) -> System:
    """Return the system of an LVLM and a T2I model, or of the LVLM alone (`@text`).

    `labels` are its row and column in the matrix, `prior` the stage before `t2i` of a T2I
    model of two, `input_images` how many of the last images the T2I model draws from.
    """
    return System(
        name=name,
        draft=lvlm,
        condition=prior,
        keeps_prompt=prior is not None,
        render=t2i,
        variant=rule.variant,
        instruction=rule.instruction,
        compose=rule.read,
        max_images=rule.max_images,
        input_images=input_images,
        lvlm=labels[0],
        t2i=labels[1],
    )


def t2i_alone(
    name: str, t2i: StageSpec, label: str, prior: StageSpec | None = None
) -> System:
    """Return the system `T2I@t2i`: one image of what the query says, and no text."""
    return System(
        name=name,
        draft=None,
        condition=prior,
        keeps_prompt=prior is not None,
        render=t2i,
        variant="plain",
        t2i=label,
    )


def text_alone(name: str, lvlm: StageSpec, label: str) -> System:
    """Return the system `LVLM@text`, which has no T2I model; `label` is its row."""
    return composite(name, lvlm, None, protocol("text"), (label, "no pictures"))

"""A conversation as GILL reads it, and its answer as text and image requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generators.document import Content, Image, ImageRequest, Text, Turn
from generators.gill.loop import GillTrack
from generators.gill.networks import GillLanguage
from generators.gill.settings import GillDraftSettings
from generators.gill.tokens import GillTokens
from generators.vokens.mapper import pack_states

Piece = str | Image


def pieces(turns: Sequence[Turn], settings: GillDraftSettings, vokens: str) -> list[Piece]:
    """Text and pictures of a prompt, each text to be tokenized separately.

    A user's turn is `Q: ...`, newline, `A:`, after its leading pictures; an earlier
    answer is followed by a newline; a system turn is left as it is
    (`generate_dialogue`, GILL_Inference_Examples.ipynb). `vokens` are the names of all
    image tokens.
    """
    prompt: list[Piece] = []
    for turn in turns:
        content = _plain(turn.content)
        match turn.role:
            case "user":
                prompt += _question(content, settings.question, settings.answer)
            case "assistant":
                prompt += _answer(content, settings, vokens)
            case "system":
                prompt += content
    return [piece for piece in prompt if piece != ""]


def _plain(content: Content) -> list[Piece]:
    return [s if isinstance(s, Image) else s.text for s in content]


def _question(content: list[Piece], before: str, after: str) -> list[Piece]:
    first_text = next(
        (i for i, p in enumerate(content) if isinstance(p, str)), len(content)
    )
    text = content[first_text:] or [""]
    assert isinstance(text[0], str)
    return _with_end([*content[:first_text], before + text[0], *text[1:]], after)


def _answer(content: list[Piece], settings: GillDraftSettings, vokens: str) -> list[Piece]:
    if settings.history_images == "vokens":
        texts = [p if isinstance(p, str) else f" {vokens}" for p in content]
        content = ["".join(texts)]
    return _with_end(content, settings.answer_end)


def _with_end(content: list[Piece], end: str) -> list[Piece]:
    """The content with `end` in its last text, or after its last picture."""
    if content and isinstance(content[-1], str):
        return [*content[:-1], content[-1] + end]
    return [*content, end]


Segments = tuple[Text | ImageRequest, ...]


def first_sentence(text: str) -> str:
    """The first non-empty line, else the text up to its first full stop.

    Each with the character that ends it (`truncate_caption`, gill/utils.py).
    """
    text = text.strip("\n")
    end = "\n" if "\n" in text else "."
    before, mark, _ = text.partition(end)
    return before + mark


@dataclass(frozen=True)
class GillAnswers:
    """Turns tracks into segments, according to upstream's settings."""

    language: GillLanguage
    settings: GillDraftSettings

    def segments(self, track: GillTrack) -> Segments:
        """Text and images in order, without blank text."""
        settings, tokens = self.settings, self.language.tokens
        vokens = self.language.embed(tokens.vokens).float()
        runs = _runs(track, tokens, settings.show_vokens)
        segments: list[Text | ImageRequest] = []
        for run, states in zip(runs, track.images, strict=False):
            text = self._cut(tokens.decode(run))
            text = f"{text} {tokens.voken_names}" if settings.show_vokens else text
            # The mapper reads the sums of states and embeddings (`TextFcLayer`).
            payload = pack_states(states.float() + vokens)
            segments += [*_text_segments(text), ImageRequest(payload=payload)]
        if settings.trailing_text or not track.images:
            segments += _text_segments(self._cut(tokens.decode(runs[-1])))
        return tuple(segments)

    def _cut(self, text: str) -> str:
        return first_sentence(text) if self.settings.truncate_caption else text

    def readable(self, track: GillTrack) -> str:
        """The whole answer for people, with a mark for each image."""
        tokens = self.language.tokens
        runs = _runs(track, tokens, named=False)
        return "<image>".join(tokens.decode(run) for run in runs)


def _text_segments(text: str) -> list[Text]:
    return [Text(text)] if text.strip() else []


def _runs(track: GillTrack, tokens: GillTokens, named: bool) -> list[list[int]]:
    """Ids before each image, and after the last.

    `named` runs begin with the tokens of the image before them, all but [IMG0].
    """
    first, *others = tokens.vokens
    runs: list[list[int]] = [[]]
    for i in track.ids:
        if i == first:
            runs.append([])
        elif named or i not in others:
            runs[-1].append(i)
    return runs

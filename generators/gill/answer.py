"""From the ids and states of a finished track to text and image requests."""

from __future__ import annotations

from dataclasses import dataclass

from generators.document import ImageRequest, Text
from generators.gill.language import Language
from generators.gill.settings import GillDraftSettings
from generators.gill.state import Track
from generators.gill.tokens import Tokens
from generators.vokens.mapper import packed

Segments = tuple[Text | ImageRequest, ...]


def first_sentence(text: str) -> str:
    """The first line that holds anything, else the text up to its first full stop.

    Each with what ends it (`truncate_caption`, gill/utils.py).
    """
    text = text.strip("\n")
    end = "\n" if "\n" in text else "."
    before, mark, _ = text.partition(end)
    return before + mark


@dataclass(frozen=True)
class Answers:
    """Reads tracks as upstream's settings want them."""

    language: Language
    told: GillDraftSettings

    def segments(self, track: Track) -> Segments:
        """Text, blank runs left out, and images in order."""
        told, tokens = self.told, self.language.tokens
        vokens = self.language.embedded(tokens.vokens).float()
        runs = _runs(track, tokens, told.show_vokens)
        found: list[Text | ImageRequest] = []
        for run, states in zip(runs, track.images, strict=False):
            text = self._cut(tokens.decode(run))
            text = f"{text} {tokens.voken_names}" if told.show_vokens else text
            # The mapper reads states and embeddings added up (`TextFcLayer`).
            payload = packed(states.float() + vokens)
            found += [*_written(text), ImageRequest(payload=payload)]
        if told.trailing_text or not track.images:
            found += _written(self._cut(tokens.decode(runs[-1])))
        return tuple(found)

    def _cut(self, text: str) -> str:
        return first_sentence(text) if self.told.truncate_caption else text

    def whole(self, track: Track) -> str:
        """All that the model wrote, for people, with a mark for each image."""
        tokens = self.language.tokens
        runs = _runs(track, tokens, named=False)
        return "<image>".join(tokens.decode(run) for run in runs)


def _written(text: str) -> list[Text]:
    return [Text(text)] if text.strip() else []


def _runs(track: Track, tokens: Tokens, named: bool) -> list[list[int]]:
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

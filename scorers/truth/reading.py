"""What a reader found in an image or a sentence, or why it cannot tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plait.scorers.truth.language import list_words
from plait.scorers.truth.scene import PLACES, Scene, SceneItem


@dataclass(frozen=True, slots=True)
class ItemReading:
    """One item; an attribute that is not stated, or not clear, is None."""

    place: str | None = None
    size: str | None = None
    colour: str | None = None
    shape: str | None = None

    @classmethod
    def of(cls, item: SceneItem) -> "ItemReading":
        """Return an item of which everything is known."""
        return cls(item.place, item.size, item.colour, item.shape)

    def __str__(self) -> str:
        attributes = (self.size, self.colour, self.shape or "shape")
        looks = " ".join(filter(None, attributes))
        return f"a {looks} at the {self.place}" if self.place else f"a {looks}"

    @property
    def item(self) -> SceneItem | None:
        """The item where every attribute is known."""
        if None in (self.place, self.size, self.colour, self.shape):
            return None
        return SceneItem(str(self.place), str(self.size), str(self.colour), str(self.shape))


@dataclass(frozen=True, slots=True)
class Reading:
    """A scene as it was read; what is not clear is None."""

    background: str | None = None
    items: tuple[ItemReading, ...] = ()

    @classmethod
    def of(cls, background: str | None, items: Iterable[ItemReading]) -> "Reading":
        """Return the items in the order of `PLACES`, those without a place last."""
        order = [*PLACES, None]
        by_place = sorted(items, key=lambda item: order.index(item.place))
        return cls(background, tuple(by_place))

    def __str__(self) -> str:
        items = list_words([str(item) for item in self.items]) or "nothing"
        return f"{items} on a {self.background} background" if self.background else items

    def at(self, place: str) -> ItemReading | None:
        """Return the item read at `place`; the first where several are."""
        return next((item for item in self.items if item.place == place), None)

    @property
    def scene(self) -> Scene | None:
        """The scene where everything is clear and no place holds two items."""
        if self.background is None:
            return None
        items: dict[str, SceneItem] = {}
        for reading in self.items:
            item = reading.item
            if item is None or item.place in items:
                return None
            items[item.place] = item
        return Scene.of(self.background, items.values())


@dataclass(frozen=True, slots=True)
class Illegible:
    """Why nothing was read at all."""

    reason: str

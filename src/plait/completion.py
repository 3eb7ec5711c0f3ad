"""What a shell offers for the names of systems, scorers and data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plait.generators.catalogue import SYSTEMS, Entry, Named, by_name, entries, planners

Offer = tuple[str, str]
"""A word and its help."""


def data(incomplete: str) -> list[Offer]:
    """Return the names and prefixes of data that begin so."""
    return _offers(_words(entries(Named.DATA)), incomplete)


def scorers(incomplete: str) -> list[Offer]:
    """Return the names and prefixes of scorers, and the models of judges."""
    prefix, colon, _ = incomplete.partition(":")
    models = [*entries(Named.LVLM), *by_name(Named.NATIVE).values()]
    if prefix == "judge":
        models = [*by_name(Named.JUDGE).values(), *models]
    if colon and _takes_models(prefix):
        return _offers(_words(models, f"{prefix}:"), incomplete)
    return _offers(_words(entries(Named.SCORER)), incomplete)


def _takes_models(prefix: str) -> bool:
    """Return whether a model is named behind the prefix of a scorer."""
    families = [entry for entry in entries(Named.SCORER) if entry.prefix == prefix]
    return any(family.target for family in families)


def systems(incomplete: str) -> list[Offer]:
    """Return the names and prefixes of systems; after `+` those of what draws."""
    # A system is `LVLM+T2I@PROTOCOL`: what is offered is the part that is being typed.
    lvlm, plus, drawing = incomplete.rpartition("+")
    if not plus:
        offers = [*_words(entries(*SYSTEMS))]
        for word, help in _lvlms():
            # Behind a prefix the name of a model is still to come.
            offers.append((word if word.endswith(":") else f"{word}+", help))
        return _offers(offers, incomplete)
    model, at, _ = drawing.partition("@")
    if not at:
        return _offers(_words(entries(Named.T2I), f"{lvlm}+"), incomplete)
    from plait.pipelines.composition import PROTOCOLS

    offers = [(f"{lvlm}+{model}@{protocol}", "") for protocol in PROTOCOLS]
    return _offers(offers, incomplete)


def protocols(incomplete: str) -> list[Offer]:
    """Return the protocols of `plait compare` that begin so."""
    return _offers(_words(entries(Named.PAIRWISE)), incomplete)


def pinned(incomplete: str) -> list[Offer]:
    """Return the pinned protocols that begin so."""
    from plait.benchmarks.protocols.pinned import protocols as known

    words = ((name, protocol.help) for name, protocol in known().items())
    return _offers(words, incomplete)


def _lvlms() -> Iterator[Offer]:
    yield from _words(entries(Named.LVLM))
    for name, entry in planners().items():
        yield name, entry.help


def _words(offered: Iterable[Entry], before: str = "") -> Iterator[Offer]:
    for entry in offered:
        word = entry.form if entry.prefix is None else f"{entry.prefix}:"
        yield f"{before}{word}", entry.help


def _offers(words: Iterable[Offer], incomplete: str) -> list[Offer]:
    return [(word, help) for word, help in words if word.startswith(incomplete)]

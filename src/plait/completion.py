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
    asks = colon and any(e.prefix == prefix and e.target for e in entries(Named.SCORER))
    if asks:
        return _offers(_words(models, f"{prefix}:"), incomplete)
    return _offers(_words(entries(Named.SCORER)), incomplete)


def systems(incomplete: str) -> list[Offer]:
    """Return the names and prefixes of systems; after `+` those of what draws."""
    lvlm, plus, drawing = incomplete.rpartition("+")
    if not plus:
        lvlms = ((f"{word}+" if word[-1] != ":" else word, help) for word, help in _lvlms())
        return _offers([*_words(entries(*SYSTEMS)), *lvlms], incomplete)
    model, at, _ = drawing.partition("@")
    if not at:
        return _offers(_words(entries(Named.T2I), f"{lvlm}+"), incomplete)
    from plait.pipelines.composition import PROTOCOLS

    return _offers([(f"{lvlm}+{model}@{rule}", "") for rule in PROTOCOLS], incomplete)


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

"""`plait cite`: the BibTeX entries of the models, data and metrics of a run.

    text = bibtex(RunResults.at(root))

Of the names in the results alone. What plait has no entry for is named in the text, with
the reason; BibTeX ignores everything outside entries that holds no at sign.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from plait.benchmarks.results.files.reading import RunResults
from plait.generators.catalogue import (
    SYSTEMS,
    Named,
    by_name,
    has_prefix,
    is_custom,
    planners,
)
from plait.generators.visible import visible
from plait.pipelines.systems import parts_of

FILE = Path(__file__).with_name("citations.toml")
PLAIT = "plait"
OWN = "your own: plait knows no publication of it"
BY_ID = "named by its id: cite its model card"
_DEFAULT_PROTOCOL = "mmie"
_READ_BY_NAME = {"mmie": "mmie", "mmie-sample": "sample"}
"""Task sets that are named without a prefix, and their names in the table."""
_LAST = ("eprint", "archivePrefix", "doi", "url", "note")
"""Fields below all others."""


@dataclass(frozen=True, slots=True)
class Citation:
    """What to cite of one thing that a run used."""

    kind: str
    """`model`, `data`, `scorer`, ..."""
    name: str
    keys: tuple[str, ...] = ()
    """Of its entries."""
    reason: str = ""
    """Why it has none."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {', '.join(self.keys) or self.reason}"


@cache
def tables() -> Mapping[str, Mapping[str, Any]]:
    """Return the table of entries, and by kind of name the keys or the reason."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def bibtex(results: RunResults) -> str:
    """Return the entries of a run as BibTeX, below what each of them is cited for."""
    about = results.about
    cited = citations_of(results)
    keys = dict.fromkeys([PLAIT])
    for one in cited:
        keys |= dict.fromkeys(one.keys)
    lines = [f"{len(keys)} entries of what the run used."]
    if about.weights in ("tiny", "dummy", "mini"):
        lines.append(f"Its weights are {about.weights}: not those that were published.")
    lines += [str(one) for one in cited]
    remarks = [f"% {_without_at(line)}" for line in lines]
    entries = []
    version = about.versions.get("plait")
    for key in keys:
        # plait itself is the first of the keys.
        of_version = {"note": f"Version {version}"} if key == PLAIT and version else {}
        entries.append(_entry(key, of_version))
    return "\n".join([*remarks, "", *entries])


def citations_of(results: RunResults) -> list[Citation]:
    """Return what there is to cite of a run, each name once."""
    by_name_of_kind = {}
    for one in _citations(results):
        by_name_of_kind[one.kind, one.name] = one
    return list(by_name_of_kind.values())


def _citations(results: RunResults) -> Iterator[Citation]:
    """Yield what there is to cite: data, systems, scorers, comparisons and their judges."""
    yield _of_data(results)
    for system in results.systems:
        if not system.stages and system.name != "gt":
            yield Citation("answers", system.name, reason="they were made elsewhere")
            continue
        parts = parts_of(_name_without_settings(results, system.name))
        for model in parts.models:
            yield of_model(model)
        if parts.lvlm in planners():
            continue
        if parts.t2i is not None or parts.protocol is not None:
            protocol = (parts.protocol or _DEFAULT_PROTOCOL).partition("=")[0]
            yield _look_up("protocols", protocol)
    for scorer in results.scorers:
        yield from of_scorer(scorer.name)
    compared: dict[tuple[str, str], None] = {}
    for row in results.rows("comparisons", ["protocol", "judge"]):
        compared[row["protocol"], row["judge"]] = None
    for protocol, judge in compared:
        yield _look_up("comparisons", protocol)
        yield of_model(judge)


def _name_without_settings(results: RunResults, system: str) -> str:
    """Return the name of a system; of a variant, that of which it is one."""
    variants = results.about.config.get("variants") or {}
    return str(variants[system]["system"]) if system in variants else system


def _of_data(results: RunResults) -> Citation:
    """By the prefix that the data were named with, or MMIE's by what their reader says."""
    about = results.about
    named = str(about.config.get("data") or "")
    if has_prefix(named, Named.DATA) and not named.startswith("hf:"):
        return _look_up("data", named.partition(":")[0], about.name)
    if about.name in _READ_BY_NAME:
        return _look_up("data", _READ_BY_NAME[about.name], about.name)
    return Citation("data", about.name, reason=OWN)


def of_model(name: str) -> Citation:
    """Return what to cite of a model by the name that a system or a judge has for it."""
    kind = "models"
    if name in tables()[kind]:
        return _look_up(kind, name)
    prefix, _, model = name.partition(":")
    if prefix == "gt":
        return _look_up(kind, prefix, name)
    for named in (Named.LVLM, Named.T2I, Named.SERVED):
        for preset, entry in by_name(named).items():
            if model == entry.settings["model"]:
                return _look_up(kind, preset, name)
    by_id = has_prefix(name, Named.LVLM, Named.T2I, *SYSTEMS)
    return Citation("model", name, reason=BY_ID if by_id else OWN)


def of_scorer(name: str) -> Iterator[Citation]:
    """Yield what to cite of a scorer, and of the model that it asks."""
    if name in tables()["scorers"]:
        yield _look_up("scorers", name)
        return
    prefix, _, model = name.partition(":")
    if is_custom(name) or prefix not in tables()["scorers"]:
        yield Citation("scorer", name, reason=OWN)
        return
    yield _look_up("scorers", prefix, name)
    if prefix != "truth":
        yield of_model(model)


def _look_up(table: str, key: str, name: str = "") -> Citation:
    """Return what a table has of `key`, which the run calls `name`."""
    found = tables()[table].get(key, OWN)
    kind = table.removesuffix("s")
    if isinstance(found, str):
        return Citation(kind, name or key, reason=found)
    return Citation(kind, name or key, keys=tuple(found))


def _entry(key: str, more: Mapping[str, Any]) -> str:
    """Return the BibTeX of an entry, with `more` fields than the table has."""
    fields = {**tables()["entries"][key], **more}
    form = fields.pop("type", "misc")
    arxiv = fields.pop("arxiv", None)
    if arxiv:
        fields |= {"eprint": arxiv, "archivePrefix": "arXiv"}
    # `sorted` keeps the order of the table otherwise.
    ordered = sorted(fields, key=lambda name: name in _LAST)
    lines = [f"  {name} = {{{fields[name]}}}," for name in ordered]
    return "\n".join([f"@{form}{{{key},", *lines, "}", ""])


def _without_at(text: str) -> str:
    """`text` on one line, without the sign at which BibTeX reads an entry."""
    return visible(" ".join(text.split())).replace("@", " at ")

"""What the prefix of a name means: one list for systems, models, scorers and data.

A name is a plain one (`anole`), `PREFIX:REST` with a prefix of this list (`hf:ORG/NAME`),
or `dotted.module:Class`, a user's own class. A prefix of the list never names a module.
The packages above map each prefix to what it makes; this module lists the prefixes, and
imports none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from plait.generators.errors import UsageError
from plait.generators.names import unknown


class Named(StrEnum):
    """Kinds of things that have names."""

    LVLM = "LVLM"
    T2I = "text-to-image model"
    SYSTEM = "system"
    SCORER = "scorer"
    DATA = "data"


class Prefix(NamedTuple):
    """A prefix, as help shows it."""

    form: str
    """The whole name with placeholders: `hf:ORG/NAME`."""
    help: str
    """One line: what such a name means."""


_HELP: Mapping[Named, Mapping[str, str]] = {
    Named.LVLM: {
        "hf:ORG/NAME": "any AutoModelForImageTextToText, run on your own machines",
        "openai:MODEL": "any OpenAI-compatible endpoint, at OPENAI_BASE_URL",
    },
    Named.T2I: {
        "diffusers:ORG/NAME": (
            "any text-to-image pipeline of diffusers, by its own settings"
        ),
        "images:MODEL": "any /v1/images/generations endpoint, at OPENAI_BASE_URL",
    },
    Named.SYSTEM: {
        "native:hf:ORG/NAME": (
            "any class of transformers that declares images, by its own generate: slow"
        ),
        "gemini:MODEL": "answers with images by Gemini's own API",
        "responses:MODEL": "by OpenAI's Responses API with its image tool",
        "omni:MODEL": "by SGLang-Omni: ordered segments",
        "chat-images:MODEL": "by a chat endpoint that draws, such as OpenRouter",
        "gt:CONTROL": "a control made from the ground truth, to validate a judge",
        "published:WRITER": "answers that a benchmark publishes with its questions",
    },
    Named.SCORER: {
        "judge:NAME": "any chat model as a judge with a rubric",
        "criteria:NAME": "the same, ruling on each criterion of a query (UEval)",
        "isg-block:NAME": "the same, on relations between texts and images (ISG-Bench)",
        "isg-image:NAME": "the same, on what images show (ISG-Bench)",
        "isg-holistic:NAME": "the same, beside the ground truth (ISG-Bench)",
        "aspects:NAME": "the same, giving an answer seven scores at once (OpenING)",
        "vqascore:LVLM": "how likely an LVLM says that an image shows the question's text",
        "geneval2:LVLM": "GenEval 2's Soft-TIFA, for queries of geneval2:PLACE",
        "dpg:LVLM": "DPG-like: propositions that hold, for queries of dpg:PLACE",
        "criteria-probability:LVLM": "how likely each criterion of a query is met (UEval)",
        "truth:PART": "known truth of the miniature world",
    },
    Named.DATA: {
        "rows:PLACE": "your own queries by columns: a file, a folder or hf:ORG/NAME",
        "mmie:PLACE": "a folder, file or hf:ORG/NAME in MMIE's format",
        "hf:ORG/NAME@REVISION": "a data set of the Hub: MMIE's format, else by columns",
        "creation:PLACE": "Creation-MMBench: its TSV file or hf:ORG/NAME",
        "creation-text:PLACE": "Creation-MMBench without its images",
        "interleavedbench:PLACE": "InterleavedBench: a folder; its evaluator is not here",
        "isg:PLACE": "ISG-Bench: a checkout, or a folder with ISG-Bench.jsonl and images/",
        "mllm-bench:PLACE": "MLLM-Bench: a checkout of its repository",
        "mmrb2:PLACE": "MMRB2: a folder of its splits, or one file: to measure judges",
        "opening:PLACE": "OpenING: a checkout, or a folder with test_data.jsonl",
        "geneval2:PLACE": "GenEval 2: geneval2_data.jsonl, its folder or hf:ORG/NAME",
        "dpg:PLACE": "DPG-Bench: dpg_bench.csv, its folder or hf:ORG/NAME",
        "t2i-compbench:PLACE": "T2I-CompBench: a checkout, its dataset folder or one file",
        "prompts:FILE": "your own: .txt (one a line), .json, .jsonl, .csv, .tsv, .parquet",
        "probench:PLACE": "ProBench: hf:ORG/NAME@REVISION or a local copy",
        "realunify:PLACE": "RealUnify: hf:ORG/NAME@REVISION or a local copy",
        "ueval:PLACE": "UEval: hf:ORG/NAME@REVISION or a local copy",
        "uni-mmmu:PLACE": "Uni-MMMU: the folder of its unpacked data",
        "miniature:N": "N queries about coloured shapes, whose truth is known exactly",
        "official:FOLDER": "answers in the official MMIE scorer's format",
    },
}
PREFIXES: Mapping[Named, Mapping[str, Prefix]] = {
    kind: {form.partition(":")[0]: Prefix(form, text) for form, text in entries.items()}
    for kind, entries in _HELP.items()
}
"""Kind -> prefix -> its help."""

CUSTOM = "module:Class"
"""The form of a user's own class."""

_IDENTIFIER = r"[^\W\d]\w*"
_CUSTOM = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}")
_ANY_PREFIX = re.compile(r"([^\W\d][\w.-]*):")


def forms(*kinds: Named) -> list[str]:
    """Return the forms of all prefixes of these kinds, for help and errors."""
    return [prefix.form for kind in kinds for prefix in PREFIXES[kind].values()]


def known_prefixes() -> list[str]:
    """Return all prefixes of all kinds."""
    return sorted({prefix for prefixes in PREFIXES.values() for prefix in prefixes})


def has_prefix(name: str, kind: Named) -> bool:
    """Return whether `name` begins with a prefix of this kind."""
    return name.partition(":")[0] in PREFIXES[kind] and ":" in name


def is_custom(name: str) -> bool:
    """Return whether `name` has the form of a user's class, and no known prefix."""
    known = any(has_prefix(name, kind) for kind in Named)
    return not known and bool(_CUSTOM.fullmatch(name))


def prefix_of(name: str, what: str, *kinds: Named) -> str | None:
    """Return the prefix of `name`; None for a plain name and for a user's class.

    `what` is the thing that is named, for the error. UsageError where the prefix is
    unknown or names something of another kind.
    """
    match = _ANY_PREFIX.match(name)
    if match is None or is_custom(name):
        return None
    prefix = match[1]
    if any(prefix in PREFIXES[kind] for kind in kinds):
        return prefix
    if others := [kind for kind in Named if prefix in PREFIXES[kind]]:
        valid = ", ".join([*forms(*kinds), *([] if Named.DATA in kinds else [CUSTOM])])
        raise UsageError(
            f"{what} {name!r}: the prefix {prefix!r} names another kind of thing "
            f"({', '.join(others)}). Valid: {valid}"
        )
    known = {form.partition(":")[0] for form in forms(*kinds)}
    raise unknown(f"prefix of {what} {name!r}:", prefix, known)

"""What a name is: an entry of the catalogue, or a user's class."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.experiment import open_experiment
from plait.benchmarks.tasks.task_set import load
from plait.generators.catalogue import Entry, Named, entries, find, is_custom
from plait.generators.errors import UsageError
from plait.pipelines.systems import SystemName, is_lvlm, parts_of
from plait.scorers import resolve_scorer

pytestmark = pytest.mark.contract

WITHOUT_TARGET = {
    *("sample", "miniature", "miniature:N", "official:FOLDER", "gt", "truth:PART"),
    *("rows:PLACE", "mmie:PLACE", "hf:ORG/NAME@REVISION", "gt:CONTROL", "published:WRITER"),
    "native:hf:ORG/NAME",
}
"""What a room makes of the name alone."""
EVERY = [e for e in entries(*Named) if e.kind is not Named.COMPOSITION]


@pytest.mark.parametrize(
    "entry", EVERY, ids=lambda entry: f"{entry.kind.name} {entry.form}"
)
def test_every_entry_is_found_and_names_what_is_there(entry: Entry) -> None:
    name = entry.form if entry.prefix is None else f"{entry.prefix}:org/name"
    match = find(name, entry.kind)
    assert match is not None
    assert match.entry is entry
    assert match.rest == ("" if entry.prefix is None else "org/name")
    assert entry.help
    assert not entry.help.endswith(".")
    if entry.target or entry.form not in WITHOUT_TARGET:
        assert callable(entry.load())


def test_an_unknown_key_of_a_table_is_refused() -> None:
    with pytest.raises(TypeError, match="licens"):
        Entry.of(Named.LVLM, "mine", help="a model", licens="MIT")


@pytest.mark.parametrize(
    ("name", *SystemName._fields),
    [
        ("gpt-4o+sdxl", "gpt-4o", "sdxl", None),
        ("gpt-4o+sdxl@outline", "gpt-4o", "sdxl", "outline"),
        ("gpt-4o+sdxl@critic", "gpt-4o", "sdxl", "critic"),
        ("gpt-4o+sdxl@critic=hf:a/b@main", "gpt-4o", "sdxl", "critic=hf:a/b@main"),
        ("hf:a/b+images:c+d@critic=e+f", "hf:a/b", "images:c+d", "critic=e+f"),
        ("gpt-4o+flux2-klein@outline-edit", "gpt-4o", "flux2-klein", "outline-edit"),
        ("gpt-4o@text", "gpt-4o", None, "text"),
        ("openai:model@2026-01", "openai:model@2026-01", None, None),
        ("openai:model@2026-01@text", "openai:model@2026-01", None, "text"),
        ("openai:model@2026-01+flux", "openai:model@2026-01", "flux", None),
        ("hf:a/b@text", "hf:a/b", None, "text"),
        ("openai:a+b", "openai:a+b", None, None),
        ("openai:a+b@text", "openai:a+b", None, "text"),
        ("openai:a+b+sdxl@mmie", "openai:a+b", "sdxl", "mmie"),
        ("hf:o/n+diffusers:o/n@mmie", "hf:o/n", "diffusers:o/n", "mmie"),
        ("hf:a/b+diffusers:c/d+e", "hf:a/b", "diffusers:c/d+e", None),
        ("mine:Writer+mine:Artist@outline", "mine:Writer", "mine:Artist", "outline"),
        ("gpt-4o+images:dall-e", "gpt-4o", "images:dall-e", None),
        ("gpt-4o+sdxl-trubo", "gpt-4o", "sdxl-trubo", None),
        ("sdxl-turbo@t2i", "sdxl-turbo", None, "t2i"),
        ("diffusers:o/n@t2i", "diffusers:o/n", None, "t2i"),
        ("diffusers:o/n@edit", "diffusers:o/n", None, "edit"),
        ("anole", "anole", None, None),
    ],
)
def test_names_are_split_from_the_right_at_what_is_known(
    name: str, lvlm: str, t2i: str | None, protocol: str | None
) -> None:
    parts = parts_of(name)
    assert parts == SystemName(lvlm, t2i, protocol)
    critic = (protocol or "").partition("=")[2]
    assert parts.models == tuple(m for m in (lvlm, t2i, critic) if m)


def test_a_known_prefix_never_names_a_module() -> None:
    assert all(map(is_custom, ("mine:Class", "package.module:Class")))
    prefixed = ("hf:Model", "gt:no_images", "judge:gpt4", "creation:table", "truth:shapes")
    others = ("mine:not-a-class", "mine/path:Class", "anole")
    assert not any(map(is_custom, (*prefixed, *others)))


def test_a_scorers_prefix_is_told_from_a_models() -> None:
    with pytest.raises(UsageError, match="judge:NAME"):
        resolve_scorer("openai:gpt-4.1", "tiny", {})
    with pytest.raises(UsageError, match="did you mean 'judge'"):
        resolve_scorer("jugde:gpt-4.1", "tiny", {})


def test_unknown_data_lists_the_readers_and_a_path_may_hold_a_colon(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'creation'.*mllm"):
        load_config(None, {"data": "creaton:table.tsv"})
    folder = tmp_path / "a:b"
    folder.mkdir()
    assert load_config(None, {"data": str(folder)}).data == str(folder)


def test_data_may_be_a_function_of_the_users() -> None:
    config = load_config(None, {"data": "users_own:three", "systems": ["gt"]})
    experiment = open_experiment(config)
    assert (experiment.task.name, len(experiment.queries)) == ("three", 3)
    with pytest.raises(UsageError, match=r"nowhere_at_all.*creation:PLACE"):
        load("nowhere_at_all:tasks")
    with pytest.raises(UsageError, match="TaskSet"):
        load("platform:system")


def test_a_composition_is_no_lvlm() -> None:
    """A benchmark of `hf:a/b+sdxl` took it for the model `a/b+sdxl` of the Hub."""
    assert all(map(is_lvlm, ("hf:a/b", "openai:a+b")))
    assert not any(map(is_lvlm, ("hf:a/b+sdxl", "hf:a/b@text")))

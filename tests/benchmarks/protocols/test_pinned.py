"""Pinned protocols: names resolve, values have sources, users go over them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from mmie_tables import TABLE_3, TABLE_4, Printed

from plait.benchmarks.protocols import pinned as table
from plait.benchmarks.protocols.differences import (
    PinnedRunFacts,
    differences_of_scorer,
    differences_of_system,
)
from plait.benchmarks.protocols.pinned import PinnedProtocol, find_protocol, protocols
from plait.benchmarks.runs.config import RunConfig, load_config
from plait.benchmarks.runs.pinning import fill_from_pinned, remarks_of_run
from plait.benchmarks.runs.resolving import scorer_named
from plait.benchmarks.tasks.controls import is_reference
from plait.generators.catalogue import Named, entries
from plait.generators.errors import UsageError
from plait.pipelines.systems import Models, parts_of, resolve
from plait.scorers import takes
from plait.scorers.base import bounds

SOURCE = re.compile(
    r"arXiv \d{4}\.\d{5}|[\w.-]+/[\w.-]+@[0-9a-f]{7}|[\w.-]+/[\w.-]+ issue #\d+"
)
EVERY = [*protocols().values()]
each = pytest.mark.parametrize("protocol", EVERY, ids=[p.name for p in EVERY])


def facts(protocol: PinnedProtocol, **changes: Any) -> PinnedRunFacts:
    same: dict[str, Any] = {
        "protocol": protocol.name,
        "task": protocol.data.task,
        "digest": protocol.data.digest,
        "queries": protocol.data.queries,
        "repeats": protocol.run.repeats or 1,
    }
    return PinnedRunFacts(**same | changes)


def own_settings(protocol: PinnedProtocol) -> dict[str, dict[str, Any]]:
    return {name: dict(one.settings) for name, one in protocol.models.items()}


@each
def test_every_value_has_a_source(protocol: PinnedProtocol) -> None:
    assert protocol.name.count("/") == 1
    assert len(protocol.sources) >= 3
    for source in protocol.sources:
        assert SOURCE.search(source), source


@each
def test_systems_resolve_and_their_models_take_the_settings(
    protocol: PinnedProtocol,
) -> None:
    models = Models(weights="tiny", overrides=own_settings(protocol))
    named = set[str]()
    for name in protocol.systems:
        named |= {*parts_of(name).models}
        if not is_reference(name):
            assert resolve(name, models).name == name
    judges = {name.partition(":")[2] for name in protocol.scorers}
    assert {*protocol.models} <= named | judges


@each
def test_scorers_exist_and_take_the_settings(protocol: PinnedProtocol) -> None:
    forms = {entry.form.partition(":")[0] for entry in entries(Named.SCORER)}
    for name, scorer in protocol.scorers.items():
        assert name.partition(":")[0] in forms
        assert all(takes(name, key) for key in scorer.settings)
        assert takes(name, "rubric") or not scorer.rubric
        low, high = bounds(scorer.scale) or (0, 0)
        for figures in protocol.figures:
            assert figures.scorer in protocol.scorers
            if figures.scorer == name:
                published = [*figures.values.values(), *figures.others.values()]
                assert all(low < value < high for value in published)


def test_a_probability_scorer_takes_its_settings() -> None:
    ((name, about),) = find_protocol("geneval2/2026").scorers.items()
    made = scorer_named(name, about.settings, Models(weights="tiny"))
    assert "GM" in made.manner
    assert "official" in made.manner


@each
def test_data_are_of_a_reader(protocol: PinnedProtocol) -> None:
    prefixes = {entry.form.partition(":")[0] for entry in entries(Named.DATA)}
    assert protocol.data.form.partition(":")[0] in prefixes
    assert protocol.data.place.partition(":")[0] in {*prefixes, "hf", ""}


OURS = {
    "EMU-2": "emu2",
    "MiniGPT-5": "minigpt5",
    "Openjourney": "openjourney",
    "SD-3": "sd3",
    "SD-XL": "sdxl-turbo",
}
"""Names of plait where they are not the paper's in small letters."""


@pytest.mark.parametrize("printed", [*TABLE_3, *TABLE_4], ids=lambda row: row.model)
def test_figures_of_mmie_are_those_of_its_tables(printed: Printed) -> None:
    parts = [OURS.get(part, part.lower()) for part in printed.model.split("+")]
    (figure,) = find_protocol("mmie/2024").figures_of("+".join(parts))
    assert figure.value == printed.avg


def test_an_unknown_protocol_names_the_valid_ones() -> None:
    with pytest.raises(UsageError, match="did you mean 'geneval2/2026'") as error:
        load_config(None, {"pinned": "geneval2/2O26", "data": "sample"})
    for name in protocols():
        assert name in str(error.value)


# ------------------------------------------------------------------------- precedence

DATA = {"place": "geneval2:here"}


def filled(**values: Any) -> dict[str, Any]:
    return fill_from_pinned({"pinned": "geneval2/2026", "data": DATA, **values})


def test_the_protocol_fills_in_what_is_not_set() -> None:
    values = filled()
    protocol = find_protocol("geneval2/2026")
    (scorer,) = protocol.scorers
    assert values["systems"] == ["sd3.5-medium@t2i"]
    assert values["scorers"] == [scorer]
    assert values["repeats"] == 1
    assert values["models"]["sd3.5-medium"] == protocol.models["sd3.5-medium"].settings
    assert values["models"][scorer] == {"mode": "official", "mean": "geometric"}
    assert values["data"] == DATA


def test_what_the_user_sets_goes_over_the_protocol() -> None:
    models = {"sd3.5-medium": {"steps": 9}}
    values = filled(repeats=3, models=models, scorers=["clipscore"], systems=["sd3@t2i"])
    assert values["repeats"] == 3
    assert values["scorers"] == ["clipscore"]
    assert values["systems"] == ["sd3@t2i"]
    assert values["models"] == models  # a model that is not in the run is left alone
    own = filled(models=models)["models"]["sd3.5-medium"]
    assert (own["steps"], own["guidance"], own["height"]) == (9, 1.0, 512)


def test_what_neither_sets_is_the_models_own() -> None:
    config = load_config(None, {"pinned": "geneval2/2026", "data": "geneval2:here"})
    system = resolve("sd3.5-medium@t2i", Models(weights="dummy", overrides=config.models))
    settings = system.roles["render"].settings
    assert (settings["steps"], settings["guidance"]) == (40, 1.0)
    assert settings["dtype"] == "bfloat16"
    assert config.weights == "pretrained"
    assert config.plain_data()["pinned"] == "geneval2/2026"


def test_a_mode_of_the_whole_run_goes_over_that_of_the_protocol() -> None:
    values = {"pinned": "mmie/2024", "mode": "corrected"}
    assert "judge:mmie-score" not in fill_from_pinned(values)["models"]


def test_what_is_missing_is_named_and_what_can_be_had_without() -> None:
    with pytest.raises(UsageError) as error:
        fill_from_pinned({"pinned": "opening/2025"})
    for word in ("opening:PLACE", "official:PATH", "--mode corrected", "list protocols"):
        assert word in str(error.value)
    with pytest.raises(UsageError, match="--system"):
        fill_from_pinned({"pinned": "geneval2/2025", "data": DATA})


def test_a_model_that_was_turned_off_is_left_out() -> None:
    values = {"pinned": "mmie/2024", "mode": "corrected"}
    before = fill_from_pinned(values, today=date(2025, 1, 1))["systems"]
    after = fill_from_pinned(values, today=date(2026, 11, 1))["systems"]
    assert {*before} - {*after} == {s for s in before if s.startswith("gemini-1.5+")}
    remarks = remarks_of_run(
        facts(find_protocol("mmie/2024")), [], [], {}, today=date(2026, 11, 1)
    )
    assert remarks is not None
    assert "gemini-1.5+flux (gemini-1.5 was turned off on 2025-09-24)" in remarks.left_out
    assert "anole" in remarks.left_out


def test_a_run_that_is_joined_gives_systems_and_scorers() -> None:
    values = fill_from_pinned({"pinned": "geneval2/2026", "data": DATA}, joins=True)
    assert not {"systems", "scorers"} & values.keys()


def test_configs_without_a_protocol_are_named_and_stored_as_before() -> None:
    plain = RunConfig(systems=("gt",))
    assert {"pinned", "variants"}.isdisjoint(plain.plain_data())
    pinned_one = plain.model_copy(update={"pinned": "mmie/2024"})
    assert pinned_one.digest != plain.digest


# ------------------------------------------------------------------------ differences


def test_a_run_as_published_differs_in_nothing() -> None:
    protocol = find_protocol("geneval2/2026")
    assert [*facts(protocol).differences(protocol)] == []
    models = Models(weights="dummy", overrides=own_settings(protocol))
    system = resolve("sd3.5-medium@t2i", models)
    assert [*differences_of_system(protocol, system)] == ["dummy weights of sd3.5-medium"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"queries": 12}, "12 of 800 queries"),
        ({"repeats": 4}, "repeats 4 instead of 1"),
        ({"digest": "ab" * 32}, "data of digest abababababab instead of 75874e69af67"),
        ({"task": "dpg"}, "data dpg instead of geneval2"),
    ],
)
def test_other_queries_are_told(changes: dict[str, Any], told: str) -> None:
    protocol = find_protocol("geneval2/2026")
    assert [*facts(protocol, **changes).differences(protocol)] == [told]


def test_other_settings_and_weights_of_a_system_are_told() -> None:
    protocol = find_protocol("geneval2/2026")
    overrides = own_settings(protocol)
    overrides["sd3.5-medium"] |= {"steps": 28, "guidance": 7.0}
    system = resolve("sd3.5-medium@t2i", Models(weights="dummy", overrides=overrides))
    assert [*differences_of_system(protocol, system)] == [
        "dummy weights of sd3.5-medium",
        "sd3.5-medium: steps 28 instead of 40",
        "sd3.5-medium: guidance 7.0 instead of 1.0",
    ]


def test_the_settings_of_a_native_model_are_those_of_its_stages() -> None:
    protocol = find_protocol("dpg/2026")
    overrides = {"janus-pro-7b": {"guidance": 3.0}}
    system = resolve("janus-pro-7b@t2i", Models(weights="dummy", overrides=overrides))
    told = [*differences_of_system(protocol, system)]
    assert told[1:] == ["janus-pro-7b: guidance 3.0 instead of 5.0"]


def test_another_judge_mode_and_rubric_are_told() -> None:
    protocol = find_protocol("mmie/2024")
    judge = "judge:mmie-score"
    official = {"mode": "official", "rubric": "official:prompts.py"}
    assert [*differences_of_scorer(protocol, judge, (), official)] == []
    told = [*differences_of_scorer(protocol, judge, (), {"mode": "corrected"})]
    assert told == [
        "judge:mmie-score: mode corrected instead of official",
        "judge:mmie-score: rubric the default instead of prompts.py of "
        "github.com/Lillianwei-h/MMIE",
    ]
    (told_of_other,) = differences_of_scorer(protocol, "judge:gpt-4o", (), official)
    assert told_of_other == "scorer judge:gpt-4o instead of judge:mmie-score"


@pytest.mark.parametrize("lost", ["source", "queries", "average"])
def test_a_table_without_a_source_or_a_value_is_refused(
    own_protocols: Callable[[str], None], lost: str
) -> None:
    text = table.FILE.read_text()
    first, _, rest = text.partition(f"\n{lost} = ")
    own_protocols(first + "\n" + rest.partition("\n")[2])
    with pytest.raises(UsageError, match=lost):
        protocols()

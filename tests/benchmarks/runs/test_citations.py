"""`plait cite`: every name that plait knows has an entry or a reason; valid BibTeX."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from api_helpers import fill
from cli_helpers import plait

from plait.benchmarks.runs.citations import BY_ID, OWN, PLAIT, of_model, of_scorer, tables
from plait.generators.catalogue import Named, by_name, by_prefix
from plait.pipelines.composition import PROTOCOLS

pytestmark = pytest.mark.contract

MODELS = (Named.NATIVE, Named.SERVED, Named.LVLM, Named.T2I, Named.JUDGE)
PLAIN = {name for name in by_name(Named.SCORER) if ":" not in name}
NAMES = {
    "models": {name for kind in MODELS for name in by_name(kind)},
    "protocols": {*PROTOCOLS},
    "scorers": {*PLAIN, *by_prefix(Named.SCORER)},
    "comparisons": {*by_name(Named.PAIRWISE)},
    "data": {"sample", "mmie", *by_prefix(Named.DATA)} - {"hf"},
}
"""Data of the Hub without another prefix are MMIE's."""


def parsed(text: str) -> dict[str, dict[str, str]]:
    """The fields of BibTeX entries by key; fails for what BibTeX does not read."""
    found: dict[str, dict[str, str]] = {}
    place = 0
    while (start := text.find("@", place)) >= 0:
        head = re.compile(r"@([a-z]+)\{([^\s,{}]+),").match(text, start)
        assert head, text[start : start + 60]
        depth, end = 1, start + head[0].index("{") + 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        body = text[head.end() : end - 1]
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", body, re.MULTILINE))
        assert len(fields) == len(body.strip().splitlines())
        assert all(value.count("{") == value.count("}") for value in fields.values())
        assert head[2] not in found, "keys are unique"
        found[head[2]] = fields
        place = end
    return found


@pytest.mark.parametrize("kind", NAMES)
def test_every_name_has_entries_or_a_reason(kind: str) -> None:
    table = tables()[kind]
    assert not NAMES[kind] - table.keys()
    for name, cited in table.items():
        assert cited, name
        if not isinstance(cited, str):
            assert set(cited) <= tables()["entries"].keys(), name


def test_entries_are_whole_and_used() -> None:
    used = {PLAIT}
    for kind in NAMES:
        for cited in tables()[kind].values():
            used |= set() if isinstance(cited, str) else set(cited)
    entries: dict[str, dict[str, Any]] = dict(tables()["entries"])
    assert used == entries.keys()
    numbers = [entry["arxiv"] for entry in entries.values() if "arxiv" in entry]
    assert len({*numbers}) == len(numbers), "a preprint has one entry"
    for key, entry in entries.items():
        assert {"title", "author"} <= entry.keys(), key
        if key != PLAIT:
            assert 2000 < entry["year"] < 2100, key
        if "arxiv" in entry:
            month = re.fullmatch(r"(\d\d)(0[1-9]|1[0-2])\.\d{4,5}", entry["arxiv"])
            assert month, key
            assert 0 <= entry["year"] - 2000 - int(month[1]) <= 2, key


@pytest.mark.parametrize(
    ("name", "keys", "reason"),
    [
        ("hf:Qwen/Qwen2-VL-7B-Instruct", ["wang2024qwen2vl"], ""),
        ("diffusers:stabilityai/sdxl-turbo", ["sauer2023add", "podell2023sdxl"], ""),
        ("openai:gpt-4o-2024-08-06", ["openai2024gpt4o"], ""),
        ("hf:me/mine", [], BY_ID),
        ("mine:Echo", [], OWN),
    ],
)
def test_models_are_known_by_name_and_by_id(
    name: str, keys: list[str], reason: str
) -> None:
    cited = of_model(name)
    assert (list(cited.keys), cited.reason) == (keys, reason)


def test_a_judge_is_cited_with_its_model() -> None:
    protocol, model = of_scorer("criteria:qwen2-vl-7b")
    assert (protocol.keys, model.keys) == (("li2026ueval",), ("wang2024qwen2vl",))
    _, released = of_scorer("judge:mmie-score")
    assert released.keys == ("xia2024mmie",)
    (truth,) = of_scorer("truth:answer")
    assert truth.reason


@pytest.mark.models
def test_a_run_is_cited_from_its_results_alone(tmp_path: Path) -> None:
    """Also from a pack; a class of the user's is named as having no entry."""
    root, file, out = (tmp_path / name for name in ("run", "run.zip", "cited.bib"))
    systems = ["gt", "qwen2-vl-7b+sdxl-turbo@text", "stages:Paragraphs@text"]
    scorers = ["bleu", "stages:Constant"]
    fill(root, systems=systems, scorers=scorers, weights="tiny", data="miniature:2")
    said = plait("cite", str(root))
    assert (said.returncode, said.stderr) == (0, "")
    entries = parsed(said.stdout)
    assert entries.keys() == {
        *(PLAIT, "wang2024qwen2vl", "sauer2023add", "podell2023sdxl"),
        *("papineni2002bleu", "post2018sacrebleu"),
    }
    assert entries["wang2024qwen2vl"]["eprint"] == "2409.12191"
    remarks = [line for line in said.stdout.splitlines() if line.startswith("%")]
    assert any("stages:Paragraphs" in line and OWN in line for line in remarks)
    assert any("stages:Constant" in line and OWN in line for line in remarks)
    assert plait("pack", str(root), str(file)).returncode == 0
    assert plait("cite", str(file)).stdout == said.stdout
    told = plait("cite", str(root), "--out", str(out))
    assert out.read_text() == said.stdout
    assert "stages:Constant" in told.stdout

"""What a shell offers where names of systems, scorers and data are typed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_helpers import plait

from plait import completion
from plait.generators.catalogue import Named, entries
from plait.pipelines.composition import PROTOCOLS

pytestmark = pytest.mark.contract


@pytest.mark.parametrize(
    ("offer", "typed", "among"),
    [
        (completion.data, "ue", ["ueval:"]),
        (completion.data, "", ["sample", "rows:", "hf:"]),
        (completion.scorers, "clip", ["clipscore", "clipscore-prompt", "clip-fid"]),
        (completion.scorers, "judge:", ["judge:mmie-score", "judge:anole", "judge:hf:"]),
        (completion.scorers, "vqascore:q", ["vqascore:qwen2-vl-7b"]),
        (completion.scorers, "truth:t", ["truth:text"]),
        (completion.systems, "jan", ["janus-pro-1b", "janus-pro-7b"]),
        (completion.systems, "qwen", ["qwen2-vl-7b+", "qwen2-vl-72b+"]),
        (completion.systems, "a+sd3", ["a+sd3", "a+sd3.5-large"]),
        (completion.systems, "a+sd3@", [f"a+sd3@{rule}" for rule in PROTOCOLS]),
        (completion.protocols, "m", ["mllm-bench", "mmrb2"]),
    ],
)
def test_what_begins_so_is_offered(offer, typed, among) -> None:
    words = [word for word, _ in offer(typed)]
    assert {*among} <= {*words}
    assert all(word.startswith(typed) for word in words)
    assert len(words) == len({*words})


def test_what_is_not_a_name_is_offered_nothing() -> None:
    for offer in (completion.data, completion.scorers, completion.systems):
        assert offer("nothing-begins-so") == []


@pytest.mark.processes
def test_the_shell_asks_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"_PLAIT_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    for name, value in (asked | {"COMP_WORDS": "plait run --data uev"}).items():
        monkeypatch.setenv(name, value)
    code = "import sys; sys.argv = ['plait']; from plait.cli import main; main()"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout.split() == ["ueval:"]


def test_help_names_every_form() -> None:
    shown = "".join(plait("run", "--help").stdout.split())
    kinds = (Named.NATIVE, Named.SERVED, Named.SYSTEM, Named.COMPOSITION)
    for entry in entries(*kinds, Named.SCORER, Named.DATA):
        assert entry.form in shown

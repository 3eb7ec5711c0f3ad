"""Machine, commit and versions are worded alike on every page."""

from __future__ import annotations

import pytest

from benchmarks.provenance import provenance_facts, provenance_line
from benchmarks.results.report.page import facts_of

ABOUT = {
    "platform": "Linux",
    "hardware": {"cpus": 2, "gpus": ["H100, 550.54", "H100, 550.54"]},
    "git": {"commit": "0123456789abcdef", "dirty": True},
    "python": "3.11.7",
    "packages": {"ray": "2.60.0", "torch": "2.10.0"},
}
FACTS = {
    "code": "0123456789ab with changes",
    "machine": "Linux, 2 CPUs, H100, 550.54, H100, 550.54",
    "packages": "Python 3.11.7, ray 2.60.0, torch 2.10.0",
}


def test_a_report_tells_the_facts() -> None:
    assert FACTS.items() <= facts_of(ABOUT).items()


def test_one_line_tells_machine_commit_and_versions() -> None:
    assert provenance_line(ABOUT) == (
        "Linux, 2 CPUs, H100, 550.54, H100, 550.54; commit 0123456789ab with changes, "
        "Python 3.11.7, ray 2.60.0, torch 2.10.0."
    )
    clean = {**ABOUT, "git": {"commit": "abc", "dirty": False}}
    assert "; commit abc, Python" in provenance_line(clean)
    assert "2 CPUs, no GPU;" in provenance_line(
        {**ABOUT, "hardware": {"cpus": 2, "gpus": []}}
    )


@pytest.mark.parametrize("odd", [{}, {"git": None, "packages": 3, "hardware": []}])
def test_what_a_manifest_lacks_is_left_out(odd: dict[str, object]) -> None:
    assert provenance_facts(odd) == {}
    assert provenance_line(odd) == "commit none."

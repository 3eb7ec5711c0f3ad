"""The worked example in the README of `scorers`, as a reader would run it."""

from __future__ import annotations

import re

import pytest
from contents import document, query_of
from paths import CHECKOUT

from plait.generators.base import Job, Result, Unscored, import_target
from plait.generators.catalogue import Named, by_name
from plait.generators.document import Candidate
from plait.scorers import resolve_scorer
from plait.scorers.statistics.estimate import LEAST
from plait.scorers.statistics.means import LEAST_OF_TWO

README = CHECKOUT / "scorers" / "README.md"


@pytest.fixture
def brevity(tmp_path, monkeypatch):
    """The scorer of the example, written to a file as the README says."""
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    (tmp_path / "brevity.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return resolve_scorer("brevity:Brevity", "pretrained", {})


def test_the_example_is_a_scorer_with_its_scale_and_direction(brevity):
    assert (brevity.name, brevity.scale) == ("brevity:Brevity", "0-10000")
    assert brevity.direction == "lower"
    (job,) = next(brevity.judge(query_of("Why?"), document("So.")))
    assert isinstance(job, Job)


def test_the_example_scores_as_it_says(brevity):
    stage = import_target(brevity.stage.target)(**brevity.stage.settings)
    long = Candidate(document("one two three"), reference=document("one"))
    outcomes = stage([long, Candidate(document("one"))])
    assert isinstance(outcomes[0], Result)
    (words,) = brevity.parts_of(outcomes[0].value)
    assert words == ("words", "other", 3.0, "words", "0-10000")
    assert (outcomes[0].value.value, outcomes[0].value.parts) == (2.0, {"words": 3})
    assert isinstance(outcomes[1], Unscored)


def test_the_page_names_what_is_there():
    text = README.read_text("utf-8")
    for name in re.findall(r"`([a-z_]+(?:\.py|/))`", text.partition("## Five")[0]):
        assert (README.parent / name).exists(), name
    for entry in by_name(Named.SCORER).values():
        module = (
            entry.target.partition(":")[0].removeprefix("plait.scorers.").replace(".", "/")
        )
        assert f"`{module.replace('.', '/')}.py`" in text
    assert f"fewer than {LEAST} values ({LEAST_OF_TWO} where" in text

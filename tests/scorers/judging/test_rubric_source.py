"""Rubrics and modes as a user writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from generators.errors import UsageError
from scorers.judging.sources import OWN_WORDING, RubricSource, parse_rubric


@pytest.mark.parametrize("text", ["own", "official:prompts.py", "official:~/MMIE"])
def test_a_rubric_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_rubric(text)) == text


@pytest.mark.parametrize("text", ["", "theirs", "official", "official:", " own"])
def test_other_rubrics_are_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(UsageError, match="official:"):
        parse_rubric(text)


def test_absolute_means_the_same_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_rubric("official:a/b.py").absolute == RubricSource(tmp_path / "a/b.py")
    assert parse_rubric("own").absolute == OWN_WORDING


def test_a_run_keeps_a_copy_and_falls_back_to_it(tmp_path: Path) -> None:
    users, run = tmp_path / "MMIE", tmp_path / "run"
    users.mkdir()
    run.mkdir()
    (users / "prompts.py").write_text("x = 1")
    source = RubricSource(users)
    source.keep(run)
    assert source.or_copy_in(run) == source
    (users / "prompts.py").unlink()
    assert source.or_copy_in(run) == RubricSource(run / "prompts.py")
    assert source.or_copy_in(tmp_path) == source
    assert (run / "prompts.py").read_text() == "x = 1"
    assert OWN_WORDING.or_copy_in(run) == OWN_WORDING

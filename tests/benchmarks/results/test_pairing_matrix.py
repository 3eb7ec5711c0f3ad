"""The matrix of LVLMs and text-to-image models that is found among a run's systems."""

from __future__ import annotations

from pairings_helpers import crossed
from report_helpers import stage

from benchmarks.results.pairings.matrix import matrices_of
from generators.system import System


def systems(*names: str) -> list[System]:
    """Composed systems as they are resolved: `w+a`, `w+a@outline`, `w@text`, natives."""
    made = []
    for name in names:
        pair, _, protocol = name.partition("@")
        writer, _, artist = pair.partition("+")
        label = writer + (f"@{protocol}" if protocol == "outline" else "")
        parts = {"writer": label, "artist": artist} if artist else {}
        if protocol == "text":
            parts = {"writer": writer, "artist": "no pictures"}
        made.append(System(name=name, draft=stage(writer), **parts))
    return made


def test_a_full_matrix_is_found_among_others():
    names = ["anole", "gt", *crossed("xy", "ab"), "gt:no-images", "x@text", "y@text"]
    (matrix,) = matrices_of(systems(*names))
    assert (matrix.protocol, matrix.writers) == ("mmie", ("x", "y"))
    assert matrix.artists == ("a", "b")
    assert [s.name for s in matrix.cells] == crossed("xy", "ab")
    assert (matrix.left_aside, matrix.is_crossed) == ((), True)


def test_protocols_are_never_mixed():
    names = ["x+a", "x+b", "y+a", "y+b@outline", "x+a@outline", "y+a@outline"]
    mmie, outline = matrices_of(systems(*names))
    assert [s.name for s in mmie.cells] == ["x+a", "x+b"]
    assert mmie.left_aside == ("y+a",)
    assert (outline.writers, outline.artists) == (("y",), ("b", "a"))
    assert outline.left_aside == ("x+a@outline",)


def test_the_largest_part_without_holes_is_taken():
    # Of 4 x 4 cells two are not there: 3 x 4 is larger than 4 x 2, 4 x 3 and 3 x 3.
    names = [n for n in crossed("wxyz", "abcd") if n not in ("z+c", "z+d")]
    (matrix,) = matrices_of(systems(*names))
    assert (matrix.writers, matrix.artists) == (("w", "x", "y"), ("a", "b", "c", "d"))
    assert matrix.left_aside == ("z+a", "z+b")


def test_two_by_two_is_taken_before_a_longer_row():
    (matrix,) = matrices_of(systems(*crossed("x", "abcdefg"), "y+c", "y+b"))
    assert (matrix.writers, matrix.artists) == (("x", "y"), ("b", "c"))
    assert len(matrix.left_aside) == 5


def test_columns_that_two_rows_share_are_found():
    names = ["x+a", "x+b", "x+c", "y+b", "y+c", "y+d"]
    (matrix,) = matrices_of(systems(*names))
    assert (matrix.writers, matrix.artists) == (("x", "y"), ("b", "c"))


def test_single_rows_and_columns_are_matrices_and_single_cells_are_not():
    assert matrices_of(systems("x+a", "anole")) == []
    assert matrices_of(systems("x+a", "y+b")) == []
    for names in (["x+a", "x+b"], ["x+a", "y+a"]):
        (matrix,) = matrices_of(systems(*names))
        assert len(matrix.cells) == 2
        assert not matrix.is_crossed

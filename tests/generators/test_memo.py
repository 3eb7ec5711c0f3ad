"""What is computed, and what is remembered."""

from plait.generators.memo import Memo


def test_the_latest_results_are_remembered_and_the_others_computed_in_groups():
    calls: list[list[int]] = []

    def doubled(values: list[int]) -> list[int]:
        calls.append(values)
        return [2 * value for value in values]

    memo = Memo(doubled, group=2, size=12, size_of=lambda result: result)
    assert memo({"a": 1, "b": 2, "c": 3}) == {"a": 2, "b": 4, "c": 6}
    assert calls == [[1, 2], [3]]
    memo({"a": 1})
    assert memo({"c": 3, "d": 2}) == {"c": 6, "d": 4}
    assert calls[2:] == [[2]]
    assert memo({"a": 1, "b": 1}) == {"a": 2, "b": 2}
    assert calls[3:] == [[1]], "used less lately than the others"
    assert memo({"e": 50}) == {"e": 100}, "larger than the room: given and forgotten"
    assert memo({"e": 50, "c": 3}) == {"e": 100, "c": 6}
    assert calls[4:] == [[50], [50, 3]]

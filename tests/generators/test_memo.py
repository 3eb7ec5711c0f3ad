"""What is computed, and what is remembered."""

from generators.memo import Memo


def counting(group: int, size: int, **options):
    calls: list[list[int]] = []

    def doubled(values: list[int]) -> list[int]:
        calls.append(values)
        return [2 * value for value in values]

    return Memo(doubled, group, size, **options), calls


def test_the_latest_results_are_remembered_and_the_others_computed_in_groups():
    memo, calls = counting(group=2, size=3)
    assert memo({"a": 1, "b": 2, "c": 3}) == {"a": 2, "b": 4, "c": 6}
    assert calls == [[1, 2], [3]]
    memo({"a": 1})
    assert memo({"c": 3, "d": 4}) == {"c": 6, "d": 8}
    assert calls[2:] == [[4]]
    assert memo({"a": 1, "b": 2}) == {"a": 2, "b": 4}
    assert calls[3:] == [[2]], "used less lately than the others"


def test_results_larger_than_the_room_are_given_and_forgotten():
    memo, calls = counting(group=9, size=10, size_of=lambda result: result)
    assert memo({"a": 2, "b": 4}) == {"a": 4, "b": 8}
    assert memo({"b": 4}) == {"b": 8}
    assert calls == [[2, 4]], "4 + 8 do not fit, 8 does"
    assert memo({"c": 50, "d": 60}) == {"c": 100, "d": 120}
    assert memo({"b": 4, "d": 1}) == {"b": 8, "d": 2}
    assert calls[-1] == [4, 1]
    memo({"b": 4, "d": 1})
    assert calls[-1] == [4, 1], "the room that was given back is there again"

"""Which jobs are expected, of what walks have asked for so far."""

from __future__ import annotations

from plait.cluster.outlook import Outlook

FEEDERS = {"write": (), "draw": ("write",), "judge": ("write", "draw")}


def open_walks(outlook: Outlook, walks: int, *, alike: int = 1) -> None:
    """Walks that ask for a text, the same for `alike` of them."""
    for number in range(walks):
        outlook.open_walk()
        outlook.ask("write", 1, is_new=number % alike == 0)


def test_before_any_answer_each_record_is_expected_to_ask_once_of_what_it_feeds() -> None:
    outlook = Outlook(FEEDERS, walks=8)
    open_walks(outlook, 8, alike=2)
    ahead = outlook.look()
    # Four texts feed drawings and judgements, and four drawings feed judgements.
    assert ahead.jobs == {"draw": 4, "judge": 8}
    assert ahead.sources == {"draw": {"write": 4}, "judge": {"write": 4, "draw": 4}}


def test_what_followed_is_expected_of_what_is_awaited_and_of_walks_not_open_yet() -> None:
    outlook = Outlook(FEEDERS, walks=40)
    open_walks(outlook, 20)
    for number in range(10):
        outlook.answer("write", 1, is_first=True)
        if number < 5:
            outlook.ask("draw", 2, is_new=True)
    # Half of the 10 texts to come, and of the 20 walks to be opened, ask for a drawing;
    # five drawings wait, which nobody has made yet: each may be judged.
    ahead = outlook.look()
    assert ahead.jobs == {"write": 20, "draw": 15, "judge": 20}
    outlook.answer("draw", 2, is_first=True)
    outlook.ask("judge", 3, is_new=True)
    outlook.ask("judge", 3, is_new=False)
    assert outlook.look().jobs == {"write": 20, "draw": 15, "judge": 19}


def test_a_stage_that_judges_what_it_feeds_expects_no_end_of_itself() -> None:
    feeders = {"write": ("draw",), "draw": ("write",)}
    outlook = Outlook(feeders, walks=2)
    open_walks(outlook, 2)
    for _ in range(2):
        outlook.answer("write", 1, is_first=True)
        outlook.ask("draw", 2, is_new=True)
        outlook.answer("draw", 2, is_first=True)
        outlook.ask("write", 3, is_new=True)
    assert outlook.look().jobs == {}

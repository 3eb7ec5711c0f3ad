"""The README at the root: its map of the source is true."""

from __future__ import annotations

import re

from blocks import README, blocks
from paths import CHECKOUT


def test_the_rooms_exist() -> None:
    (tree,) = blocks("", pages=[README])
    for line in tree.text.splitlines():
        room = line.partition(" ")[0]
        assert (CHECKOUT / room).exists(), room
        for inner in re.findall(r"([a-z0-9]+/)", line.partition(" ")[2]):
            assert (CHECKOUT / room / inner).is_dir(), inner

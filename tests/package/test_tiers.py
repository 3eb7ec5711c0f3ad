"""The tests themselves: who runs which of them."""

from __future__ import annotations

import pytest


def test_tests_of_one_file_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """pytest-xdist reads the group from the name; where it is not there, nothing is said.

    Each process would then build the fixtures of every module, and lanes would not hold.
    """
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("needs --dist loadgroup, as make has it")
    assert request.node.nodeid.endswith(f"@{request.path}")

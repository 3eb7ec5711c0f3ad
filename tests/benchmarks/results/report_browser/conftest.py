"""A browser on a desktop's screen, and a report of twelve queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_helpers import browser
from report_browser_helpers import by_hand
from report_helpers import (
    MANIFEST,
    at_hand,
)

from benchmarks.results.report import write_report


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(autouse=True)
def desktop(chromium):
    chromium.screen(1400, 1000)
    chromium.media("light")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write_report(by_hand(), tmp_path_factory.mktemp("run"), MANIFEST, at_hand)

"""What tests of servers that draw share."""

import pytest
from drawing_servers import serving_pictures
from endpoint_helpers import KEY


@pytest.fixture(autouse=True)
def _keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)


@pytest.fixture
def server():
    """A server that draws; files about other servers make their own."""
    with serving_pictures() as running:
        yield running

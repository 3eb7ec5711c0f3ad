"""What tests of servers that draw share."""

import pytest
from drawing_servers import serving_pictures
from endpoint_helpers import KEY


@pytest.fixture
def server(monkeypatch):
    """A server that draws; files about other servers make their own."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    with serving_pictures() as running:
        yield running

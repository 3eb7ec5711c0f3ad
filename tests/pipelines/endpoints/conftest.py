"""What tests of servers share."""

import pytest
from endpoint_apis import CHAT_IMAGES
from endpoint_helpers import KEY, serving


@pytest.fixture(autouse=True)
def _keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)


@pytest.fixture
def api():
    """The API that `server` speaks, by default the chat API with images."""
    return CHAT_IMAGES


@pytest.fixture
def server(api):
    with serving(api.reply) as running:
        yield running

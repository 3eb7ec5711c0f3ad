"""What tests of servers share."""

import pytest
from endpoint_apis import any_of
from endpoint_helpers import KEY, serving


@pytest.fixture(autouse=True)
def _keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)


@pytest.fixture
def server():
    """A server that answers by the API it is asked by."""
    with serving(any_of) as running:
        yield running

"""Proxies and certificates of the environment: used where they apply, and named."""

import httpx2
import pytest
from endpoint_helpers import MODEL, QUICK, Answer, completion, says, serving

from plait.generators.base import Result
from plait.pipelines.chat.settings import EndpointSettings
from plait.pipelines.endpoints.chat import ChatEndpoint
from plait.pipelines.endpoints.errors import EndpointError, certificates, remedy
from plait.pipelines.endpoints.proxies import proxy_of, show_proxy

pytestmark = pytest.mark.contract

DEAD = "http://127.0.0.1:9"
LAB = "http://model.lab:8000/v1"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    certificates.cache_clear()
    yield
    certificates.cache_clear()


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        (LAB, {}, None),
        (LAB, {"HTTP_PROXY": DEAD}, DEAD),
        (LAB, {"http_proxy": "proxy.lab:3128"}, "http://proxy.lab:3128"),
        (LAB, {"HTTPS_PROXY": DEAD}, None),
        (LAB, {"ALL_PROXY": DEAD}, DEAD),
        ("https://api.openai.com/v1", {"HTTPS_PROXY": DEAD}, DEAD),
        (LAB, {"HTTP_PROXY": DEAD, "NO_PROXY": "model.lab"}, None),
        (LAB, {"HTTP_PROXY": DEAD, "NO_PROXY": ".lab"}, None),
        (LAB, {"HTTP_PROXY": DEAD, "NO_PROXY": "*"}, None),
        (LAB, {"HTTP_PROXY": DEAD, "NO_PROXY": "other"}, DEAD),
        ("http://10.1.2.3/v1", {"HTTP_PROXY": DEAD, "NO_PROXY": "a, 10.0.0.0/8"}, None),
        ("http://11.1.2.3/v1", {"HTTP_PROXY": DEAD, "NO_PROXY": "10.0.0.0/8"}, DEAD),
        ("http://127.0.0.1:8000/v1", {"HTTP_PROXY": DEAD}, None),
        ("http://localhost:8000/v1", {"ALL_PROXY": DEAD}, None),
        ("http://[::1]:8000/v1", {"HTTP_PROXY": DEAD}, None),
        ("http://0.0.0.0:8000/v1", {"HTTP_PROXY": DEAD}, None),
        ("http://lab:8000/v1", {"HTTP_PROXY": DEAD, "NO_PROXY": "a, lab:8000"}, None),
        ("http://lab:8001/v1", {"HTTP_PROXY": DEAD, "NO_PROXY": "lab:8000"}, DEAD),
        ("http://lab:8000/v1", {"HTTP_PROXY": " "}, None),
    ],
)
def test_the_proxy_of_a_url(monkeypatch, url, environ, proxy):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(url) == proxy


def test_a_proxy_is_shown_without_its_password():
    assert show_proxy("http://me:secret@proxy.lab:3128") == "http://proxy.lab:3128"


def endpoint(url, **settings):
    return ChatEndpoint(model=MODEL, base_url=url, **QUICK | settings)


def test_this_machine_is_asked_without_a_proxy(monkeypatch, server):
    monkeypatch.setenv("HTTP_PROXY", DEAD)
    stage = endpoint(server.url)
    try:
        (outcome,) = stage([says("hello")])
    finally:
        stage.close()
    assert isinstance(outcome, Result)


@pytest.mark.parametrize("status", [403, 503])
def test_a_proxy_is_named_beside_what_it_may_have_answered(monkeypatch, status):
    with serving() as proxy:
        proxy.preflight = lambda _: Answer(b"<html>Squid: access denied</html>", status)
        address = proxy.root
        monkeypatch.setenv("HTTP_PROXY", address.replace("http://", "http://me:secret@"))
        with pytest.raises(EndpointError) as refused:
            endpoint(LAB)
    said = str(refused.value)
    assert f"the proxy {address}" in said
    assert "NO_PROXY=model.lab" in said
    assert "secret" not in said


@pytest.mark.parametrize("proxy", ["gopher://proxy.lab", "http://proxy.lab:port"])
def test_a_proxy_that_cannot_be_used_is_named(monkeypatch, proxy):
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(EndpointError, match=proxy):
        endpoint(LAB)


@pytest.mark.parametrize("port", ["0", "99999", "port"])
def test_a_port_that_cannot_be_is_refused(port):
    with pytest.raises(ValueError, match=r"(?i)port"):
        endpoint(f"http://model.lab:{port}/v1")


def test_certificates_that_cannot_be_read_are_named(monkeypatch, tmp_path, server):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "no.pem"))
    with pytest.raises(EndpointError, match=r"SSL_CERT_FILE=.*no\.pem"):
        endpoint("https://127.0.0.1:1/v1")
    server.script = lambda body: Answer(completion("fine"))
    endpoint(server.url).close()


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "SSL_CERT_FILE"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "http://"),
        ("Connection refused", "base_url"),
    ],
)
def test_what_to_do_about_a_connection(said, advice):
    settings = EndpointSettings(model=MODEL, base_url=LAB)
    assert advice in remedy(httpx2.ConnectError(said), settings, has_key=True)

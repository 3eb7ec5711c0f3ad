"""Images that replies hold or name: what is read, from where, and how much of it."""

import asyncio
import base64
import gzip
import socket

import pytest
from endpoint_apis import RED, picture, url_of
from endpoint_helpers import MODEL, Answer, serving
from picture_helpers import png_header

from plait.pipelines.endpoints import media
from plait.pipelines.endpoints.media import (
    Media,
    MediaError,
    MediaReader,
    decode_embedded,
    image_of,
)
from plait.pipelines.endpoints.settings import ChatImagesSettings

pytestmark = pytest.mark.contract


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(media, "_PAUSE_S", 0.01)
    with serving() as running:
        running.get = lambda path: Answer(RED.read())
        yield running


def read(source, hosts=(), timeout_s=60.0, **about):
    return asyncio.run(MediaReader(hosts, timeout_s).read(Media(source, **about)))


@pytest.mark.parametrize(
    "source",
    [
        url_of(RED),
        url_of(RED).replace("data:image/png;", "DATA:image/png;charset=utf-8;"),
        url_of(RED, "application/octet-stream"),
        base64.b64encode(RED.read()).decode(),
        base64.encodebytes(RED.read()).decode(),
        base64.b64encode(RED.read()).decode().rstrip("="),
        "data:image/png," + "".join(f"%{byte:02x}" for byte in RED.read()),
    ],
)
def test_data_urls_and_base64_are_read(source):
    assert read(source) == RED


@pytest.mark.parametrize(
    ("source", "about", "words"),
    [
        ("data:image/png;base64", {}, "comma"),
        ("data:audio/wav;base64,AAAA", {}, "audio/wav"),
        ("data:text/html,<b>", {}, "text/html"),
        (base64.b64encode(RED.read()).decode(), {"mime": "audio/wav"}, "audio/wav"),
        ("data:image/png;base64,@@@@", {}, "base64"),
        ("data:image/png;base64,", {}, "no bytes"),
        ("file:///etc/passwd", {}, "neither a data URL"),
        ("blob:https://x/y", {}, "neither a data URL"),
        (url_of(b"plain text"), {}, "format"),
        (url_of(png_header(20_000, 20_000)), {}, "pixels"),
        (url_of(RED), {"sha256": "0" * 64}, "SHA-256"),
        pytest.param("A" * 100_000_000, {}, "64 MiB", id="too long"),
    ],
)
def test_what_cannot_be_read_says_why(source, about, words):
    with pytest.raises(MediaError, match=words):
        read(source, **about)


def test_too_much_is_refused_before_it_is_decoded(monkeypatch):
    assert read(url_of(RED), sha256=RED.digest.upper()) == RED
    monkeypatch.setattr(media, "MAX_IMAGE_BYTES", 10)
    with pytest.raises(MediaError, match="more than"):
        image_of(RED.read())
    monkeypatch.setattr(base64, "b64decode", None)
    with pytest.raises(MediaError, match="more than"):
        decode_embedded(Media("A" * 70_000))


def test_formats_that_pages_cannot_show_are_encoded_again():
    assert image_of(picture("red", kind="BMP").read()).read().startswith(b"\x89PNG")
    webp = picture("red", kind="WEBP")
    assert image_of(webp.read()) == webp


# Fetching


def test_nothing_is_fetched_unless_its_host_is_listed(server):
    url = f"{server.root}/a.png"
    with pytest.raises(MediaError, match=r"127.0.0.1.*image_hosts"):
        read(url)
    assert server.paths == []
    assert read(url, ["127.0.0.1"]) == RED
    assert read(url, ["127.0.0.0/8"]) == RED
    assert read(url.replace("127.0.0.1", "localhost"), ["localhost"]) == RED
    assert server.paths == ["/a.png"] * 3


def resolving_to(monkeypatch, *addresses):
    asked = []

    async def getaddrinfo(self, host, port, **options):
        asked.append(host)
        kind = [socket.AF_INET6 if ":" in a else socket.AF_INET for a in addresses]
        return [(k, 1, 6, "", (a, port)) for k, a in zip(kind, addresses, strict=True)]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.7", "169.254.169.254", "192.168.1.1", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "::1", "fe80::1", "fd00::1", "::ffff:127.0.0.1"),
        *("64:ff9b::a9fe:a9fe", "2002:7f00:1::"),
    ],
)
def test_a_listed_name_that_leads_inside_is_refused(monkeypatch, address):
    asked = resolving_to(monkeypatch, address)
    with pytest.raises(MediaError, match="private address"):
        read("http://cdn.example.com/a.png", ["cdn.example.com"])
    assert asked == ["cdn.example.com"]


def test_the_address_that_was_checked_is_the_one_connected_to(server, monkeypatch):
    """A name that resolves to another address the second time cannot lead elsewhere."""
    asked = resolving_to(monkeypatch, "10.9.9.9", "127.0.0.1")
    url = server.root.replace("127.0.0.1", "cdn.example.com")
    assert read(f"{url}/a.png?signature=1", ["*.example.com", "127.0.0.1"]) == RED
    assert asked == ["cdn.example.com"]
    assert server.paths == ["/a.png?signature=1"]


@pytest.mark.parametrize(
    "place",
    [
        *("user:pass@127.0.0.1", "", "127.0.0.1:99999", "2130706433", "127.1", "[::1]"),
        *("example.com.evil.org", "evil-example.com"),
    ],
)
def test_urls_that_break_a_rule_are_refused(place):
    with pytest.raises(MediaError, match=r"valid (http|URL)|not fetched from"):
        read(f"http://{place}/a.png", ["127.0.0.1", "example.com", "*.example.com"])


def test_redirects_are_followed_a_little_and_checked_again(server):
    def redirecting(*targets):
        steps = iter(targets)
        server.get = lambda path: (
            Answer(b"", 302, {"location": target})
            if (target := next(steps, None))
            else Answer(RED.read())
        )

    redirecting("/b", f"{server.root}/c")
    assert read(f"{server.root}/a", ["127.0.0.1"]) == RED
    with serving() as inside:
        place = inside.url.replace("127.0.0.1", "127.0.0.2")
        for targets, words in (
            (["/b"] * 9, "3 redirects"),
            (["file:///etc/passwd"], "not a valid http"),
            ([f"{place}/admin"], "127.0.0.2"),
        ):
            redirecting(*targets)
            with pytest.raises(MediaError, match=words):
                read(f"{server.root}/a", ["127.0.0.1"])
        assert inside.paths == []


def test_what_is_not_there_is_asked_for_once_and_what_may_pass_again(server):
    for status in (404, 403):
        server.paths.clear()
        server.get = lambda path, status=status: Answer(b"gone", status)
        with pytest.raises(MediaError, match=f"HTTP {status}") as caught:
            read(f"{server.root}/a.png?sig=SECRET", ["127.0.0.1"])
        assert "SECRET" not in str(caught.value)
        assert len(server.paths) == 1
    answers = [Answer(b"", 503), Answer(how="drop"), Answer(RED.read())]
    server.get = lambda path: answers.pop(0)
    assert read(f"{server.root}/a", ["127.0.0.1"]) == RED
    server.get = lambda path: Answer(b"<html>log in</html>")
    with pytest.raises(MediaError, match="format"):
        read(f"{server.root}/a", ["127.0.0.1"])


@pytest.mark.parametrize("how", ["stall", "headers", "drip"])
def test_a_host_that_stalls_is_given_up(server, how):
    server.get = lambda path: Answer(bytes(4000), how=how)
    with pytest.raises(MediaError, match=r"0.2 s"):
        read(f"{server.root}/a", ["127.0.0.1"], timeout_s=0.2)


def test_a_huge_file_is_not_read_to_its_end(server, monkeypatch):
    monkeypatch.setattr(media, "MAX_IMAGE_BYTES", 100_000)
    data = bytes(3_000_000)
    packed = Answer(gzip.compress(data), headers={"content-encoding": "gzip"})
    for answer in (Answer(data), packed):
        server.get = lambda path, answer=answer: answer
        with pytest.raises(MediaError, match="more than"):
            read(f"{server.root}/a", ["127.0.0.1"])


def test_hosts_of_every_form_are_taken_and_do_not_change_keys():
    def hosted(*hosts):
        return ChatImagesSettings(model=MODEL, image_hosts=hosts).spec("x", "tiny").digest

    assert hosted("a.org", "*.a.org", "10.0.0.0/8", "::1", "fd00::/8") == hosted()
    for host in ("http://a.org", "a.org:80", "*", "*.*.org", ""):
        with pytest.raises(ValueError, match="valid host"):
            hosted(host)

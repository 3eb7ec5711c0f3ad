"""Pictures that replies hold or name: what is read, from where, and how much of it."""

import asyncio
import base64
import gzip
import hashlib
import io
import socket
import struct
import zlib

import pytest
from drawing_servers import (
    RED,
    ask_once,
    picture,
    serving_pictures,
    shown,
    url_of,
    url_part,
)
from endpoint_helpers import MODEL, Answer, completion, serving
from PIL import Image as Pillow

from generators.base import Failure, Fault
from pipelines.endpoints import media
from pipelines.endpoints.media import (
    Media,
    MediaError,
    MediaReader,
    PictureFetcher,
    embedded,
    picture_of,
)
from pipelines.endpoints.settings import ChatImagesSettings


@pytest.fixture
def server():
    with serving_pictures() as running:
        running.get = lambda path: Answer(RED.data, headers={"content-type": "image/png"})
        yield running


def read(source, hosts=(), **about):
    return asyncio.run(MediaReader(hosts).read(Media(source, **about)))


def bomb():
    """A PNG that says it has 20,000 x 20,000 pixels."""

    def chunk(name, data):
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data)


@pytest.mark.parametrize(
    "source",
    [
        url_of(RED),
        url_of(RED).replace("data:image/png;", "DATA:image/png;charset=utf-8;"),
        url_of(RED, "application/octet-stream"),
        base64.b64encode(RED.data).decode(),
        base64.encodebytes(RED.data).decode(),
        base64.b64encode(RED.data).decode().rstrip("="),
        "data:image/png," + "".join(f"%{byte:02x}" for byte in RED.data),
    ],
)
def test_data_urls_and_base64_are_read(source):
    assert read(source).read() == RED.data


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("data:image/png;base64", "no comma"),
        ("data:audio/wav;base64,AAAA", "'audio/wav' are not a picture"),
        ("data:text/html,<b>", "'text/html' are not a picture"),
        ("data:image/png;base64,@@@@", "not valid base64"),
        ("data:image/png;base64,", "no bytes"),
        ("file:///etc/passwd", "neither a data URL nor an http"),
        ("blob:https://x/y", "neither a data URL nor an http"),
        (url_of(b"plain text"), "no known picture format"),
        (url_of(bomb()), "pixels; at most"),
    ],
)
def test_what_cannot_be_read_says_why(source, words):
    with pytest.raises(MediaError, match=words):
        read(source)


def test_a_picture_of_another_digest_is_refused():
    digest = hashlib.sha256(RED.data).hexdigest()
    assert read(url_of(RED), sha256=digest.upper()).digest == RED.digest
    with pytest.raises(MediaError, match="SHA-256"):
        read(url_of(RED), sha256="0" * 64)


def test_a_media_type_beside_base64_is_minded():
    with pytest.raises(MediaError, match="audio/wav"):
        read(base64.b64encode(RED.data).decode(), mime="audio/wav")


def test_a_hundred_megabytes_of_base64_are_refused_before_they_are_decoded(monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("it was decoded")

    monkeypatch.setattr(base64, "b64decode", never)
    with pytest.raises(MediaError, match="more than 64 MiB"):
        embedded(Media("A" * 100_000_000))


def test_bytes_beyond_the_limit_are_refused(monkeypatch):
    monkeypatch.setattr(media, "MAX_PICTURE_BYTES", 10)
    with pytest.raises(MediaError, match="more than"):
        picture_of(RED.read())


def test_formats_that_pages_cannot_show_are_encoded_again():
    image = picture_of(picture("red", kind="BMP").read())
    with Pillow.open(io.BytesIO(image.read())) as shown_picture:
        assert shown_picture.format == "PNG"
    webp = picture("red", kind="WEBP")
    assert picture_of(webp.read()) == webp


# Fetching


def test_nothing_is_fetched_unless_its_host_is_listed(server):
    url = f"{server.root}/a.png"
    with pytest.raises(MediaError, match=r"not fetched from '127.0.0.1'; list the host"):
        read(url)
    assert server.paths == []
    assert read(url, ["127.0.0.1"]).read() == RED.data
    assert read(url, ["127.0.0.0/8"]).read() == RED.data
    assert read(url.replace("127.0.0.1", "localhost"), ["localhost"]).read() == RED.data
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
        "127.0.0.1",
        "10.0.0.7",
        "169.254.169.254",
        "192.168.1.1",
        "0.0.0.0",
        "100.64.0.1",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
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
    image = read(f"{url}/a.png?signature=1", ["*.example.com", "127.0.0.1"])
    assert image.read() == RED.data
    assert asked == ["cdn.example.com"]
    assert server.paths == ["/a.png?signature=1"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://user:pass@127.0.0.1/a.png", "not a valid http"),
        ("http:///a.png", "not a valid http"),
        ("http://127.0.0.1:99999/a.png", "not a valid URL"),
        ("http://2130706433/a.png", "not fetched from"),
        ("http://127.1/a.png", "not fetched from"),
        ("http://[::1]/a.png", "not fetched from"),
        ("http://example.com.evil.org/a.png", "not fetched from"),
        ("http://evil-example.com/a.png", "not fetched from"),
    ],
)
def test_urls_that_break_a_rule_are_refused(url, words):
    with pytest.raises(MediaError, match=words):
        read(url, ["127.0.0.1", "example.com", "*.example.com"])


def redirecting(server, *targets):
    steps = iter(targets)

    def get(path):
        target = next(steps, None)
        if target is None:
            return Answer(RED.data)
        return Answer(b"", 302, {"location": target})

    server.get = get


def test_redirects_are_followed_a_little_and_checked_again(server):
    redirecting(server, "/b", f"{server.root}/c")
    assert read(f"{server.root}/a", ["127.0.0.1"]).read() == RED.data
    redirecting(server, *["/b"] * 9)
    with pytest.raises(MediaError, match="more than 3 redirects"):
        read(f"{server.root}/a", ["127.0.0.1"])
    redirecting(server, "file:///etc/passwd")
    with pytest.raises(MediaError, match="not a valid http"):
        read(f"{server.root}/a", ["127.0.0.1"])


def test_a_redirect_into_the_users_network_is_refused(server):
    with serving() as inside:
        inside_url = inside.url.replace("127.0.0.1", "127.0.0.2")
        redirecting(server, f"{inside_url}/admin")
        with pytest.raises(MediaError, match=r"not fetched from '127.0.0.2'"):
            read(f"{server.root}/a", ["127.0.0.1"])
        assert inside.bodies == []


@pytest.mark.parametrize("status", [404, 403])
def test_a_picture_that_is_not_there_is_asked_for_once(server, status):
    server.get = lambda path: Answer(b"gone", status)
    with pytest.raises(MediaError, match=f"HTTP {status}"):
        read(f"{server.root}/a", ["127.0.0.1"])
    assert len(server.paths) == 1


def test_a_fault_that_passes_is_tried_again(server, monkeypatch):
    monkeypatch.setattr(media, "_PAUSE_S", 0.01)
    answers = [Answer(b"", 503), Answer(how="drop"), Answer(RED.data)]
    server.get = lambda path: answers.pop(0)
    assert read(f"{server.root}/a", ["127.0.0.1"]).read() == RED.data


@pytest.mark.parametrize("how", ["stall", "headers", "drip"])
def test_a_host_that_stalls_is_given_up(server, how, monkeypatch):
    monkeypatch.setattr(media, "_PAUSE_S", 0.01)
    server.get = lambda path: Answer(bytes(4000), how=how)
    fetcher = PictureFetcher(["127.0.0.1"], timeout_s=0.3)
    with pytest.raises(MediaError, match=r"no picture in 0.3 s"):
        asyncio.run(fetcher.fetch(f"{server.root}/a"))


@pytest.mark.parametrize("packed", [False, True])
def test_a_huge_file_is_not_read_to_its_end(server, monkeypatch, packed):
    monkeypatch.setattr(media, "MAX_PICTURE_BYTES", 100_000)
    data = bytes(10_000_000)
    headers = {"content-encoding": "gzip"} if packed else {}
    body = gzip.compress(data) if packed else data
    server.get = lambda path: Answer(body, headers=headers)
    with pytest.raises(MediaError, match="more than"):
        read(f"{server.root}/a", ["127.0.0.1"])


def test_a_page_of_html_is_no_picture(server):
    server.get = lambda path: Answer(b"<html>log in</html>")
    with pytest.raises(MediaError, match="no known picture format"):
        read(f"{server.root}/a", ["127.0.0.1"])


def test_signatures_of_urls_are_not_in_reasons(server):
    server.get = lambda path: Answer(b"", 403)
    with pytest.raises(MediaError) as caught:
        read(f"{server.root}/a.png?sig=SECRET", ["127.0.0.1"])
    assert "SECRET" not in str(caught.value)


def test_a_reply_that_names_its_picture_needs_the_host_to_be_allowed(server):
    url = f"{server.root}/a.png"
    server.answering(completion([{"type": "text", "text": "a"}, url_part(url)]))
    failure = ask_once(server, "chat-images")
    assert isinstance(failure, Failure)
    assert failure.fault is Fault.ENDPOINT
    assert "list the host in image_hosts" in failure.reason
    result = ask_once(server, "chat-images", image_hosts=["127.0.0.1"])
    assert shown(result) == ["a", "RED"]


def test_allowed_hosts_do_not_change_results_keys():
    one = ChatImagesSettings(model=MODEL).spec("x", "tiny")
    other = ChatImagesSettings(model=MODEL, image_hosts=("a.org",)).spec("x", "tiny")
    assert one.digest == other.digest


@pytest.mark.parametrize("host", ["http://a.org", "a.org:80", "*", "*.*.org", ""])
def test_hosts_that_are_none_are_refused(host):
    with pytest.raises(ValueError, match="not a valid host"):
        ChatImagesSettings(model=MODEL, image_hosts=(host,))


@pytest.mark.parametrize("host", ["a.org", "*.a.org", "10.0.0.0/8", "::1", "fd00::/8"])
def test_hosts_of_every_form_are_taken(host):
    assert ChatImagesSettings(model=MODEL, image_hosts=(host,)).image_hosts == (host,)

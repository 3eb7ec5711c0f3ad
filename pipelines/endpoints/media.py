"""Images in replies: data URLs, base64, and URLs, under the limits of any image.

A reply is text of a model, so its URLs may point anywhere: at services of the user's own
network, too. Each host, also of a redirect, must be listed by the user; its addresses are
resolved here, and the connection goes to the very address that was checked.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from urllib.parse import SplitResult, unquote_to_bytes, urljoin, urlsplit

import httpx2
from PIL import Image as Pillow

from plait.generators.document import Image
from plait.generators.images import ImageError, decode, encode
from plait.generators.unicode import trouble
from plait.pipelines.endpoints.errors import ReplyTooLarge, certificates, read_bounded

MAX_IMAGE_BYTES = 64 << 20
"""Longer encoded images are refused."""

_STORED = ("JPEG", "PNG", "WEBP")
_SHOWN = 80
_SPACE = re.compile(r"\s+")
_MOST_REDIRECTS = 3
_ATTEMPTS = 3
_PAUSE_S = 0.5
_LOOPBACK = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1/128")))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class MediaError(ValueError):
    """An image of a reply cannot be read; the message says why."""


class UnreachableImage(MediaError):
    """An image that cannot be fetched now, but perhaps a moment later."""


@dataclass(frozen=True, slots=True)
class Media:
    """An image as a reply holds it."""

    source: str = field(repr=False)
    """A data URL, an http(s) URL, or bare base64."""
    mime: str | None = field(default=None, compare=False)
    """Media type, where it stands beside the source."""
    sha256: str | None = field(default=None, compare=False)
    """Digest of the bytes, where the server gives it."""

    @property
    def is_remote(self) -> bool:
        """Whether its bytes are still to be fetched."""
        return urlsplit(self.source[:16]).scheme.lower() in ("http", "https")

    @property
    def shown(self) -> str:
        """Its start, for people."""
        return repr(_brief_url(self.source)[:_SHOWN])


def decode_embedded(media: Media) -> bytes:
    """Return the bytes that a data URL or base64 holds; MediaError."""
    source = media.source
    mime = media.mime
    if source[:5].lower() == "data:":
        head, comma, source = source[5:].partition(",")
        if not comma:
            raise MediaError(f"{media.shown} is not a valid data URL: it has no comma")
        mime, *parameters = head.lower().split(";")
        _refuse_other_media(mime)
        if "base64" not in parameters:
            return unquote_to_bytes(source)
    elif ":" in source[:16]:
        raise MediaError(f"{media.shown} is neither a data URL nor an http(s) URL")
    else:
        _refuse_other_media(mime)
    return _from_base64(source)


def _refuse_other_media(mime: str | None) -> None:
    # Servers that do not know better say octet-stream.
    if mime and not mime.startswith("image/") and mime != "application/octet-stream":
        raise MediaError(f"media of type {mime!r} are not an image")


def _from_base64(text: str) -> bytes:
    if len(text) > MAX_IMAGE_BYTES * 4 // 3 + (1 << 16):
        raise MediaError(_too_long())
    text = _SPACE.sub("", text)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise MediaError(f"an image is not valid base64: {error}") from None


def image_of(data: bytes, sha256: str | None = None) -> Image:
    """Return the bytes as an image; MediaError where they are not one.

    Formats that records and pages show are kept unchanged, all others become PNG.
    """
    if not data:
        raise MediaError("an image has no bytes")
    if len(data) > MAX_IMAGE_BYTES:
        raise MediaError(_too_long())
    if sha256 and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise MediaError("an image's bytes do not have the SHA-256 that the server gives")
    try:
        pixels = decode(data)
    except ImageError as error:
        raise MediaError(str(error)) from None
    with Pillow.open(io.BytesIO(data)) as image:
        return Image.of(data) if image.format in _STORED else encode(pixels)


def _too_long() -> str:
    return f"an image has more than {MAX_IMAGE_BYTES >> 20} MiB"


def networks_of(host: str) -> tuple[Network, ...]:
    """Return the network of an address, of `ADDRESS/BITS` or of `localhost`."""
    if host.lower() == "localhost":
        return _LOOPBACK
    try:
        return (ipaddress.ip_network(host.strip("[]"), strict=False),)
    except ValueError:
        return ()


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
    return address.is_global and not address.is_multicast


def _brief_url(url: str) -> str:
    """Return the start of a URL without its query, which may hold a signature."""
    return url.partition("?")[0][:120]


class MediaReader:
    """Reads the images of replies, wherever a reply puts them.

    Those named by URL are fetched from `hosts`: `NAME`, `*.DOMAIN`, an address or a
    network. A name stands for public addresses only. A private, loopback or link-local
    address must be listed itself, so that no name can be turned against the user's network.
    """

    def __init__(self, hosts: Sequence[str] = (), timeout_s: float = 60.0) -> None:
        self._names = frozenset(host.lower() for host in hosts)
        self._networks = list(chain.from_iterable(map(networks_of, hosts)))
        self._timeout_s = timeout_s

    async def read(self, media: Media) -> Image:
        """Return the image; MediaError. Decoding does not hold up other replies."""
        if not media.source.isascii() and (wrong := trouble(media.source)) is not None:
            raise MediaError(f"an image's data or address has {wrong}")
        if media.is_remote:
            data = await self._fetch(media.source)
        else:
            data = await asyncio.to_thread(decode_embedded, media)
        return await asyncio.to_thread(image_of, data, media.sha256)

    async def _fetch(self, url: str) -> bytes:
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._attempt(url)
            except UnreachableImage:
                await asyncio.sleep(_PAUSE_S)
        return await self._attempt(url)

    async def _attempt(self, url: str) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(url)
        except TimeoutError:
            reason = f"no image in {self._timeout_s:g} s"
            raise UnreachableImage(f"{_brief_url(url)}: {reason}") from None
        except ReplyTooLarge:
            raise MediaError(f"{_brief_url(url)}: {_too_long()}") from None
        # A UnicodeError is of a name that no resolver can be asked for.
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as error:
            reason = str(error) or type(error).__name__
            raise UnreachableImage(
                f"{_brief_url(url)} cannot be fetched: {reason}"
            ) from None

    async def _follow(self, url: str) -> bytes:
        # Proxies of the environment would resolve names themselves, unchecked. The limit is
        # that of the whole attempt.
        tls = certificates(trust_env=False)
        async with httpx2.AsyncClient(trust_env=False, verify=tls, timeout=None) as client:
            for _ in range(_MOST_REDIRECTS + 1):
                body, target = await self._one(client, url)
                if target is None:
                    return body
                url = urljoin(url, target)
        raise MediaError(f"{_brief_url(url)}: more than {_MOST_REDIRECTS} redirects")

    async def _one(self, client: httpx2.AsyncClient, url: str) -> tuple[bytes, str | None]:
        parts = self._split(url)
        host = parts.hostname or ""
        address = await self._address(host, parts.port)
        literal = f"[{address}]" if address.version == 6 else str(address)
        request = client.build_request(
            "GET",
            httpx2.URL(url).copy_with(host=literal),
            headers={"host": parts.netloc, "accept": "image/*"},
            extensions={"sni_hostname": host},
        )
        response = await client.send(request, stream=True)
        try:
            if response.has_redirect_location:
                return b"", response.headers["location"]
            if not response.is_success:
                status = response.status_code
                kind = UnreachableImage if status >= 500 else MediaError
                raise kind(f"{_brief_url(url)}: HTTP {status}")
            return await read_bounded(response, MAX_IMAGE_BYTES), None
        finally:
            await response.aclose()

    def _split(self, url: str) -> SplitResult:
        """Return the parts of a URL that may be fetched; MediaError for any other."""
        try:
            parts = urlsplit(url)
            host = (parts.hostname or "").lower()
            _ = parts.port
        except ValueError as error:
            raise MediaError(f"{_brief_url(url)} is not a valid URL: {error}") from None
        if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
            raise MediaError(f"{_brief_url(url)} is not a valid http(s) URL of an image")
        if not self._lists(host):
            raise MediaError(
                f"{_brief_url(url)}: images are not fetched from {host!r}; list the host "
                "in image_hosts to allow it"
            )
        return parts

    def _lists(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            domains = {f"*{host[i:]}" for i, c in enumerate(host) if c == "."}
            return not self._names.isdisjoint({host, *domains})
        return any(address in network for network in self._networks)

    async def _address(self, host: str, port: int | None) -> Address:
        loop = asyncio.get_running_loop()
        answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(str(a[4][0]).partition("%")[0]) for a in answers]
        for address in addresses:
            if _is_public(address) or any(address in n for n in self._networks):
                return address
        raise MediaError(
            f"{host!r} is at the private address {addresses[0]}; list the address itself "
            "in image_hosts to allow it"
        )

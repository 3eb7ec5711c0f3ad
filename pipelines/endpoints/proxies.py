"""The proxy of the environment through which a server is asked."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; None for none.

    `HTTPS_PROXY` or `HTTP_PROXY` by the URL's scheme, else `ALL_PROXY`. This machine itself
    is never asked through one, nor what `NO_PROXY` names: hosts, with a port or without,
    domains, or networks such as 10.0.0.0/8.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    named = (proxies.get(parts.scheme) or proxies.get("all") or "").strip()
    if not named or _is_this_machine(host) or _is_exempt(host, parts.port, proxies):
        return None
    return named if "://" in named else f"http://{named}"


def show_proxy(proxy: str) -> str:
    """Return a proxy's address without the name and password in it."""
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _is_exempt(host: str, port: int | None, proxies: dict[str, str]) -> bool:
    if proxy_bypass(host) or (port is not None and proxy_bypass(f"{host}:{port}")):
        return True
    address = _address(host)
    if address is None:
        return False
    return any(_contains(text, address) for text in proxies.get("no", "").split(","))


def _contains(network: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(network.strip(), strict=False)
    except ValueError:
        return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None

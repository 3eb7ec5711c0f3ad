"""Headless Chromium, driven through chromedriver's own HTTP protocol."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "chromium and chromedriver are not installed"

_SWITCHES = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    *("--disable-dev-shm-usage", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
    *("--no-default-browser-check", "--hide-scrollbars", "--window-size=1400,1000"),
]
_PATIENCE_S = 60.0
CONTRAST = """
    const often = { willReadFrequently: true };
    const canvas = document.createElement("canvas").getContext("2d", often);
    const rgba = (colour) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = (c) => c.slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const contrast = (one, other) => {
      const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    };
"""
"""For scripts: `contrast` of two colours that `rgba` has read, by WCAG."""
_CHOOSE = """
    const list = document.querySelector(arguments[0]);
    list.value = [...list.options].find((o) => o.text === arguments[1]).value;
    list.dispatchEvent(new Event("change", { bubbles: true }));
"""


class Browser:
    """One browser session."""

    def __init__(self, server: str, profile: str) -> None:
        self.path = f"{server}/session"
        options = {"binary": CHROMIUM, "args": [*_SWITCHES, f"--user-data-dir={profile}"]}
        logged = {"browser": "ALL", "performance": "ALL"}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": logged}
        session = self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self.path += f"/{session['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.path + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def close(self) -> None:
        """End the session and its browser."""
        self._ask("DELETE", "")

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Load a page, from disk or a URL, afresh; forget what was logged before."""
        address = page if isinstance(page, str) else page.as_uri()
        self._ask("POST", "/url", {"url": "about:blank"})
        self.logs("browser"), self.logs("performance")
        self._ask("POST", "/url", {"url": address + fragment})

    def close_window(self) -> None:
        """Close the window, as a user does, and open an empty one."""
        other = self._ask("POST", "/window/new", {"type": "window"})["handle"]
        self._ask("DELETE", "/window")
        self._ask("POST", "/window", {"handle": other})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script; `arguments` are its `arguments`."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": arguments})

    def wait(self, condition: str) -> Any:
        """Wait until an expression is true; AssertionError names it when it stays false."""
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            if found := self.run(f"return {condition}"):
                return found
            time.sleep(0.02)
        raise AssertionError(f"still not true: {condition}")

    def _element(self, selector: str) -> str:
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        return f"/element/{next(iter(found.values()))}"

    def click(self, selector: str) -> None:
        """Click as a user does: fails where something lies on top."""
        self._ask("POST", f"{self._element(selector)}/click")

    def type(self, selector: str, text: str) -> None:
        """Press keys in an element."""
        self._ask("POST", f"{self._element(selector)}/value", {"text": text})

    def choose(self, selector: str, label: str) -> None:
        """Pick an option of a select by what it says."""
        self.run(_CHOOSE, selector, label)

    def logs(self, kind: str) -> list[dict[str, Any]]:
        """What was logged since the last call."""
        return self._ask("POST", "/se/log", {"type": kind})

    def requests(self) -> list[str]:
        """Every address the page has asked for since the last call."""
        events = [json.loads(e["message"])["message"] for e in self.logs("performance")]
        sent = [e for e in events if e["method"] == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in sent]

    def devtools(self, command: str, **params: Any) -> Any:
        """One command of Chromium's own protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def screen(self, width: int, height: int, *, phone: bool = False) -> None:
        """Pretend to be a screen of that size, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1}
        self.devtools("Emulation.setDeviceMetricsOverride", **size, mobile=phone)

    def media(self, scheme: str, medium: str = "screen") -> None:
        """Prefer `light` or `dark`; show as `screen` or `print`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", media=medium, features=[feature])


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with an empty profile, gone with its driver at the end."""
    with tempfile.TemporaryDirectory() as profile:
        driver = subprocess.Popen(
            [str(DRIVER), "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            server = f"http://127.0.0.1:{_port(driver)}"
            with closing(Browser(server, profile)) as found:
                yield found
        finally:
            driver.terminate()
            driver.wait()


def _port(driver: subprocess.Popen[bytes]) -> str:
    for line in driver.stdout or ():
        if port := re.search(rb"started successfully on port (\d+)", line):
            return port[1].decode()
    raise AssertionError("chromedriver did not start")

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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "chromium and chromedriver are not installed"

_SWITCHES = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--window-size=1400,1000",
]
_PATIENCE_S = 10.0
CONTRAST = """
    const canvas = document.createElement("canvas").getContext("2d");
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


class Browser:
    """One browser session."""

    def __init__(self, server: str, profile: str) -> None:
        self.server = server
        options = {"binary": CHROMIUM, "args": [*_SWITCHES, f"--user-data-dir={profile}"]}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        body = {"capabilities": {"alwaysMatch": wanted}}
        self.path = "/session/" + self._ask("POST", "/session", body)["sessionId"]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.server + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def close(self) -> None:
        """End the session and its browser."""
        self._ask("DELETE", self.path)

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a page from disk afresh, and forget what was logged before."""
        self._ask("POST", f"{self.path}/url", {"url": "about:blank"})
        self.logs("browser"), self.logs("performance")
        self._ask("POST", f"{self.path}/url", {"url": page.as_uri() + fragment})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script; `arguments` are its `arguments`."""
        body = {"script": script, "args": list(arguments)}
        return self._ask("POST", f"{self.path}/execute/sync", body)

    def wait(self, condition: str) -> Any:
        """Wait until an expression is true; AssertionError names it when it stays false."""
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            if found := self.run(f"return {condition}"):
                return found
            time.sleep(0.02)
        raise AssertionError(f"still not true: {condition}")

    def _element(self, selector: str) -> str:
        how = {"using": "css selector", "value": selector}
        return next(iter(self._ask("POST", f"{self.path}/element", how).values()))

    def click(self, selector: str) -> None:
        """Click as a user does: fails where something lies on top."""
        self._ask("POST", f"{self.path}/element/{self._element(selector)}/click")

    def type(self, selector: str, text: str) -> None:
        """Press keys in an element."""
        path = f"{self.path}/element/{self._element(selector)}/value"
        self._ask("POST", path, {"text": text})

    def choose(self, selector: str, label: str) -> None:
        """Pick an option of a select by what it says."""
        script = """
            const list = document.querySelector(arguments[0]);
            const option = [...list.options].find((o) => o.text === arguments[1]);
            list.value = option.value;
            list.dispatchEvent(new Event("change", { bubbles: true }));"""
        self.run(script, selector, label)

    def logs(self, kind: str) -> list[dict[str, Any]]:
        """What was logged since the last call."""
        return self._ask("POST", f"{self.path}/se/log", {"type": kind})

    def requests(self) -> list[str]:
        """Every address the page has asked for since it was opened."""
        events = [json.loads(e["message"])["message"] for e in self.logs("performance")]
        sent = [e for e in events if e["method"] == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in sent]

    def devtools(self, command: str, **params: Any) -> Any:
        """One command of Chromium's own protocol."""
        body = {"cmd": command, "params": params}
        return self._ask("POST", f"{self.path}/goog/cdp/execute", body)

    def screen(
        self, width: int, height: int, *, scale: float = 1, phone: bool = False
    ) -> None:
        """Pretend to be a screen of that size, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
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
            [str(DRIVER), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            found = Browser(_address(driver), profile)
            try:
                yield found
            finally:
                found.close()
        finally:
            driver.terminate()
            driver.wait()


def _address(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    for line in driver.stdout:
        if port := re.search(r"started successfully on port (\d+)", line):
            return f"http://127.0.0.1:{port[1]}"
    raise AssertionError("chromedriver did not start")
